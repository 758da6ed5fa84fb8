"""XRPC: calling an atproto host. https://atproto.com/specs/xrpc

A GET and an upload are sent again when the host is down, failing or asks for a short wait.
A POST is not, since only its caller can tell whether the first was carried out; but one refused
for an expired token was not, and is sent once more with a new one. One refused with a wait was
not either, and is sent again where the caller is `patient`. What a credential has to send twice
to learn a nonce is one sending here.
"""

import math
from collections.abc import Callable, Container, Iterator, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import urlencode, urlsplit

from git_knotless import limits
from git_knotless.atproto.answers import (
    decode_json,
    decode_object,
    encode_json,
    refuse,
)
from git_knotless.atproto.auth import Auth, authorized
from git_knotless.atproto.blob_wire import GET_BLOB, BlobBody, Exactly, blob_from
from git_knotless.atproto.errors import (
    AtprotoError,
    BadAnswer,
    CannotSend,
    RateLimited,
)
from git_knotless.atproto.guard import Guard
from git_knotless.atproto.hosts import host_of, origin_of, parse_origin
from git_knotless.atproto.retry import LOOKUP_WINDOW, READ_WINDOW, Patience
from git_knotless.atproto.transport import Answer, Transport

if TYPE_CHECKING:
    import httpx

    from git_knotless.atproto.allowance import Allowances

_T = TypeVar("_T")
_Send = Callable[["httpx.Auth | None"], _T]


def _hurried(transport: "httpx.BaseTransport | None", *, guard: Guard | None) -> Transport:
    from git_knotless.atproto.hurry import HurriedTransport  # only a check-up is

    return HurriedTransport(transport, guard=guard)


def _say_nothing(_: str) -> None:
    pass


class Client:
    """Calls on any number of hosts, named by their origins; one serves all threads of a process.

    `notify` gets a line for a person when a host makes us wait. A `hurried` client waits for no
    host twice, see `hurry.py`. `guard` says where hosts may be; without
    one they are public, or of this machine by name. `transport` takes the network's place, and
    `pause` the clock's, in tests.
    """

    def __init__(
        self,
        transport: "httpx.BaseTransport | None" = None,
        *,
        notify: Callable[[str], None] | None = None,
        pause: Callable[[float], None] | None = None,
        hurried: bool = False,
        guard: Guard | None = None,
    ) -> None:
        make = _hurried if hurried else Transport
        self._http = make(transport, guard=guard)
        self._notify = notify or _say_nothing
        self._pause = pause or self._http.pause
        # The newest DPoP nonce that each origin has given: every answer to a proof may carry one.
        self.nonces: dict[str, str] = {}
        self.allowances: Allowances | None = None  # of whoever writes

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Also ends what other threads are waiting for: they get `TransferCancelled`."""
        self._http.close()

    def take_time(self) -> None:
        """From now on it waits for every host, if it was hurried."""
        self._http.hurried = False

    @property
    def guard(self) -> Guard:
        return self._http.guard

    def clock_offset(self, host: str) -> float | None:
        """The host's clock minus ours, in seconds, by its newest answer; None before the first."""
        return self._http.clock_offset(parse_origin(host))

    def get(
        self,
        host: str,
        nsid: str,
        params: Mapping[str, Any] | None = None,
        *,
        auth: Auth | None = None,
        limit: int = limits.RECORD,
    ) -> dict[str, Any]:
        """A query's answer, of at most `limit` bytes; a parameter of None is left out."""
        url = _url(host, nsid)
        given = {key: value for key, value in (params or {}).items() if value is not None}

        def send(credential: "httpx.Auth | None") -> dict[str, Any]:
            with self._http.exchange("GET", url, params=given, auth=credential) as answer:
                return _object(answer, nsid, limit)

        return authorized(partial(self._patiently, send, READ_WINDOW), url, auth)

    def post(
        self,
        host: str,
        nsid: str,
        body: Mapping[str, Any] | None,
        *,
        auth: Auth | None = None,
        answer_within: float | None = None,
        limit: int = limits.RECORD,
        patient: bool = False,
    ) -> dict[str, Any]:
        """A procedure's answer, `{}` where it has none. A `body` of None sends no body at all.

        A `patient` one waits where the host says for how long, and is then sent again.
        """
        url = _url(host, nsid)
        kind = {} if body is None else {"Content-Type": "application/json"}
        content = b"" if body is None else _encode(body, nsid)

        def send(credential: "httpx.Auth | None") -> dict[str, Any]:
            with self._http.exchange(
                "POST",
                url,
                headers=kind,
                content=content,
                auth=credential,
                answer_within=answer_within,
            ) as answer:
                self._note(answer, nsid, (body or {}).get("repo", ""))
                return _object(answer, nsid, limit, may_be_empty=True)

        if patient:
            return authorized(partial(self._when_told, send), url, auth)
        return authorized(send, url, auth)

    def post_form(
        self, url: str, form: Mapping[str, str], *, credential: "httpx.Auth"
    ) -> dict[str, Any]:
        """An OAuth endpoint's answer, `{}` where it has none. Never sent again, see `post`."""
        # Uncompressed, so that a refusal can be read while the nonce that it asks for is looked at.
        kind = {
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
            "Accept-Encoding": "identity",
        }
        content = urlencode(form).encode()
        with self._http.exchange(
            "POST", url, headers=kind, content=content, auth=credential
        ) as answer:
            path = urlsplit(url).path
            return _object(answer, path, limits.DID_DOCUMENT, may_be_empty=True, success=(200, 201))

    def upload(self, host: str, body: BlobBody, mime: str, *, auth: Auth) -> dict[str, Any]:
        """`uploadBlob`'s answer. Sent again as a GET is, whatever the sending took."""
        nsid = "com.atproto.repo.uploadBlob"
        url = _url(host, nsid)
        # Hosts refuse a blob that is too large by its length, and only so before it is sent.
        kind = {"Content-Type": mime, "Content-Length": str(body.size)}

        def send(credential: "httpx.Auth | None") -> dict[str, Any]:
            with self._http.exchange(
                "POST",
                url,
                headers=kind,
                content=Exactly(body),
                auth=credential,
                answer_within=limits.WRITE_ANSWER,
            ) as answer:
                self._note(answer, nsid)
                return _object(answer, nsid, limits.RECORD)

        return authorized(partial(self._patiently, send, math.inf), url, auth)

    def download(self, host: str, did: str, cid: str, *, limit: int) -> Iterator[bytes]:
        """A blob as it comes, at most `limit` bytes of it; its hash is the caller's to check.

        Where the connection drops, the blob is asked for again and what was had is skipped.
        """
        patience = self._patience(math.inf)
        url = f"{_url(host, GET_BLOB)}?{urlencode({'did': did, 'cid': cid})}"
        had = 0
        while True:
            try:
                for chunk in blob_from(self._http, had, url, limit):
                    had += len(chunk)
                    yield chunk
                return
            except AtprotoError as error:
                patience.after(error)

    def get_json(self, url: str, *, limit: int = limits.DID_DOCUMENT) -> Any:
        """A plain JSON document. No credential is sent and no redirect followed."""
        return decode_json(self._plain(url, limit), host_of(origin_of(url)))

    def get_file(
        self, host: str, nsid: str, params: Mapping[str, str | list[str]], *, limit: int
    ) -> bytes:
        """A query's answer that is no JSON, such as an archive; it carries no credential."""
        url = _url(host, nsid)

        def send(_: "httpx.Auth | None") -> bytes:
            with self._http.exchange("GET", url, params=params) as answer:
                if answer.status != 200:
                    refuse(answer, nsid)
                return answer.read(limit)

        return self._patiently(send, READ_WINDOW, None)

    def get_text(self, url: str, *, limit: int = limits.HANDLE) -> str:
        """A plain text of ASCII."""
        try:
            return self._plain(url, limit).decode("ascii")
        except UnicodeDecodeError as error:
            raise BadAnswer(f"{host_of(origin_of(url))} answers with more than ASCII") from error

    def _plain(self, url: str, limit: int) -> bytes:
        def send(_: "httpx.Auth | None") -> bytes:
            with self._http.exchange("GET", url) as answer:
                if answer.status != 200:
                    refuse(answer, url.removeprefix(answer.origin), plain=True)
                return answer.read(limit)

        return self._patiently(send, LOOKUP_WINDOW, None)

    def _note(self, answer: Answer, nsid: str, account: str = "") -> None:
        if self.allowances is not None:
            self.allowances.heard(answer.origin, nsid, account, answer.headers)

    def _patience(self, window: float) -> Patience:
        return Patience(self._pause, self._notify, window, hurried=self._http.hurried)

    def _patiently(self, send: _Send[_T], window: float, credential: "httpx.Auth | None") -> _T:
        patience = self._patience(window)
        while True:
            try:
                return send(credential)
            except AtprotoError as error:
                patience.after(error)

    def _when_told(self, send: _Send[_T], credential: "httpx.Auth | None") -> _T:
        patience = self._patience(READ_WINDOW)
        while True:
            try:
                return send(credential)
            except RateLimited as error:
                if error.retry_after is None:
                    raise
                patience.after(error)


def _url(host: str, nsid: str) -> str:
    return f"{parse_origin(host)}/xrpc/{nsid}"


def _object(
    answer: Answer,
    nsid: str,
    limit: int,
    *,
    may_be_empty: bool = False,
    success: Container[int] = (200,),
) -> dict[str, Any]:
    if answer.status not in success:
        refuse(answer, nsid)
    data = answer.read(limit)
    if may_be_empty and not data:
        return {}
    return decode_object(data, answer.host)


def _encode(body: Mapping[str, Any], nsid: str) -> bytes:
    try:
        return encode_json(body)
    except (ValueError, RecursionError) as error:
        raise CannotSend(f"{nsid} cannot carry what it was given: {error}") from error
