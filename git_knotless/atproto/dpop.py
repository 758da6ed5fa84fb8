"""Requests that prove the possession of a key with each sending. RFC 9449, as atproto has it.

https://atproto.com/specs/oauth#demonstrating-proof-of-possession-d-po-p
"""

import base64
import binascii
import hashlib
import json
import secrets
import time
from collections.abc import Generator, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import httpx

from git_knotless import limits
from git_knotless.atproto.credentials import Credential
from git_knotless.atproto.errors import BadAnswer, ClockWrong, XrpcError
from git_knotless.atproto.hosts import host_of, origin_of
from git_knotless.atproto.xrpc import Client

if TYPE_CHECKING:
    from git_knotless.atproto.keys import PrivateKey

_COORDINATE = 32  # bytes of x, of y and of the private number
_LONGEST_NONCE = 512
# Hosts take a proof that is up to three minutes off; less than this is not what they mind.
_CLOCK_SECONDS = 120.0
# A body that is longer is not sent only to be told the nonce: a small request is.
_LONG_BODY = 64 * 1024
_SMALL_REQUEST = "/xrpc/com.atproto.server.getSession"


@dataclass(frozen=True, slots=True)
class DpopKey:
    """A P-256 key that lives as long as one login."""

    private: "PrivateKey" = field(repr=False)

    @classmethod
    def generate(cls) -> Self:
        # Whoever only reads needs no key, and would wait for all of cryptography.
        from git_knotless.atproto.keys import Curve, PrivateKey

        return cls(PrivateKey.generate(Curve.P256))

    @classmethod
    def from_jwk(cls, jwk: Mapping[str, Any]) -> Self:
        """A private JWK, as `to_jwk` makes it. Raises ValueError."""
        from git_knotless.atproto.keys import BadKey, Curve, PrivateKey

        try:
            key = cls(PrivateKey.from_bytes(Curve.P256, _decode(jwk["d"])))
            if {**jwk, **key.to_jwk()} != jwk:
                raise ValueError("the parts of the key do not belong together")
        except (KeyError, TypeError, AttributeError, BadKey, binascii.Error) as error:
            raise ValueError("not a private key") from error
        return key

    @property
    def public_jwk(self) -> dict[str, str]:
        numbers = self.private.public.point.public_numbers()
        x, y = (each.to_bytes(_COORDINATE, "big") for each in (numbers.x, numbers.y))
        return {"kty": "EC", "crv": "P-256", "x": _encode(x), "y": _encode(y)}

    def to_jwk(self) -> dict[str, str]:
        return {**self.public_jwk, "d": _encode(self.private.to_bytes())}

    def proof(self, method: str, url: str, *, nonce: str | None, token: str | None) -> str:
        """A JWT for one sending; `url` has neither query nor fragment."""
        header = {"typ": "dpop+jwt", "alg": "ES256", "jwk": self.public_jwk}
        claims = {
            "jti": secrets.token_urlsafe(16),
            "htm": method,
            "htu": url,
            "iat": int(time.time()),
            **({} if nonce is None else {"nonce": nonce}),
            **({} if token is None else {"ath": digest(token)}),
        }
        signed = ".".join(_encode(json.dumps(part).encode()) for part in (header, claims))
        return f"{signed}.{_encode(self.private.sign(signed.encode()))}"


class Dpop(Credential):
    """A proof, and the token that is bound to its key where there is one yet.

    `nonces` has the newest of each origin. A request that is refused for the lack of the newest
    is sent once more with it, from the beginning of its body.
    """

    def __init__(
        self, origin: str, key: DpopKey, nonces: MutableMapping[str, str], token: str = ""
    ) -> None:
        super().__init__(origin, token)
        self._key = key
        self._nonces = nonces

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        self.check(request)
        if self.token and self.origin not in self._nonces and _is_long(request):
            small = httpx.Request(
                "GET", self.origin + _SMALL_REQUEST, extensions=request.extensions
            )
            self._sign(small)
            response = yield small
            self._take_nonce(response)
            self._read(response)
        sent = self._sign(request)
        response = yield request
        self._take_nonce(response)
        if self._nonces.get(self.origin) != sent and self._asks_for_nonce(response):
            self._read(response)
            self._sign(request)
            self._take_nonce((yield request))

    def _sign(self, request: httpx.Request) -> str | None:
        """The nonce that went into the proof."""
        nonce = self._nonces.get(self.origin)
        url = str(request.url.copy_with(query=None, fragment=None))
        request.headers["DPoP"] = self._key.proof(
            request.method, url, nonce=nonce, token=self.token or None
        )
        if self.token:
            request.headers["Authorization"] = f"DPoP {self.token}"
        return nonce

    def _take_nonce(self, response: httpx.Response) -> None:
        nonce = response.headers.get("dpop-nonce", "")
        if 0 < len(nonce) <= _LONGEST_NONCE and nonce.isascii() and nonce.isprintable():
            self._nonces[self.origin] = nonce

    def _asks_for_nonce(self, response: httpx.Response) -> bool:
        """An authorization server says so in its answer, and another host in a header."""
        if response.status_code not in (400, 401):
            return False
        if "use_dpop_nonce" in response.headers.get("www-authenticate", ""):
            return True
        return not self.token and b'"use_dpop_nonce"' in self._body(response)

    def _read(self, response: httpx.Response) -> None:
        """Before httpx does, to its end and unpacked: either might be of any size."""
        self._body(response)
        response.headers.pop("content-encoding", None)

    def _body(self, response: httpx.Response) -> bytes:
        """As it came, and there to be read again. Raises BadAnswer where it is too long."""
        chunks, beginning = iter(response.stream), b""  # type: ignore[arg-type] # a sync one
        for chunk in chunks:
            beginning += chunk
            if len(beginning) > limits.ERROR:
                raise BadAnswer(f"{host_of(self.origin)} refuses with more than we would read")
        response.stream = _Held(beginning, response.stream)
        return beginning


@dataclass(frozen=True, slots=True)
class _Held(httpx.SyncByteStream):
    data: bytes
    source: Any  # the connection's stream, which is let go when this one is closed

    def __iter__(self) -> Iterator[bytes]:
        yield self.data

    def close(self) -> None:
        self.source.close()


def is_of_proof(refusal: XrpcError) -> bool:
    """Whether it is about the proof, and not about its token."""
    return refusal.name in ("invalid_dpop_proof", "use_dpop_nonce")


def blame_clock(client: Client, refusal: XrpcError, url: str) -> None:
    """Raises ClockWrong where this machine's clock may be why a proof sent to `url` was refused."""
    offset = client.clock_offset(origin_of(url)) or 0.0
    if is_of_proof(refusal) and abs(offset) > _CLOCK_SECONDS:
        way = "behind" if offset > 0 else "ahead of"
        raise ClockWrong(refusal, f"{_about(abs(offset))} {way}") from refusal


def _about(seconds: float) -> str:
    minutes, hours, days = (round(seconds / unit) for unit in (60, 3600, 86_400))
    if minutes < 120:
        return f"{minutes} minutes"
    return f"{hours} hours" if hours < 48 else f"{days} days"


def digest(text: str) -> str:
    """SHA-256, as OAuth writes it in a PKCE challenge and in `ath`."""
    return _encode(hashlib.sha256(text.encode()).digest())


def _is_long(request: httpx.Request) -> bool:
    return int(request.headers.get("content-length", "0")) > _LONG_BODY


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
