"""Small files of ours that are never seen half-written, and are read whatever else lies there."""

import errno
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# No write takes as long, and whoever was killed in the middle of one is not coming back.
_LEFT_OVER_SECONDS = 3600.0


def read_file(path: Path, limit: int, *, links: bool = True) -> bytes:
    """What is in it, of at most `limit` bytes. Without `links`, `path` is none.

    Raises OSError, also for what is no file: a pipe, which would never end, or a device.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    handle = os.open(path, flags if links else flags | os.O_NOFOLLOW)
    try:
        kind = os.fstat(handle).st_mode
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(kind):
            raise OSError(errno.EINVAL, "Not a regular file")
        with open(handle, "rb", closefd=False) as file:
            data = file.read(limit + 1)
    finally:
        os.close(handle)
    if len(data) > limit:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    return data


def replace_file(path: Path, data: bytes) -> None:
    """Put `data` at `path` whole, readable by nobody else, whatever happens then."""
    with room_for(path, 0) as put:
        put(data)


@contextmanager
def room_for(path: Path, size: int) -> Iterator[Callable[[bytes], None]]:
    """Takes `size` bytes of the disk, and gives what replaces `path`, once, whole and to stay.

    For who holds a lock: it is written beside `path` under one name. Whatever a process that was
    killed leaves there, perhaps a secret, the next write overwrites and `discard` removes.
    """
    new = _new(path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(new, flags, 0o600), "wb", buffering=0) as file:
            os.fchmod(file.fileno(), 0o600)
            if size:
                _write(file.fileno(), bytes(size))

            def put(data: bytes) -> None:
                _write(file.fileno(), data)
                new.replace(path)
                _sync_directory(path.parent)

            yield put
    finally:
        with suppress(OSError):
            new.unlink()  # unless it has become `path`


def _write(handle: int, data: bytes) -> None:
    """All that is in it, on the disk."""
    at = 0
    while at < len(data):
        at += os.pwrite(handle, data[at:], at)
    os.ftruncate(handle, len(data))
    os.fsync(handle)


def discard(path: Path) -> None:
    """Remove what `replace_file` has put there, or has left; for who holds the lock."""
    _new(path).unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def replace_cache(path: Path, data: bytes) -> None:
    """Put `data` at `path` whole, without a lock: of several writers at once, the last one wins.

    Each writes under a name of its own, or two would write into the same file. What killed ones
    leave holds no secret, and is removed when it is old enough to be nobody's.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=_prefix(path))
    try:
        with open(handle, "wb") as file:
            file.write(data)
        Path(name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise
    _sweep(path)


def _new(path: Path) -> Path:
    return path.with_name(f".{path.name}.new")


def _prefix(path: Path) -> str:
    return f".{path.name}."


def _sweep(path: Path) -> None:
    oldest = time.time() - _LEFT_OVER_SECONDS
    for name in os.listdir(path.parent):
        if name.startswith(_prefix(path)):
            left = path.with_name(name)
            with suppress(OSError):
                if left.stat().st_mtime < oldest:
                    left.unlink()


def _sync_directory(directory: Path) -> None:
    """So that the file's new name is as safe as what is in it."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
