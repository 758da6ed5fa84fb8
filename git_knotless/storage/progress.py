"""Progress as git shows it: `Uploading objects:  45% (1.20 MiB/2.67 MiB) | 3.00 MiB/s`."""

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Literal, Protocol, Self, TextIO

Unit = Literal["count", "bytes"]

SHOWN_AFTER = 1.0  # seconds: what is over sooner needs no meter
_REDRAWN_AFTER = 0.1  # seconds between two drawings: more only costs


class Meter(Protocol):
    """How far one piece of work has come. Any thread may advance it."""

    def advance(self, by: int) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class Progress(Protocol):
    """Where progress goes; silent unless `enabled`."""

    @property
    def enabled(self) -> bool: ...

    def meter(
        self, title: str, total: int | None, *, unit: Unit = "count", at_once: bool = False
    ) -> Meter:
        """`at_once`: shown from the start, however short the work turns out."""
        ...

    def relay(self, line: bytes) -> None:
        r"""A line of a git command's own progress, its `\r` or `\n` included."""
        ...


class TextProgress:
    """Progress on a stream of text, in git's own style."""

    def __init__(
        self, stream: TextIO, *, enabled: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream = stream
        self._enabled = enabled
        self._clock = clock

    @property
    def enabled(self) -> bool:
        return self._enabled

    def meter(
        self, title: str, total: int | None, *, unit: Unit = "count", at_once: bool = False
    ) -> "TextMeter":
        return TextMeter(self, title, total, unit, self._clock, at_once=at_once)

    def relay(self, line: bytes) -> None:
        self.write(line.decode(errors="replace"))

    def write(self, text: str) -> None:
        if self._enabled:
            self._stream.write(text)
            self._stream.flush()


class TextMeter:
    def __init__(
        self,
        progress: TextProgress,
        title: str,
        total: int | None,
        unit: Unit,
        clock: Callable[[], float],
        *,
        at_once: bool,
    ) -> None:
        self._progress = progress
        self._title = title
        self._total = total
        self._unit = unit
        self._clock = clock
        self._lock = threading.Lock()
        self._done = 0
        self._begun = clock()
        self._next = self._begun if at_once else self._begun + SHOWN_AFTER
        self._width = 0  # of the line now on the screen, 0 where there is none

    def advance(self, by: int) -> None:
        if not self._progress.enabled:
            return
        with self._lock:
            self._done += by
            now = self._clock()
            if now >= self._next:
                self._next = now + _REDRAWN_AFTER
                self._draw(now, "\r")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """A line that was begun is ended, so that whatever is said next has its own."""
        now = self._clock()
        if self._width or (kind is None and now >= self._next):
            self._draw(now, ", done.\n" if kind is None else "\n")

    def _draw(self, now: float, end: str) -> None:
        line = self._line(now) + end[:-1]
        padding = " " * (self._width - len(line))
        self._width = len(line)
        self._progress.write(line + padding + end[-1])

    def _line(self, now: float) -> str:
        show: Callable[[int], str] = shown_bytes if self._unit == "bytes" else str
        done = self._done if self._total is None else min(self._done, self._total)
        line = f"{self._title}: "
        if self._total is None:
            line += show(done)
        else:
            percent = 100 * done // self._total if self._total else 100
            line += f"{percent:3}% ({show(done)}/{show(self._total)})"
        if self._unit == "bytes" and now > self._begun:
            line += f" | {shown_bytes(int(self._done / (now - self._begun)))}/s"
        return line


def shown_bytes(count: int) -> str:
    if count >= 1 << 30:
        return f"{count / (1 << 30):.2f} GiB"
    if count >= 1 << 20:
        return f"{count / (1 << 20):.2f} MiB"
    return f"{count / (1 << 10):.2f} KiB" if count >= 1 << 10 else f"{count} bytes"
