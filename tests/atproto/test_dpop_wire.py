"""What is sent twice for a nonce, over real connections: cut in the middle, stalled, dripped."""

import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from git_knotless import limits
from git_knotless.atproto.credentials import Once
from git_knotless.atproto.dpop import Dpop, DpopKey
from git_knotless.atproto.errors import AtprotoError, HostTimeout
from git_knotless.atproto.transport import Transport
from git_knotless.atproto.xrpc import Client
from tests.atproto.authserver import verified
from tests.atproto.wire import Bytes, Connection, Server

SIZE = 20 << 20
OK = b'HTTP/1.1 200 OK\r\nContent-Length: 8\r\nDPoP-Nonce: n2\r\n\r\n{"a": 1}'
REFUSAL = (
    b'HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: DPoP error="use_dpop_nonce"\r\n'
    b"DPoP-Nonce: n1\r\n"
)


@pytest.fixture
def client() -> Iterator[Client]:
    with Client(pause=lambda _: pytest.fail("a nonce is nothing to wait for")) as client:
        yield client


def dpop(url: str, nonces: dict[str, str]) -> Dpop:
    return Dpop(url, DpopKey.generate(), nonces, "access")


def nonce_in(head: bytes) -> str | None:
    (line,) = (line for line in head.split(b"\r\n") if line.lower().startswith(b"dpop:"))
    _, claims, *_ = verified(line.partition(b":")[2].strip().decode())
    nonce: str | None = claims.get("nonce")
    return nonce


@pytest.mark.parametrize("read", [0, SIZE // 2, SIZE])
@pytest.mark.parametrize("goes_on", [True, False])
def test_a_nonce_that_turns_during_an_upload(client: Client, read: int, *, goes_on: bool) -> None:
    """The host refuses before, while or after the body comes; then it hangs up, or reads on."""
    got: list[tuple[str | None, int]] = []

    def refuse(connection: Connection) -> None:
        got.append((nonce_in(connection.request() or b""), len(connection.file.read(read))))
        connection.send(REFUSAL + b"Content-Length: 0\r\n\r\n")
        if goes_on:
            connection.file.read(SIZE - read)
            take(connection)

    def take(connection: Connection) -> None:
        got.append((nonce_in(connection.request() or b""), len(connection.file.read(SIZE))))
        connection.send(OK)

    with Server(refuse, take) as host:
        client.nonces[host.url] = "n0"
        auth = Once(dpop(host.url, client.nonces))
        assert client.upload(host.url, Bytes(SIZE), "a/b", auth=auth) == {"a": 1}
    assert got == [("n0", read), ("n1", SIZE)]
    assert client.nonces[host.url] == "n2"


def test_a_connection_for_the_second_sending_has_its_own_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first may take longer than any connection may."""
    monkeypatch.setattr(limits, "CONNECT_ALL", 0.5)

    def late(connection: Connection) -> None:
        connection.request()
        time.sleep(0.7)  # longer than that
        connection.send(REFUSAL + b"Connection: close\r\nContent-Length: 0\r\n\r\n")

    def take(connection: Connection) -> None:
        connection.request()
        connection.send(OK)

    with Server(late, take) as host, Client() as client:
        auth = Once(dpop(host.url, client.nonces))
        assert client.post(host.url, "x.y.z", None, auth=auth) == {"a": 1}
        assert host.connections == 2


@pytest.mark.parametrize("end", [b"Content-Length: 0\r\n\r\n", b"Content-Length: 9\r\n\r\n"])
def test_the_second_sending_keeps_the_pace_too(end: bytes) -> None:
    """As does the refusal between them, of which some hosts never send the rest."""

    def stall(connection: Connection) -> None:
        connection.request()
        connection.send(REFUSAL + end)
        connection.request()
        connection.request()

    begun = time.monotonic()
    with Server(stall) as host, closing(Transport(window=1)) as transport:
        credential = dpop(host.url, {})
        with (
            pytest.raises(HostTimeout),
            transport.exchange("GET", f"{host.url}/x", auth=credential),
        ):
            pass
    assert 0.9 < time.monotonic() - begun < 4


def test_a_refusal_that_drips(client: Client) -> None:
    def drip(connection: Connection) -> None:
        connection.request()
        connection.send(REFUSAL + b"Content-Length: 60000\r\n\r\n")
        while True:
            connection.send(b"x")
            time.sleep(0.05)  # so that some bytes come in each second

    begun = time.monotonic()
    with Server(drip) as host, closing(Transport(window=1)) as transport:
        exchange = transport.exchange("GET", f"{host.url}/x", auth=dpop(host.url, {}))
        with pytest.raises(AtprotoError), exchange:
            pass
    assert time.monotonic() - begun < 4
