"""What a host's rate limits leave, by the headers of its answers; kept for the next command.

https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-06, as hosts send it:
of several limits an answer tells the one that is nearest its end, so the others leave more. A host
that sends none of it is one of which nothing is known.
"""

import json
import re
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from git_knotless.atproto.files import read_file, replace_cache
from git_knotless.atproto.hosts import parse_origin
from git_knotless.atproto.transport import http_date
from git_knotless.value import value

Kind = Literal["writes", "uploads"]

_KINDS: Mapping[str, Kind] = {
    "com.atproto.repo.applyWrites": "writes",
    "com.atproto.repo.putRecord": "writes",
    "com.atproto.repo.uploadBlob": "uploads",
}
# All calls of an address are counted over minutes; what is written and uploaded, over hours.
_LEAST_WINDOW = 3600
_LONGEST_WINDOW = 32 * 86_400
_POLICY = re.compile(r"\s*[0-9]{1,12}\s*;\s*w=([0-9]{1,9})\b")
_NUMBER = re.compile(r"[0-9]{1,12}")
_FIRST_MOMENT = 1_000_000_000  # a reset below is a span in seconds, else a moment
_MOST_ENTRIES = 256
_LARGEST_FILE = 1 << 20


@value
class Left:
    """Of `limit` points or uploads, those that are left until `resets`, unix time here."""

    remaining: int
    limit: int
    resets: float


class Allowances:
    """What is left, by host and account. A file that cannot be read is as none."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._heard: dict[str, dict[str, Left]] = {}
        self._unsaved = False

    def heard(self, origin: str, nsid: str, account: str, headers: Mapping[str, str]) -> None:
        """Take in what an answer says. What is uploaded counts for the address, not the account."""
        kind = _KINDS.get(nsid)
        if kind is None:
            return
        found = _left(headers)
        if found is not None:
            self._take(_entry(origin, kind, account), *found)
        # A push of a thousand blobs writes no file for each.
        spent = found is not None and found[1].remaining == 0
        if self._unsaved and (kind == "writes" or spent):
            self._save()

    def _take(self, entry: str, window: str, left: Left) -> None:
        with self._lock:
            # Were another limit nearer its end, the answer would have told of that one.
            others = self._known(entry).items()
            more = {name: each for name, each in others if each.remaining >= left.remaining}
            self._heard[entry] = more | {window: left}
            self._unsaved = True

    def left(self, host: str, kind: Kind, account: str) -> Left | None:
        """What the tightest limit leaves; None where nothing is known that still holds."""
        entry = _entry(parse_origin(host), kind, account)
        with self._lock:
            known = self._known(entry)
        now = time.time()
        open_ = [left for left in known.values() if left.resets > now]
        return min(open_, key=lambda left: left.remaining, default=None)

    def _save(self) -> None:
        with self._lock:
            self._unsaved = False
            kept = self._kept()
            for entry, windows in self._heard.items():
                kept.pop(entry, None)
                kept[entry] = {w: [x.remaining, x.limit, x.resets] for w, x in windows.items()}
            newest = dict(list(kept.items())[-_MOST_ENTRIES:])
            with suppress(OSError):
                self._path.parent.mkdir(parents=True, exist_ok=True)
                replace_cache(self._path, json.dumps(newest).encode())

    def _known(self, entry: str) -> Mapping[str, Left]:
        heard = self._heard.get(entry)
        return _of(self._kept().get(entry)) if heard is None else heard

    def _kept(self) -> dict[str, Any]:
        with suppress(OSError, ValueError, RecursionError):
            kept = json.loads(read_file(self._path, _LARGEST_FILE))
            if isinstance(kept, dict):
                return kept
        return {}


def _entry(origin: str, kind: Kind, account: str) -> str:
    return f"{kind} {origin} {account}" if kind == "writes" else f"{kind} {origin}"


def _of(windows: object) -> dict[str, Left]:
    """What the file has of one entry, as far as it makes sense."""
    found: dict[str, Left] = {}
    for window, held in windows.items() if isinstance(windows, dict) else ():
        match held:
            case [int(remaining), int(limit), int() | float() as resets] if str(window).isdigit():
                if 0 <= remaining <= limit and resets < time.time() + _LONGEST_WINDOW:
                    found[window] = Left(remaining, limit, float(resets))
    return found


def _left(headers: Mapping[str, str]) -> tuple[str, Left] | None:
    """What an answer tells of one limit, and the length of its window; '0' where it does not."""
    names = ("limit", "remaining", "reset")
    texts = [headers.get(f"ratelimit-{name}", "").strip() for name in names]
    if not all(map(_NUMBER.fullmatch, texts)):
        return None
    limit, remaining, reset = map(int, texts)
    policy = _POLICY.match(headers.get("ratelimit-policy", ""))
    window = int(policy[1]) if policy else 0
    now = http_date(headers.get("date", "")) or time.time()
    span = reset if reset < _FIRST_MOMENT else reset - now
    if 0 < window < _LEAST_WINDOW or not 0 < span <= _LONGEST_WINDOW:
        return None
    return str(window), Left(min(remaining, limit), limit, time.time() + span)
