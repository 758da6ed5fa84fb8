"""Logging in with OAuth: what is asked of whom, what is believed, and what is given back."""

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from git_knotless.atproto.errors import (
    AuthRefused,
    BadAnswer,
    ClockWrong,
    HostUnreachable,
    RateLimited,
    ServerFault,
    XrpcError,
)
from git_knotless.atproto.guard import PrivateAddress
from git_knotless.atproto.identity import Identity
from git_knotless.atproto.oauth import BadRedirect, LoginRefused, NoOAuth, WrongAccount, begin
from git_knotless.atproto.oauth_metadata import discover
from git_knotless.atproto.session import Session
from git_knotless.atproto.session_auth import Ended, end, log_out
from git_knotless.atproto.sessions import SessionStore
from git_knotless.atproto.syntax import Did, Handle
from git_knotless.atproto.xrpc import Client
from tests.atproto.authserver import (
    METADATA,
    PAR,
    RESOURCE,
    REVOKE,
    TOKEN,
    AuthServer,
    client_of,
    digest,
)
from tests.atproto.fakes import DID, PDS, json_answer, xrpc_error

ALICE = Identity(Did(DID), Handle("alice.test"), PDS, 0.0)
BOB = "did:plc:ragtjsm2j2vknwkz3zp4oxrd"
SCOPE = "atproto repo:dev.knotless.repo blob:image/png"
SESSION = "com.atproto.server.getSession"


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


def login(client: Client, server: AuthServer) -> Session:
    begun = begin(client, ALICE, SCOPE, redirect_port=8123)
    return begun.finish(client, server.approve(begun.url))


# The whole of it.


def test_a_login(client: Client, server: AuthServer) -> None:
    begun = begin(client, ALICE, SCOPE, redirect_port=8123)
    assert server.take() == [RESOURCE, METADATA, PAR, PAR], "the second with the nonce"
    (asked,) = server.pushed.values()
    client_id = urlsplit(asked["client_id"])
    assert (client_id.scheme, client_id.netloc, client_id.path) == ("http", "localhost", "")
    assert parse_qs(client_id.query, strict_parsing=True) == {
        "redirect_uri": ["http://127.0.0.1/callback"],
        "scope": [SCOPE],
    }
    assert begun.redirect_uri == asked["redirect_uri"] == "http://127.0.0.1:8123/callback"
    assert asked["code_challenge"] == digest(begun.verifier)
    assert asked["code_challenge_method"] == "S256"
    assert asked["response_type"] == "code"
    assert (asked["scope"], asked["login_hint"]) == (SCOPE, "alice.test")
    assert begun.url.startswith(f"{PDS}/oauth/authorize?")
    for secret in (begun.verifier, begun.state, begun.key.to_jwk()["d"]):
        assert len(secret) >= 43
        assert secret not in begun.url

    session = begun.finish(client, server.approve(begun.url))
    assert server.take() == [TOKEN]
    assert (session.did, session.handle, session.pds) == (DID, "alice.test", PDS)
    assert (session.kind, session.issuer, session.scope) == ("oauth", PDS, SCOPE)
    assert session.client_id == asked["client_id"]
    (grant,) = server.grants
    assert (session.access, session.refresh) == (grant.access, grant.refresh)
    for secret in (session.access, session.refresh, begun.key.to_jwk()["d"], begun.verifier):
        assert secret not in repr(session) + repr(begun)


def test_no_two_logins_have_a_secret_in_common(client: Client) -> None:
    one, other = (begin(client, ALICE, SCOPE, redirect_port=None) for _ in range(2))
    assert one.redirect_uri == "http://127.0.0.1/callback"
    assert one.state != other.state
    assert one.verifier != other.verifier
    assert one.key.to_jwk() != other.key.to_jwk()


def test_the_address_that_the_browser_ends_at_may_be_pasted(
    client: Client, server: AuthServer
) -> None:
    begun = begin(client, ALICE, SCOPE, redirect_port=None)
    answer = httpx.QueryParams(server.approve(begun.url))
    session = begun.finish(client, f"  http://127.0.0.1/callback?{answer}\n")
    assert session.did == DID


@pytest.mark.parametrize(
    "pasted", ["", "hello", "http://127.0.0.1/callback", "http://[/?a=b", f"?x={'x' * 9000}"]
)
def test_what_is_pasted_has_to_be_an_address(
    client: Client, server: AuthServer, pasted: str
) -> None:
    begun = begin(client, ALICE, SCOPE, redirect_port=None)
    server.take()
    with pytest.raises(BadRedirect, match="not the address that the browser was sent to"):
        begun.finish(client, pasted)
    with pytest.raises(BadRedirect, match="twice"):
        begun.finish(client, "http://127.0.0.1/callback?state=a&state=b")
    assert server.take() == []


# Who logs people in.


def test_a_host_that_takes_passwords_only(client: Client, server: AuthServer) -> None:
    server.resource = None
    with pytest.raises(NoOAuth, match="localhost:2583 takes app passwords only") as caught:
        begin(client, ALICE, SCOPE, redirect_port=1)
    assert caught.value.hint == "git knotless login alice.test --password-stdin"
    assert server.take() == [RESOURCE]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"resource": "https://pds.example.com"}, "says that it is another host, https://pds.ex"),
        ({"resource": PDS + "/"}, "says that it is another host"),
        ({"authorization_servers": []}, "does not name the one server"),
        ({"authorization_servers": [PDS, PDS]}, "does not name the one server"),
        ({"authorization_servers": PDS}, "does not name the one server"),
        ({"authorization_servers": [7]}, "does not name the one server"),
        ({"authorization_servers": ["http://auth.example.com"]}, "which is no server's address"),
        ({"authorization_servers": ["https://auth.example.com/a"]}, "no server's address"),
        ({"authorization_servers": ["https://auth.example.com/"]}, "no server's address"),
        ({"authorization_servers": ["https://u@auth.example.com"]}, "no server's address"),
        ({"authorization_servers": ["javascript:alert(1)"]}, "no server's address"),
    ],
)
def test_a_host_that_does_not_say_who_logs_people_in(
    client: Client, server: AuthServer, change: dict[str, Any], words: str
) -> None:
    server.resource = change
    with pytest.raises(BadAnswer, match=re.escape(words)):
        begin(client, ALICE, SCOPE, redirect_port=1)
    assert server.take() == [RESOURCE], "nobody else was asked"


@pytest.mark.parametrize("issuer", ["http://localhost:9", "http://127.0.0.1:9", "https://10.0.0.1"])
def test_a_host_elsewhere_does_not_send_us_into_our_own_network(issuer: str) -> None:
    pds = "https://pds.example.com"
    server = AuthServer(origin=pds, resource={"authorization_servers": [issuer]})
    with client_of(server) as client, pytest.raises(PrivateAddress, match="which is not public"):
        discover(client, pds)
    assert server.take() == [RESOURCE]


def test_a_host_whose_server_is_another() -> None:
    """As all of a large host's PDSes have one."""
    pds, issuer = "https://morel.example.com", "https://front.example.com"
    server = AuthServer(origin=issuer)
    server.resource = {"resource": pds}
    with client_of(server) as client:
        assert discover(client, pds).token == issuer + TOKEN


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"issuer": "https://auth.example.com"}, "says that it is another server, https://auth"),
        ({"issuer": PDS + "/"}, "says that it is another server"),
        ({"issuer": None}, "says that it is another server, unnamed"),
        ({"code_challenge_methods_supported": ["plain"]}, "offers no PKCE with S256"),
        ({"code_challenge_methods_supported": "S256"}, "offers no PKCE with S256"),
        ({"dpop_signing_alg_values_supported": ["ES256K"]}, "offers no DPoP with ES256"),
        ({"authorization_response_iss_parameter_supported": False}, "does not say who answers"),
        ({"token_endpoint": None}, "has no token_endpoint"),
        ({"pushed_authorization_request_endpoint": None}, "has no pushed_authorization"),
        ({"revocation_endpoint": 7}, "has no revocation_endpoint"),
        ({"token_endpoint": "https://evil.example.com/t"}, "on another origin: https://evil"),
        ({"token_endpoint": "https://localhost:2583/t"}, "on another origin"),
        ({"token_endpoint": PDS}, "on another origin"),
        ({"token_endpoint": "http://evil.example.com/t"}, "that is no address"),
        ({"token_endpoint": "http://u:p@localhost:2583/t"}, "that is no address"),
        ({"revocation_endpoint": "http://localhost:2584/r"}, "on another origin"),
        ({"authorization_endpoint": "http://localhost.evil.com/a"}, "that is no address"),
        ({"authorization_endpoint": "file:///etc/passwd"}, "that is no address"),
        ({"authorization_endpoint": f"{PDS}/a#x"}, "that is no plain address"),
        ({"authorization_endpoint": f"{PDS}/a?b=c"}, "that is no plain address"),
        ({"authorization_endpoint": f"{PDS}/a b"}, "that is no plain address"),
        ({"authorization_endpoint": f"{PDS}/\x1b]0;x"}, "that is no plain address"),
        ({"authorization_endpoint": f"{PDS}/{'a' * 2048}"}, "that is no plain address"),
    ],
)
def test_metadata_that_points_elsewhere(
    client: Client, server: AuthServer, change: dict[str, Any], words: str
) -> None:
    server.metadata = change
    with pytest.raises(BadAnswer) as caught:
        begin(client, ALICE, SCOPE, redirect_port=1)
    assert words in caught.value.message
    assert "\x1b" not in caught.value.message
    assert server.take() == [RESOURCE, METADATA], "nothing was sent anywhere"


@pytest.mark.parametrize("path", [RESOURCE, METADATA])
@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (json_answer([]), BadAnswer),
        (httpx.Response(200, html="<!doctype html>"), BadAnswer),
        (httpx.Response(200, content=b"{" * 300_000), BadAnswer),
        (httpx.Response(302, headers={"Location": "http://localhost:1/"}), BadAnswer),
        (xrpc_error(500, "InternalServerError"), ServerFault),
    ],
)
def test_metadata_that_is_none(
    client: Client, server: AuthServer, path: str, answer: httpx.Response, kind: type[Exception]
) -> None:
    server.answers[path] = lambda _: answer
    with pytest.raises(kind):
        begin(client, ALICE, SCOPE, redirect_port=1)
    assert PAR not in server.take()


# What the server says to the request.


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (
            httpx.Response(400, json={"error": "invalid_scope", "error_description": "No \x07 x"}),
            LoginRefused,
            "localhost:2583 does not begin the login: No x",
        ),
        (httpx.Response(429, json={"error": "x"}), RateLimited, "too many requests"),
        (httpx.Response(500, json={"error": "server_error"}), ServerFault, "failed at /oauth/par"),
        (httpx.Response(201, json={}), BadAnswer, "something else than a login"),
        (httpx.Response(201, json={"request_uri": ""}), BadAnswer, "something else than a login"),
        (httpx.Response(201, json={"request_uri": "é"}), BadAnswer, "something else than a login"),
        (httpx.Response(302, headers={"Location": "/"}), BadAnswer, "elsewhere"),
    ],
)
def test_a_login_that_is_not_begun(
    client: Client,
    server: AuthServer,
    answer: httpx.Response,
    kind: type[Exception],
    words: str,
) -> None:
    server.answers[PAR] = lambda _: answer
    with pytest.raises(kind, match=words):
        begin(client, ALICE, SCOPE, redirect_port=1)
    assert server.take() == [RESOURCE, METADATA, PAR], "it is not tried again"


def test_a_clock_that_is_off_is_why(client: Client, server: AuthServer) -> None:
    server.clock = lambda: 2_000_000_000.0
    with pytest.raises(ClockWrong, match=r"this machine's clock is \d+ days (behind|ahead of)"):
        begin(client, ALICE, SCOPE, redirect_port=1)


def test_a_clock_that_is_off_is_why_with_any_status(client: Client, server: AuthServer) -> None:
    """As OAuth has it for all that is wrong with a request, 400."""
    date = format_datetime(datetime.fromtimestamp(time.time() + 420, UTC), usegmt=True)
    refusal = httpx.Response(400, json={"error": "invalid_dpop_proof"}, headers={"Date": date})
    server.answers[PAR] = lambda _: refusal
    with pytest.raises(ClockWrong, match="7 minutes behind"):
        begin(client, ALICE, SCOPE, redirect_port=1)


# What the browser brings back.


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"state": "x"}, BadRedirect, "the answer to another login"),
        ({"state": "\udc80é"}, BadRedirect, "the answer to another login"),
        ({"state": None}, BadRedirect, "the answer to another login"),
        ({"iss": "https://evil.example.com"}, BadRedirect, "not from localhost:2583"),
        ({"iss": None}, BadRedirect, "not from localhost:2583"),
        ({"iss": None, "error": "access_denied"}, BadRedirect, "not from localhost:2583"),
        ({"code": None}, BadRedirect, "neither a code nor an error"),
        ({"code": "x" * 5000}, BadRedirect, "neither a code nor an error"),
        (
            {"error": "access_denied", "error_description": "The user\x1b[2J rejected"},
            LoginRefused,
            r"the login of alice\.test was denied: The user \[2J rejected",
        ),
        ({"error": "server_error"}, LoginRefused, "does not log alice.test in: server_error"),
    ],
)
def test_an_answer_that_is_not_ours_is_not_used(
    client: Client,
    server: AuthServer,
    change: dict[str, str | None],
    kind: type[Exception],
    words: str,
) -> None:
    begun = begin(client, ALICE, SCOPE, redirect_port=1)
    answer = server.approve(begun.url) | change
    server.take()
    with pytest.raises(kind, match=words):
        begun.finish(client, {name: each for name, each in answer.items() if each is not None})
    assert server.take() == [], "the code went nowhere"


def test_a_code_is_good_once(client: Client, server: AuthServer) -> None:
    begun = begin(client, ALICE, SCOPE, redirect_port=1)
    answer = server.approve(begun.url)
    begun.finish(client, answer)
    with pytest.raises(LoginRefused, match="was used or is too old") as caught:
        begun.finish(client, answer)
    assert caught.value.hint == "git knotless login alice.test"


@pytest.mark.parametrize("gives_back", [True, False])
def test_somebody_else_who_approves_is_logged_out_again(
    client: Client, server: AuthServer, gives_back: bool
) -> None:
    server.sub = BOB
    if not gives_back:
        server.answers[REVOKE] = lambda _: xrpc_error(500, "server_error")
    begun = begin(client, ALICE, SCOPE, redirect_port=1)
    answer = server.approve(begun.url)
    server.take()
    with pytest.raises(WrongAccount) as caught:
        begun.finish(client, answer, name_of={BOB: "bob.test"}.__getitem__)
    assert caught.value.message == "bob.test approved the login; it was asked of alice.test"
    assert caught.value.hint == (
        "sign out at localhost:2583 in that browser, then: git knotless login alice.test"
    )
    assert server.take() == [TOKEN, REVOKE]
    assert (server.grants == []) == gives_back


def test_a_login_for_nothing_is_given_back(client: Client, server: AuthServer) -> None:
    server.tokens = {"scope": "transition:generic"}
    with pytest.raises(LoginRefused, match="for nothing"):
        login(client, server)
    assert server.take()[-1] == REVOKE
    assert server.grants == []


@pytest.mark.parametrize(
    "change",
    [
        {"token_type": "Bearer"},
        {"token_type": None},
        {"access_token": ""},
        {"access_token": "a\r\nb"},
        {"access_token": 7},
        {"refresh_token": None},
        {"refresh_token": "é"},
        {"scope": ["atproto"]},
        {"sub": None},
    ],
)
def test_tokens_that_are_none(client: Client, server: AuthServer, change: dict[str, Any]) -> None:
    server.tokens = change
    with pytest.raises(BadAnswer, match="no session that is bound to our key"):
        login(client, server)


@pytest.mark.parametrize("seconds", [None, 0, -1, True, "3600", 1e9, 1 << 60])
def test_a_life_that_is_none_is_not_believed(
    client: Client, server: AuthServer, seconds: Any
) -> None:
    server.tokens = {"expires_in": seconds}
    assert login(client, server).expires_at is None


def test_what_was_granted_is_kept_as_the_server_says_it(client: Client, server: AuthServer) -> None:
    server.tokens = {"scope": "repo?collection=dev.knotless.repo atproto"}
    assert login(client, server).scope == "repo?collection=dev.knotless.repo atproto"


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (httpx.ConnectError("refused"), HostUnreachable),
        (httpx.Response(502, html="<html>"), ServerFault),
        (httpx.Response(401, json={"error": "invalid_client"}), AuthRefused),
    ],
)
def test_a_server_that_is_down_between_the_steps(
    client: Client, server: AuthServer, answer: Any, kind: type[Exception]
) -> None:
    def fail(_: httpx.Request) -> httpx.Response:
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return] # it is one

    begun = begin(client, ALICE, SCOPE, redirect_port=1)
    brought = server.approve(begun.url)
    server.answers[TOKEN] = fail
    server.take()
    with pytest.raises(kind):
        begun.finish(client, brought)
    assert server.take() == [TOKEN], "a code is never sent twice"


# Logging out.


def test_a_revocation_ends_the_session(
    client: Client, server: AuthServer, store: SessionStore
) -> None:
    session = login(client, server)
    store.save(session)
    client.nonces[PDS] = "stale"
    server.take()
    assert log_out(client, store, session.did) == Ended(session)
    assert server.take() == [METADATA, REVOKE, REVOKE, SESSION, TOKEN]
    assert server.grants == []
    assert store.load(session.did) is None


def test_a_host_that_does_not_revoke_is_found_out(
    client: Client, server: AuthServer, store: SessionStore
) -> None:
    session = login(client, server)
    store.save(session)
    server.revokes = False
    server.take()
    assert log_out(client, store, session.did) == Ended(session, "did not end the session")
    assert server.take() == [METADATA, REVOKE, SESSION]
    assert store.load(session.did) is None


def test_a_dead_access_token_does_not_hide_that_the_session_lives(
    client: Client, server: AuthServer
) -> None:
    session = replace(login(client, server), access="expired")
    server.revokes = False
    assert end(client, session) is False


@pytest.mark.parametrize(
    "fail", [lambda _: xrpc_error(503, ""), lambda _: httpx.Response(200, html="<p>")]
)
@pytest.mark.parametrize("path", [METADATA, REVOKE])
def test_a_session_is_forgotten_whatever_the_host_says(
    client: Client,
    server: AuthServer,
    store: SessionStore,
    path: str,
    fail: Callable[[httpx.Request], httpx.Response],
) -> None:
    session = login(client, server)
    store.save(session)
    server.answers[path] = fail
    trouble = log_out(client, store, session.did).trouble
    assert trouble is not None
    assert trouble.startswith("could not be told: localhost:2583 ")
    assert store.load(session.did) is None


def test_a_session_that_has_ended_costs_no_request(
    client: Client, server: AuthServer, store: SessionStore
) -> None:
    session = login(client, server).over()
    store.save(session)
    server.take()
    assert log_out(client, store, session.did) == Ended(session)
    assert server.take() == []
    assert store.load(session.did) is None


def test_an_unknown_error_keeps_its_name(client: Client, server: AuthServer) -> None:
    server.answers[TOKEN] = lambda _: httpx.Response(400, json={"error": "invalid_request"})
    with pytest.raises(XrpcError) as caught:
        login(client, server)
    assert caught.value.name == "invalid_request"
