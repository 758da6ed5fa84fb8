"""What a push costs by the rules that hosts have, and what is said of one that costs too much.

https://docs.bsky.app/docs/advanced-guides/rate-limits: each write takes points of its account, and
a batch that is refused takes them too; each upload counts for the address that it comes from.
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from git_knotless.atproto.errors import RateLimited, how_long
from git_knotless.errors import KnotlessError
from git_knotless.storage.store import RecordStore, Write

if TYPE_CHECKING:
    from git_knotless.atproto.allowance import Left

POINTS: Mapping[str, int] = {"create": 3, "update": 2, "delete": 1}
# What is documented, and nothing but a reason to say so: hosts differ, and most say what is left.
A_HOUR, A_DAY = 5_000, 35_000  # points
UPLOADS_A_DAY = 1_000
_A_DAY_SECONDS = 86_400


class PushStopped(KnotlessError):
    """The host takes no more for now; what has landed stays, and the same push goes on from it."""


def cost(writes: Sequence[Write]) -> int:
    """In points, of one batch."""
    return sum(POINTS[write.action] for write in writes)


def uploads(size: int, blob_limit: int) -> int:
    """How many blobs a pack of `size` bytes takes."""
    return math.ceil(size / blob_limit)


def warnings(store: RecordStore, points: int, blobs: int) -> Iterator[str]:
    """What to say before a push begins that takes so much; nothing of one that fits in."""
    left = store.left("writes")
    yield from _warning(points, "points of writing", left, {"an hour": A_HOUR, "a day": A_DAY})
    left = store.left("uploads")
    yield from _warning(blobs, "uploads", left, {"a day": UPLOADS_A_DAY})


def _warning(need: int, what: str, left: "Left | None", common: Mapping[str, int]) -> Iterator[str]:
    takes = f"this push takes about {need:,} {what}"
    if left is not None:
        if need > left.remaining:
            until = f"{left.remaining:,} left until {moment(left.resets)}"
            yield f"{takes}, and the host has {until}: what fits, lands"
        return
    over = [f"{most:,} {span}" for span, most in common.items() if need > most]
    if over:
        yield f"{takes}, and hosts commonly take {over[-1]}: if this one stops, push again later"


class Progressing(Protocol):
    @property
    def brought(self) -> str:
        """What has landed so far, in words; '' where nothing has."""
        ...


@contextmanager
def stopping(push: Progressing) -> Iterator[None]:
    """What a host's limit ends is told with when to go on, and from where."""
    try:
        yield
    except RateLimited as error:
        raise _stopped(error, push.brought) from error


def _stopped(error: RateLimited, brought: str) -> PushStopped:
    host, seconds = error.host, error.retry_after
    if seconds is None:
        message = f"{host} has had too many requests, and does not say until when"
    else:
        until = moment(time.time() + seconds)
        message = f"{host} takes no more before {until}, in {how_long(seconds)}"
    again = "run the same push again then"
    return PushStopped(f"{message}{brought and ': '}{brought}", hint=again)


def moment(at: float) -> str:
    """By this machine's clock and zone: the time of a day, with the date unless it is near."""
    near = abs(at - time.time()) < _A_DAY_SECONDS / 2
    return time.strftime("%H:%M" if near else "%H:%M on %Y-%m-%d", time.localtime(at))
