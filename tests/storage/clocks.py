"""A clock of ours, and one of the host's, that are set whenever a test says so."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from git_knotless.atproto import transport
from tests.storage.inprocess import InProcess

# Who compares what a file system says, which keeps its own time.
_BY_FILES = "git_knotless.storage.packs.quarantine"


class Clocks:
    """How far they are ahead, in seconds."""

    def __init__(self, host: InProcess) -> None:
        self._host = host
        self.ours = 0.0
        self.hosts = 0.0

    @property
    def hosts(self) -> float:
        return self._host.ahead

    @hosts.setter
    def hosts(self, ahead: float) -> None:
        self._host.ahead = ahead

    def at_host(self) -> float:
        return time.time() + self.hosts

    def at_ours(self) -> float:
        return time.time() + self.ours


@contextmanager
def our_clock(clocks: Clocks) -> Iterator[None]:
    """Whoever asks for the time is told ours; and nobody pauses before another attempt."""
    seconds = SimpleNamespace(**{**vars(time), "time": clocks.at_ours})

    class Moment(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.fromtimestamp(clocks.at_ours(), tz)

    told = {id(time): seconds, id(time.time): clocks.at_ours, id(datetime): Moment}
    with pytest.MonkeyPatch.context() as patch:
        for module in (transport, *_storage()):
            for name in ("time", "datetime"):
                if (there := told.get(id(getattr(module, name, None)))) is not None:
                    patch.setattr(module, name, there)
            if hasattr(module, "_PAUSE"):
                patch.setattr(module, "_PAUSE", 0.0)
        yield


def _storage() -> list[ModuleType]:
    mine = [name for name in sys.modules if name.startswith("git_knotless.storage.")]
    return [sys.modules[name] for name in mine if name != _BY_FILES]
