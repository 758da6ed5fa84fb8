"""Proofs of a key, the nonces that hosts ask for, and what is sent twice for them."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from git_knotless.atproto.credentials import Bearer, Once, OtherHost
from git_knotless.atproto.dpop import Dpop, DpopKey, blame_clock
from git_knotless.atproto.errors import (
    AuthRefused,
    BadAnswer,
    CannotSend,
    ClockWrong,
    RateLimited,
    XrpcError,
)
from git_knotless.atproto.xrpc import Client
from tests.atproto.authserver import PAR, AuthServer, Grant, client_of, decode, encode, verified
from tests.atproto.fakes import PDS, Body, Script, Waits, client_for, fresh, json_answer, xrpc_error

GET = "com.atproto.repo.getRecord"
POST = "com.atproto.repo.applyWrites"
SESSION = "com.atproto.server.getSession"
UPLOAD = "com.atproto.repo.uploadBlob"


@pytest.fixture
def key() -> DpopKey:
    return DpopKey.generate()


@pytest.fixture
def server(key: DpopKey) -> AuthServer:
    """One at which somebody is logged in with the key, and the token `access`."""
    jwk = key.public_jwk
    return AuthServer(grants=[Grant("", "", jwk["x"] + jwk["y"], "access", "refresh")])


@pytest.fixture
def client(server: AuthServer) -> Iterator[Client]:
    with client_of(server) as client:
        yield client


def auth(client: Client, key: DpopKey, token: str = "access") -> Once:
    return Once(Dpop(PDS, key, client.nonces, token))


# Keys and proofs.


def test_a_key_is_the_same_after_it_was_kept(key: DpopKey) -> None:
    jwk = key.to_jwk()
    again = DpopKey.from_jwk(json.loads(json.dumps({**jwk, "kid": "1"})))
    assert again.to_jwk() == jwk
    assert jwk.keys() - again.public_jwk.keys() == {"d"}
    assert jwk["d"] not in repr(key)
    assert DpopKey.generate().to_jwk() != jwk


@pytest.mark.parametrize(
    "change",
    [
        {"d": None},
        {"d": "AA"},
        {"d": "!" * 43},
        {"d": encode(bytes(32))},
        {"d": encode(b"\xff" * 32)},
        {"d": 7},
        {"x": encode(b"x" * 32)},
        {"y": None},
        {"crv": "P-384"},
        {"kty": "RSA"},
    ],
)
def test_what_is_no_key(key: DpopKey, change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="key"):
        DpopKey.from_jwk({**key.to_jwk(), **change})
    with pytest.raises(ValueError, match="key"):
        DpopKey.from_jwk({})


def test_a_proof(key: DpopKey) -> None:
    proof = key.proof("POST", f"{PDS}/x", nonce="n", token="t")
    header, claims, *_ = verified(proof)
    assert header == {"typ": "dpop+jwt", "alg": "ES256", "jwk": key.public_jwk}
    assert abs(claims.pop("iat") - time.time()) < 5
    assert len(claims.pop("jti")) > 20
    # printf t | sha256sum | xxd -r -p | basenc --base64url
    ath = "47mKTaMaEn1L3m5DAz9muidMqw636xxw7EFAK_YnPdg"
    assert claims == {"htm": "POST", "htu": f"{PDS}/x", "nonce": "n", "ath": ath}
    assert len(decode(proof.rpartition(".")[2])) == 64
    _, bare, *_ = verified(key.proof("GET", PDS, nonce=None, token=None))
    assert bare.keys() == {"jti", "htm", "htu", "iat"}


# What goes with a request.


def test_the_first_request_learns_the_nonce(
    client: Client, server: AuthServer, key: DpopKey
) -> None:
    params = {"repo": "a b", "limit": 7}
    assert client.get(PDS, GET, params, auth=auth(client, key))["ok"] is True
    assert server.take() == [GET, GET]
    assert client.nonces == {PDS: "nonce-1"}
    assert client.get(PDS, GET, params, auth=auth(client, key))["ok"] is True
    assert server.take() == [GET], "which is known from then on"


def test_the_nonce_of_every_answer_is_the_next_ones(
    client: Client, server: AuthServer, key: DpopKey
) -> None:
    client.get(PDS, GET, auth=auth(client, key))
    server.take()

    for number in range(2, 5):
        client.get(PDS, GET, auth=auth(client, key))
        server.nonce = f"nonce-{number}"
    assert server.take() == [GET, GET, GET, GET, GET]
    # What an answer gives is used, though that answer asked for none.
    later = json_answer({"ok": True}, {"DPoP-Nonce": "nonce-9"})
    server.answers[f"/xrpc/{GET}"] = lambda _: later
    client.get(PDS, GET, auth=auth(client, key))
    server.nonce = "nonce-9"
    server.answers.clear()
    server.take()
    client.get(PDS, GET, auth=auth(client, key))
    assert server.take() == [GET]


def test_a_body_is_sent_again_from_its_beginning(
    client: Client, server: AuthServer, key: DpopKey
) -> None:
    client.nonces[PDS] = "stale"
    body = Body(b"PACK and the rest of it")
    assert client.upload(PDS, body, "a/b", auth=auth(client, key))["blob"] == 1
    assert body.begun == 2
    assert server.bodies == [body.data, body.data]
    client.nonces[PDS] = "stale"
    server.bodies.clear()
    assert client.post(PDS, POST, {"a": 1}, auth=auth(client, key))["ok"] is True
    assert server.bodies == [b'{"a":1}'] * 2


def test_the_second_body_is_held_to_its_length_too(
    client: Client, server: AuthServer, key: DpopKey
) -> None:
    @dataclass
    class Shrinking(Body):
        def chunks(self) -> Iterator[bytes]:
            whole = b"".join(super().chunks())
            yield whole if self.begun == 1 else whole[:-1]

    client.nonces[PDS] = "stale"
    with pytest.raises(CannotSend, match="has changed meanwhile"):
        client.upload(PDS, Shrinking(b"PACK"), "a/b", auth=auth(client, key))


def test_a_long_body_is_not_sent_to_learn_a_nonce(
    client: Client, server: AuthServer, key: DpopKey
) -> None:
    body = Body(b"P" * 65537)
    client.upload(PDS, body, "a/b", auth=auth(client, key))
    assert server.take() == [SESSION, UPLOAD]
    assert body.begun == 1
    client.upload(PDS, body, "a/b", auth=auth(client, key))
    assert server.take() == [UPLOAD]


def test_a_nonce_that_no_request_can_satisfy_is_asked_for_once(
    client: Client, server: AuthServer, key: DpopKey
) -> None:
    """A host that gives another one each time is not asked for ever."""
    numbers = iter(range(100))

    def never(_: httpx.Request) -> httpx.Response:
        headers = {
            "WWW-Authenticate": 'DPoP error="use_dpop_nonce"',
            "DPoP-Nonce": f"n{next(numbers)}",
        }
        return httpx.Response(401, json={"error": "use_dpop_nonce"}, headers=headers)

    server.answers[f"/xrpc/{GET}"] = never
    with pytest.raises(AuthRefused) as caught:
        client.get(PDS, GET, auth=auth(client, key))
    assert caught.value.name == "use_dpop_nonce"
    assert server.take() == [GET, GET]


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (401, {"WWW-Authenticate": 'DPoP error="use_dpop_nonce"'}),  # and gives none
        (401, {"DPoP-Nonce": "new", "WWW-Authenticate": 'DPoP error="invalid_token"'}),
        (403, {"DPoP-Nonce": "new", "WWW-Authenticate": 'DPoP error="use_dpop_nonce"'}),
        (401, {"DPoP-Nonce": "new"}),
        (401, {"DPoP-Nonce": "x" * 513, "WWW-Authenticate": 'DPoP error="use_dpop_nonce"'}),
    ],
)
def test_another_refusal_is_not_answered_with_a_nonce(
    client: Client, server: AuthServer, key: DpopKey, status: int, headers: dict[str, str]
) -> None:
    refusal = httpx.Response(status, json={"error": "invalid_token"}, headers=headers)
    server.answers[f"/xrpc/{GET}"] = lambda _: fresh(refusal)
    with pytest.raises(XrpcError):
        client.get(PDS, GET, auth=auth(client, key))
    assert server.take() == [GET]


def test_an_authorization_server_asks_in_its_answer(
    client: Client, server: AuthServer, key: DpopKey
) -> None:
    form = {"client_id": "c", "scope": "a b", "state": "é&="}
    client.post_form(PDS + PAR, form, credential=Dpop(PDS, key, client.nonces))
    assert server.take() == [PAR, PAR]
    (pushed,) = server.pushed.values()
    assert {name: pushed[name] for name in ("client_id", "scope")} == {
        "client_id": "c",
        "scope": "a b",
    }
    # What it refuses for another reason is told, whatever nonce comes with it, and not sent again.
    refusal = {"error": "invalid_request", "error_description": "Bad\x1b[31m one"}
    client.nonces[PDS] = "stale"
    server.answers[PAR] = lambda _: httpx.Response(400, json=refusal, headers={"DPoP-Nonce": "n"})
    with pytest.raises(XrpcError) as caught:
        client.post_form(PDS + PAR, form, credential=Dpop(PDS, key, client.nonces))
    assert (caught.value.name, caught.value.text) == ("invalid_request", "Bad [31m one")
    assert server.take() == [PAR]


def test_a_nonce_is_no_try_of_a_patient_request(server: AuthServer, key: DpopKey) -> None:
    """Three tries are three with the nonce: what it cost to learn it is beside them."""
    waits = Waits()
    limited = iter([xrpc_error(429, "RateLimitExceeded", retry_after="1")] * 2)

    def busy(request: httpx.Request) -> httpx.Response | None:
        _, claims, *_ = verified(request.headers["dpop"])
        return next(limited, None) if "nonce" in claims else None

    server.answers[f"/xrpc/{POST}"] = busy
    with client_of(server, waits) as client:
        assert client.post(PDS, POST, {}, auth=auth(client, key), patient=True)["ok"] is True
    assert server.take() == [POST] * 4
    assert len(waits.seconds) == 2
    jtis = set()
    server.answers[f"/xrpc/{POST}"] = lambda request: (
        jtis.add(verified(request.headers["dpop"])[1]["jti"])
        or xrpc_error(429, "RateLimitExceeded", retry_after="1")
    )
    with client_of(server, waits) as client, pytest.raises(RateLimited):
        client.post(PDS, POST, {}, auth=auth(client, key), patient=True)
    assert len(jtis) == 3, "each sending has a proof of its own"


# Hosts that mean no good.


@pytest.mark.parametrize("size", [64 * 1024 + 1, 1 << 20])
def test_a_refusal_that_does_not_end_is_not_read_to_its_end(key: DpopKey, size: int) -> None:
    refusal = httpx.Response(
        401,
        content=b"x" * size,
        headers={"WWW-Authenticate": 'DPoP error="use_dpop_nonce"', "DPoP-Nonce": "n"},
    )
    with client_for(Script([refusal])) as client, pytest.raises(BadAnswer, match="more than"):
        client.get(PDS, GET, auth=auth(client, key))


@pytest.mark.parametrize(("text", "first"), [("P", POST), ("P" * 70_000, SESSION)])
def test_a_refusal_is_not_unpacked(
    client: Client, server: AuthServer, key: DpopKey, text: str, first: str
) -> None:
    """It might be any size then. What is no gzip at all shows that nobody has tried."""
    headers = {
        "WWW-Authenticate": 'DPoP error="use_dpop_nonce"',
        "DPoP-Nonce": "nonce-1",
        "Content-Encoding": "gzip",
    }
    refusal = httpx.Response(401, headers=headers, stream=httpx.ByteStream(b"no gzip"))
    answers = iter([refusal])
    server.answers[f"/xrpc/{first}"] = lambda _: next(answers, None)
    assert client.post(PDS, POST, {"a": text}, auth=auth(client, key))["ok"] is True
    assert server.take() == [first, POST]


def test_no_credential_follows_a_redirect(client: Client, server: AuthServer, key: DpopKey) -> None:
    away = httpx.Response(302, headers={"Location": "http://localhost:1/x"})
    server.answers[f"/xrpc/{GET}"] = lambda _: away
    with pytest.raises(BadAnswer, match="elsewhere"):
        client.get(PDS, GET, auth=auth(client, key))
    assert server.take() == [GET]


def test_a_credential_is_for_one_origin(client: Client, server: AuthServer, key: DpopKey) -> None:
    for credential in (Dpop(PDS, key, client.nonces, "access"), Bearer(PDS, "access")):
        for other in ("http://localhost:2584", "http://127.0.0.1:2583", "https://localhost:2583"):
            with pytest.raises(OtherHost):
                client.get(other, GET, auth=Once(credential))
    assert server.take() == []


# Clocks.


@pytest.mark.parametrize(
    ("ahead", "words"),
    [
        (420, r"this machine's clock is 7 minutes behind localhost:2583's"),
        (-7200, r"this machine's clock is 2 hours ahead of localhost:2583's"),
    ],
)
def test_a_clock_that_is_off_is_named(
    client: Client, server: AuthServer, key: DpopKey, ahead: float, words: str
) -> None:
    server.clock = lambda: time.time() + ahead
    with pytest.raises(AuthRefused) as caught:
        client.get(PDS, GET, auth=auth(client, key))
    assert caught.value.name == "invalid_dpop_proof"
    with pytest.raises(ClockWrong, match=words) as blamed:
        blame_clock(client, caught.value, PDS)
    assert blamed.value.hint == "set the clock, and try again"
    for name in ("InvalidToken", "invalid_token"):
        blame_clock(client, refused(name), PDS)


@pytest.mark.parametrize("ahead", [0, 100, -100])
def test_a_clock_that_is_right_is_not_blamed(
    client: Client, server: AuthServer, ahead: float
) -> None:
    blame_clock(client, refused("invalid_dpop_proof"), PDS)  # before any answer
    server.clock = lambda: time.time() + ahead
    client.get_json(f"{PDS}/.well-known/oauth-protected-resource")
    blame_clock(client, refused("invalid_dpop_proof"), PDS)


def refused(name: str) -> AuthRefused:
    return AuthRefused(401, name, "", nsid=GET, host="localhost:2583")
