"""The bytes of a Git LFS object, in a file that is read where they are wanted."""

import hashlib
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Protocol, Self

from git_knotless.atproto.syntax import Cid
from git_knotless.errors import KnotlessError
from git_knotless.storage.packs.spool import CHUNK, blob_cid
from git_knotless.value import value


class ObjectDamaged(KnotlessError):
    """The file of an object does not hold it, or cannot be read."""


class Source(Protocol):
    """Bytes that any thread can read, anywhere in them."""

    @property
    def size(self) -> int: ...

    def chunks(self, offset: int, size: int) -> Iterator[bytes]: ...


class ObjectFile:
    """An object as git-lfs keeps it. Raises ObjectDamaged.

    One that is closed while other threads still read it raises CancelledError in them.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._closed = False
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise ObjectDamaged(f"{path}: {error.strerror}") from error
        self.size = os.fstat(self._fd).st_size

    def chunks(self, offset: int, size: int) -> Iterator[bytes]:
        end = offset + size
        while offset < end:
            chunk = self._read(offset, min(CHUNK, end - offset))
            if not chunk:
                raise ObjectDamaged(f"{self._path} was cut short while it was read")
            yield chunk
            offset += len(chunk)

    def _read(self, offset: int, size: int) -> bytes:
        with self._lock:
            if self._closed:  # its number may be another file's by now
                raise CancelledError
            try:
                return os.pread(self._fd, size, offset)
            except OSError as error:
                raise ObjectDamaged(f"{self._path}: {error.strerror}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._closed = True
            os.close(self._fd)


@value
class Part:
    """What of a source goes into one blob. `cid` is None where it was not read beforehand."""

    offset: int
    size: int
    cid: Cid | None = None

    def halves(self) -> "tuple[Part, Part]":
        half = (self.size + 1) // 2
        return Part(self.offset, half), Part(self.offset + half, self.size - half)


def measured(source: Source, limit: int) -> tuple[str, Sequence[Part]]:
    """The SHA-256 of all of it, in hex, and its parts of at most `limit` bytes with their CIDs."""
    whole, parts = hashlib.sha256(), []
    for offset in range(0, source.size, limit):
        size, digest = min(limit, source.size - offset), hashlib.sha256()
        for chunk in source.chunks(offset, size):
            whole.update(chunk)
            digest.update(chunk)
        parts.append(Part(offset, size, blob_cid(digest.digest())))
    return whole.hexdigest(), parts
