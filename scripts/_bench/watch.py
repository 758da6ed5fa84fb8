"""The most private memory that the Python processes of one command ever had."""

import os
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

_EVERY = 0.003  # seconds between two looks at a process
_LOOKS = 8  # at the known processes, between two looks for new ones

_PROC = Path("/proc")


class Watch:
    """A thread that reads RssAnon of every Python process of a session, while it is entered.

    The kernel keeps no highest value of it, only of what includes file pages (VmHWM).
    """

    def __init__(self) -> None:
        self.highest: dict[int, int] = {}  # bytes, by process
        self.samples = 0
        self._session: int | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def session(self, leader: int) -> None:
        self._session = leader

    @property
    def most(self) -> int:
        """In bytes, of any one process."""
        return max(self.highest.values(), default=0)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stop.is_set():
            known = () if self._session is None else pythons_of(self._session)
            for _ in range(_LOOKS):
                for pid in known:
                    held = private_memory(pid)
                    self.highest[pid] = max(self.highest.get(pid, 0), held)
                    self.samples += held > 0
                if self._stop.wait(_EVERY):
                    return


def pythons_of(session: int) -> list[int]:
    """The Python processes of a session: of a command that began one, and all its children."""
    pids = (int(name) for name in os.listdir(_PROC) if name.isdecimal())
    return [pid for pid in pids if _session_of(pid) == session and _is_python(pid)]


def private_memory(pid: int) -> int:
    """RssAnon in bytes; 0 once the process has ended."""
    with suppress(OSError):
        for line in (_PROC / str(pid) / "status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    return 0


def _session_of(pid: int) -> int | None:
    with suppress(OSError):
        # What follows the name, which may hold anything: state, parent, group, session.
        return int((_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[3])
    return None


def _is_python(pid: int) -> bool:
    try:
        return (_PROC / str(pid) / "exe").readlink().name.startswith("python")
    except OSError:
        return False
