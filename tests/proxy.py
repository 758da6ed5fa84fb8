"""A host between git and the PDS that can do what bad networks and bad hosts do.

It answers for the PLC directory too, whose documents then name it as the account's PDS, so that
whatever our code sends comes through here. What it does is up to one function, which is given
each exchange before anything of it has been passed on.
"""

import json
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.network import Account, Network

_CHUNK = 1 << 16
_HOPS = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def json(cls, status: int, value: Any, **headers: str) -> "Answer":
        body = json.dumps(value).encode()
        return cls(status, body, {"Content-Type": "application/json", **headers})


class Exchange:
    """One request, as it came in. Answer it, pass it on, or cut it; exactly one of them."""

    def __init__(self, handler: "_Handler") -> None:
        self._handler = handler
        split = urlsplit(handler.path)
        self.method = handler.command
        self.path = split.path
        self.nsid = split.path.removeprefix("/xrpc/")
        self.query = {name: values[0] for name, values in parse_qs(split.query).items()}
        self.headers = handler.headers
        self.size = int(handler.headers.get("Content-Length") or 0)

    def read(self, size: int | None = None) -> bytes:
        """Of the request's body; all that is left of it without `size`."""
        return self._handler.take(self.size if size is None else size)

    def passed_on(self, body: bytes | None = None) -> Answer:
        """What the PDS answers; it has carried the request out."""
        content = self.read() if body is None else body
        server = self._handler.server
        connection = HTTPConnection(*server.upstream, timeout=120)
        try:
            kept = {k: v for k, v in self.headers.items() if k.lower() not in _HOPS}
            connection.request(self.method, self._handler.path, body=content, headers=kept)
            response = connection.getresponse()
            headers = {k: v for k, v in response.getheaders() if k.lower() not in _HOPS}
            return Answer(response.status, response.read(), headers)
        finally:
            connection.close()

    def answer(self, answer: Answer, *, length: int | None = None) -> None:
        """`length` is what the answer says of its body, where that is a lie."""
        self.read()
        self._handler.send(answer, length)

    def pass_on(self) -> None:
        self.answer(self.passed_on())

    def say(self, data: bytes) -> None:
        """Raw bytes in place of an answer, or of a part of one; the connection ends after it."""
        self._handler.close_connection = True
        self._handler.wfile.write(data)

    def is_left(self, seconds: float) -> bool:
        """Whether the client hangs up within so many seconds."""
        readable, _, _ = select.select([self._handler.connection], [], [], seconds)
        return bool(readable)

    def leave_unanswered(self, seconds: float) -> None:
        """Until the client hangs up, or for so long."""
        self.read()
        self.is_left(seconds)
        self.cut()

    def cut(self) -> None:
        """Drop the connection with nothing said."""
        with suppress(OSError):
            self._handler.connection.shutdown(socket.SHUT_RDWR)
        self._handler.close_connection = True


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # a body that waits for its head to be acknowledged takes 40 ms
    server: "_Server"
    left = 0

    def handle_one_request(self) -> None:
        with suppress(ConnectionError):
            super().handle_one_request()

    def do(self) -> None:
        self.left = int(self.headers.get("Content-Length") or 0)
        exchange = Exchange(self)
        if exchange.path.startswith("/did:"):
            self.server.tell(exchange)
            return
        with self.server.lock:
            self.server.seen.append(f"{exchange.method} {exchange.nsid}")
        self.server.act(exchange)

    def date_time_string(self, timestamp: float | None = None) -> str:
        now = time.time() if timestamp is None else timestamp
        return super().date_time_string(now + self.server.clock)

    do_GET = do_POST = do_HEAD = do

    def take(self, size: int) -> bytes:
        data = self.rfile.read(min(size, self.left)) if self.left else b""
        self.left -= len(data)
        return data

    def send(self, answer: Answer, length: int | None) -> None:
        with suppress(ConnectionError):
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                if name.lower() not in ("date", "server"):
                    self.send_header(name, value)
            said = len(answer.body) if length is None else length
            self.send_header("Content-Length", str(said))
            self.end_headers()
            for at in range(0, len(answer.body), _CHUNK):
                self.wfile.write(answer.body[at : at + _CHUNK])
            if said != len(answer.body):
                self.close_connection = True

    def log_message(self, *_: Any) -> None:
        """Nothing: the tests say what they saw."""


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # they are ended, and waited for, with the server
    request_queue_size = 64

    def __init__(self, network: Network, account: Account) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.network = network
        split = urlsplit(account.host.url)
        self.upstream = (split.hostname or "", split.port or 80)
        self.act: Callable[[Exchange], None] = Exchange.pass_on
        self.seen: list[str] = []
        self.lock = threading.Lock()
        self.documents: dict[str, Any] = {}
        self.tell: Callable[[Exchange], None] = self.told
        self.clock = 0.0
        self._open: set[Any] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self.lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self.lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def end(self) -> None:
        """Hang up on all that are connected, and wait for whoever answers them."""
        self.shutdown()
        with self.lock:
            connected = list(self._open)
        for request in connected:
            with suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)
        self.server_close()

    @property
    def url(self) -> str:
        return f"http://localhost:{self.server_address[1]}"

    def told(self, exchange: Exchange) -> None:
        exchange.answer(self.document(exchange.path[1:]))

    def document(self, did: str) -> Answer:
        if did in self.documents:
            return Answer.json(200, self.documents[did])
        response = self.network.http.get(f"{self.network.plc}/{did}")
        value = response.json()
        for service in value.get("service", []):
            service["serviceEndpoint"] = self.url
        return Answer.json(response.status_code, value)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hung up: the tests look at the client."""


@dataclass(slots=True)
class Proxy:
    """`act` decides what becomes of each exchange; `seen` are the calls, in their order."""

    _server: _Server

    @property
    def url(self) -> str:
        return self._server.url

    @property
    def seen(self) -> list[str]:
        return self._server.seen

    def act(self, act: Callable[[Exchange], None]) -> None:
        self._server.act = act

    def on(self, nsid: str, act: Callable[[Exchange], None], *, times: int | None = None) -> None:
        """`act` for the first `times` calls of `nsid`, or for all; the others are passed on."""
        left = [times]

        def chosen(exchange: Exchange) -> bool:
            with self._server.lock:
                if not exchange.nsid.endswith(nsid) or left[0] == 0:
                    return False
                left[0] = None if left[0] is None else left[0] - 1
                return True

        def choose(exchange: Exchange) -> None:
            (act if chosen(exchange) else Exchange.pass_on)(exchange)

        self.act(choose)

    def on_document(self, act: Callable[[Exchange], None]) -> None:
        """`act` for each question for a DID document."""
        self._server.tell = act

    def told(self, did: str) -> Any:
        """The DID document, as it is given if nothing else was said."""
        return json.loads(self._server.document(did).body)

    def well(self) -> None:
        """From now on whatever comes is passed on."""
        self.act(Exchange.pass_on)
        self._server.tell = self._server.told

    def set_clock(self, ahead: float) -> None:
        """By how many seconds its answers are dated ahead of now."""
        self._server.clock = ahead

    def document(self, did: str, value: Any) -> None:
        """What the directory says of `did` from now on."""
        self._server.documents[did] = value

    def environment(self) -> dict[str, str]:
        return {"KNOTLESS_PLC_URL": self.url, "KNOTLESS_HANDLE_RESOLVER": self.url}


@contextmanager
def proxy(network: Network, account: Account) -> Iterator[Proxy]:
    server = _Server(network, account)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield Proxy(server)
    finally:
        server.end()
        thread.join()
