"""Tasks that are done at once, and get on a request at a time: whoever steps them says which goes
next, and what becomes of its request.

Only one thread runs at any time, so that each order of requests can be had, and had again. What a
task uploads and downloads on threads of its own goes through as it comes.
"""

import json
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

import httpx

from git_knotless.atproto.xrpc import Client
from git_knotless.errors import KnotlessError
from git_knotless.storage.store import RecordStore

APPLY = "/xrpc/com.atproto.repo.applyWrites"
_FAILURE = b'{"error": "InternalServerError", "message": "Internal Server Error"}'
_HANGS = 60.0  # seconds between two requests of a task: it waits for something that does not come


class Killed(BaseException):
    """kill -9: nothing is sent after it."""


class Fate(Enum):
    """Of one request. A write alone can come late, or twice; what is read is just not heard of."""

    WELL = auto()
    KILLED = auto()  # whoever sends it, before that
    UNSENT = auto()  # it does not arrive
    UNHEARD = auto()  # it is carried out, and the answer lost
    LATE = auto()  # it is given up, and arrives at some later time
    TWICE = auto()  # a second copy arrives at some later time
    FAILED = auto()  # the host says that it has failed, and it has


class Network(httpx.BaseTransport):
    """What lies between the tasks and the host. `landed` is told each batch that was carried out,
    with the task that sent it, when it is."""

    def __init__(
        self, host: httpx.BaseTransport, landed: Callable[["Task", list[dict[str, Any]]], None]
    ) -> None:
        self.host = host
        self.landed = landed
        self.late: deque[tuple[Task, httpx.Request]] = deque()
        self.broken: BaseException | None = None  # what `landed` found wrong

    def carry(self, task: "Task", request: httpx.Request, fate: Fate) -> httpx.Response:
        is_write = request.url.path == APPLY
        if fate is Fate.FAILED:
            return httpx.Response(500, stream=httpx.ByteStream(_FAILURE))
        if fate is Fate.UNSENT or (fate in (Fate.UNHEARD, Fate.LATE) and not is_write):
            raise httpx.ConnectError("dropped", request=request)
        if fate in (Fate.LATE, Fate.TWICE) and is_write:
            self.late.append((task, request))
        if fate is Fate.LATE:
            raise httpx.ReadTimeout("no answer", request=request)
        response = self.arrive(task, request)
        if fate is Fate.UNHEARD:
            raise httpx.ReadTimeout("no answer", request=request)
        return response

    def arrive(self, task: "Task", request: httpx.Request) -> httpx.Response:
        response = self.host.handle_request(request)
        if request.url.path == APPLY and response.status_code == 200:
            try:
                self.landed(task, json.loads(request.content)["writes"])
            except BaseException as error:  # whose thread it is on makes nothing of it
                self.broken = error
                raise
        return response

    def bring(self, number: int = 0) -> None:
        """One of those that are under way yet."""
        task, request = self.late[number]
        del self.late[number]
        self.arrive(task, request)


class _Wire(httpx.BaseTransport):
    """One task's, to the network."""

    def __init__(self, task: "Task", network: Network) -> None:
        self.task = task
        self.network = network

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        fate = self.task.fate_of(request)
        return self.network.carry(self.task, request, fate)


Opened = Callable[[Client], RecordStore]


@dataclass(eq=False)
class Task:
    """`do` is what is done, with a store that it alone uses. Once it is `over`, what it came to
    is in `result` or `error`, neither of them if it was `killed`."""

    do: Callable[[RecordStore], Any]
    network: Network
    opened: Opened
    what: Any = None
    result: Any = None
    error: BaseException | None = None
    killed: bool = False
    over: bool = False
    requests: list[str] = field(default_factory=list)
    at: str | None = None  # the request that waits for its fate
    _fate: Fate | None = None
    _turn: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    _paused: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def start(self) -> None:
        """As far as its first request."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._wait()

    def step(self, fate: Fate = Fate.WELL) -> None:
        """Its request meets its fate, and it goes on to the next."""
        assert not self.over
        self._fate = fate
        self._turn.release()
        self._wait()

    def finish(self) -> None:
        while not self.over:
            self.step()

    def kill(self) -> None:
        if not self.over:
            self.step(Fate.KILLED)

    def fate_of(self, request: httpx.Request) -> Fate:
        """Asked on the thread that sends it, which waits for it there."""
        if self.killed:
            raise Killed
        if threading.current_thread() is not self._thread:
            return Fate.WELL
        self.at = request.url.path.rpartition(".")[2]
        self.requests.append(self.at)
        self._paused.release()
        self._turn.acquire()
        if self._fate is Fate.KILLED:
            self.killed = True
            raise Killed
        assert self._fate is not None
        return self._fate

    def _wait(self) -> None:
        if not self._paused.acquire(timeout=_HANGS):
            raise AssertionError(f"{self.what} hangs, after {self.requests}")
        if self.over:
            self._thread.join()
        if self.network.broken is not None:
            raise self.network.broken

    def _run(self) -> None:
        try:
            with Client(_Wire(self, self.network), pause=lambda seconds: None) as client:
                self.result = self.do(self.opened(client))
        except Killed:
            pass
        except KnotlessError as error:
            self.error = error
        except BaseException as error:  # noqa: BLE001  told where all is judged, on another thread
            self.error = error
        finally:
            self.at, self.over = None, True
            self._paused.release()
