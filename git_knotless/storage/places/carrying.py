"""Blobs of packs on their way from one host to another, through one file each on disk.

Four at a time, whatever they amount to; and nothing of one is sent on before all of it is what
its name says. Where the second host takes smaller blobs than the first, they are cut anew.
"""

import io
from collections.abc import Callable, Generator, Iterator
from itertools import groupby
from pathlib import Path

from git_knotless.storage.packs.packrecord import PackRecord
from git_knotless.storage.packs.parts import Parts
from git_knotless.storage.packs.transfers import Transfers
from git_knotless.storage.packs.uploads import Uploads
from git_knotless.storage.progress import Meter, TextProgress
from git_knotless.storage.store import BlobBody, BlobRef, RecordStore
from git_knotless.value import replace, value

_SILENT = TextProgress(io.StringIO(), enabled=False)


@value
class Carried:
    """`pack` is what is to be on the second host; None where a blob is gone from the first."""

    of: PackRecord
    pack: PackRecord | None


def carry(
    packs: Iterator[PackRecord],
    source: RecordStore,
    target: RecordStore,
    *,
    directory: Path,
    meter: Meter,
) -> Generator[Carried, None, None]:
    """In their order. `packs` is read only as far ahead as there are transfers under way."""
    with Transfers() as transfers:
        carrier = _Carrier(source, target, directory, transfers.check)
        parts = ((pack, blob) for pack in packs for blob in pack.blobs or (None,))
        landed = transfers.map(carrier.part, parts)
        for _, group in groupby(landed, key=lambda part: part.pack.rkey):
            whole = list(group)
            meter.advance(whole[0].pack.size)
            yield Carried(whole[0].pack, _joined(whole))


@value
class _Part:
    """A blob of `pack` as it landed, in one or several; None where it is gone."""

    pack: PackRecord
    blobs: tuple[BlobRef, ...] | None


def _joined(parts: list[_Part]) -> PackRecord | None:
    blobs: list[BlobRef] = []
    for part in parts:
        if part.blobs is None:
            return None
        blobs += part.blobs
    return replace(parts[0].pack, blobs=tuple(blobs))


class _Carrier:
    """Any thread may carry; `check` calls it off by raising."""

    def __init__(
        self, source: RecordStore, target: RecordStore, directory: Path, check: Callable[[], None]
    ) -> None:
        self._parts = Parts(source, directory, check)
        self._target = target
        self._check = check

    def part(self, part: tuple[PackRecord, BlobRef | None]) -> _Part:
        """A pack that is in its record has no blob to be carried."""
        pack, blob = part
        return _Part(pack, () if blob is None else self._sent(pack, blob))

    def _sent(self, pack: PackRecord, blob: BlobRef) -> tuple[BlobRef, ...] | None:
        spool = self._parts.spooled((pack, blob))
        if spool is None:
            return None
        uploads = Uploads(spool, self._upload, lambda: self._target.host().blob_limit)
        try:
            blobs = uploads.conclude(_SILENT)
        finally:
            uploads.close()
            spool.close()
        if uploads.limit != self._target.host().blob_limit:
            self._target.learn_blob_limit(uploads.limit)
        return blobs

    def _upload(self, body: BlobBody) -> BlobRef:
        return self._target.upload(_Watched(body, self._check))


class _Watched:
    """A body that is not sent to its end once nobody waits for it."""

    def __init__(self, body: BlobBody, check: Callable[[], None]) -> None:
        self._body = body
        self._check = check

    @property
    def size(self) -> int:
        return self._body.size

    def chunks(self) -> Iterator[bytes]:
        for chunk in self._body.chunks():
            self._check()
            yield chunk
