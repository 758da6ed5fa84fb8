"""When one request is sent once more, and how long it waits for that."""

import random
import time
from collections.abc import Callable

from git_knotless.atproto.errors import (
    AtprotoError,
    HostTimeout,
    HostUnreachable,
    RateLimited,
    ServerFault,
    how_long,
)

TRIES = 3
# No second try after this: a person who waits has by then been told nothing for long enough.
READ_WINDOW = 30.0
# Of a DID document or a handle, which several places may be asked for, one after the other.
LOOKUP_WINDOW = 8.0
# What a host may ask us to wait for without our asking the person who waits.
LONGEST_WAIT = 60.0
# A host that has let a try run for so long is not asked to do so twice more.
_LONG_WAIT = 20.0
_FIRST_DELAY = 0.25


class Patience:
    """The tries of one request; a `hurried` one waits for no host that takes its time."""

    def __init__(
        self,
        pause: Callable[[float], None],
        notify: Callable[[str], None],
        window: float = READ_WINDOW,
        *,
        hurried: bool = False,
    ) -> None:
        self.pause = pause
        self.notify = notify
        self.window = window
        self.hurried = hurried
        self.tries = TRIES
        self.started = self.tried = time.monotonic()  # `tried`: when the last try began

    def after(self, error: AtprotoError) -> None:
        """Wait for the next try, or raise `error` when there is none."""
        if self.hurried and takes_time(error):
            raise error
        self.tries -= 1
        delay = self._delay(error)
        if self.tries <= 0 or delay is None:
            raise error
        self.pause(delay)
        self.tried = time.monotonic()

    def _delay(self, error: AtprotoError) -> float | None:
        if isinstance(error, RateLimited | ServerFault) and error.retry_after is not None:
            return self._asked_for(error.retry_after, error.host)
        now = time.monotonic()
        if not _may_pass(error) or now - self.started > self.window:
            return None
        if isinstance(error, HostTimeout) and now - self.tried > _LONG_WAIT:
            return None
        doubled = _FIRST_DELAY * 2.0 ** (TRIES - 1 - self.tries)
        # Jitter, so that the clients that one fault has hit do not come back all at once.
        return doubled * random.uniform(0.5, 1.5)

    def _asked_for(self, seconds: float, host: str) -> float | None:
        if seconds > LONGEST_WAIT:
            return None
        if seconds > 2:
            self.notify(f"{host} asks us to wait {how_long(seconds)}")
        return seconds + random.uniform(0, 1)


def takes_time(error: AtprotoError) -> bool:
    """Whether the host keeps us waiting, or asks us to wait."""
    if isinstance(error, ServerFault):
        return error.retry_after is not None
    return isinstance(error, HostTimeout | RateLimited)


def _may_pass(error: AtprotoError) -> bool:
    """Whether the same request may well be answered in a moment."""
    if isinstance(error, ServerFault):
        # An upstream's failure is the answer to a read of an account that has left the host.
        return error.status != 501 and error.name != "UpstreamFailure"
    return isinstance(error, HostUnreachable | HostTimeout | RateLimited)
