"""OAuth against the reference PDS: logins, and the sessions that they give, in use.

A person's part is played by calls that the authorization page makes; the browser itself is in the
tests of the command.
"""

import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from git_knotless.atproto import oauth, oauth_tokens, repo
from git_knotless.atproto.credentials import Once
from git_knotless.atproto.errors import AuthRefused, ClockWrong, ScopeMissing
from git_knotless.atproto.identity import Identity, Resolver
from git_knotless.atproto.session import Session, moment
from git_knotless.atproto.session_auth import Ended, SessionAuth, end, log_out
from git_knotless.atproto.sessions import SessionStore
from git_knotless.atproto.xrpc import Client
from git_knotless.errors import LoginNeeded
from git_knotless.storage.scope import login_scope, missing, of_a_repository
from tests.approval import Page
from tests.gitenv import GitEnv
from tests.helper.test_autofold import Busy
from tests.network import Account, Network, run_testnet
from tests.proxy import Exchange, proxy

LARGE = 20_000_000  # bytes of a blob
# The sandbox knows no OAuth.
run_large = partial(run_testnet, "--blob-limit", str(LARGE))
pytestmark = [
    pytest.mark.testnet,
    pytest.mark.parametrize("network", [run_large], indirect=True, ids=["testnet"]),
]

GET_SESSION = "com.atproto.server.getSession"
MIME = "application/x-git-pack"


@pytest.fixture
def alice(account: Callable[..., Account]) -> Account:
    return account("alice")


@pytest.fixture
def requests() -> list[httpx.Request]:
    """All that `client` has sent."""
    return []


@pytest.fixture
def client(requests: list[httpx.Request]) -> Iterator[Client]:
    class Counting(httpx.HTTPTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            requests.append(request)
            return super().handle_request(request)

    with Client(Counting()) as client:
        yield client


@pytest.fixture
def identify(client: Client, network: Network) -> Callable[[Account], Identity]:
    hosts = [host.url for host in network.hosts]
    resolver = Resolver(client, plc_url=network.plc, handle_resolvers=hosts)
    return lambda account: resolver.resolve(account.handle)


@pytest.fixture
def log_in(client: Client, identify: Callable[[Account], Identity]) -> Callable[..., Session]:
    def login(account: Account, scope: str | None = None, *, by: Account | None = None) -> Session:
        begun = oauth.begin(client, identify(account), scope or login_scope(), redirect_port=None)
        who = by or account
        return begun.finish(client, Page(begun.url).approve(who.handle, who.password))

    return login


@pytest.fixture
def session(log_in: Callable[..., Session], alice: Account) -> Session:
    return log_in(alice)


@pytest.fixture
def one(machine: Callable[[], GitEnv]) -> GitEnv:
    return machine()


@pytest.fixture
def store(one: GitEnv, session: Session) -> SessionStore:
    """Of that machine; `session` is there."""
    store = SessionStore(Path(one.env["KNOTLESS_CONFIG_DIR"]) / "sessions")
    store.save(session)
    return store


def expire(store: SessionStore, session: Session) -> None:
    """As a hand would: in the file."""
    (path,) = store._directory.glob("*.json")
    value = json.loads(path.read_text())
    path.write_text(json.dumps({**value, "expires_at": "2026-01-01T00:00:00.000Z"}))
    assert store.load(session.did) != session


def works(client: Client, session: Session) -> bool:
    """Whether the access token is good."""
    auth = Once(oauth_tokens.credential(client, session))
    try:
        return client.get(session.pds, GET_SESSION, auth=auth)["did"] == session.did
    except AuthRefused:
        return False


# Logging in.


def test_a_login_takes_seven_requests(
    client: Client,
    requests: list[httpx.Request],
    alice: Account,
    identify: Callable[[Account], Identity],
) -> None:
    begun = oauth.begin(client, identify(alice), login_scope(), redirect_port=8123)
    session = begun.finish(client, Page(begun.url).approve(alice.handle, alice.password))
    paths = [request.url.path for request in requests]
    assert paths == [
        "/xrpc/com.atproto.identity.resolveHandle",
        f"/{alice.did}",
        "/.well-known/oauth-protected-resource",
        "/.well-known/oauth-authorization-server",
        "/oauth/par",
        "/oauth/par",
        "/oauth/token",
    ]
    assert (session.did, session.handle, session.pds) == (alice.did, alice.handle, alice.pds)
    assert missing(session.scope, login_scope().split()) == ()
    assert session.expires_at is not None
    assert moment(time.time() + 3000) < session.expires_at < moment(time.time() + 4000)
    assert works(client, session)


def test_a_login_that_is_denied(
    client: Client, alice: Account, identify: Callable[[Account], Identity]
) -> None:
    begun = oauth.begin(client, identify(alice), login_scope(), redirect_port=8123)
    with pytest.raises(oauth.LoginRefused, match="was denied: The user rejected the request"):
        begun.finish(client, Page(begun.url).deny())


def test_a_login_that_somebody_else_approves_is_given_back(
    client: Client,
    requests: list[httpx.Request],
    alice: Account,
    account: Callable[..., Account],
    log_in: Callable[..., Session],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    got: list[oauth_tokens.Tokens] = []
    real = oauth.request_tokens
    monkeypatch.setattr(oauth, "request_tokens", lambda *a: got.append(real(*a)) or got[-1])
    bob = account("bob")
    with pytest.raises(oauth.WrongAccount, match=bob.did):
        log_in(alice, by=bob)
    assert requests[-1].url.path == "/oauth/revoke"
    (tokens,) = got
    headers = {"Authorization": f"DPoP {tokens.access}"}
    answer = bob.host.send("GET", GET_SESSION, headers=headers)
    assert answer.status_code == 401


def test_a_scope_that_the_host_does_not_know_is_not_granted(
    alice: Account, log_in: Callable[..., Session]
) -> None:
    session = log_in(alice, f"{login_scope()} space:dev.knotless.space")
    assert missing(session.scope, ["space:dev.knotless.space"]) == ("space:dev.knotless.space",)
    assert missing(session.scope, of_a_repository()) == ()


def test_a_clock_that_is_off_is_named(
    client: Client,
    alice: Account,
    identify: Callable[[Account], Identity],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    identity, now = identify(alice), time.time
    monkeypatch.setattr(time, "time", lambda: now() - 420)
    with pytest.raises(ClockWrong, match="this machine's clock is 7 minutes behind localhost"):
        oauth.begin(client, identity, login_scope(), redirect_port=1)


# A session in use.


def test_a_push_with_an_oauth_session(
    one: GitEnv, store: SessionStore, alice: Account, session: Session
) -> None:
    work = one.repository(commits=3)
    (work / "large").write_bytes(b"".join(hashlib.sha512(b"%d" % n).digest() for n in range(4000)))
    one.git("add", "large", cwd=work)
    one.git("commit", "-qm", "large", cwd=work)
    loud = {
        "KNOTLESS_LOG": "debug",
        "GIT_TRACE": "1",
        "GIT_TRACE_CURL": "1",
        "GIT_TRACE_SETUP": "1",
    }
    ran = one.git("knotless", "create", f"{alice.handle}/work", "--push", cwd=work, env=loud)
    config = one.git("config", "--show-origin", "--list", cwd=work, env=loud)
    said = ran.out + ran.err + config.out + config.err
    assert "HTTP Request: POST" in said
    for secret in (session.access, session.refresh, session.dpop_key["d"], "eyJ0eXAi"):
        assert secret not in said
    (packed,) = alice.records("dev.knotless.pack").values()
    assert "blobs" in packed, "not all of it was small enough for a record"
    clone = one.root / "clone"
    one.git("clone", f"knotless://{alice.handle}/work", str(clone))
    assert one.oid(clone) == one.oid(work)
    assert store.load(session.did) == session, "nothing had to be renewed"


def test_a_push_renews_what_has_expired(
    client: Client,
    one: GitEnv,
    store: SessionStore,
    alice: Account,
    session: Session,
) -> None:
    work = one.repository()
    expire(store, session)
    one.git("knotless", "create", f"{alice.handle}/work", "--push", cwd=work)
    renewed = store.load(session.did)
    assert renewed is not None
    assert renewed.refresh != session.refresh
    assert not works(client, session), "the old token is dead"
    assert works(client, renewed)


def test_folding_in_the_background_with_an_oauth_session(
    one: GitEnv, store: SessionStore, alice: Account, session: Session
) -> None:
    busy = Busy(one, alice)
    expire(store, session)
    assert "in background" in busy.push()
    busy.wait()
    assert len(busy.packs()) == 1
    assert busy.clones()


def test_a_push_that_the_login_does_not_cover(
    one: GitEnv,
    store: SessionStore,
    alice: Account,
    log_in: Callable[..., Session],
) -> None:
    work = one.repository()
    one.git("knotless", "create", f"{alice.handle}/work", "--push", cwd=work)
    store.save(log_in(alice, login_scope().replace("repo:dev.knotless.ref ", "")))
    one.commit(work)
    refused = one.git("push", "origin", "main", cwd=work, code=128)
    assert f"the login of {alice.handle} does not cover repo:dev.knotless.ref" in refused.err
    assert f"hint: git knotless login {alice.handle}" in refused.err


def test_the_host_says_so_where_we_do_not_look(
    client: Client, store: SessionStore, alice: Account, log_in: Callable[..., Session]
) -> None:
    store.save(log_in(alice, "atproto"))
    session = store.load(store.dids()[0])
    assert session is not None
    auth = SessionAuth(client, store, session)
    body = {"repo": alice.did, "collection": "dev.knotless.ref", "record": {"a": 1}}
    with pytest.raises(ScopeMissing, match=r"repo:dev\.knotless\.ref\?action=create"):
        client.post(alice.pds, "com.atproto.repo.createRecord", body, auth=auth)


RACER = """
import os, sys
from git_knotless.context import Context
with Context.from_environment(os.environ, sys.stderr.write) as context:
    auth = context.session_for(context.account_did())
    sys.stdout.write("ready\\n")
    sys.stdout.flush()
    sys.stdin.readline()
    print(context.client.get(auth.session.pds, "com.atproto.server.getSession", auth=auth)["did"])
"""


def test_twenty_processes_with_one_expired_session(
    client: Client, one: GitEnv, store: SessionStore, session: Session
) -> None:
    """All have read the same session before any of them renews it; one does, and all go on."""
    expire(store, session)
    command = [sys.executable, "-c", RACER]
    with ExitStack() as stack:
        racers = [
            stack.enter_context(
                subprocess.Popen(
                    command,
                    env=one.env,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for _ in range(20)
        ]
        for racer in racers:
            assert racer.stdout is not None
            assert racer.stdout.readline() == "ready\n"
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write("go\n")
            racer.stdin.flush()
        said = [racer.communicate(timeout=60)[0] for racer in racers]
    assert said == [f"{session.did}\n"] * 20
    assert [racer.returncode for racer in racers] == [0] * 20
    renewed = store.load(session.did)
    assert renewed is not None
    assert works(client, renewed)


def test_a_refresh_token_that_was_used_ends_the_session_once_and_for_all(
    client: Client,
    one: GitEnv,
    store: SessionStore,
    alice: Account,
    session: Session,
) -> None:
    """As of a process that was killed between the host's answer and the file."""
    work = one.repository()
    one.git("knotless", "create", f"{alice.handle}/work", "--push", cwd=work)
    newer = oauth_tokens.refreshed(client, session)
    assert newer is not None
    assert works(client, newer)
    expire(store, session)
    one.commit(work)
    for code in (1, 128):  # found out at the host as it is to write, and then before anything
        refused = one.git("push", "origin", "main", cwd=work, code=code)
        assert f"the login of {alice.handle} has ended" in refused.err
        assert f"hint: git knotless login {alice.handle}" in refused.err
    assert not works(client, newer)
    (path,) = store._directory.glob("*.json")
    assert session.refresh not in path.read_text()
    edit = one.git("knotless", "repo", "edit", "--description", "x", cwd=work, code=4)
    assert "has ended" in edit.err
    env = {"KNOTLESS_PASSWORD": alice.password, "KNOTLESS_ACCOUNT": alice.handle}
    one.git("push", "origin", "main", cwd=work, env=env)
    after = store.load(session.did)
    assert after is not None
    assert (after.kind, after.ended) == ("password", False)


def test_a_process_that_is_killed_as_it_renews_leaves_nobody_waiting(
    client: Client, network: Network, alice: Account, store: SessionStore, session: Session
) -> None:
    """The lock goes with it; the token that it has used is then used again, which ends it."""
    expire(store, session)
    kill = f"""
import os, signal
from contextlib import contextmanager
from pathlib import Path
from git_knotless.atproto.session_auth import SessionAuth
from git_knotless.atproto.sessions import SessionStore
from git_knotless.atproto.xrpc import Client
store = SessionStore(Path({str(store._directory)!r}))
room = store.room
@contextmanager
def deadly(did):
    with room(did):
        yield lambda session: os.kill(os.getpid(), signal.SIGKILL)
store.room = deadly
with Client() as client:
    SessionAuth(client, store, store.load({session.did!r})).credential({session.pds!r} + "/xrpc/x")
"""
    assert subprocess.run([sys.executable, "-c", kill], check=False).returncode == -9
    begun = time.monotonic()
    stored = store.load(session.did)
    assert stored is not None
    with pytest.raises(LoginNeeded, match="has ended"):
        client.get(alice.pds, GET_SESSION, auth=SessionAuth(client, store, stored))
    assert time.monotonic() - begun < 5


def test_a_revocation(client: Client, store: SessionStore, session: Session) -> None:
    assert works(client, session)
    assert log_out(client, store, session.did) == Ended(session)
    assert not works(client, session)
    assert store.load(session.did) is None
    assert end(client, session) is True, "it had ended already"


def test_a_revocation_of_an_expired_session(
    client: Client, store: SessionStore, session: Session
) -> None:
    newer = oauth_tokens.refreshed(client, session)
    assert newer is not None
    assert end(client, replace(newer, access=session.access)) is True
    assert not works(client, newer)


def test_a_revocation_that_the_host_does_not_carry_out(
    client: Client, store: SessionStore, session: Session, alice: Account, log_in: Any
) -> None:
    """It answers 200 for a token that it does not know."""
    other = log_in(alice)
    assert end(client, replace(session, refresh=other.refresh)) is False
    assert works(client, session)


# Uploads.


class Pack:
    size = LARGE

    def __init__(self) -> None:
        self.begun = 0
        self._data = b"PACK" + bytes(range(256)) * (self.size // 256)

    def chunks(self) -> Iterator[bytes]:
        self.begun += 1
        for start in range(0, self.size, 65536):
            yield self._data[start : min(start + 65536, self.size)]


def test_an_upload_of_20_mb_whose_nonce_has_turned(
    client: Client, alice: Account, store: SessionStore, session: Session
) -> None:
    auth, pack = SessionAuth(client, store, session), Pack()
    client.nonces[session.pds] = "of-some-minutes-ago"
    blob = repo.upload_blob(client, alice.pds, pack, MIME, auth=auth)
    assert (blob.size, pack.begun) == (Pack.size, 2)
    blob = repo.upload_blob(client, alice.pds, pack, MIME, auth=auth)
    assert pack.begun == 3, "with what the first had brought"


def test_an_upload_of_20_mb_that_does_not_know_the_nonce_yet(
    requests: list[httpx.Request],
    client: Client,
    alice: Account,
    store: SessionStore,
    session: Session,
) -> None:
    auth, pack = SessionAuth(client, store, session), Pack()
    client.nonces.clear()
    requests.clear()
    repo.upload_blob(client, alice.pds, pack, MIME, auth=auth)
    assert pack.begun == 1
    assert [request.method for request in requests] == ["GET", "POST"]


def test_an_upload_that_stalls_while_its_nonce_turns(
    network: Network, alice: Account, store: SessionStore, session: Session
) -> None:
    """What stands between us and the host holds half of the body back, and the host then refuses
    what was signed before."""
    sizes: list[int] = []

    def stall(exchange: Exchange) -> None:
        half = exchange.read(exchange.size // 2)
        time.sleep(0.5)  # the stall itself
        body = half + exchange.read()
        sizes.append(len(body))
        exchange.answer(exchange.passed_on(body))

    with proxy(network, alice) as between:
        between.on("uploadBlob", stall)

        class Through(httpx.HTTPTransport):
            """Proofs name the host by its own address, so that it is only connected elsewhere."""

            def handle_request(self, request: httpx.Request) -> httpx.Response:
                sent = httpx.Request(
                    request.method,
                    request.url.copy_with(port=httpx.URL(between.url).port),
                    headers=request.headers,
                    stream=request.stream,
                    extensions=request.extensions,
                )
                return super().handle_request(sent)

        with Client(Through()) as client:
            auth, pack = SessionAuth(client, store, session), Pack()
            client.get(alice.pds, GET_SESSION, auth=auth)
            client.nonces[session.pds] = "of-some-minutes-ago"
            blob = repo.upload_blob(client, alice.pds, pack, MIME, auth=auth)
    assert sizes == [Pack.size] * 2
    assert (blob.size, pack.begun) == (Pack.size, 2)
