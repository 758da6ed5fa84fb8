"""Downloading the Git LFS objects of a repository: blob after blob, into one file.

Nothing of a blob counts before all of it is what its CID says, and what was got of an object before
an interruption is read again and checked, not fetched again.
"""

import fcntl
import hashlib
import os
import stat
import time
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from git_knotless.atproto.errors import BlobNotFound
from git_knotless.errors import KnotlessError
from git_knotless.storage.lfs.blobs import Count
from git_knotless.storage.lfs.landing import read_lfs
from git_knotless.storage.lfs.record import LfsRecord, is_lfs_oid, lfs_rkey
from git_knotless.storage.packs.spool import CHUNK, blob_cid
from git_knotless.storage.records import LFS, prefix_of
from git_knotless.storage.repositories import Repository
from git_knotless.storage.store import BlobRef, RecordStore

_KEPT_SECONDS = 86_400.0  # that a part of an object waits for the rest of it
_ENDING = ".knotless"
# So many objects one by one; whoever wants more is to check out a whole tree, and a page of a
# listing holds a hundred.
_FEW = 12
_MOST_PAGES = 100


class NoSuchObject(KnotlessError):
    """An object that the repository does not have."""


class BadObject(KnotlessError):
    """What the host gave for an object is not that object."""


class LfsDownloads:
    """From one repository, on `host`. What is downloaded is put into `directory`."""

    def __init__(self, repository: Repository, host: str, directory: Path) -> None:
        self._key = repository.record().key
        self._repository = repository
        self._host = host
        self._directory = directory
        self._asked = 0
        self._listed: dict[str, LfsRecord] = {}
        _sweep(directory)

    def fetch(self, oid: str, size: int, count: Count) -> Path:
        """The file of the object, which is its caller's. `count` hears of bytes as they come in."""
        record = self._record(oid, size)
        with _file_at(self._directory / f"{oid}{_ENDING}") as (file, path):
            try:
                _Fill(self._repository.store, record, file, count).run()
            except BlobNotFound as error:
                raise BadObject(f"{self._host}: a part of LFS object {oid} is gone") from error
            except BadObject as error:
                path.unlink(missing_ok=True)
                raise BadObject(f"{self._host}: {error.message}") from error
            return path

    def _record(self, oid: str, size: int) -> LfsRecord:
        self._asked += 1
        if self._asked == _FEW:
            self._listed = self._list()
        found = self._listed.pop(oid, None)
        if found is None:
            found = read_lfs(self._repository.store.get(LFS, lfs_rkey(self._key, oid)))
        url = self._repository.url
        if found is None:
            hint = "whoever has it brings it there with: git lfs push --all origin"
            raise NoSuchObject(f"{url} has no LFS object {oid}", hint=hint)
        if found.size != size:
            raise BadObject(f"{url}: {oid} has {found.size} bytes there, and not {size}")
        return found

    def _list(self) -> dict[str, LfsRecord]:
        pages = islice(self._repository.store.list(LFS, prefix_of(self._key)), _MOST_PAGES)
        records = filter(None, (read_lfs(record) for page in pages for record in page))
        return {record.oid: record for record in records}


class _Fill:
    """Makes of `file` the object that `record` names, beginning with what is in it already."""

    def __init__(self, store: RecordStore, record: LfsRecord, file: BinaryIO, count: Count) -> None:
        self._store = store
        self._record = record
        self._file = file
        self._count = count
        self._hash = hashlib.sha256()

    def run(self) -> None:
        missing = list(self._record.blobs)
        while missing and self._is_here(missing[0]):
            missing.pop(0)
        for blob in missing:
            self._fetch(blob)
        self._file.truncate()
        self._file.flush()
        if self._hash.hexdigest() != self._record.oid:
            raise BadObject(f"the record of LFS object {self._record.oid} is of another")

    def _is_here(self, blob: BlobRef) -> bool:
        """Whether it comes next in the file; what comes there instead is written over."""
        start, whole, digest = self._file.tell(), self._hash.copy(), hashlib.sha256()
        left = blob.size
        while left and (chunk := self._file.read(min(CHUNK, left))):
            whole.update(chunk)
            digest.update(chunk)
            left -= len(chunk)
        if left or blob_cid(digest.digest()) != blob.cid:
            self._file.seek(start)
            return False
        self._hash = whole
        self._count(blob.size)
        return True

    def _fetch(self, blob: BlobRef) -> None:
        for chunk in verified(self._store, blob, self._record.oid):
            self._file.write(chunk)
            self._hash.update(chunk)
            self._count(len(chunk))


def verified(store: RecordStore, blob: BlobRef, oid: str) -> Iterator[bytes]:
    """The bytes of a blob; raises BadObject at their end, or before, where they are not its own."""
    digest, size = hashlib.sha256(), 0
    chunks = store.download(blob)
    with _closed_after(chunks):
        for chunk in chunks:
            size += len(chunk)
            if size > blob.size:
                break
            digest.update(chunk)
            yield chunk
    if size != blob.size or blob_cid(digest.digest()) != blob.cid:
        raise BadObject(f"other bytes than those of LFS object {oid}")


def _closed_after(chunks: Iterator[bytes]) -> AbstractContextManager[object]:
    """A download that is broken off ends at once, not when somebody collects it."""
    return closing(chunks) if isinstance(chunks, Generator) else nullcontext()


@contextmanager
def _file_at(path: Path) -> Iterator[tuple[BinaryIO, Path]]:
    """To go on with; one under another name where another process is at it now."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _opened(path) as file:
        if _locked(file):
            yield file, path
            return
    path = path.with_name(f"{path.stem}.{os.getpid()}{_ENDING}")
    with _opened(path) as file:
        yield file, path


def _opened(path: Path) -> BinaryIO:
    """For reading and writing, with what is in it; what is no file there is no part of one."""
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(path.lstat().st_mode):
            path.unlink()
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    return open(os.open(path, flags, 0o666), "r+b")


def _locked(file: BinaryIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sweep(directory: Path) -> None:
    """What nobody has gone on with for a day."""
    with suppress(OSError):
        for name in os.listdir(directory):
            if name.endswith(_ENDING) and is_lfs_oid(name.partition(".")[0]):
                path = directory / name
                with suppress(OSError):
                    if time.time() - path.stat().st_mtime > _KEPT_SECONDS:
                        path.unlink()
