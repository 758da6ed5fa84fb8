"""A bar for work that goes on for long: on a terminal, on stderr; elsewhere nothing."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self

from git_knotless.storage.progress import Progress, TextProgress, Unit

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID


@contextmanager
def progress() -> Iterator[Progress]:
    if not sys.stderr.isatty():
        yield TextProgress(sys.stderr, enabled=False)
        return
    from rich.console import Console
    from rich.progress import Progress as Bars

    with Bars(console=Console(stderr=True), transient=True) as bars:
        yield BarProgress(bars)


class BarProgress:
    """A bar for each meter; what git says of its own progress is left out."""

    enabled = False  # git's, which would write over the bars

    def __init__(self, bars: "Bars") -> None:
        self._bars = bars

    def meter(
        self,
        title: str,
        total: int | None,
        *,
        unit: Unit = "count",  # noqa: ARG002 # a bar shows how much of it, whatever it is
        at_once: bool = False,  # noqa: ARG002 # and is there at once
    ) -> "BarMeter":
        return BarMeter(self._bars, self._bars.add_task(title, total=total))

    def relay(self, line: bytes) -> None:
        pass


class BarMeter:
    """It goes with the work."""

    def __init__(self, bars: "Bars", task: "TaskID") -> None:
        self._bars = bars
        self._task = task

    def advance(self, by: int) -> None:
        self._bars.advance(self._task, by)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.remove_task(self._task)
