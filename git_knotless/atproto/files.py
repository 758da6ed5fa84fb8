"""Small files of ours that are never seen half-written."""

import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path

# No write takes as long, and whoever was killed in the middle of one is not coming back.
_LEFT_OVER_SECONDS = 3600.0


def replace_file(path: Path, data: bytes, *, durable: bool) -> None:
    """Put `data` at `path` whole, readable by nobody else; `durable` is whatever happens then.

    For who holds a lock: it is written beside `path` under one name. Whatever a process that was
    killed leaves there, perhaps a secret, the next write overwrites and `discard` removes.
    """
    new = _new(path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(new, flags, 0o600), "wb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        new.replace(path)
    except BaseException:
        with suppress(OSError):
            new.unlink()
        raise
    if durable:
        _sync_directory(path.parent)


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
