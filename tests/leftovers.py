"""The processes of a test run that outlive it.

Ours are those that come from this process, and those that carry its mark in their environment: a
server that was left running has another parent by then.
"""

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")  # elsewhere than on Linux nothing is looked at
_GRACE = 5.0  # seconds for those that were told to end
_LOOK = 0.05

MARK = ("TEST_RUN_OF_KNOTLESS", f"{os.getpid()}.{secrets.token_hex(8)}")


def leftovers() -> list[str]:
    """Each as its id and its command, once those that are ending have ended."""
    until = time.monotonic() + _GRACE
    while (found := sorted(_ours())) and time.monotonic() < until:
        time.sleep(_LOOK)  # processes end in their own time
    return [f"{pid} {_command(pid)}" for pid in found]


def _ours() -> set[int]:
    parents = dict(_parents())
    ours = {pid for pid in parents if _is_marked(pid)}
    grown = {os.getpid()}
    while grown:
        ours |= grown
        grown = {pid for pid, parent in parents.items() if parent in grown} - ours
    return ours - {os.getpid()}


def _parents() -> Iterator[tuple[int, int]]:
    """Each process with its parent, but for those that have ended and wait to be asked how."""
    for place in _PROC.glob("[0-9]*"):
        with suppress(OSError):
            state, parent, *_ = (place / "stat").read_text().rpartition(")")[2].split()
            if state != "Z":
                yield int(place.name), int(parent)


def _is_marked(pid: int) -> bool:
    with suppress(OSError):
        return "=".join(MARK).encode() in (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    return False


def _command(pid: int) -> str:
    with suppress(OSError):
        words = (_PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
        return " ".join(words)[:200]
    return "(ended)"
