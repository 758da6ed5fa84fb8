"""How connections are made: a name is resolved once, and what was checked is connected to.

httpx has no say in that, httpcore has. Names go on as they are in TLS and in HTTP.
"""

import socket
from collections.abc import Callable, Iterable
from typing import Any

import httpcore
import httpx

from git_knotless.atproto.guard import Guard

# As `socket.getaddrinfo`, for a host and a port.
Resolve = Callable[[str, int], Iterable[tuple[Any, ...]]]


def resolve(host: str, port: int) -> Iterable[tuple[Any, ...]]:
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)


class GuardedBackend(httpcore.NetworkBackend):
    def __init__(self, guard: Guard, resolve: Resolve = resolve) -> None:
        self._guard = guard
        self._resolve = resolve
        self._sockets = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        try:
            found = _addresses(self._resolve(host, port))
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error
        failure: Exception = httpcore.ConnectError("the name has no address")
        for address in self._guard.usable(host, port, found) if found else ():
            try:
                return self._sockets.connect_tcp(
                    address, port, timeout, local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure


class Proxied(httpx.BaseTransport):
    """A proxy that the environment names: it resolves and connects, and we look at most.

    What the name is here tells something, if not everything: one private address is refused, and
    a name that cannot be resolved here is the proxy's to resolve.
    """

    def __init__(self, proxy: httpx.BaseTransport, guard: Guard, resolve: Resolve) -> None:
        self._proxy = proxy
        self._guard = guard
        self._resolve = resolve

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        host, port = request.url.host, request.url.port or 443
        try:
            found = _addresses(self._resolve(host, port))
        except OSError:
            found = []
        for address in found:
            self._guard.usable(host, port, [address])
        return self._proxy.handle_request(request)

    def close(self) -> None:
        self._proxy.close()


def guard_connections(client: httpx.Client, guard: Guard, resolve: Resolve = resolve) -> None:
    """Of a client that has made none yet. httpx hides all of this, and is held below its 1.0."""
    direct = client._transport
    assert isinstance(direct, httpx.HTTPTransport)
    direct._pool._network_backend = GuardedBackend(guard, resolve)
    for pattern, proxy in client._mounts.items():
        if proxy is not None:
            client._mounts[pattern] = Proxied(proxy, guard, resolve)


def _addresses(found: Iterable[tuple[Any, ...]]) -> list[str]:
    """As they can be connected to: a link-local one with its zone."""
    places = [place for *_, place in found]
    return [f"{p[0]}%{p[3]}" if len(p) == 4 and p[3] else p[0] for p in places]
