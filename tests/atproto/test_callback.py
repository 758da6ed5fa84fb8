"""The listener that a browser comes back to, as browsers and others ask it."""

import errno
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing

import httpx
import pytest

from git_knotless.atproto import callback
from git_knotless.atproto.callback import CannotListen, Listener, LoginTimedOut, listen

AGAIN = "git knotless login alice.test --no-browser"
STATE = "the-state-of-this-login"
GOOD = {"code": "cod-1", "state": STATE, "iss": "http://localhost:2583"}


@pytest.fixture
def listener() -> Iterator[Listener]:
    with listen(AGAIN) as listener:
        yield listener


@pytest.fixture
def answer(listener: Listener) -> Iterator["Future[dict[str, str]]"]:
    """What `wait` says in the end."""
    with ThreadPoolExecutor(1) as threads:
        yield threads.submit(listener.wait, STATE, 20)


@pytest.fixture
def browser(listener: Listener) -> Iterator[httpx.Client]:
    url = f"http://127.0.0.1:{listener.port}"
    with httpx.Client(base_url=url, trust_env=False, timeout=10) as client:
        yield client


Answer = "Future[dict[str, str]]"


def test_the_answer_comes_with_a_page(answer: Answer, browser: httpx.Client) -> None:
    page = browser.get("/callback", params=GOOD)
    assert answer.result(5) == GOOD
    assert page.status_code == 200
    assert "go back to the terminal" in page.text
    assert "<script" not in page.text
    assert "cod-1" not in page.text
    assert {name: page.headers[name] for name in ("connection", "referrer-policy")} == {
        "connection": "close",
        "referrer-policy": "no-referrer",
    }
    assert page.headers["content-security-policy"] == "default-src 'none'"
    assert page.headers["cache-control"] == "no-store"


def test_a_denial_is_shown_as_one(answer: Answer, browser: httpx.Client) -> None:
    denied = {"error": "access_denied", "state": STATE, "iss": GOOD["iss"]}
    page = browser.get("/callback", params=denied)
    assert answer.result(5) == denied
    assert "The login was denied." in page.text
    assert "has the answer" not in page.text


def test_a_second_redirect_finds_nobody(answer: Answer, browser: httpx.Client) -> None:
    browser.get("/callback", params=GOOD)
    answer.result(5)
    with pytest.raises(httpx.ConnectError):
        browser.get("/callback", params={**GOOD, "code": "cod-2"})


@pytest.mark.parametrize(
    ("method", "path", "params", "status"),
    [
        ("GET", "/favicon.ico", {}, 404),
        ("GET", "/", GOOD, 404),
        ("GET", "/callback/", GOOD, 404),
        ("POST", "/callback", GOOD, 405),
        ("HEAD", "/callback", GOOD, 405),
        ("GET", "/callback", {}, 400),
        ("GET", "/callback", {**GOOD, "state": "x"}, 400),
        ("GET", "/callback", {**GOOD, "state": ""}, 400),
        ("GET", "/callback", {"code": "x"}, 400),
        ("GET", "/callback", {**GOOD, "code": ["a", "b"]}, 400),
        ("GET", "/callback", {**GOOD, **{f"x{n}": "1" for n in range(30)}}, 400),
    ],
)
def test_whatever_else_comes_is_refused_and_the_wait_goes_on(
    answer: Answer,
    browser: httpx.Client,
    method: str,
    path: str,
    params: dict[str, str],
    status: int,
) -> None:
    page = browser.request(method, path, params=params)
    assert page.status_code == status
    assert STATE not in page.text
    assert not answer.done()
    browser.get("/callback", params=GOOD)
    assert answer.result(5) == GOOD


@pytest.mark.parametrize("host", ["evil.example.com", "localhost", "127.0.0.1:1"])
def test_a_page_of_another_name_is_not_ours(
    answer: Answer, browser: httpx.Client, host: str
) -> None:
    assert browser.get("/callback", params=GOOD, headers={"Host": host}).status_code == 400
    assert not answer.done()
    browser.get("/callback", params=GOOD)
    answer.result(5)


def connect(listener: Listener) -> socket.socket:
    return socket.create_connection(("127.0.0.1", listener.port), timeout=10)


@pytest.mark.parametrize(
    "sent", [b"", b"GET", b"\x16\x03\x01\x02\x00\x01", b"GET /callback HTTP/1.1\r\nHost: x\r\n"]
)
def test_whoever_says_nothing_keeps_nobody_waiting(
    answer: Answer, listener: Listener, browser: httpx.Client, sent: bytes
) -> None:
    """As the connections that a browser opens before it needs them."""
    with closing(connect(listener)) as idle:
        idle.sendall(sent)
        begun = time.monotonic()
        assert browser.get("/callback", params=GOOD).status_code == 200
        assert time.monotonic() - begun < 2
        assert answer.result(5) == GOOD


def test_a_request_that_comes_in_pieces(answer: Answer, listener: Listener) -> None:
    line = f"GET /callback?{httpx.QueryParams(GOOD)} HTTP/1.1\r\n"
    head = f"{line}Host: 127.0.0.1:{listener.port}\r\n\r\n"
    with closing(connect(listener)) as slow:
        for byte in head.encode():
            slow.sendall(bytes([byte]))
        assert slow.recv(100).startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.result(5) == GOOD


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"x" * 20_000, b"431"),
        (b"\xff\xfe\r\n\r\n", b"400"),
        (b"\r\n\r\n", b"400"),
        (b"GET http://127.0.0.1/callback HTTP/1.1\r\n\r\n", b"400"),
        (b"GET /callback HTTP/2\r\n\r\n", b"400"),
        (b"GET //[ HTTP/1.1\r\nHost: 127.0.0.1:%(port)d\r\n\r\n", b"404"),
        (b"GET //[::1/callback?x HTTP/1.1\r\nHost: 127.0.0.1:%(port)d\r\n\r\n", b"404"),
        (b"GET /callback?state=\xff HTTP/1.1\r\nHost: 127.0.0.1:%(port)d\r\n\r\n", b"400"),
        (b"GET /callback?%%ff HTTP/1.1\r\nHost: 127.0.0.1:%(port)d\r\n\r\n", b"400"),
    ],
)
def test_what_is_no_request(
    answer: Answer, listener: Listener, browser: httpx.Client, sent: bytes, status: bytes
) -> None:
    with closing(connect(listener)) as odd:
        odd.sendall(sent % {b"port": listener.port})
        assert odd.recv(100).startswith(b"HTTP/1.1 " + status)
    browser.get("/callback", params=GOOD)
    assert answer.result(5) == GOOD


def test_many_who_say_nothing(answer: Answer, listener: Listener, browser: httpx.Client) -> None:
    idle = [connect(listener) for _ in range(100)]
    try:
        assert browser.get("/callback", params=GOOD).status_code == 200
    finally:
        for each in idle:
            each.close()
    assert answer.result(5) == GOOD


def test_one_that_speaks_as_it_is_let_go_for_another() -> None:
    """Both are seen in the same moment, since a process was stopped in between."""
    waits = """
from git_knotless.atproto import callback
callback._MOST_CONNECTIONS = 2
with callback.listen() as listener:
    print(listener.port, flush=True)
    print(listener.wait("the-state", 20))
"""
    command = [sys.executable, "-c", waits]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        address = ("127.0.0.1", int(process.stdout.readline()))
        opened = [socket.create_connection(address, timeout=10) for _ in range(2)]
        with closing(socket.create_connection(address, timeout=10)) as probe:
            probe.sendall(b"\r\n\r\n")
            assert probe.recv(100).startswith(b"HTTP/1.1 400"), "and those before were seen"
        opened.append(socket.create_connection(address, timeout=10))
        time.sleep(0.2)  # nothing tells when the third is seen
        process.send_signal(signal.SIGSTOP)
        opened.append(socket.create_connection(address, timeout=10))
        opened[1].sendall(b"G")
        process.send_signal(signal.SIGCONT)
        with closing(socket.create_connection(address, timeout=10)) as browser:
            head = f"GET /callback?state=the-state HTTP/1.1\r\nHost: 127.0.0.1:{address[1]}\r\n\r\n"
            browser.sendall(head.encode())
            assert browser.recv(100).startswith(b"HTTP/1.1 200")
        assert process.wait(10) == 0
        for each in opened:
            each.close()


def test_those_who_are_late_are_let_go(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callback, "_HEAD_SECONDS", 0.2)
    with ThreadPoolExecutor(1) as threads, closing(connect(listener)) as idle:
        waiting = threads.submit(listener.wait, STATE, 3)
        assert idle.recv(1) == b"", "hung up on"
        with pytest.raises(LoginTimedOut):
            waiting.result()


def test_nobody_is_waited_for_for_ever(listener: Listener) -> None:
    begun = time.monotonic()
    with pytest.raises(LoginTimedOut, match="the browser has brought no answer") as caught:
        listener.wait(STATE, 0.3)
    assert caught.value.hint == AGAIN
    assert time.monotonic() - begun < 5


def test_each_login_has_a_port_of_its_own() -> None:
    with listen() as one, listen() as other:
        assert one.port != other.port
        for each in (one, other):
            connect(each).close()


def test_only_this_machine_is_listened_to(listener: Listener) -> None:
    assert listener._server.getsockname()[0] == "127.0.0.1"


def test_a_wait_ends_with_a_ctrl_c() -> None:
    waits = "from git_knotless.atproto.callback import listen\n"
    waits += (
        "with listen() as listener:\n    print(listener.port, flush=True)\n    listener.wait('s')"
    )
    command = [sys.executable, "-c", waits]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        threading.Timer(0.2, os.kill, (process.pid, signal.SIGINT)).start()
        assert process.wait(5) == -signal.SIGINT
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def test_a_machine_that_gives_no_port(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket, "create_server", refuse)
    with pytest.raises(CannotListen, match="Too many open files") as caught, listen(AGAIN):
        pass
    assert caught.value.hint == AGAIN
