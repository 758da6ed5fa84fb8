"""Time-outs that shrink while a host is waited for, so that none can drip its answer for ever.

httpcore hands one and the same time-out to the socket before each read. `socket.settimeout` takes
the `__index__` of a number that is no float, so a number that counts down bounds all reads.
"""

import math
import time
from collections.abc import Callable

from git_knotless import limits


class Deadline:
    """Whole seconds until an end, `each` at most. Past it, whoever waits gets a TimeoutError."""

    def __init__(
        self,
        seconds: float,
        *,
        each: float = math.inf,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._each = each
        self._now = now
        self._seconds = seconds
        self.restart()

    def restart(self) -> None:
        self._ends = self._now() + self._seconds

    def __index__(self) -> int:
        left = self._ends - self._now()
        if left <= 0:
            raise TimeoutError("timed out")
        return math.ceil(min(left, self._each))


class Pace(Deadline):
    """The time-out of one answer: so long until its headers are whole, and then a least rate.

    In each `window` of seconds as many bytes must come as `limits.RATE` asks for, or the end. The
    next one begins when they are there: what came early is no credit for a pause.
    """

    def __init__(
        self, headers: float, window: float, *, now: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(headers, now=now)
        self.window = window
        self._headers = headers
        self._had = 0

    def await_headers(self) -> None:
        """What is to be answered has been sent."""
        self._ends = self._now() + self._headers

    def await_body(self) -> None:
        self._had = 0
        self._ends = self._now() + self.window

    def got(self, count: int) -> None:
        self._had += count
        if self._had >= limits.RATE * self.window:
            self.await_body()

    def rested(self, seconds: float) -> None:
        """It was not the host that was waited for."""
        self._ends += seconds
