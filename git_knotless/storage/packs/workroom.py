"""A folder for what takes room for a while, and for one at a time."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def workroom(place: Path) -> Iterator[Path | None]:
    """`place`, empty and gone afterwards; None where another has it.

    Its lock ends with whoever holds it, however that ends, and what a killed one left goes.
    """
    with _alone(place.with_name(f"{place.name}.lock")) as free:
        if not free:
            yield None
            return
        shutil.rmtree(place, ignore_errors=True)
        try:
            place.mkdir(mode=0o700)
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)


def is_free(place: Path) -> bool:
    with _alone(place.with_name(f"{place.name}.lock")) as free:
        return free


@contextmanager
def _alone(path: Path) -> Iterator[bool]:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield _locks(handle)
    finally:
        os.close(handle)


def _locks(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
