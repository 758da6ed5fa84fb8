"""Temporary files without a name: they go with whoever holds them, even if that is killed.

One can be given a name once it is worth keeping.
"""

import errno
import hashlib
import os
import tempfile
import threading
import weakref
from base64 import b32encode
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from git_knotless.atproto.syntax import Cid
from git_knotless.errors import KnotlessError
from git_knotless.storage.child import NoSpace

CHUNK = 256 * 1024  # bytes handled at a time, and so what a transfer costs in memory

_RAW_SHA256 = bytes((0x01, 0x55, 0x12, 0x20))  # CIDv1, raw bytes, a SHA-256 of 32 bytes
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class SpoolError(KnotlessError):
    """A temporary file could not be made, written or read."""


def blob_cid(sha256: bytes) -> Cid:
    """The CID of the blob whose bytes have this digest."""
    return Cid("b" + b32encode(_RAW_SHA256 + sha256).decode().lower().rstrip("="))


class Spool:
    """A temporary file that is appended to and read anywhere.

    One that is closed while other threads still use it raises CancelledError in them, at their
    next chunk: closing it is how the transfers to and from it are called off.
    """

    def __init__(self, directory: Path) -> None:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._hold(directory, _open_unnamed(directory))
        except OSError as error:
            self._directory = directory
            raise self._trouble(error) from error

    @classmethod
    def of_file(cls, path: Path) -> Self:
        """One that is kept, to be read. Raises OSError where it is not there."""
        spool = cls.__new__(cls)
        # What is no file, and would keep us waiting for a writer, reads as an empty one.
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        spool._hold(path.parent, fd)
        spool.size = os.fstat(fd).st_size
        return spool

    def keep_as(self, path: Path) -> None:
        """Give it a name of its own, which nothing has yet, under which it stays."""
        with self._held():
            try:
                # A descriptor for the folder has the call follow the link, which it would not else.
                parent = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                try:
                    os.link(f"/proc/self/fd/{self._fd}", path, src_dir_fd=parent)
                finally:
                    os.close(parent)
                return
            except FileExistsError:
                raise
            except OSError:
                pass  # a system without /proc, or without unnamed files
        with open(path, "xb") as file:
            for chunk in self.chunks(0, self.size):
                file.write(chunk)

    def _hold(self, directory: Path, fd: int) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self.size = 0
        self._fd = fd
        self._close = weakref.finalize(self, os.close, fd)

    def append(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            with self._held():
                try:
                    written = os.pwrite(self._fd, left, self.size)
                except OSError as error:
                    raise self._trouble(error) from error
                self.size += written
            left = left[written:]

    def read(self, offset: int, size: int) -> bytes:
        """At most `size` bytes; fewer only where the system gives fewer, none at the end."""
        with self._held():
            try:
                return os.pread(self._fd, size, offset)
            except OSError as error:
                raise self._trouble(error) from error

    def chunks(self, offset: int, size: int) -> Iterator[bytes]:
        """`size` bytes from `offset`, a CHUNK at a time."""
        end = offset + size
        while offset < end:
            chunk = self.read(offset, min(CHUNK, end - offset))
            if not chunk:
                raise SpoolError(f"a temporary file in {self._directory} was cut short")
            yield chunk
            offset += len(chunk)

    def close(self) -> None:
        with self._lock:
            self._close()

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Inside, the file is open, and its number not yet another file's."""
        with self._lock:
            if not self._close.alive:
                raise CancelledError
            yield

    def _trouble(self, error: OSError) -> KnotlessError:
        if error.errno in _FULL:
            return NoSpace(f"no space left for temporary files in {self._directory}")
        return SpoolError(f"no temporary file in {self._directory}: {error.strerror}")


def _open_unnamed(directory: Path) -> int:
    """Where the system has unnamed files, one that can be given a name."""
    if hasattr(os, "O_TMPFILE"):
        with suppress(OSError):  # of a file system that has none; what else is wrong comes again
            return os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        return os.dup(file.fileno())


class Slice:
    """A part of a spool as the body of an upload: sent from its beginning every time.

    `count` hears of every chunk that goes out.
    """

    def __init__(self, spool: Spool, offset: int, size: int, count: Callable[[int], None]) -> None:
        self.offset = offset
        self.size = size
        self._spool = spool
        self._count = count
        self._sent = 0
        self._hash = hashlib.sha256()

    def chunks(self) -> Iterator[bytes]:
        self._sent, self._hash = 0, hashlib.sha256()
        for chunk in self._spool.chunks(self.offset, self.size):
            self._hash.update(chunk)
            self._sent += len(chunk)
            self._count(len(chunk))
            yield chunk

    @property
    def cid(self) -> Cid | None:
        """The CID of what was last sent; None unless that was all of it."""
        return blob_cid(self._hash.digest()) if self._sent == self.size else None
