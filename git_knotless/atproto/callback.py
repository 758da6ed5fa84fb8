"""Where the browser brings a login's answer: a listener on this machine, for that one request.

Sockets and a selector, and no thread: a browser opens connections on which it then says nothing,
and none of them may keep the right one waiting.
"""

import hmac
import selectors
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from urllib.parse import parse_qsl

from git_knotless.atproto.errors import AtprotoError

PATH = "/callback"
# The server forgets a login that is not approved in this time.
WAIT_SECONDS = 300.0
_LONGEST_HEAD = 16 * 1024
_HEAD_SECONDS = 10.0
_MOST_CONNECTIONS = 32
_PAGE = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>git-knotless</title>
<p>{}</p>
</html>
"""
_DONE = (
    "git-knotless has the answer. You can close this page and go back to the terminal, which says "
    "whether it worked."
)
_DENIED = "The login was denied. You can close this page and go back to the terminal."
_STATUS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
}


class LoginTimedOut(AtprotoError):
    """Nobody approved, or denied, the login in time."""


class CannotListen(AtprotoError):
    """This machine gives us no port of its own."""


class _Refused(Exception):
    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status
        self.words = words


@dataclass(slots=True, eq=False)
class _Connection:
    socket: socket.socket
    ends: float
    head: bytes = b""


class Listener:
    """On `port` of this machine. It is closed by `wait`, or by whoever has opened it."""

    def __init__(self, server: socket.socket, again: str | None) -> None:
        self.port: int = server.getsockname()[1]
        self._again = again
        self._server = server
        self._open: list[_Connection] = []
        self._selector = selectors.DefaultSelector()
        self._selector.register(server, selectors.EVENT_READ, None)

    def wait(self, state: str, seconds: float = WAIT_SECONDS) -> dict[str, str]:
        """The query of the one request that carries `state`, which is answered with a page.

        Others are refused. From when it returns nobody is listening. Raises LoginTimedOut.
        """
        ends = time.monotonic() + seconds
        try:
            while (left := ends - time.monotonic()) > 0:
                for key, _ in self._selector.select(min(left, 1.0)):
                    if key.data is not None and key.data not in self._open:
                        continue  # dropped for one that has come in the same moment
                    query = self._serve(key.data, state)
                    if query is not None:
                        return query
                self._drop_late()
        finally:
            self.close()
        raise LoginTimedOut(
            f"the browser has brought no answer in {seconds / 60:.0f} minutes",
            hint=self._again,
        )

    def close(self) -> None:
        for connection in list(self._open):
            self._drop(connection)
        self._server.close()
        self._selector.close()

    def _serve(self, connection: _Connection | None, state: str) -> dict[str, str] | None:
        if connection is None:
            self._accept()
            return None
        try:
            query = self._received(connection, state)
            if query is not None:
                self._answer(connection, 200, _DENIED if "error" in query else _DONE)
            return query
        except _Refused as refusal:
            self._answer(connection, refusal.status, refusal.words)
        except (OSError, ValueError):  # whatever it is, it is this connection's alone
            self._drop(connection)
        return None

    def _accept(self) -> None:
        with suppress(OSError):
            accepted, _ = self._server.accept()
            accepted.setblocking(False)
            connection = _Connection(accepted, time.monotonic() + _HEAD_SECONDS)
            self._open.append(connection)
            self._selector.register(accepted, selectors.EVENT_READ, connection)
        if len(self._open) > _MOST_CONNECTIONS:
            self._drop(self._open[0])

    def _received(self, connection: _Connection, state: str) -> dict[str, str] | None:
        """The query, once the request is whole."""
        chunk = connection.socket.recv(_LONGEST_HEAD)
        if not chunk:
            raise ConnectionError("the browser left")
        connection.head += chunk
        if len(connection.head) > _LONGEST_HEAD:
            raise _Refused(431, "That is more than a browser asks.")
        if b"\r\n\r\n" not in connection.head:
            return None
        return _answer_in(connection.head, self.port, state)

    def _answer(self, connection: _Connection, status: int, words: str) -> None:
        with suppress(OSError):
            connection.socket.setblocking(True)
            connection.socket.settimeout(2.0)  # it fits into the buffer of the connection
            connection.socket.sendall(_response(status, words))
            connection.socket.shutdown(socket.SHUT_WR)
        self._drop(connection)

    def _drop_late(self) -> None:
        now = time.monotonic()
        for connection in [each for each in self._open if each.ends < now]:
            self._drop(connection)

    def _drop(self, connection: _Connection) -> None:
        if connection not in self._open:
            return
        self._open.remove(connection)
        self._selector.unregister(connection.socket)
        connection.socket.close()


@contextmanager
def listen(again: str | None = None) -> Iterator[Listener]:
    """On a port that nobody has, reached from this machine only.

    `again` is the command that logs in where this cannot be listened on, or no answer comes.
    """
    try:
        server = socket.create_server(("127.0.0.1", 0), backlog=_MOST_CONNECTIONS)
    except OSError as error:
        raise CannotListen(
            f"no port of this machine can be listened on: {error.strerror}",
            hint=again,
        ) from error
    server.setblocking(False)
    listener = Listener(server, again)
    try:
        yield listener
    finally:
        listener.close()


def _answer_in(head: bytes, port: int, state: str) -> dict[str, str]:
    """The query of a request for the right place with the right state. Raises _Refused."""
    line, *fields = head.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
    method, _, rest = line.partition(" ")
    target, _, version = rest.rpartition(" ")
    if not version.startswith("HTTP/1.") or not target.startswith("/"):
        raise _Refused(400, "That is no request of a browser.")
    if f"host: 127.0.0.1:{port}" not in (each.lower().strip() for each in fields):
        raise _Refused(400, "That is another host's page.")
    path, _, query = target.partition("?")
    if path != PATH:
        raise _Refused(404, "There is no such page.")
    if method != "GET":
        raise _Refused(405, "That is not how a browser comes back.")
    return _checked(query, state)


def _checked(text: str, state: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(text, strict_parsing=True, max_num_fields=20)
    except ValueError as error:
        raise _Refused(400, "That is no answer to a login.") from error
    query: Mapping[str, str] = dict(pairs)
    given = query.get("state", "").encode()
    if len(query) != len(pairs) or not hmac.compare_digest(given, state.encode()):
        raise _Refused(400, "That is no answer to the login that waits here.")
    return dict(query)


def _response(status: int, words: str) -> bytes:
    body = _PAGE.format(words).encode()
    head = (
        f"HTTP/1.1 {status} {_STATUS[status]}",
        "Content-Type: text/html; charset=utf-8",
        f"Content-Length: {len(body)}",
        "Content-Security-Policy: default-src 'none'",
        "X-Content-Type-Options: nosniff",
        "Referrer-Policy: no-referrer",
        "Cache-Control: no-store",
        "Connection: close",
    )
    return "\r\n".join([*head, "", ""]).encode() + body
