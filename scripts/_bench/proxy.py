"""A proxy that counts requests: `python -m scripts._bench.proxy PLC PDS` prints its URL.

It answers for the PLC directory too, whose documents then name it as the account's host, so that
all that a client sends comes through here. It hands on what it gets as it comes and holds no
body, large as that may be. `GET /seen` answers with the calls since it was asked last. It ends
when its standard input does.
"""

import io
import json
import socket
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

_CHUNK = 1 << 18
_LINE = 1 << 16


class Ended(Exception):
    """The other side has hung up."""


@dataclass(slots=True)
class Peer:
    """One connection, read and written."""

    socket: socket.socket
    _reader: io.BufferedReader = field(init=False)
    _piece: memoryview = field(init=False)

    def __post_init__(self) -> None:
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        raw = socket.SocketIO(self.socket, "rw")
        self._reader = io.BufferedReader(raw, _LINE)
        self._piece = memoryview(bytearray(_CHUNK))

    def line(self) -> bytes:
        line = self._reader.readline(_LINE)
        if not line.endswith(b"\n"):
            raise Ended
        return line

    def head(self) -> "Head":
        lines = [self.line()]
        while lines[-1] not in (b"\r\n", b"\n"):
            lines.append(self.line())
        return Head(lines)

    def hand_on(self, size: int, other: "Peer") -> None:
        while size:
            # One read's worth, which may be less than there is room for.
            got = self._reader.readinto1(self._piece[:size])
            if not got:
                raise Ended
            other.socket.sendall(self._piece[:got])
            size -= got

    def hand_on_chunks(self, other: "Peer") -> None:
        size = 1
        while size:
            line = self.line()
            size = int(line.split(b";")[0], 16)
            other.socket.sendall(line)
            self.hand_on(size, other)
            other.socket.sendall(self.line())  # the end of the chunk, or the first trailer

    def hand_on_body(self, head: "Head", other: "Peer") -> None:
        if head.value(b"transfer-encoding").lower() == b"chunked":
            self.hand_on_chunks(other)
        else:
            self.hand_on(int(head.value(b"content-length") or 0), other)

    def close(self) -> None:
        self._reader.close()
        self.socket.close()


@dataclass(frozen=True, slots=True)
class Head:
    """The lines of a request or a response up to its body, the blank one included."""

    lines: list[bytes]

    @property
    def words(self) -> list[str]:
        return self.lines[0].decode("latin-1").split()

    def value(self, name: bytes) -> bytes:
        for line in self.lines[1:]:
            key, _, value = line.partition(b":")
            if key.strip().lower() == name:
                return value.strip()
        return b""

    def addressed_to(self, host: str) -> bytes:
        kept = [line for line in self.lines[1:] if not line.lower().startswith(b"host:")]
        return b"".join([self.lines[0], f"Host: {host}\r\n".encode(), *kept])


class Proxy:
    def __init__(self, plc: str, pds: str) -> None:
        self._plc = plc
        self._pds = urlsplit(pds).netloc
        self._address = (urlsplit(pds).hostname or "", urlsplit(pds).port or 80)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._seen: list[str] = []
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://localhost:{self._listener.getsockname()[1]}"

    def serve(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            threading.Thread(target=self._converse, args=(connection,), daemon=True).start()

    def _converse(self, connection: socket.socket) -> None:
        client, host = Peer(connection), None
        with suppress(Ended, OSError):
            try:
                for head in self._requests(client):
                    host = host or Peer(socket.create_connection(self._address))
                    self._exchange(head, client, host)
            finally:
                client.close()
                if host:
                    host.close()

    def _requests(self, client: Peer) -> Iterator[Head]:
        """Those that are for the host; the others are answered here."""
        while True:
            head = client.head()
            method, path = head.words[0], urlsplit(head.words[1]).path
            if path == "/seen":
                with self._lock:
                    seen, self._seen = self._seen, []
                _answer(client, json.dumps(seen).encode())
                continue
            with self._lock:
                self._seen.append(f"{method} {path.removeprefix('/xrpc/').lstrip('/')}")
            if path.startswith("/did:"):
                _answer(client, self._document(path))
            else:
                yield head

    def _exchange(self, head: Head, client: Peer, host: Peer) -> None:
        host.socket.sendall(head.addressed_to(self._pds))
        client.hand_on_body(head, host)
        answer = host.head()
        client.socket.sendall(b"".join(answer.lines))
        if head.words[0] != "HEAD" and answer.words[1] not in ("204", "304"):
            host.hand_on_body(answer, client)

    def _document(self, path: str) -> bytes:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{self._plc}{path}", timeout=30) as response:
            document = json.load(response)
        for service in document.get("service", []):
            service["serviceEndpoint"] = self.url
        return json.dumps(document).encode()


def _answer(client: Peer, body: bytes) -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    client.socket.sendall(head.encode() + b"\r\n" + body)


def main() -> None:
    proxy = Proxy(*sys.argv[1:])
    threading.Thread(target=proxy.serve, daemon=True).start()
    sys.stdout.write(f"{proxy.url}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
