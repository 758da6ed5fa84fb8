"""A spool on its way to a host as blobs: in slices, side by side, each checked as it lands."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from typing import TYPE_CHECKING

from git_knotless.atproto.errors import BadAnswer, PayloadTooLarge
from git_knotless.errors import KnotlessError
from git_knotless.storage.packs.packrecord import PACK_MIME
from git_knotless.storage.packs.spool import Slice, Spool
from git_knotless.storage.packs.transfers import Transfers
from git_knotless.storage.progress import Meter, Progress
from git_knotless.storage.store import BlobBody, BlobRef

if TYPE_CHECKING:
    from git_knotless.storage.packs.kept import Kept

# Where a host does not say what it takes: what the largest do, halved each time it is refused.
_LIMIT_TO_TRY = 50 * 1024 * 1024
# A host that refuses even this many bytes refuses for another reason.
_LEAST_LIMIT = 64 * 1024
# One byte less moves every magic number; a host that still sees one sees it everywhere.
_MOST_CUTS = 4

Upload = Callable[[BlobBody], BlobRef]


class BlobsLost(KnotlessError):
    """The host does not keep a blob until the record that names it comes."""


class Uploads:
    """What of a spool is on the host.

    `limit` is in bytes of a blob: what `host_limit` says, asked once there is a blob to send,
    or what the host turns out to take.
    """

    def __init__(self, spool: Spool, upload: Upload, host_limit: Callable[[], int | None]) -> None:
        self._host_limit = host_limit
        self._found: int | None = None
        self._spool = spool
        self._upload = upload
        self._transfers = Transfers()
        self._begun: list[Future[list[_Landed]]] = []
        self._end = 0  # of what is begun
        self._landed: list[_Landed] = []
        self._kept: Kept | None = None
        self._noted: list[_Landed] = []  # to be kept, once there is where
        self._lock = threading.Lock()
        self._sent = 0
        self._meter: Meter | None = None

    @property
    def limit(self) -> int:
        if self._found is None:
            self._found = max(self._host_limit() or _LIMIT_TO_TRY, _LEAST_LIMIT)
        return self._found

    def begin_full(self, *, at_once: bool = True) -> None:
        """Send what is full. What may be the last slice waits: more of it may come.

        `at_once` raises what has failed; else that waits for `conclude`, and nothing more is sent.
        """
        if (failure := self._failure()) is None:
            while self._spool.size - self._end > self.limit:
                self._begin(self._end, self.limit)
        elif at_once:
            raise failure

    def conclude(self, progress: Progress) -> tuple[BlobRef, ...]:
        """Send the rest and wait for all; the blobs in their order."""
        if (failure := self._failure()) is not None:
            raise failure
        self._begin_until(self._spool.size)
        return self._gather(progress)

    def resume(self, landed: Sequence[tuple[int, BlobRef]]) -> None:
        """Instead of sending: the host has these, each from its offset on."""
        for offset, blob in landed:
            self._begin_until(offset)
            body = Slice(self._spool, offset, blob.size, self._count)
            self._begun.append(_done([(body, blob)]))
            self._count(blob.size)
            self._end = offset + blob.size

    def keep(self, kept: "Kept") -> None:
        """What has landed, and what will, is noted there."""
        with self._lock:
            self._kept = kept
            for body, blob in self._noted:
                kept.add(body.offset, blob)

    def again(self, progress: Progress) -> tuple[BlobRef, ...]:
        """Everything anew: bytes that are stored already are not safe until a record names them."""
        self._begun, self._sent = [], 0
        for slice_, _ in self._landed:
            self._begin(slice_.offset, slice_.size)
        return self._gather(progress)

    def close(self) -> None:
        self._transfers.close()

    def _failure(self) -> BaseException | None:
        done = (future.exception() for future in self._begun if future.done())
        return next(filter(None, done), None)

    def _begin_until(self, end: int) -> None:
        while (rest := end - self._end) > 0:
            self._begin(self._end, min(rest, self.limit))

    def _begin(self, offset: int, size: int) -> None:
        self._begun.append(self._transfers.submit(lambda: list(self._send(offset, size))))
        self._end = offset + size

    def _gather(self, progress: Progress) -> tuple[BlobRef, ...]:
        with progress.meter("Uploading objects", self._spool.size, unit="bytes") as meter:
            self._show(meter)
            try:
                for future in wait(self._begun, return_when=FIRST_EXCEPTION).done:
                    future.result()
            finally:
                self._show(None)
        self._landed = [landed for future in self._begun for landed in future.result()]
        return tuple(blob for _, blob in self._landed)

    def _send(self, offset: int, size: int, *, cuts: int = 0) -> Iterator["_Landed"]:
        body = Slice(self._spool, offset, size, self._count)
        try:
            blob = self._upload(body)
        except PayloadTooLarge:
            if size <= _LEAST_LIMIT:
                raise
            half = (size + 1) // 2
            self._found = min(self.limit, half)
            yield from self._send(offset, half)
            yield from self._send(offset + half, size - half)
            return
        if (blob.cid, blob.size) != (body.cid, size):
            raise BadAnswer("the host answered an upload with another blob")
        if blob.mime == PACK_MIME:
            self._note(body, blob)
            yield body, blob
        elif cuts < _MOST_CUTS and size > 1:
            # Taken for a kind of file by its first bytes, and kept as one.
            yield from self._send(offset, 1, cuts=_MOST_CUTS)
            yield from self._send(offset + 1, size - 1, cuts=cuts + 1)
        else:
            raise BadAnswer(f"the host keeps packs as {blob.mime[:100]!r}, not as {PACK_MIME}")

    def _note(self, body: Slice, blob: BlobRef) -> None:
        with self._lock:
            if self._kept is None:
                self._noted.append((body, blob))
            else:
                self._kept.add(body.offset, blob)

    def _show(self, meter: Meter | None) -> None:
        """On `meter`, all that was sent before too; None once nothing may be drawn any more."""
        with self._lock:
            self._meter = meter
            if meter is not None:
                meter.advance(self._sent)

    def _count(self, sent: int) -> None:
        with self._lock:
            self._sent += sent
            if self._meter is not None:
                self._meter.advance(sent)


_Landed = tuple[Slice, BlobRef]


def _done(landed: list[_Landed]) -> Future[list[_Landed]]:
    future: Future[list[_Landed]] = Future()
    future.set_result(landed)
    return future
