"""Speaking with git-lfs: one JSON object a line, on stdin and stdout, one transfer at a time.

https://github.com/git-lfs/git-lfs/blob/main/docs/custom-transfers.md
"""

import json
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any, BinaryIO, Literal, Protocol

from git_knotless.errors import KnotlessError
from git_knotless.value import value

Direction = Literal["upload", "download"]

_EVERY = 0.1  # seconds between two words about progress, at least
_LONGEST_LINE = 1 << 20  # bytes
_REFUSED, _LOGIN_NEEDED = 1, 4  # as the command line exits


class BadMessage(KnotlessError):
    """A line that git-lfs does not send."""


@value
class Request:
    """`path` is the file of what is uploaded."""

    oid: str
    size: int
    path: str


class Work(Protocol):
    """What carries requests out; raises KnotlessError and OSError."""

    def carry_out(self, request: Request, count: Callable[[int], None]) -> str | None:
        """The path of what was downloaded. `count` hears of bytes as they come or go."""
        ...


# Looks up the remote of that name, for that direction; entered at the first request.
Begin = Callable[[ExitStack, Direction, str], Work]


class Agent:
    """`begin` is asked once there is something to do: git-lfs starts eight of us for one object."""

    def __init__(self, read: Iterable[bytes], write: BinaryIO, begin: Begin) -> None:
        self._lines = iter(read)
        self._out = write
        self._begin = begin
        self._lock = threading.Lock()
        self._work: Work | None = None
        self._refusal: KnotlessError | None = None

    def run(self) -> None:
        """Until git-lfs says so, or is gone."""
        direction, remote = _init(self._next())
        self._send({})
        with ExitStack() as stack:
            while (message := self._next()).get("event") not in ("terminate", None):
                if message["event"] != direction:
                    raise BadMessage(f"{message['event']!r} was not to be expected")
                self._answer(_request(message), lambda: self._begin(stack, direction, remote))

    def _answer(self, request: Request, begin: Callable[[], Work]) -> None:
        progress = Progress(request, self._send)
        try:
            path = self._working(begin).carry_out(request, progress.count)
        except (KnotlessError, OSError) as error:
            self._send(_complete(request) | {"error": _said(error)})
            return
        progress.end()
        self._send(_complete(request) | ({} if path is None else {"path": path}))

    def _working(self, begin: Callable[[], Work]) -> Work:
        """What refuses the first request refuses all."""
        if self._refusal is not None:
            raise self._refusal
        if self._work is None:
            try:
                self._work = begin()
            except KnotlessError as error:
                self._refusal = error
                raise
        return self._work

    def _next(self) -> dict[str, Any]:
        """{} at the end."""
        line = next(self._lines, b"")
        if not line:
            return {}
        try:
            message = json.loads(line) if len(line) <= _LONGEST_LINE else None
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict) or not isinstance(message.get("event"), str):
            raise BadMessage("what came on standard input is not git-lfs's")
        return message

    def _send(self, message: dict[str, Any]) -> None:
        with self._lock:
            self._out.write(json.dumps(message).encode() + b"\n")
            self._out.flush()


class Progress:
    """Words to git-lfs about one transfer, ten a second at most. Any thread may count.

    What goes out a second time was counted before: git-lfs is told of it once.
    """

    def __init__(self, request: Request, send: Callable[[dict[str, Any]], None]) -> None:
        self._request = request
        self._send = send
        self._lock = threading.Lock()
        self._bytes = 0
        self._told = 0
        self._last = float("-inf")

    def count(self, size: int) -> None:
        with self._lock:
            self._bytes += size
            if time.monotonic() - self._last >= _EVERY:
                self._tell(self._bytes)

    def end(self) -> None:
        """All of it is there, whether or not it had to be sent."""
        with self._lock:
            self._tell(self._request.size)

    def _tell(self, size: int) -> None:
        size = min(size, self._request.size)
        if size > self._told:
            message = {"event": "progress", "oid": self._request.oid, "bytesSoFar": size}
            self._send(message | {"bytesSinceLast": size - self._told})
            self._told, self._last = size, time.monotonic()


def _init(message: dict[str, Any]) -> tuple[Direction, str]:
    match message:
        case {
            "event": "init",
            "operation": "upload" | "download" as direction,
            "remote": str(name),
        }:
            return direction, name
    raise BadMessage("what came first on standard input is not git-lfs's")


def _request(message: dict[str, Any]) -> Request:
    from git_knotless.storage.lfs.record import LARGEST_OBJECT, is_lfs_oid

    match message:
        case {"oid": str(oid), "size": int(size)} if (
            is_lfs_oid(oid) and 0 <= size <= LARGEST_OBJECT
        ):
            path = message.get("path", "")
            return Request(oid, size, path if isinstance(path, str) else "")
    raise BadMessage("an object without a SHA-256 and a size")


def _complete(request: Request) -> dict[str, Any]:
    return {"event": "complete", "oid": request.oid}


def _said(error: Exception) -> dict[str, Any]:
    """git-lfs shows it as it is: nothing that a host said moves a cursor."""
    from git_knotless.errors import LoginNeeded

    match error:
        case KnotlessError():
            lines = [error.message, f"hint: {error.hint}"] if error.hint else [error.message]
        case OSError():
            name = f"{error.filename}: " if error.filename else ""
            lines = [f"{name}{error.strerror or error}"]
        case _:
            lines = [str(error)]
    code = _LOGIN_NEEDED if isinstance(error, LoginNeeded) else _REFUSED
    return {"code": code, "message": "\n".join(map(printable, lines))}


def printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)
