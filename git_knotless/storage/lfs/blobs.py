"""The bytes of a Git LFS object as blobs: sent in parts as large as the host takes them.

A blob that is on a host and in no record stays there for a while. Those of an object whose upload
was cut are remembered for a day and not sent again, unless the host has lost them by then.
"""

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from git_knotless.atproto.errors import BadAnswer, PayloadTooLarge
from git_knotless.atproto.files import read_file, replace_cache
from git_knotless.atproto.syntax import Cid
from git_knotless.storage.lfs.source import ObjectDamaged, Part, Source
from git_knotless.storage.packs.spool import blob_cid
from git_knotless.storage.packs.transfers import Transfers
from git_knotless.storage.store import BlobBody, BlobRef, RecordStore

# Declared for what is anything. The host says what it is, and the record says what the host said.
LFS_MIME = "application/octet-stream"
# Where a host does not say what it takes: what the largest do, halved each time it is refused.
_LIMIT_TO_TRY = 50 * 1024 * 1024
# A host that refuses even this many bytes refuses for another reason.
_LEAST_LIMIT = 64 * 1024
_KEPT_SECONDS = 86_400.0  # hosts differ in how long; what is gone is noticed and sent again
_MOST_MEMORY = 8 << 20  # bytes: 80,000 parts

Count = Callable[[int], None]


def part_limit(store: RecordStore) -> int:
    return max(store.host().blob_limit or _LIMIT_TO_TRY, _LEAST_LIMIT)


class Kept:
    """The blobs of one object that are on the host and in no record yet, by their CIDs.

    `path` is where they are remembered, None where they are not.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._blobs: dict[str, BlobRef] = {}
        if path is not None:
            self._blobs = {blob.cid: blob for blob in _remembered(path)}

    def find(self, part: Part) -> BlobRef | None:
        found = self._blobs.get(part.cid or "")
        return found if found is not None and found.size == part.size else None

    def add(self, blob: BlobRef) -> None:
        with self._lock:
            self._blobs[blob.cid] = blob
            if self._path is not None:
                text = json.dumps([[each.cid, each.mime, each.size] for each in self._each()])
                with suppress(OSError):  # what cannot be remembered is sent again
                    self._path.parent.mkdir(parents=True, exist_ok=True)
                    replace_cache(self._path, text.encode())

    def forget(self) -> None:
        with self._lock:
            self._blobs.clear()
            if self._path is not None:
                with suppress(OSError):
                    self._path.unlink(missing_ok=True)

    def _each(self) -> Sequence[BlobRef]:
        return list(self._blobs.values())


def send_parts(
    source: Source, parts: Sequence[Part], store: RecordStore, *, kept: Kept, count: Count
) -> tuple[BlobRef, ...]:
    """The blobs of `parts`, in order, four sent at a time. `count` hears of bytes as they go out,
    of fewer than none where they are sent again."""
    with Transfers() as transfers:
        sender = _Sender(source, store, kept, count, transfers.check)
        return tuple(blob for blobs in transfers.map(sender.send, parts) for blob in blobs)


class _Sender:
    """Any thread may send; `check` calls it off by raising."""

    def __init__(
        self,
        source: Source,
        store: RecordStore,
        kept: Kept,
        count: Count,
        check: Callable[[], None],
    ) -> None:
        self._source = source
        self._store = store
        self._kept = kept
        self._count = count
        self._check = check

    def send(self, part: Part) -> Sequence[BlobRef]:
        if (blob := self._kept.find(part)) is not None:
            self._count(part.size)
            return [blob]
        return list(self._sent(part))

    def _sent(self, part: Part) -> Iterator[BlobRef]:
        body = PartBody(self._source, part, self._heard)
        try:
            blob = self._store.upload(body, mime=LFS_MIME)
        except PayloadTooLarge:
            if part.size <= _LEAST_LIMIT:
                raise
            body.take_back()
            first, second = part.halves()
            self._learn(first.size)
            yield from self._sent(first)
            yield from self._sent(second)
            return
        if (blob.cid, blob.size) != (body.cid, part.size):
            raise BadAnswer("the host answered an upload with another blob")
        if part.cid not in (None, blob.cid):
            raise ObjectDamaged("the file of an object has changed while it was sent")
        self._kept.add(blob)
        yield blob

    def _learn(self, size: int) -> None:
        if size < part_limit(self._store):
            self._store.learn_blob_limit(size)

    def _heard(self, size: int) -> None:
        self._check()
        self._count(size)


class PartBody(BlobBody):
    """A part as the body of an upload: sent from its beginning every time."""

    def __init__(self, source: Source, part: Part, count: Count) -> None:
        self._source = source
        self._part = part
        self._count = count
        self._sent = 0
        self._hash = hashlib.sha256()

    @property
    def size(self) -> int:
        return self._part.size

    def chunks(self) -> Iterator[bytes]:
        self.take_back()
        self._hash = hashlib.sha256()
        for chunk in self._source.chunks(self._part.offset, self._part.size):
            self._hash.update(chunk)
            self._sent += len(chunk)
            self._count(len(chunk))
            yield chunk

    def take_back(self) -> None:
        """What has gone out is as nothing."""
        if self._sent:
            self._count(-self._sent)
            self._sent = 0

    @property
    def cid(self) -> Cid | None:
        """The CID of what was last sent; None unless that was all of it."""
        return blob_cid(self._hash.digest()) if self._sent == self.size else None


def _remembered(path: Path) -> Iterator[BlobRef]:
    """Of a file that anybody may have spoilt: what makes no sense is not in it."""
    try:
        if time.time() - path.stat().st_mtime > _KEPT_SECONDS:
            return
        listed: Any = json.loads(read_file(path, _MOST_MEMORY))
    except (OSError, ValueError, RecursionError):
        return
    for each in listed if isinstance(listed, list) else ():
        match each:
            case [str(cid), str(mime), int(size)]:
                yield BlobRef(cid, mime, size)
