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
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar
from urllib.parse import urlencode, urlsplit

from git_knotless.atproto.answers import (
    DOCUMENT_LIMIT,
    HANDLE_LIMIT,
    RECORD_LIMIT,
    decode_json,
    decode_object,
    encode_json,
    refuse,
)
from git_knotless.atproto.errors import (
    AtprotoError,
    AuthRefused,
    BadAnswer,
    CannotSend,
    RateLimited,
)
from git_knotless.atproto.hosts import (
    host_of,
    is_public,
    on_loopback,
    origin_of,
    parse_origin,
    redirected,
)
from git_knotless.atproto.retry import LOOKUP_WINDOW, READ_WINDOW, Patience
from git_knotless.atproto.syntax import InvalidSyntax
from git_knotless.atproto.transport import WRITE_ANSWER_SECONDS, Answer, Transport
from git_knotless.value import value

if TYPE_CHECKING:
    import httpx

_MOST_REDIRECTS = 5  # a front door, the account's host, its storage, a region of that
_T = TypeVar("_T")
_Send = Callable[["httpx.Auth | None"], _T]


class BlobBody(Protocol):
    """Bytes that can be sent more than once, each time from their beginning."""

    @property
    def size(self) -> int: ...

    def chunks(self) -> Iterator[bytes]: ...


class Auth(Protocol):
    """What an account's requests carry."""

    def credential(self, url: str, /) -> "httpx.Auth":
        """For one request; raises where `url` is not on the host that the login is for."""
        ...

    def renewed(self, sent: "httpx.Auth", refusal: AuthRefused, /) -> bool:
        """After `sent` was refused: whether `credential` now gives another.

        Raises what the refusal means for the person, where more is known than the host says.
        """
        ...


def _say_nothing(_: str) -> None:
    pass


class Client:
    """Calls on any number of hosts, named by their origins; one serves all threads of a process.

    `notify` gets a line for a person when a host makes us wait. `transport` takes the network's
    place, and `pause` the clock's, in tests.
    """

    def __init__(
        self,
        transport: "httpx.BaseTransport | None" = None,
        *,
        notify: Callable[[str], None] = _say_nothing,
        pause: Callable[[float], None] | None = None,
    ) -> None:
        self._http = Transport(transport)
        self._notify = notify
        self._pause = pause or self._http.pause
        # The newest DPoP nonce that each origin has given: every answer to a proof may carry one.
        self.nonces: dict[str, str] = {}

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
        limit: int = RECORD_LIMIT,
    ) -> dict[str, Any]:
        """A query's answer, of at most `limit` bytes; a parameter of None is left out."""
        url = _url(host, nsid)
        given = {key: value for key, value in (params or {}).items() if value is not None}

        def send(credential: "httpx.Auth | None") -> dict[str, Any]:
            with self._http.exchange("GET", url, params=given, auth=credential) as answer:
                return _object(answer, nsid, limit)

        return _authorized(partial(self._patiently, send, READ_WINDOW), url, auth)

    def post(
        self,
        host: str,
        nsid: str,
        body: Mapping[str, Any] | None,
        *,
        auth: Auth | None = None,
        answer_within: float | None = None,
        limit: int = RECORD_LIMIT,
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
                return _object(answer, nsid, limit, may_be_empty=True)

        if patient:
            return _authorized(partial(self._when_told, send), url, auth)
        return _authorized(send, url, auth)

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
            return _object(answer, path, DOCUMENT_LIMIT, may_be_empty=True, success=(200, 201))

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
                content=_Exactly(body),
                auth=credential,
                answer_within=WRITE_ANSWER_SECONDS,
            ) as answer:
                return _object(answer, nsid, RECORD_LIMIT)

        return _authorized(partial(self._patiently, send, math.inf), url, auth)

    def download(self, host: str, did: str, cid: str, *, limit: int) -> Iterator[bytes]:
        """A blob as it comes, at most `limit` bytes of it; its hash is the caller's to check.

        Where the connection drops, the blob is asked for again and what was had is skipped.
        """
        patience = Patience(self._pause, self._notify, window=math.inf)
        had = 0
        while True:
            try:
                for chunk in self._blob_from(had, host, {"did": did, "cid": cid}, limit):
                    had += len(chunk)
                    yield chunk
                return
            except AtprotoError as error:
                patience.after(error)

    def get_json(self, url: str, *, limit: int = DOCUMENT_LIMIT) -> Any:
        """A plain JSON document. No credential is sent and no redirect followed."""
        return decode_json(self._plain(url, limit), host_of(origin_of(url)))

    def get_file(self, host: str, nsid: str, params: Mapping[str, str], *, limit: int) -> bytes:
        """A query's answer that is no JSON, such as an archive; it carries no credential."""
        url = _url(host, nsid)

        def send(_: "httpx.Auth | None") -> bytes:
            with self._http.exchange("GET", url, params=params) as answer:
                if answer.status != 200:
                    refuse(answer, nsid)
                return answer.read(limit)

        return self._patiently(send, READ_WINDOW, None)

    def get_text(self, url: str, *, limit: int = HANDLE_LIMIT) -> str:
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

    def _blob_from(
        self, start: int, host: str, params: Mapping[str, str], limit: int
    ) -> Iterator[bytes]:
        """The blob's bytes from `start` on. Hosts know no Range, so those before are read too."""
        url, seen = _url(host, "com.atproto.sync.getBlob"), 0
        query: Mapping[str, str] | None = params
        for _ in range(_MOST_REDIRECTS + 1):
            headers = {"Accept-Encoding": "identity"}
            with self._http.exchange("GET", url, params=query, headers=headers) as answer:
                if 300 <= answer.status < 400 and "location" in answer.headers:
                    url, query = _elsewhere(url, answer), None
                    continue
                _check_blob(answer, limit)
                for chunk in answer.chunks():
                    fresh = chunk[max(0, start - seen) :]
                    seen += len(chunk)
                    if seen > limit:
                        raise BadAnswer(f"{answer.host} answers with a blob that is too long")
                    if fresh:
                        yield fresh
                return
        raise BadAnswer(f"{host_of(host)} sends a blob elsewhere again and again")

    def _patiently(self, send: _Send[_T], window: float, credential: "httpx.Auth | None") -> _T:
        patience = Patience(self._pause, self._notify, window=window)
        while True:
            try:
                return send(credential)
            except AtprotoError as error:
                patience.after(error)

    def _when_told(self, send: _Send[_T], credential: "httpx.Auth | None") -> _T:
        patience = Patience(self._pause, self._notify)
        while True:
            try:
                return send(credential)
            except RateLimited as error:
                if error.retry_after is None:
                    raise
                patience.after(error)


def _authorized(send: _Send[_T], url: str, auth: Auth | None) -> _T:
    """Send with `auth`'s credential, and once more when a refusal has made it get another.

    Whatever fails in getting it is not tried again: that would use a refresh token twice.
    """
    if auth is None:
        return send(None)
    credential = auth.credential(url)
    try:
        return send(credential)
    except AuthRefused as error:
        if not auth.renewed(credential, error):
            raise
    return send(auth.credential(url))


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


@value
class _Exactly:
    """The body from its beginning, each time that it is asked for.

    It is held to the length that was announced, or the host would wait for the rest.
    """

    body: BlobBody

    def __iter__(self) -> Iterator[bytes]:
        sent = 0
        for chunk in self.body.chunks():
            sent += len(chunk)
            if sent > self.body.size:
                break
            yield chunk
        if sent != self.body.size:
            raise CannotSend("what is to be uploaded has changed meanwhile")


def _check_blob(answer: Answer, limit: int) -> None:
    if answer.status != 200:
        refuse(answer, "com.atproto.sync.getBlob")
    if answer.headers.get("content-encoding", "identity") != "identity":
        raise BadAnswer(f"{answer.host} answers with a blob in an encoding not asked for")
    length = answer.headers.get("content-length", "")
    if length.isdecimal() and int(length[:20]) > limit:
        raise BadAnswer(f"{answer.host} answers with a blob that is too long")


def _elsewhere(url: str, answer: Answer) -> str:
    """Where a blob's host sends us: into our own network only from within it."""
    try:
        target = redirected(url, answer.headers["location"])
    except InvalidSyntax as error:
        raise BadAnswer(f"{answer.host} sends a blob to no host: {error}") from error
    origin = origin_of(target)
    if not (origin == answer.origin or is_public(origin) or on_loopback(answer.origin)):
        raise BadAnswer(f"{answer.host} sends a blob to {host_of(origin)}, which is not public")
    return target
