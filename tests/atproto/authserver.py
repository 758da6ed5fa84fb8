"""A PDS that is its own authorization server, as the reference one behaves, to be asked in memory.

It verifies each proof with code of its own, gives a refresh token once, ends a session whose token
comes twice, and answers a revocation without a proof as if it had done it.
"""

import base64
import hashlib
import json
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

from git_knotless.atproto.xrpc import Client
from tests.atproto.fakes import DID, PDS, Waits, fresh, json_answer

METADATA = "/.well-known/oauth-authorization-server"
RESOURCE = "/.well-known/oauth-protected-resource"
PAR, TOKEN, REVOKE = "/oauth/par", "/oauth/token", "/oauth/revoke"
LIFE = 3599


@dataclass
class Unread(httpx.BaseTransport):
    """Gives a request as it is, with its body still to be read, unlike a `MockTransport`."""

    handler: Callable[[httpx.Request], httpx.Response]

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return fresh(self.handler(request))


def read(request: httpx.Request) -> bytes:
    assert isinstance(request.stream, httpx.SyncByteStream)
    return b"".join(request.stream)


class Refusal(Exception):
    """An answer that is not a success."""

    def __init__(self, status: int, error: str, text: str = "") -> None:
        super().__init__(error)
        self.status, self.error, self.text = status, error, text


@dataclass
class Grant:
    """A login that was approved: the tokens that count now, and the key they are bound to."""

    sub: str
    scope: str
    key: str = ""
    access: str = ""
    refresh: str = ""
    used: set[str] = field(default_factory=set)


@dataclass
class AuthServer:
    """`nonce` is the newest, which a proof has to carry; `sub` is who approves."""

    sub: str = DID
    origin: str = PDS
    nonce: str = "nonce-1"
    clock: Callable[[], float] = time.time
    asked: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    pushed: dict[str, dict[str, str]] = field(default_factory=dict)
    codes: dict[str, tuple[Grant, dict[str, str]]] = field(default_factory=dict)
    grants: list[Grant] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)
    resource: dict[str, Any] | None = field(default_factory=dict)
    answers: dict[str, Callable[[httpx.Request], httpx.Response | None]] = field(
        default_factory=dict
    )
    tokens: dict[str, Any] = field(default_factory=dict)
    revokes: bool = True
    lock: Lock = field(default_factory=Lock)
    _jtis: set[str] = field(default_factory=set)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        with self.lock:
            path = request.url.path
            body = read(request)
            self.asked.append(path.removeprefix("/xrpc/"))
            self.bodies.append(body)
            if (other := self.answers.get(path)) and (answer := other(request)) is not None:
                return answer
            answer = self._answer(path, request, body)
            answer.headers["Date"] = time.strftime(
                "%a, %d %b %Y %H:%M:%S GMT", time.gmtime(self.clock())
            )
            return answer

    def take(self) -> list[str]:
        asked, self.asked = self.asked, []
        return asked

    def approve(self, url: str) -> dict[str, str]:
        """What the browser brings back from `url`."""
        query = dict(parse_qsl(urlsplit(url).query))
        asked = self.pushed[query["request_uri"]]
        assert query["client_id"] == asked["client_id"]
        code = f"cod-{secrets.token_hex(8)}"
        self.codes[code] = Grant(self.sub, asked["scope"]), asked
        return {"code": code, "state": asked["state"], "iss": self.origin}

    def _answer(self, path: str, request: httpx.Request, body: bytes) -> httpx.Response:
        if path == RESOURCE:
            if self.resource is None:
                return httpx.Response(404, text="Cannot GET it")
            described = {"resource": self.origin, "authorization_servers": [self.origin]}
            return json_answer(described | self.resource)
        if path == METADATA:
            return json_answer(self.described() | self.metadata)
        try:
            answer = self._proved(path, request, dict(parse_qsl(body.decode("latin-1"))))
        except Refusal as refusal:
            answer = self._refused(path, refusal)
        answer.headers["DPoP-Nonce"] = self.nonce
        return answer

    def described(self) -> dict[str, Any]:
        return {
            "issuer": self.origin,
            "authorization_endpoint": f"{self.origin}/oauth/authorize",
            "token_endpoint": self.origin + TOKEN,
            "pushed_authorization_request_endpoint": self.origin + PAR,
            "revocation_endpoint": self.origin + REVOKE,
            "code_challenge_methods_supported": ["S256"],
            "dpop_signing_alg_values_supported": ["ES256K", "ES256"],
            "authorization_response_iss_parameter_supported": True,
        }

    def _refused(self, path: str, refusal: Refusal) -> httpx.Response:
        body = {"error": refusal.error, "error_description": refusal.text}
        headers = {}
        if path.startswith("/xrpc/"):
            headers["WWW-Authenticate"] = f'DPoP error="{refusal.error}"'
        elif refusal.error == "use_dpop_nonce":
            refusal.status = 400
        return httpx.Response(refusal.status, json=body, headers=headers)

    def _proved(self, path: str, request: httpx.Request, form: dict[str, str]) -> httpx.Response:
        token = request.headers.get("authorization", "").removeprefix("DPoP ")
        if path == REVOKE and "dpop" not in request.headers:
            return json_answer({})
        key = self._check(request, token)
        match path:
            case "/oauth/par":
                name = f"urn:ietf:params:oauth:request_uri:req-{secrets.token_hex(8)}"
                self.pushed[name] = form | {"key": key}
                return httpx.Response(201, json={"request_uri": name, "expires_in": 299})
            case "/oauth/token" if form["grant_type"] == "authorization_code":
                return self._exchange(form, key)
            case "/oauth/token":
                return self._refresh(form, key)
            case "/oauth/revoke":
                for grant in list(self.grants):
                    if self.revokes and grant.key == key and form["token"] == grant.refresh:
                        self.grants.remove(grant)
                return json_answer({})
        if not any(grant.access == token and grant.key == key for grant in self.grants):
            raise Refusal(401, "invalid_token", "Invalid session")
        return json_answer({"ok": True, "blob": 1})

    def _exchange(self, form: dict[str, str], key: str) -> httpx.Response:
        grant, asked = self.codes.pop(form["code"], (Grant("", ""), {}))
        challenge = digest(form["code_verifier"])
        if challenge != asked.get("code_challenge") or key != asked["key"]:
            raise Refusal(400, "invalid_grant", "Invalid code")
        assert form["redirect_uri"] == asked["redirect_uri"]
        assert form["client_id"] == asked["client_id"]
        grant.key = key
        self.grants.append(grant)
        return self._issue(grant)

    def _refresh(self, form: dict[str, str], key: str) -> httpx.Response:
        token = form["refresh_token"]
        for grant in list(self.grants):
            if token in grant.used:
                self.grants.remove(grant)
                raise Refusal(400, "invalid_grant", "Refresh token replayed")
            if token == grant.refresh and key == grant.key:
                return self._issue(grant)
        raise Refusal(400, "invalid_grant", "Invalid refresh token")

    def _issue(self, grant: Grant) -> httpx.Response:
        grant.used.add(grant.refresh)
        grant.access, grant.refresh = f"at-{secrets.token_hex(8)}", f"ref-{secrets.token_hex(8)}"
        issued = {
            "access_token": grant.access,
            "refresh_token": grant.refresh,
            "token_type": "DPoP",
            "scope": grant.scope,
            "expires_in": LIFE,
            "sub": grant.sub,
        }
        return json_answer({**issued, **self.tokens})

    def _check(self, request: httpx.Request, token: str) -> str:
        """The thumbprint of the key that the proof was made with."""
        header, claims, x, y = verified(request.headers.get("dpop", ""))
        bad = Refusal(401, "invalid_dpop_proof", "Failed to verify DPoP proof")
        if header["typ"] != "dpop+jwt" or claims["htm"] != request.method:
            raise bad
        if claims["htu"] != f"{self.origin}{request.url.path}":
            raise bad
        if abs(claims["iat"] - self.clock()) > 180 or claims["jti"] in self._jtis:
            raise bad
        ath = digest(token) if token else None
        if claims.get("ath") != ath:
            raise bad
        if claims.get("nonce") != self.nonce:
            raise Refusal(401, "use_dpop_nonce", "Authorization server requires nonce in proof")
        self._jtis.add(claims["jti"])
        return x + y


def verified(proof: str) -> tuple[dict[str, Any], dict[str, Any], str, str]:
    """A proof's header and claims, and the coordinates of its key. Raises Refusal."""
    try:
        signed, _, signature = proof.rpartition(".")
        header, claims = (json.loads(decode(part)) for part in signed.split("."))
        jwk = header["jwk"]
        assert jwk.keys() == {"kty", "crv", "x", "y"}
        assert (header["alg"], jwk["kty"], jwk["crv"]) == ("ES256", "EC", "P-256")
        x, y = (int.from_bytes(decode(jwk[name]), "big") for name in "xy")
        r, s = (int.from_bytes(half, "big") for half in halves(decode(signature)))
        key = ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key()
        key.verify(encode_dss_signature(r, s), signed.encode(), ec.ECDSA(SHA256()))
    except (ValueError, KeyError, AssertionError, InvalidSignature) as error:
        raise Refusal(401, "invalid_dpop_proof", repr(error)) from error
    return header, claims, jwk["x"], jwk["y"]


def halves(signature: bytes) -> tuple[bytes, bytes]:
    assert len(signature) == 64
    return signature[:32], signature[32:]


def digest(text: str) -> str:
    return encode(hashlib.sha256(text.encode()).digest())


def decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def client_of(
    server: Callable[[httpx.Request], httpx.Response], waits: Waits | None = None
) -> Client:
    waits = waits or Waits()
    return Client(Unread(server), notify=waits.told.append, pause=waits.seconds.append)
