"""OAuth sessions in use: carried to one host, renewed by one of many, ended once and for all."""

import resource
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from git_knotless.atproto.dpop import DpopKey
from git_knotless.atproto.errors import (
    AuthRefused,
    BadAnswer,
    ClockWrong,
    HostUnreachable,
    NotRenewed,
    RateLimited,
    ScopeMissing,
    ServerFault,
    XrpcError,
)
from git_knotless.atproto.session import BadSession, Session, moment
from git_knotless.atproto.session_auth import SessionAuth
from git_knotless.atproto.sessions import SessionStore
from git_knotless.atproto.syntax import Did, Handle
from git_knotless.atproto.xrpc import Client
from git_knotless.errors import LoginNeeded
from tests.atproto.authserver import METADATA, TOKEN, AuthServer, Grant, client_of
from tests.atproto.fakes import DID, PDS, Body, json_answer, xrpc_error

GET = "com.atproto.repo.getRecord"
POST = "com.atproto.repo.applyWrites"
ENDED = r"the login of alice\.test has ended"


@pytest.fixture
def server() -> AuthServer:
    return AuthServer()


@pytest.fixture
def client(server: AuthServer) -> Iterator[Client]:
    with client_of(server) as client:
        yield client


@pytest.fixture
def store(tmp_path: Path) -> SessionStore:
    return SessionStore(tmp_path / "sessions")


@pytest.fixture
def session(client: Client, server: AuthServer, store: SessionStore) -> Session:
    """Stored, and live at the server."""
    key = DpopKey.generate()
    grant = Grant(DID, "atproto", key.public_jwk["x"] + key.public_jwk["y"], "at-0", "ref-0")
    server.grants.append(grant)
    client.nonces[PDS] = server.nonce
    session = Session(
        Did(DID),
        Handle("alice.test"),
        PDS,
        "at-0",
        "ref-0",
        kind="oauth",
        expires_at=moment(time.time() + 3599),
        issuer=PDS,
        client_id="http://localhost",
        scope="atproto",
        dpop_key=key.to_jwk(),
        extra={"color": "red"},
    )
    store.save(session)
    return session


Load = Callable[[], SessionAuth]


@pytest.fixture
def auth(client: Client, store: SessionStore, session: Session) -> Load:
    """What a new process makes of what is stored."""

    def load() -> SessionAuth:
        stored = store.load(session.did)
        assert stored is not None
        return SessionAuth(client, store, stored)

    return load


def expire(store: SessionStore, seconds: float = 0) -> None:
    session = store.load(Did(DID))
    assert session is not None
    store.save(replace(session, expires_at=moment(time.time() + seconds)))


def test_a_live_session_costs_no_request(client: Client, server: AuthServer, auth: Load) -> None:
    assert client.get(PDS, GET, auth=auth())["ok"] is True
    assert server.take() == [GET]


def test_an_expired_one_is_renewed_before_use(
    client: Client, server: AuthServer, auth: Load, store: SessionStore
) -> None:
    expire(store, 50)  # less than what a request may queue
    assert client.get(PDS, GET, auth=auth())["ok"] is True
    assert server.take() == [METADATA, TOKEN, GET]
    (grant,) = server.grants
    stored = store.load(Did(DID))
    assert stored is not None
    assert (stored.access, stored.refresh) == (grant.access, grant.refresh)
    assert stored.extra == {"color": "red"}
    assert client.get(PDS, GET, auth=auth())["ok"] is True
    assert server.take() == [GET]


def test_the_new_pair_is_on_the_disk_before_it_is_used(
    client: Client, server: AuthServer, auth: Load, store: SessionStore
) -> None:
    expire(store)
    seen: list[str] = []

    def look(request: httpx.Request) -> None:
        stored = store.load(Did(DID))
        assert stored is not None
        seen.append(stored.access)
        assert request.headers["authorization"] == f"DPoP {stored.access}"

    server.answers[f"/xrpc/{GET}"] = look
    client.get(PDS, GET, auth=auth())
    assert len(seen) == 1
    assert seen != ["at-0"]


def test_a_token_that_the_host_does_not_know_any_more_is_renewed(
    client: Client, server: AuthServer, auth: Load
) -> None:
    server.grants[0].access = "another"
    body = Body(b"PACK")
    client.upload(PDS, body, "a/b", auth=auth())
    assert server.take() == [
        "com.atproto.repo.uploadBlob",
        METADATA,
        TOKEN,
        "com.atproto.repo.uploadBlob",
    ]


def test_what_another_process_has_renewed_is_taken_from_the_store(
    client: Client, server: AuthServer, auth: Load, store: SessionStore
) -> None:
    """A refresh kills the old access token, so the other's next request is refused."""
    one, other = auth(), auth()
    expire(store)
    client.get(PDS, GET, auth=auth())
    server.take()
    for waiting in (one, other):
        assert client.post(PDS, POST, {}, auth=waiting)["ok"] is True
        assert server.take() == [POST, POST]
    assert len(server.grants) == 1, "no refresh token was used twice"


def test_many_threads_of_many_processes_renew_once(
    client: Client, server: AuthServer, auth: Load, store: SessionStore
) -> None:
    expire(store)
    processes = [auth() for _ in range(5)]
    with ThreadPoolExecutor(20) as threads:
        answers = threads.map(
            lambda number: client.get(PDS, GET, auth=processes[number % 5])["ok"], range(40)
        )
        assert list(answers) == [True] * 40
    assert server.asked.count(TOKEN) == 1


def test_a_session_that_was_ended_is_marked_and_no_secret_is_kept(
    client: Client, server: AuthServer, auth: Load, store: SessionStore
) -> None:
    server.grants.clear()  # from the account's page, say
    with pytest.raises(LoginNeeded, match=ENDED) as caught:
        client.get(PDS, GET, auth=auth())
    assert caught.value.hint == "git knotless login alice.test"
    assert server.take() == [GET, METADATA, TOKEN]
    stored = store.load(Did(DID))
    assert stored is not None
    assert stored.ended
    assert (stored.access, stored.refresh, stored.dpop_key) == ("", "", None)
    with pytest.raises(LoginNeeded, match=ENDED):
        client.get(PDS, GET, auth=auth())
    assert server.take() == [], "the next is told so at once"


def test_a_pair_that_was_lost_ends_the_session_and_no_more(
    client: Client, server: AuthServer, auth: Load, store: SessionStore
) -> None:
    """Whoever held the lock was killed between the answer and the save."""
    before = store.load(Did(DID))
    expire(store)
    client.get(PDS, GET, auth=auth())
    assert before is not None
    store.save(replace(before, expires_at=moment(0)))
    with pytest.raises(LoginNeeded, match=ENDED):
        client.get(PDS, GET, auth=auth())
    assert server.grants == [], "a token that comes twice ends it at the host too"


def test_a_logout_elsewhere_ends_the_login_here(
    client: Client, server: AuthServer, auth: Load, store: SessionStore
) -> None:
    here = auth()
    server.grants.clear()
    store.delete(here.did)
    with pytest.raises(LoginNeeded, match=ENDED):
        client.get(PDS, GET, auth=here)
    assert TOKEN not in server.take()
    assert store.load(here.did) is None


def test_a_password_comes_after_a_session_that_cannot_be_renewed(
    client: Client, server: AuthServer, auth: Load, store: SessionStore
) -> None:
    server.grants.clear()
    asked: list[str] = []
    new = Session(Did(DID), Handle("alice.test"), PDS, "new", "newer")

    def login() -> Session:
        asked.append("password")
        store.save(new)
        return new

    stored = store.load(Did(DID))
    assert stored is not None
    with pytest.raises(AuthRefused):
        # The server here knows no passwords: that the new token is sent is what is looked at.
        client.get(PDS, GET, auth=SessionAuth(client, store, stored, login=login))
    assert asked == ["password"]
    assert store.load(Did(DID)) == new


@pytest.mark.parametrize("times", [1, 2])
def test_a_refresh_that_fails_is_tried_once_more(
    client: Client, server: AuthServer, auth: Load, store: SessionStore, times: int
) -> None:
    """Of two that come at once a host fails one, and the session lives."""
    expire(store)
    failures = iter([httpx.Response(500, json={"error": "server_error"})] * times)
    server.answers[TOKEN] = lambda _: next(failures, None)
    if times == 1:
        assert client.get(PDS, GET, auth=auth())["ok"] is True
    else:
        with pytest.raises(NotRenewed) as caught:
            client.get(PDS, GET, auth=auth())
        assert isinstance(caught.value.__cause__, ServerFault)
    assert server.asked.count(TOKEN) == 2
    stored = store.load(Did(DID))
    assert stored is not None
    assert not stored.ended


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (httpx.ReadError("reset"), HostUnreachable),
        (json_answer({"access_token": "a"}), BadAnswer),
        (xrpc_error(429, "RateLimitExceeded"), RateLimited),
        (httpx.Response(400, json={"error": "invalid_request"}), XrpcError),
    ],
)
def test_a_refresh_that_says_nothing_keeps_the_session(
    client: Client,
    server: AuthServer,
    auth: Load,
    store: SessionStore,
    answer: Any,
    kind: type[Exception],
) -> None:
    expire(store)
    before = store.load(Did(DID))

    def fail(_: httpx.Request) -> httpx.Response:
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return] # it is one

    server.answers[TOKEN] = fail
    with pytest.raises(NotRenewed, match=r"the login of alice\.test could not be") as caught:
        client.get(PDS, GET, auth=auth())
    assert isinstance(caught.value.__cause__, kind)
    assert server.asked.count(TOKEN) == 1
    assert store.load(Did(DID)) == before


def test_a_refresh_for_another_account_is_not_taken(
    client: Client, server: AuthServer, auth: Load, store: SessionStore
) -> None:
    expire(store)
    server.tokens = {"sub": "did:plc:ragtjsm2j2vknwkz3zp4oxrd"}
    with pytest.raises(NotRenewed, match="the session of another account"):
        client.get(PDS, GET, auth=auth())


def test_a_refresh_goes_to_the_issuer_as_it_is_now(
    client: Client, server: AuthServer, auth: Load, store: SessionStore
) -> None:
    expire(store)
    server.metadata = {"token_endpoint": "https://evil.example.com/token"}
    with pytest.raises(NotRenewed, match="another origin"):
        client.get(PDS, GET, auth=auth())
    assert server.take() == [METADATA]


@pytest.mark.parametrize(
    "host", ["https://evil.example.com", "http://localhost:2584", "http://127.0.0.1:2583"]
)
def test_no_token_leaves_for_another_host(
    client: Client, server: AuthServer, auth: Load, host: str
) -> None:
    with pytest.raises(LoginNeeded, match=r"the login of alice\.test is for localhost:2583, not"):
        client.get(host, GET, auth=auth())
    assert not server.take()


def test_the_hosts_clock_tells_when_a_token_ends(
    client: Client, server: AuthServer, auth: Load, store: SessionStore
) -> None:
    """A machine whose clock is 100 seconds ahead of its host's renews no sooner."""
    server.clock = lambda: time.time() - 100
    expire(store, 30)  # by our clock, and so in 130 seconds by the host's
    client.get_json(PDS + METADATA)
    server.take()
    client.get(PDS, GET, auth=auth())
    assert server.take() == [GET]


@pytest.mark.parametrize("name", ["ScopeMissingError", "InsufficientScope", "insufficient_scope"])
def test_what_the_login_does_not_cover_is_named(
    client: Client, server: AuthServer, auth: Load, name: str
) -> None:
    text = 'Missing required scope "repo:dev.knotless.ref?action=update"'
    server.answers[f"/xrpc/{POST}"] = lambda _: xrpc_error(403, name, text)
    with pytest.raises(ScopeMissing, match=r"alice\.test does not cover this.*ref") as caught:
        client.post(PDS, POST, {}, auth=auth())
    assert isinstance(caught.value, LoginNeeded)
    assert caught.value.hint == "git knotless login alice.test"
    assert server.take() == [POST]


def test_a_refusal_that_is_not_about_the_token_renews_nothing(
    client: Client, server: AuthServer, auth: Load
) -> None:
    for refusal in (xrpc_error(403, "AuthMissing"), xrpc_error(401, "invalid_dpop_proof")):
        server.answers[f"/xrpc/{POST}"] = lambda _, refusal=refusal: refusal
        with pytest.raises(AuthRefused):
            client.post(PDS, POST, {}, auth=auth())
        assert server.take() == [POST]


def test_a_proof_that_is_refused_is_put_down_to_the_clock(
    client: Client, server: AuthServer, auth: Load
) -> None:
    server.clock = lambda: time.time() + 420
    with pytest.raises(ClockWrong, match="7 minutes behind localhost:2583's"):
        client.post(PDS, POST, {}, auth=auth())


def test_a_key_that_is_none_is_a_login_that_is_missing(
    client: Client, server: AuthServer, auth: Load, store: SessionStore
) -> None:
    stored = store.load(Did(DID))
    assert stored is not None
    store.save(replace(stored, dpop_key={"d": "x"}))
    with pytest.raises(LoginNeeded, match="is damaged"):
        client.get(PDS, GET, auth=auth())
    assert server.take() == []


def test_no_refresh_token_is_used_where_the_new_one_cannot_be_kept(
    client: Client, server: AuthServer, auth: Load, store: SessionStore, tmp_path: Path
) -> None:
    expire(store)
    here = SessionAuth(client, SessionStore(tmp_path / "sessions"), auth().session)
    (lock,) = (tmp_path / "sessions").glob("*.lock")
    lock.unlink()
    lock.mkdir()
    with pytest.raises(BadSession, match="cannot be written"):
        client.get(PDS, GET, auth=here)
    assert server.take() == []


def test_no_refresh_token_is_used_where_the_disk_has_no_room(
    client: Client, server: AuthServer, auth: Load, store: SessionStore
) -> None:
    """The reservation fails: it would be too late once the host has answered."""
    expire(store)
    before = store.load(Did(DID))
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8_000, limit[1]))
    try:
        with pytest.raises(BadSession, match="cannot be written: File too large"):
            client.get(PDS, GET, auth=auth())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, handler)
    assert server.take() == []
    assert store.load(Did(DID)) == before
    assert client.get(PDS, GET, auth=auth())["ok"] is True


def test_the_room_is_there_while_the_host_is_asked(
    client: Client, server: AuthServer, auth: Load, store: SessionStore, tmp_path: Path
) -> None:
    expire(store)
    sizes: list[int] = []

    def look(_: httpx.Request) -> None:
        sizes.extend(file.stat().st_size for file in (tmp_path / "sessions").glob(".*.new"))

    server.answers[TOKEN] = look
    assert client.get(PDS, GET, auth=auth())["ok"] is True
    assert [size > 16_000 for size in sizes] == [True]
    assert not list((tmp_path / "sessions").glob(".*.new"))


@pytest.mark.parametrize("date", ["Fri, 31 Dec 9999 23:59:59 GMT", "Mon, 01 Jan 1900 00:00:00 GMT"])
def test_a_clock_that_cannot_be_spoils_no_renewal(
    server: AuthServer, auth: Load, store: SessionStore, date: str
) -> None:
    def dated(request: httpx.Request) -> httpx.Response:
        answer = server(request)
        answer.headers["Date"] = date
        return answer

    expire(store)
    stored = store.load(Did(DID))
    assert stored is not None
    with client_of(dated) as client:
        assert client.get(PDS, GET, auth=SessionAuth(client, store, stored))["ok"] is True
        renewed = store.load(Did(DID))
        assert renewed is not None
        assert renewed.refresh != "ref-0"
        assert renewed.expires_at is not None
        server.take()
        assert client.get(PDS, GET, auth=SessionAuth(client, store, renewed))["ok"] is True
        assert server.take() == [GET], "and the next knows when it ends"


def test_a_renewal_that_hangs_is_waited_for_once(
    client: Client, server: AuthServer, auth: Load, store: SessionStore
) -> None:
    """Not by each thread, nor for each sending of a write."""
    expire(store)

    def hang(_: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("slow")

    server.answers[TOKEN] = hang
    shared = auth()
    with ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(client.get, PDS, GET, auth=shared) for _ in range(8)]
        errors = [each.exception() for each in asked]
    assert {type(error) for error in errors} == {NotRenewed}
    words = "could not be renewed: localhost:2583 does not answer; nothing was sent"
    assert {str(error) for error in errors} == {f"the login of alice.test {words}"}
    assert server.asked.count(TOKEN) == 1
    assert GET not in server.asked
