"""Hosts with behaviour at the network's edge: what they answer, and what they were asked."""

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from git_knotless.atproto.credentials import Bearer
from git_knotless.atproto.errors import AuthRefused
from git_knotless.atproto.hosts import origin_of
from git_knotless.atproto.xrpc import Client

DID = "did:plc:ewvi7nxzyoun6zhxrhs64oiz"
PDS = "http://localhost:2583"
PLC = "http://localhost:2582"

Answer = httpx.Response | Exception
Handler = Callable[[httpx.Request], httpx.Response]


def xrpc_error(status: int, name: str, message: str = "", **headers: str) -> httpx.Response:
    body = {"error": name, "message": message}
    return httpx.Response(
        status, json=body, headers={key.replace("_", "-"): value for key, value in headers.items()}
    )


def nsid_of(request: httpx.Request) -> str:
    return request.url.path.removeprefix("/xrpc/")


@dataclass
class Script:
    """Gives prepared answers in their order, the last one again and again."""

    answers: list[Answer]
    requests: list[httpx.Request] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        self.bodies.append(request.read())
        answer = self.answers[0] if len(self.answers) == 1 else self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@dataclass(frozen=True)
class Wire(httpx.SyncByteStream):
    """A body as it would come, which httpx has not read yet."""

    data: bytes

    def __iter__(self) -> Iterator[bytes]:
        yield self.data


def fresh(answer: httpx.Response) -> httpx.Response:
    """The same answer with its body unread, as often as wanted."""
    assert isinstance(answer.stream, httpx.SyncByteStream)
    body = Wire(b"".join(answer.stream))
    return httpx.Response(answer.status_code, headers=answer.headers, stream=body)


@dataclass
class Waits:
    """Stands for the clock: notes how long was waited for, and what a person was told."""

    seconds: list[float] = field(default_factory=list)
    told: list[str] = field(default_factory=list)


@dataclass
class Body:
    """An upload that knows how often it was begun."""

    data: bytes
    announced: int | None = None
    begun: int = 0

    @property
    def size(self) -> int:
        return len(self.data) if self.announced is None else self.announced

    def chunks(self) -> Iterator[bytes]:
        self.begun += 1
        for start in range(0, len(self.data), 4):
            yield self.data[start : start + 4]


@dataclass
class Token:
    """Credentials of one number, which a renewal raises."""

    number: int = 1
    renewals: int = 0
    asked: list[str] = field(default_factory=list)
    renewable: bool = True

    def credential(self, url: str, /) -> httpx.Auth:
        self.asked.append(url)
        return Bearer(origin_of(url), str(self.number))

    def renewed(self, sent: httpx.Auth, refusal: AuthRefused, /) -> bool:
        assert isinstance(sent, Bearer)
        assert sent.token == str(self.number)
        self.renewals += 1
        self.number += self.renewable
        return self.renewable


def client_for(handler: Handler, waits: Waits | None = None) -> Client:
    waits = waits or Waits()
    return Client(
        httpx.MockTransport(lambda request: fresh(handler(request))),
        notify=waits.told.append,
        pause=waits.seconds.append,
    )


def jwt(expires: float, **claims: Any) -> str:
    """What looks like a token to whoever cannot check its signature."""
    parts = ({"typ": "at+jwt", "alg": "ES256K"}, {"exp": expires, **claims})
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts]
    return b".".join([*encoded, b"c2ln"]).decode()


def document(
    did: str = DID, handle: str | None = "alice.test", pds: str | None = PDS
) -> dict[str, Any]:
    service = {"id": "#atproto_pds", "type": "AtprotoPersonalDataServer", "serviceEndpoint": pds}
    return {
        "id": did,
        "alsoKnownAs": [] if handle is None else [f"at://{handle}"],
        "service": [] if pds is None else [service],
    }


def json_answer(value: Any, headers: Mapping[str, str] | None = None) -> httpx.Response:
    return httpx.Response(200, json=value, headers=headers)
