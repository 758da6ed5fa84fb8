"""HTTP as this package uses it: one exchange, bounded in time and size, its faults translated."""

import socket
import ssl
import sys
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import partial
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, cast
from weakref import WeakSet

from git_knotless import limits
from git_knotless.atproto.errors import (
    BadAnswer,
    HostTimeout,
    HostUnreachable,
    TransferCancelled,
)
from git_knotless.atproto.guard import Guard
from git_knotless.atproto.hosts import host_of, on_loopback, origin_of
from git_knotless.atproto.pace import Deadline, Pace

# httpx's command line takes rich, click and pygments in with it, half of httpx's own start-up.
if "httpx" not in sys.modules:
    sys.modules["httpx._main"] = None  # type: ignore[assignment]  # what "not importable" is
    import httpx

    del sys.modules["httpx._main"]
else:
    import httpx

# Between two pieces of what we send: a slow line drains its buffers slowly.
SEND_SECONDS = 60.0
# Node, which most PDSes run on, closes a connection idle for 5 s; one that it is about to close
# must not be taken for the next request.
_IDLE_SECONDS = 4.0
# No clock is wrong by so much, ours or a host's: ten years. Such a `Date` tells nothing.
_NO_CLOCK_SECONDS = 10 * 366 * 86_400.0


class Answer:
    """A response whose body is still to be read, either whole or piece by piece."""

    def __init__(
        self, transport: "Transport", response: httpx.Response, origin: str, pace: Pace
    ) -> None:
        self._transport = transport
        self._response = response
        self._pace = pace
        self.origin = origin
        self.host = host_of(origin)
        self.status = response.status_code
        self.headers: Mapping[str, str] = response.headers
        self.request = response.request

    def chunks(self) -> Iterator[bytes]:
        """The body as sent, before any Content-Encoding is undone."""
        self._pace.await_body()
        with self._transport.translated(self.host, late="is too slow: its answer does not end"):
            for chunk in self._response.iter_raw():
                self._pace.got(len(chunk))
                taken = time.monotonic()
                yield chunk
                self._pace.rested(time.monotonic() - taken)

    def read(self, limit: int) -> bytes:
        """The body, of at most `limit` bytes; no compressed one makes us hold more than that."""
        unpack = _Unpacker(self.headers.get("content-encoding", ""), self.host)
        begun, sent, body = time.monotonic(), 0, bytearray()
        for chunk in self.chunks():
            sent += len(chunk)
            body += unpack(chunk, limit + 1 - len(body))
            # What is compressed may hold nothing, and never end.
            if len(body) > limit or sent > 2 * limit:
                raise BadAnswer(f"{self.host} answers with more than {limit:,} bytes")
            if time.monotonic() - begun > self._pace.window + sent / limits.ANSWER_RATE:
                raise HostTimeout(f"{self.host} is too slow: {sent:,} bytes of an answer by now")
        unpack.finish()
        return bytes(body)


class _Unpacker:
    """Undoes gzip, never giving more than it is asked for."""

    def __init__(self, encoding: str, host: str) -> None:
        if encoding.lower() not in ("", "identity", "gzip"):
            raise BadAnswer(f"{host} answers in an encoding that was not asked for")
        self._host = host
        self._gzip = zlib.decompressobj(16 + zlib.MAX_WBITS) if encoding == "gzip" else None

    def __call__(self, chunk: bytes, limit: int) -> bytes:
        if self._gzip is None:
            return chunk
        try:
            return self._gzip.decompress(chunk, limit)
        except zlib.error as error:
            raise BadAnswer(f"{self._host} answers with broken gzip") from error

    def finish(self) -> None:
        if self._gzip is not None and not self._gzip.eof:
            raise BadAnswer(f"{self._host} answers with broken gzip")


class Transport:
    """Connections, kept open and shared by threads. `inner` takes the network's place in tests.

    `window` is in seconds: how long an answer may take to begin, and then to get on.
    """

    hurried = False

    def __init__(
        self,
        inner: httpx.BaseTransport | None = None,
        *,
        window: float = limits.ANSWER,
        guard: Guard | None = None,
    ) -> None:
        self._inner = inner
        self.guard = guard or Guard(free=["http://localhost"])
        self._window = window
        self._lock = threading.Lock()
        self._clients: dict[tuple[str, bool], httpx.Client] = {}
        self._sockets: WeakSet[socket.socket] = WeakSet()
        self._closing = threading.Event()
        self._clocks: dict[str, float] = {}

    @contextmanager
    def exchange(
        self,
        method: str,
        url: str,
        *,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        content: bytes | Iterable[bytes] | None = None,
        auth: httpx.Auth | None = None,
        answer_within: float | None = None,
        afar: bool = False,
    ) -> Iterator[Answer]:
        """`afar`: it is another host's answer that leads to this one."""
        origin = origin_of(url)
        client = self._client(origin.partition(":")[0], afar=afar)
        pace = Pace(answer_within or self._window, self._window)
        connect = Deadline(limits.CONNECT_ALL, each=limits.CONNECT)
        timeout = httpx.Timeout(
            connect=cast(float, connect),  # a number to the socket, which is the one to use it
            read=cast(float, pace),
            write=SEND_SECONDS,
            pool=limits.ANSWER,
        )
        with self.translated(host_of(origin)):
            request = client.build_request(
                method,
                url,
                params=params,
                headers={"Accept-Encoding": _encoding(origin), **(headers or {})},
                content=content,
                timeout=timeout,
                extensions={"trace": partial(self._trace, pace, connect)},
            )
            response = client.send(request, stream=True, auth=auth)
        with closing(response):
            self._note_clock(origin, response.headers.get("date", ""))
            yield Answer(self, response, origin, pace)

    def clock_offset(self, origin: str) -> float | None:
        """The host's clock minus ours in seconds, by its newest answer; None before the first."""
        return self._clocks.get(origin)

    def pause(self, seconds: float) -> None:
        """Sleep, but wake up and raise when the transport is closed."""
        if self._closing.wait(seconds):
            raise TransferCancelled("the transfer was given up")

    def close(self) -> None:
        """End everything, also what other threads are waiting for."""
        self._closing.set()
        with self._lock:
            clients, sockets = list(self._clients.values()), list(self._sockets)
        for open_socket in sockets:
            # Closing a socket does not wake a thread that waits on it; this does.
            with suppress(OSError):
                open_socket.shutdown(socket.SHUT_RDWR)
        for client in clients:
            client.close()

    @contextmanager
    def translated(self, host: str, *, late: str = "does not answer") -> Iterator[None]:
        """httpx's errors as ours; `late` is what a host does that does not keep the pace."""
        try:
            yield
        except (httpx.HTTPError, httpx.InvalidURL, RuntimeError) as error:
            if self._closing.is_set():
                raise TransferCancelled("the transfer was given up") from error
            if isinstance(error, RuntimeError):
                raise
            raise _translate(error, host, late) from error

    def _client(self, scheme: str, *, afar: bool) -> httpx.Client:
        with self._lock:
            if self._closing.is_set():
                raise TransferCancelled("the transfer was given up")
            if (scheme, afar) not in self._clients:
                guard = self.guard.afar() if afar else self.guard
                self._clients[scheme, afar] = self._new_client(guard, tls=scheme == "https")
            return self._clients[scheme, afar]

    def _new_client(self, guard: Guard, *, tls: bool) -> httpx.Client:
        """Loopback needs neither certificates, which take 20 ms to load, nor a proxy."""
        try:
            client = httpx.Client(
                transport=self._inner,
                verify=True if tls else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
                trust_env=tls,
                headers={"User-Agent": "git-knotless", "Accept": "*/*"},
                # A cookie would be a credential that nobody gave us.
                cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
                limits=httpx.Limits(max_keepalive_connections=8, keepalive_expiry=_IDLE_SECONDS),
            )
            if self._inner is None:
                from git_knotless.atproto.connecting import guard_connections  # with httpcore

                guard_connections(client, guard)
            return client
        except (ImportError, OSError, ValueError, httpx.InvalidURL) as error:
            raise HostUnreachable(
                f"the proxy or the certificates that the environment names are of no use: {error}"
            ) from error

    def _trace(self, pace: Pace, connect: Deadline, event: str, info: Mapping[str, Any]) -> None:
        """httpcore's word on what it does. The socket of a connection is what `close` ends."""
        if event == "connection.connect_tcp.started":
            connect.restart()  # it may be for a second sending, long after the first
        elif event == "http11.receive_response_headers.started":
            pace.await_headers()
        elif event.endswith(("connect_tcp.complete", "start_tls.complete")):
            opened = info["return_value"].get_extra_info("socket")
            if opened is not None:
                with self._lock:
                    self._sockets.add(opened)
                    closed = self._closing.is_set()
                if closed:  # while this one was being opened: `close` has not seen it
                    with suppress(OSError):
                        opened.shutdown(socket.SHUT_RDWR)

    def _note_clock(self, origin: str, date: str) -> None:
        if (moment := http_date(date)) is None:
            return
        self._clocks.pop(origin, None)
        # The header's second has begun half a second ago, on average.
        if abs(offset := moment + 0.5 - time.time()) < _NO_CLOCK_SECONDS:
            self._clocks[origin] = offset


def http_date(text: str) -> float | None:
    """A header's date as unix time."""
    # httpx has imported it by now.
    from email.utils import parsedate_to_datetime

    try:
        return parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None


def _encoding(origin: str) -> str:
    """Compression costs the host more time than a loopback network gains by it."""
    return "identity" if on_loopback(origin) else "gzip"


def _translate(error: Exception, host: str, late: str) -> Exception:
    match error:
        case httpx.ConnectTimeout():
            return HostTimeout(f"{host} cannot be reached: no connection in {limits.CONNECT:.0f} s")
        case httpx.TimeoutException():
            return HostTimeout(f"{host} {late}")
        case httpx.ConnectError() | httpx.ProxyError():
            return HostUnreachable(f"{host} cannot be reached: {_reason(error)}")
        case httpx.RemoteProtocolError() if not _is_cut(error):
            return BadAnswer(f"{host} does not answer in HTTP")
        case httpx.InvalidURL():
            return BadAnswer(f"{host} cannot be asked: {error}")
    return HostUnreachable(f"{host} dropped the connection")


def _is_cut(error: Exception) -> bool:
    return "disconnected" in str(error) or "closed" in str(error)


def _reason(error: BaseException) -> str:
    """What the operating system or TLS says, without numbers and in lower case."""
    while error.__cause__ or error.__context__:
        error = error.__cause__ or error.__context__ or error
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not valid ({error.verify_message})"
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text[:1].lower() + text[1:]
