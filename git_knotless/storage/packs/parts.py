"""Blobs on their way in: nothing of one is believed before all of it is what it is called."""

import hashlib
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path

from git_knotless.atproto.errors import BadAnswer, BlobNotFound
from git_knotless.storage.packs.packfile import BadPack
from git_knotless.storage.packs.packrecord import PackRecord
from git_knotless.storage.packs.spool import Spool, blob_cid
from git_knotless.storage.store import BlobRef, RecordStore


class Gone(Exception):
    """A blob that was deleted since its pack was listed: the pack was folded, or pruned."""


class Parts:
    """The blobs of packs, from one host. Any thread may fetch; `check` calls it off by raising."""

    def __init__(self, store: RecordStore, directory: Path, check: Callable[[], None]) -> None:
        self._store = store
        self._directory = directory
        self._check = check

    def whole(self, pack: PackRecord) -> bytes | None:
        """All of a small pack; None where a part of it is gone."""
        if pack.data is not None:
            return pack.data
        try:
            return b"".join(chunk for blob in pack.blobs for chunk in self.checked(pack.rkey, blob))
        except BlobNotFound:
            return None

    def spooled(self, part: tuple[PackRecord, BlobRef]) -> Spool | None:
        """One blob of a large pack, on disk; None where it is gone."""
        pack, blob = part
        spool = Spool(self._directory)
        try:
            for chunk in self.checked(pack.rkey, blob):
                spool.append(chunk)
        except BlobNotFound:
            spool.close()
            return None
        return spool

    def checked(self, rkey: str, blob: BlobRef) -> Iterator[bytes]:
        """One blob of the record of that key, as it comes: believed once it has ended."""
        digest, size = hashlib.sha256(), 0
        for chunk in self._download(rkey, blob):
            size += len(chunk)
            if size > blob.size:
                raise BadPack(rkey, f"blob {blob.cid} is longer than {blob.size} bytes")
            digest.update(chunk)
            yield chunk
        if size < blob.size:
            raise BadPack(rkey, f"blob {blob.cid} is {size} bytes long, not {blob.size}")
        if blob_cid(digest.digest()) != blob.cid:
            raise BadPack(rkey, f"the bytes of blob {blob.cid} are not its own")

    def _download(self, rkey: str, blob: BlobRef) -> Iterator[bytes]:
        chunks = self._store.download(blob)
        try:
            with _closed_after(chunks):
                for chunk in chunks:
                    self._check()
                    yield chunk
        except BadAnswer as error:
            raise BadPack(rkey, error.message) from error


def _closed_after(chunks: Iterator[bytes]) -> AbstractContextManager[object]:
    """A download that is broken off ends at once, not when somebody collects it."""
    return closing(chunks) if isinstance(chunks, Generator) else nullcontext()


def unspooled(spools: Iterator[Spool | None]) -> Iterator[bytes]:
    """The bytes of a pack's parts, in order; each part's file goes once it is read."""
    for spool in spools:
        if spool is None:
            raise Gone
        yield from spool.chunks(0, spool.size)
        spool.close()
