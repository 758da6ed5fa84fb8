"""Rate limits as the reference has them, kept in memory: windows that begin with their first call.

https://docs.bsky.app/docs/advanced-guides/rate-limits
"""

import math
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from git_knotless.sandbox.errors import Refusal

MINUTE, HOUR, DAY = 60, 3600, 86400
# Expired windows are dropped when there are more; each is one address or account.
_MOST_WINDOWS = 10_000


@dataclass(frozen=True, slots=True)
class Limit:
    """So many points in so many seconds, for each `per`; limits of one name share their points."""

    name: str
    points: int
    seconds: int
    per: Literal["address", "account", "identifier"] = "address"

    @property
    def policy(self) -> str:
        return f"{self.points};w={self.seconds}"


WRITES = (
    Limit("repo-write-hour", 5000, HOUR, "account"),
    Limit("repo-write-day", 35_000, DAY, "account"),
)
WRITE_COSTS = {"create": 3, "update": 2, "delete": 1}
EVERY_CALL = Limit("every-call", 3000, 5 * MINUTE)
GET_REPO = (Limit("get-repo", 6000, 5 * MINUTE),)
UPLOAD = (Limit("upload", 1000, DAY),)
CREATE_SESSION = (
    Limit("session-day", 300, DAY, "identifier"),
    Limit("session", 30, 5 * MINUTE, "identifier"),
)
UPDATE_HANDLE = (
    Limit("handle", 10, 5 * MINUTE, "account"),
    Limit("handle-day", 50, DAY, "account"),
)
CREATE_ACCOUNT = (Limit("create-account", 100, 5 * MINUTE),)
DELETE_ACCOUNT = (Limit("delete-account", 50, 5 * MINUTE),)


@dataclass(slots=True)
class _Window:
    ends: float
    used: int = 0


class Limiter:
    """All limits of one host."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._windows: dict[tuple[str, str], _Window] = {}

    def take(
        self, limits: Iterable[Limit], keys: Mapping[str, str], cost: int = 1
    ) -> dict[str, str]:
        """The headers of the limit that is nearest its end; a `Refusal` carries them beyond it."""
        now = time.time()
        with self._lock:
            self._forget(now)
            taken = [self._take(each, keys[each.per], cost, now) for each in limits]
        left, limit, window = min(taken, key=lambda each: each[0])
        headers = {
            "RateLimit-Limit": str(limit.points),
            "RateLimit-Remaining": str(max(left, 0)),
            "RateLimit-Reset": str(math.floor(window.ends)),
            "RateLimit-Policy": limit.policy,
        }
        if left < 0:
            refusal = Refusal(429, "RateLimitExceeded", "Rate Limit Exceeded")
            refusal.headers = {**headers, "Retry-After": str(math.ceil(window.ends - now))}
            raise refusal
        return headers

    def _take(self, limit: Limit, key: str, cost: int, now: float) -> tuple[int, Limit, _Window]:
        window = self._windows.get((limit.name, key))
        if window is None or window.ends <= now:
            window = self._windows[limit.name, key] = _Window(now + limit.seconds)
        window.used += cost
        return limit.points - window.used, limit, window

    def _forget(self, now: float) -> None:
        if len(self._windows) > _MOST_WINDOWS:
            self._windows = {key: w for key, w in self._windows.items() if w.ends > now}
