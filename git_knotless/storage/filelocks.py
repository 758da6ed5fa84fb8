"""Locks on files, which end with whoever holds them, however that ends.

flock(2), since many may hold one together; the lock files may be removed at any time.
"""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def shared(path: Path) -> Iterator[None]:
    """Beside others who share it; waits for one who has it alone."""
    handle = _locked(path, fcntl.LOCK_SH)
    try:
        os.utime(handle)  # which tells when it was last held
        yield
    finally:
        os.close(handle)


@contextmanager
def alone(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Once nobody else has it. `waiting` is called before that takes a while."""
    try:
        handle = _locked(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        waiting()
        handle = _locked(path, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(handle)


@contextmanager
def removing(path: Path) -> Iterator[bool]:
    """Whether nobody has it: then nobody gets it meanwhile, and it is removed in the end."""
    try:
        handle = _locked(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
        return
    try:
        yield True
        path.unlink(missing_ok=True)
    finally:
        os.close(handle)


def _locked(path: Path, how: int) -> int:
    """Of the file that is there once it is locked: another may have been removed meanwhile."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, how)
            if _is_at(handle, path):
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _is_at(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False
