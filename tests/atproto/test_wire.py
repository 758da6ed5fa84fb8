"""The client over real connections: cut, truncated, refused, kept open, shared and closed."""

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import httpx
import pytest

from git_knotless.atproto.errors import (
    AtprotoError,
    AuthRefused,
    BadAnswer,
    HostTimeout,
    HostUnreachable,
    PayloadTooLarge,
    TransferCancelled,
)
from git_knotless.atproto.transport import Transport
from git_knotless.atproto.xrpc import Client
from tests.atproto.wire import Bytes, Connection, Serve, Server, answering, once, silent

NSID = "com.atproto.server.describeServer"
OK = b'HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n{"a": 1}'


@pytest.fixture
def waits() -> list[float]:
    return []


@pytest.fixture
def client(waits: list[float]) -> Iterator[Client]:
    with Client(pause=waits.append) as client:
        yield client


class Nobody:
    def credential(self, _url: str, /) -> httpx.Auth:
        return httpx.Auth()

    def renewed(self, _sent: httpx.Auth, _refusal: AuthRefused, /) -> bool:
        return False


def test_one_connection_serves_many_calls(client: Client) -> None:
    with Server(answering(OK)) as host:
        for _ in range(5):
            assert client.get(host.url, NSID) == {"a": 1}
        assert host.connections == 1


def test_threads_share_a_client(client: Client) -> None:
    with Server(answering(OK)) as host, ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda _: client.get(host.url, NSID), range(40)))
        assert answers == [{"a": 1}] * 40
        assert host.connections <= 4


def test_a_host_that_is_down(client: Client, waits: list[float]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(HostUnreachable) as caught:
        client.get(f"http://127.0.0.1:{port}", NSID)
    assert caught.value.message == f"127.0.0.1:{port} cannot be reached: connection refused"
    assert len(waits) == 2


def test_a_name_that_nobody_has(client: Client) -> None:
    with pytest.raises(HostUnreachable, match=r"nobody.invalid cannot be reached: "):
        client.get("https://nobody.invalid", NSID)


def test_a_host_without_tls(client: Client) -> None:
    def serve(connection: Connection) -> None:
        connection.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with Server(serve) as host, pytest.raises(HostUnreachable, match="cannot be reached"):
        client.get(host.url.replace("http:", "https:"), NSID)


@pytest.mark.parametrize(
    "cut",
    [
        b"",
        b"HTTP/1.1 200",
        b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n{",
    ],
)
def test_a_cut_answer_is_asked_for_again(client: Client, cut: bytes) -> None:
    with Server(once(cut), answering(OK)) as host:
        assert client.get(host.url, NSID) == {"a": 1}
        assert host.connections == 2
    with Server(once(cut)) as host:
        with pytest.raises(HostUnreachable, match="dropped the connection"):
            client.get(host.url, NSID)
        assert host.connections == 3


def test_a_post_on_a_cut_connection_is_not_sent_again(client: Client) -> None:
    with Server(once(b""), answering(OK)) as host:
        with pytest.raises(HostUnreachable):
            client.post(host.url, NSID, {})
        assert host.connections == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SSL_CERT_FILE", "/nowhere/ca.pem"),
        ("HTTPS_PROXY", "gopher://x"),
        ("HTTPS_PROXY", "http://:x"),
    ],
)
def test_an_environment_that_is_of_no_use(
    client: Client, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(HostUnreachable, match="that the environment names are of no use"):
        client.get("https://nobody.invalid", NSID)


def test_what_is_not_http(client: Client) -> None:
    with (
        Server(once(b"SSH-2.0-OpenSSH_9.9\r\n\r\n")) as host,
        pytest.raises(BadAnswer, match="does not answer in HTTP"),
    ):
        client.get(host.url, NSID)


def test_endless_headers(client: Client) -> None:
    endless = once(b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 100_000)
    with Server(endless) as host, pytest.raises(AtprotoError):
        client.get(host.url, NSID)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"


def dripping(head: bytes, drop: bytes, every: float = 0.1) -> Serve:
    """Each piece well within any time-out between two of them, and all of them never."""

    def serve(connection: Connection) -> None:
        connection.request()
        connection.send(head)
        while True:
            connection.send(drop)
            time.sleep(every)  # the host is slow

    return serve


@pytest.fixture
def hasty() -> Iterator[Transport]:
    """Gives a host a second where others get half a minute."""
    with closing(Transport(window=1)) as transport:
        yield transport


@pytest.mark.parametrize(
    ("head", "drop"),
    [
        (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
        (b"", b"\r\n"),
        (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"),
        (b"HTTP/1.1 200 OK\r\nX: ", b"y"),
    ],
)
def test_headers_that_drip(hasty: Transport, head: bytes, drop: bytes) -> None:
    begun = time.monotonic()
    with (
        Server(dripping(head, drop)) as host,
        pytest.raises(AtprotoError, match=r"^127\.0\.0\.1:\d+ does not answer") as caught,
        hasty.exchange("GET", f"{host.url}/x", headers={}),
    ):
        pass
    # Empty lines before an answer are no HTTP, and said so at once.
    assert type(caught.value) in (HostTimeout, BadAnswer)
    assert time.monotonic() - begun < 3


@pytest.mark.parametrize(
    ("head", "drop"),
    [
        (HEAD, b" "),
        (HEAD + bytes(10_000), b" "),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"0"),
    ],
)
def test_a_body_that_drips(hasty: Transport, head: bytes, drop: bytes) -> None:
    begun = time.monotonic()
    with Server(dripping(head, drop)) as host:
        for read in (lambda answer: answer.read(1_000_000), lambda answer: [*answer.chunks()]):
            with (
                hasty.exchange("GET", f"{host.url}/x", headers={}) as answer,
                pytest.raises(HostTimeout, match=r"^127\.0\.0\.1:\d+ is too slow"),
            ):
                read(answer)
    assert time.monotonic() - begun < 6


def test_a_slow_line_is_enough_for_a_blob_but_not_for_long_answers(hasty: Transport) -> None:
    """4 kB/s: more than the least rate, and less than what a person waits for."""
    drop = b"." * 400
    with Server(dripping(HEAD, drop)) as host:
        with hasty.exchange("GET", f"{host.url}/x", headers={}) as answer:
            begun, had = time.monotonic(), 0
            for chunk in answer.chunks():
                had += len(chunk)
                if had > 6_000:
                    break
            assert time.monotonic() - begun > 1.2
        with (
            hasty.exchange("GET", f"{host.url}/x", headers={}) as answer,
            pytest.raises(HostTimeout, match=r"is too slow: \d,\d{3} bytes of an answer by now"),
        ):
            answer.read(1_000_000)


def test_an_answer_as_fast_as_a_person_waits_for(hasty: Transport) -> None:
    def serve(connection: Connection) -> None:
        connection.request()
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 20000\r\n\r\n")
        for _ in range(20):
            time.sleep(0.1)  # the host is slow
            connection.send(b"." * 1000)

    with Server(serve) as host, hasty.exchange("GET", f"{host.url}/x", headers={}) as answer:
        assert len(answer.read(20_000)) == 20_000


def test_a_reader_that_is_slow_is_not_the_hosts_fault(hasty: Transport) -> None:
    def serve(connection: Connection) -> None:
        connection.request()
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nPACK")
        time.sleep(1.7)  # more than a window, less than what the reader takes and one
        connection.send(b"more")

    with Server(serve) as host, hasty.exchange("GET", f"{host.url}/x", headers={}) as answer:
        chunks = answer.chunks()
        assert next(chunks) == b"PACK"
        time.sleep(1.5)  # the reader is slow
        assert next(chunks) == b"more"


def test_what_is_compressed_to_nothing_ends(client: Client) -> None:
    """Empty blocks of deflate, for ever."""

    def serve(connection: Connection) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 9999999999\r\n\r\n"
        connection.request()
        connection.send(head + b"\x1f\x8b\x08\0\0\0\0\0\0\x03")
        while True:
            connection.send(b"\0\0\0\xff\xff" * 10_000)

    with Server(serve) as host, pytest.raises(BadAnswer, match="more than 1,048,576 bytes"):
        client.get(host.url, NSID)


def test_a_blob_goes_on_where_it_was_cut(client: Client) -> None:
    data = bytes(range(256)) * 1000
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(data)}\r\n\r\n".encode()
    whole = head + data
    with Server(once(whole[:100_000]), once(whole[:50_000]), answering(whole)) as host:
        assert b"".join(client.download(host.url, "d", "c", limit=len(data))) == data
        assert host.connections == 3
    with Server(once(whole[:-1])) as host, pytest.raises(HostUnreachable):
        b"".join(client.download(host.url, "d", "c", limit=len(data)))


def test_a_blob_without_end_is_left(client: Client) -> None:
    def serve(connection: Connection) -> None:
        connection.request()
        connection.send(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            connection.send(bytes(65536))

    had: list[int] = []
    with Server(serve) as host, pytest.raises(BadAnswer, match="too long"):
        had.extend(map(len, client.download(host.url, "d", "c", limit=1_000_000)))
    assert sum(had) <= 1_000_000


def test_an_upload_that_is_refused_before_it_is_read(client: Client) -> None:
    refusal = b'{"error": "PayloadTooLarge", "message": ""}'
    head = b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"

    def serve(connection: Connection) -> None:
        asked = connection.request() or b""
        assert b"content-length: 33554432" in asked.lower()
        connection.send(head % len(refusal) + refusal)
        connection.socket.shutdown(socket.SHUT_WR)
        while connection.file.read(65536):
            pass

    with Server(serve) as host, pytest.raises(PayloadTooLarge):
        client.upload(host.url, Bytes(32 << 20), "a/b", auth=Nobody())


def test_an_upload_whose_connection_drops_begins_again(client: Client) -> None:
    got: list[int] = []

    def take(connection: Connection) -> None:
        connection.request()
        got.append(len(connection.file.read(1 << 20)))
        connection.send(OK)

    def drop(connection: Connection) -> None:
        connection.request()
        connection.file.read(1000)

    with Server(drop, take) as host:
        assert client.upload(host.url, Bytes(1 << 20), "a/b", auth=Nobody()) == {"a": 1}
    assert got == [1 << 20]


@pytest.mark.parametrize("threads", [1, 4])
def test_closing_ends_what_others_wait_for(threads: int) -> None:
    client = Client()
    with Server(silent) as host, ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(client.get, host.url, NSID) for _ in range(threads)]
        while host.connections < threads:
            time.sleep(0.01)  # until all are connected
        begun = time.monotonic()
        client.close()
        for future in futures:
            with pytest.raises(TransferCancelled):
                future.result(timeout=5)
        assert time.monotonic() - begun < 5
    with pytest.raises(TransferCancelled):
        client.get("http://127.0.0.1:1", NSID)


def test_closing_ends_a_wait_between_two_tries() -> None:
    limited = b"HTTP/1.1 429 Too Many\r\nRetry-After: 50\r\nContent-Length: 0\r\n\r\n"
    told = threading.Event()
    client = Client(notify=lambda _: told.set())
    with Server(answering(limited)) as host, ThreadPoolExecutor(1) as pool:
        future = pool.submit(client.get, host.url, NSID)
        assert told.wait(5)
        client.close()
        with pytest.raises(TransferCancelled):
            future.result(timeout=5)


def test_closing_ends_a_download_under_way() -> None:
    def serve(connection: Connection) -> None:
        connection.request()
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nPACK")
        connection.request()

    client = Client()
    with Server(serve) as host, ThreadPoolExecutor(1) as pool:
        chunks = client.download(host.url, "d", "c", limit=1000)
        assert next(chunks) == b"PACK"
        future = pool.submit(b"".join, chunks)
        time.sleep(0.05)  # so that the thread waits for more
        client.close()
        with pytest.raises(TransferCancelled):
            future.result(timeout=5)
