"""App-password sessions: begun, carried to one host only, renewed once, and ended."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any

import httpx
import pytest

from git_knotless.atproto.errors import (
    AccountTakedown,
    AtprotoError,
    BadAnswer,
    HostTimeout,
    HostUnreachable,
    NotRenewed,
    RateLimited,
    ServerFault,
)
from git_knotless.atproto.identity import Identity
from git_knotless.atproto.password import LoginRefused, login_with_password
from git_knotless.atproto.session import moment
from git_knotless.atproto.session_auth import Ended, SessionAuth, log_out
from git_knotless.atproto.sessions import SessionStore
from git_knotless.atproto.syntax import Did, Handle
from git_knotless.atproto.xrpc import Client
from git_knotless.errors import LoginNeeded
from tests.atproto.fakes import DID, PDS, client_for, json_answer, jwt, nsid_of, xrpc_error

IDENTITY = Identity(Did(DID), Handle("alice.test"), PDS, 0.0)
GET = "com.atproto.repo.getRecord"
CREATE = "com.atproto.server.createSession"
REFRESH = "com.atproto.server.refreshSession"
DELETE = "com.atproto.server.deleteSession"


@dataclass
class Pds:
    """Sessions as the reference PDS has them: a refresh token's successor is always the same."""

    did: str = DID
    lifetime: float = 7200
    clock: float = field(default_factory=time.time)
    issued: int = 0
    live: dict[str, int] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    refusal: dict[str, httpx.Response | Exception] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        with self.lock:
            return self.answer(nsid_of(request), request)

    def answer(self, nsid: str, request: httpx.Request) -> httpx.Response:
        self.asked.append(nsid)
        if refusal := self.refusal.get(nsid):
            if isinstance(refusal, Exception):
                raise refusal
            return refusal
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        match nsid:
            case "com.atproto.server.createSession":
                if request.read() != b'{"identifier":"%s","password":"right"}' % DID.encode():
                    return xrpc_error(401, "AuthenticationRequired", "Invalid identifier")
                return self.issue()
            case "com.atproto.server.refreshSession":
                assert request.read() == b""
                return self.issue() if token in self.live else xrpc_error(400, "ExpiredToken")
            case "com.atproto.server.deleteSession":
                self.live.clear()
                return httpx.Response(200)
        if self.live.get(token) != self.issued:
            return xrpc_error(400, "ExpiredToken", "Token has expired")
        return json_answer({"ok": True})

    def issue(self) -> httpx.Response:
        self.issued += 1
        access = jwt(self.clock + self.lifetime, jti=self.issued)
        refresh = f"refresh-{self.issued}"
        self.live |= {access: self.issued, refresh: self.issued}
        return json_answer({"did": self.did, "accessJwt": access, "refreshJwt": refresh})

    def take(self) -> list[str]:
        asked, self.asked = self.asked, []
        return asked


@pytest.fixture
def pds() -> Pds:
    return Pds()


@pytest.fixture
def client(pds: Pds) -> Iterator[Client]:
    with client_for(pds) as client:
        yield client


@pytest.fixture
def store(tmp_path: Path) -> SessionStore:
    return SessionStore(tmp_path / "sessions")


@pytest.fixture
def auth(client: Client, store: SessionStore, pds: Pds) -> Callable[[], SessionAuth]:
    """What a new process makes of the stored session, which is of a fresh login."""
    store.save(login_with_password(client, IDENTITY, "right"))
    pds.take()

    def load() -> SessionAuth:
        session = store.load(Did(DID))
        assert session is not None
        return SessionAuth(client, store, session)

    return load


Auth = Callable[[], SessionAuth]


def test_login(client: Client, pds: Pds) -> None:
    session = login_with_password(client, IDENTITY, "right")
    assert (session.did, session.handle, session.pds) == (DID, "alice.test", PDS)
    assert (session.kind, session.refresh) == ("password", "refresh-1")
    assert pds.take() == [CREATE]


@pytest.mark.parametrize(
    ("refusal", "kind", "words"),
    [
        (None, LoginRefused, "wrong password for alice.test"),
        (xrpc_error(401, "AuthFactorTokenRequired"), LoginRefused, "asks for a second factor"),
        (xrpc_error(401, "AccountTakedown"), AccountTakedown, "taken down by the host"),
        (xrpc_error(429, "", retry_after="30"), RateLimited, "try again in 30 seconds"),
        (xrpc_error(500, "InternalServerError"), ServerFault, "localhost:2583 failed"),
        (httpx.ReadError("reset"), HostUnreachable, "dropped the connection"),
        (json_answer({"did": "did:plc:x"}), BadAnswer, "the session of another account"),
        (json_answer({"did": DID}), BadAnswer, "answers with no session"),
        (json_answer({"did": DID, "accessJwt": "a\r\nb"}), BadAnswer, "answers with no session"),
    ],
)
def test_a_login_that_fails_is_tried_once(
    client: Client,
    pds: Pds,
    refusal: httpx.Response | Exception | None,
    kind: type[Exception],
    words: str,
) -> None:
    if refusal is not None:
        pds.refusal[CREATE] = refusal
    with pytest.raises(kind, match=words) as caught:
        login_with_password(client, IDENTITY, "wrong")
    assert pds.take() == [CREATE]
    if isinstance(caught.value, LoginRefused):
        assert "app password" in str(caught.value.hint)


def test_a_live_session_costs_no_request(client: Client, pds: Pds, auth: Auth) -> None:
    assert client.get(PDS, GET, auth=auth()) == {"ok": True}
    assert pds.take() == [GET]


def test_an_expired_token_is_renewed_before_use(
    client: Client, pds: Pds, auth: Auth, store: SessionStore
) -> None:
    pds.lifetime = 50  # less than what a request may queue
    store.save(login_with_password(client, IDENTITY, "right"))
    pds.lifetime = 7200
    pds.take()
    assert client.get(PDS, GET, auth=auth()) == {"ok": True}
    assert pds.take() == [REFRESH, GET]
    assert client.get(PDS, GET, auth=auth()) == {"ok": True}
    assert pds.take() == [GET]


def test_a_token_that_the_host_calls_expired_is_renewed(
    client: Client, pds: Pds, auth: Auth
) -> None:
    pds.issue()
    assert client.post(PDS, "com.atproto.repo.applyWrites", {}, auth=auth()) == {"ok": True}
    assert pds.take() == ["com.atproto.repo.applyWrites", REFRESH, "com.atproto.repo.applyWrites"]


@pytest.mark.parametrize("access", ["opaque", "a.b.c", "a.!.c", "..", f"a.{'W' * 9}.c"])
def test_a_token_that_tells_nothing_is_used(
    client: Client, pds: Pds, store: SessionStore, auth: Auth, access: str
) -> None:
    store.save(replace(auth().session, access=access))
    assert client.get(PDS, GET, auth=auth()) == {"ok": True}
    assert pds.take() == [GET, REFRESH, GET]


def test_the_hosts_clock_tells_when_a_token_ends(
    client: Client, pds: Pds, auth: Auth, store: SessionStore
) -> None:
    """A machine whose clock is a day ahead does not renew at every request."""
    pds.clock -= 86_400
    store.save(login_with_password(client, IDENTITY, "right"))
    pds.take()
    late = httpx.Response(
        200,
        json={"ok": True},
        headers={"Date": time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(pds.clock))},
    )
    pds.refusal[GET] = late
    client.get(PDS, GET)
    client.get(PDS, GET, auth=auth())
    assert pds.take() == [GET, GET]


def test_threads_renew_once(client: Client, pds: Pds, auth: Auth) -> None:
    pds.issue()
    shared = auth()
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda _: client.get(PDS, GET, auth=shared), range(8)))
    assert answers == [{"ok": True}] * 8
    assert pds.asked.count(REFRESH) == 1


def test_a_session_that_another_process_has_renewed_is_taken(
    client: Client, pds: Pds, auth: Auth
) -> None:
    one, other = auth(), auth()
    pds.issue()
    client.get(PDS, GET, auth=one)
    pds.take()
    client.get(PDS, GET, auth=other)
    assert pds.take() == [GET, GET]
    assert other.session == one.session


@pytest.mark.parametrize(
    "refusal", [xrpc_error(400, "ExpiredToken"), xrpc_error(401, "InvalidToken")]
)
def test_a_login_that_has_ended(
    client: Client, pds: Pds, auth: Auth, refusal: httpx.Response
) -> None:
    pds.issue()
    pds.refusal[REFRESH] = refusal
    with pytest.raises(LoginNeeded, match=r"the login of alice\.test has ended") as caught:
        client.get(PDS, GET, auth=auth())
    assert caught.value.hint == "git knotless login alice.test"
    assert pds.take() == [GET, REFRESH]


def test_a_logout_elsewhere_ends_the_login_here(
    client: Client, pds: Pds, auth: Auth, store: SessionStore
) -> None:
    here = auth()
    pds.issue()
    store.delete(here.did)
    with pytest.raises(LoginNeeded):
        client.get(PDS, GET, auth=here)
    assert REFRESH not in pds.asked


@pytest.mark.parametrize(
    ("refusal", "kind"),
    [
        (httpx.ReadError("reset"), HostUnreachable),
        (httpx.ReadTimeout("slow"), HostTimeout),
        (xrpc_error(500, "InternalServerError"), ServerFault),
        (json_answer({"did": "did:plc:ragtjsm2j2vknwkz3zp4oxrd"}), BadAnswer),
        (json_answer({"did": DID, "accessJwt": 7}), BadAnswer),
    ],
)
def test_a_renewal_that_fails_keeps_the_session(
    client: Client,
    pds: Pds,
    auth: Auth,
    store: SessionStore,
    refusal: httpx.Response | Exception,
    kind: type[Exception],
) -> None:
    before = store.load(Did(DID))
    pds.issue()
    pds.refusal[REFRESH] = refusal
    here = auth()
    for _ in range(4):  # as of four uploads
        with pytest.raises(NotRenewed) as caught:
            client.get(PDS, GET, auth=here)
        assert not isinstance(caught.value, AtprotoError), "nothing takes it for a failed write"
    first = caught.value.__cause__
    assert first is not None
    assert isinstance(first.__cause__, kind)
    assert pds.asked.count(REFRESH) == (2 if kind is ServerFault else 1)
    assert store.load(Did(DID)) == before


@pytest.mark.parametrize(
    "host", ["https://evil.example.com", "http://localhost:2584", "http://127.0.0.1:2583"]
)
def test_no_credential_leaves_for_another_host(
    client: Client, pds: Pds, auth: Auth, host: str
) -> None:
    with pytest.raises(LoginNeeded, match=r"the login of alice\.test is for localhost:2583, not"):
        client.get(host, GET, auth=auth())
    assert not pds.take()


def test_unknown_fields_of_a_session_survive_a_renewal(
    client: Client, pds: Pds, auth: Auth, store: SessionStore
) -> None:
    store.save(replace(auth().session, extra={"color": "red"}))
    pds.issue()
    client.get(PDS, GET, auth=auth())
    renewed = store.load(Did(DID))
    assert renewed is not None
    assert renewed.extra == {"color": "red"}
    assert renewed.refresh == "refresh-3"


def test_logout(client: Client, pds: Pds, auth: Auth, store: SessionStore) -> None:
    session = auth().session
    assert log_out(client, store, session.did) == Ended(session)
    assert pds.take() == [DELETE]
    assert not pds.live
    assert store.load(Did(DID)) is None


@pytest.mark.parametrize(
    ("refusal", "trouble"),
    [
        (xrpc_error(400, "ExpiredToken"), None),
        (xrpc_error(401, ""), "does not accept the login"),
        (xrpc_error(500, "InternalServerError"), "failed at"),
        (httpx.ConnectError("refused"), "cannot be reached"),
    ],
)
def test_a_logout_forgets_in_any_case(
    client: Client,
    pds: Pds,
    auth: Auth,
    store: SessionStore,
    refusal: Any,
    trouble: str | None,
) -> None:
    pds.refusal[DELETE] = refusal
    session = auth().session
    ended = log_out(client, store, session.did)
    assert ended.session == session
    if trouble is None:
        assert ended.trouble is None
    else:
        assert ended.trouble is not None
        assert trouble in ended.trouble
    assert store.load(Did(DID)) is None


def test_a_logout_ends_what_a_renewal_meanwhile_has_got(
    client: Client, pds: Pds, auth: Auth, store: SessionStore
) -> None:
    """It waits for the lock of whoever renews, and takes what is in the file then."""
    here, begun, go_on = auth(), threading.Event(), threading.Event()
    store.save(replace(here.session, expires_at=moment(0)))
    here = auth()

    def slow(request: httpx.Request) -> httpx.Response:
        if nsid_of(request) == REFRESH:
            begun.set()
            assert go_on.wait(10)
        return pds(request)

    with client_for(slow) as renewing, ThreadPoolExecutor(2) as threads:
        push = threads.submit(
            renewing.get, PDS, GET, auth=SessionAuth(renewing, store, here.session)
        )
        assert begun.wait(10)
        elsewhere = SessionStore(store._directory)
        gone = threads.submit(log_out, client, elsewhere, Did(DID))
        go_on.set()
        ended = gone.result(20)
        with suppress(LoginNeeded):
            push.result(20)
    assert ended.trouble is None
    assert ended.session is not None
    assert ended.session.refresh == f"refresh-{pds.issued}"
    assert not pds.live
    assert store.load(Did(DID)) is None


@pytest.mark.parametrize(
    "refusal",
    [httpx.Response(401, text="<html>"), xrpc_error(401, ""), xrpc_error(401, "Unauthorized")],
)
def test_a_refusal_that_is_not_of_the_host_ends_no_session(
    client: Client, pds: Pds, auth: Auth, store: SessionStore, refusal: httpx.Response
) -> None:
    """As by a proxy in between, for all requests."""
    before = store.load(Did(DID))
    pds.refusal = dict.fromkeys((GET, REFRESH), refusal)
    with pytest.raises(NotRenewed, match=r"could not be renewed.*; nothing was sent") as caught:
        client.get(PDS, GET, auth=auth())
    assert caught.value.hint == "git knotless login alice.test"
    assert store.load(Did(DID)) == before
    pds.refusal.clear()
    assert client.get(PDS, GET, auth=auth()) == {"ok": True}


def test_a_takedown_is_told_and_ends_no_session(
    client: Client, pds: Pds, auth: Auth, store: SessionStore
) -> None:
    before = store.load(Did(DID))
    pds.issue()
    pds.refusal[REFRESH] = xrpc_error(401, "AccountTakedown")
    with pytest.raises(AccountTakedown):
        client.get(PDS, GET, auth=auth())
    assert store.load(Did(DID)) == before


@pytest.mark.parametrize("ends", [1e300, 10**400, -1, 253_402_300_800, True])
def test_an_expiry_that_is_in_no_calendar_is_none(
    client: Client, pds: Pds, store: SessionStore, ends: Any
) -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        tokens = {"accessJwt": jwt(ends), "refreshJwt": "r"}
        return json_answer({"did": DID, **tokens})

    with client_for(answer) as client:
        session = login_with_password(client, IDENTITY, "right")
    store.save(session)
    assert store.load(Did(DID)) == session
    assert session.expires_at == (moment(1) if ends is True else None)
