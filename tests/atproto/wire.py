"""Hosts on real sockets, each connection of which does what a test says."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Self


class Connection:
    """One connection as the host sees it."""

    def __init__(self, opened: socket.socket) -> None:
        self.socket = opened
        self.file = opened.makefile("rb")

    def request(self) -> bytes | None:
        """The head of the next request, None after the last."""
        lines = iter(self.file.readline, b"\r\n")
        head = b""
        for line in lines:
            if not line:
                return None
            head += line
        return head

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)


Serve = Callable[[Connection], None]


class Server:
    """Gives each connection to the next of `serves`, the last one to all that follow."""

    def __init__(self, *serves: Serve) -> None:
        self._serves = list(serves)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = 0

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self._listener, *self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                opened, _ = self._listener.accept()
                self._open.append(opened)
                self.connections += 1
                serve = self._serves.pop(0) if len(self._serves) > 1 else self._serves[0]
                thread = threading.Thread(target=self._run, args=(serve, opened))
                self._threads.append(thread)
                thread.start()

    def _run(self, serve: Serve, opened: socket.socket) -> None:
        with opened, suppress(OSError):
            connection = Connection(opened)
            with connection.file:
                serve(connection)


def answering(data: bytes) -> Serve:
    """Every request, for as long as the client stays."""

    def serve(connection: Connection) -> None:
        while connection.request() is not None:
            connection.send(data)

    return serve


def once(data: bytes) -> Serve:
    """One request, and then the connection is cut."""

    def serve(connection: Connection) -> None:
        connection.request()
        connection.send(data)

    return serve


def silent(connection: Connection) -> None:
    while connection.request() is not None:
        pass


@dataclass
class Bytes:
    size: int

    def chunks(self) -> Iterator[bytes]:
        for _ in range(self.size // 65536):
            yield bytes(65536)
