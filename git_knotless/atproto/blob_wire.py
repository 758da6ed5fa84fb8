"""Blobs as they go over the wire: sent whole, and fetched from wherever their host sends us."""

from collections.abc import Iterator
from typing import Protocol

from git_knotless import limits
from git_knotless.atproto.answers import refuse
from git_knotless.atproto.errors import BadAnswer, CannotSend
from git_knotless.atproto.guard import Guard, PrivateAddress
from git_knotless.atproto.hosts import host_of, origin_of, redirected
from git_knotless.atproto.syntax import InvalidSyntax
from git_knotless.atproto.transport import Answer, Transport
from git_knotless.value import value

_AS_IT_IS = {"Accept-Encoding": "identity"}
GET_BLOB = "com.atproto.sync.getBlob"


class BlobBody(Protocol):
    """Bytes that can be sent more than once, each time from their beginning."""

    @property
    def size(self) -> int: ...

    def chunks(self) -> Iterator[bytes]: ...


@value
class Exactly:
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


def blob_from(http: Transport, start: int, url: str, limit: int) -> Iterator[bytes]:
    """The blob's bytes from `start` on. Hosts know no Range, so those before are read too."""
    first, seen = origin_of(url), 0
    for _ in range(limits.REDIRECTS + 1):
        afar = origin_of(url) != first
        with http.exchange("GET", url, headers=_AS_IT_IS, afar=afar) as answer:
            if 300 <= answer.status < 400 and "location" in answer.headers:
                url = _elsewhere(http.guard, first, url, answer)
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
    raise BadAnswer(f"{host_of(first)} sends a blob elsewhere again and again")


def _check_blob(answer: Answer, limit: int) -> None:
    if answer.status != 200:
        refuse(answer, GET_BLOB)
    if answer.headers.get("content-encoding", "identity") != "identity":
        raise BadAnswer(f"{answer.host} answers with a blob in an encoding not asked for")
    length = answer.headers.get("content-length", "")
    if length.isdecimal() and int(length[:20]) > limit:
        raise BadAnswer(f"{answer.host} answers with a blob that is too long")


def _elsewhere(guard: Guard, first: str, url: str, answer: Answer) -> str:
    """Where a blob's host sends us: to itself, or to where anybody may."""
    try:
        target = redirected(url, answer.headers["location"])
    except InvalidSyntax as error:
        raise BadAnswer(f"{answer.host} sends a blob to no host: {error}") from error
    origin = origin_of(target)
    if not (origin == first or guard.may_lead_to(origin)):
        where = host_of(origin)
        raise PrivateAddress(f"{answer.host} sends a blob to {where}, which is not public", where)
    return target
