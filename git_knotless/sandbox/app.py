"""HTTP of a sandbox: one application for all its ports, told apart by the port of the socket.

Handlers are plain functions, run in threads; what is async is here and reads bodies, bounded.
"""

import hashlib
import logging
import os
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import mkstemp
from typing import Any

from starlette.concurrency import iterate_in_threadpool, run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from git_knotless.atproto.syntax import is_nsid
from git_knotless.sandbox import (
    admin,
    blobs,
    identity,
    login,
    migration,
    records,
    repos,
    server,
    sync,
)
from git_knotless.sandbox.call import Answer, Call, Method, Upload
from git_knotless.sandbox.directory import answer_plc
from git_knotless.sandbox.errors import Refusal, invalid, too_large, unauthorized
from git_knotless.sandbox.limits import EVERY_CALL, Limit, Limiter
from git_knotless.sandbox.sessions import identify
from git_knotless.sandbox.state import Host, Sandbox
from git_knotless.sandbox.values import parse_json, to_json

_LOG = logging.getLogger(__name__)
_TABLES = (admin, blobs, identity, login, migration, records, repos, server, sync)
METHODS: Mapping[str, Method] = {
    method.nsid: method for table in _TABLES for method in table.METHODS
}
CAR_LIMIT = 256 * 1024 * 1024
_CHUNK = 64 * 1024
_CREDENTIALS_SEEN = {"cache-control": "private", "vary": "Authorization"}


class App:
    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._hosts = {host.port: (host, Limiter()) for host in sandbox.hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        port = scope["server"][1]
        try:
            if port == self._sandbox.plc_port:
                response = await answer_plc(self._sandbox, request)
            else:
                response = await self._answer(request, *self._hosts[port])
            await response(scope, receive, send)
        except ClientDisconnect:
            return

    async def _answer(self, request: Request, host: Host, limiter: Limiter) -> Response:
        path = request.url.path
        if path.startswith("/xrpc/") and path != "/xrpc/_health":
            return await _Exchange(self._sandbox, host, limiter, request).answer()
        return await run_in_threadpool(self._answer_page, request, host)

    def _answer_page(self, request: Request, host: Host) -> Response:
        match request.method, request.url.path:
            case (("GET" | "HEAD"), "/xrpc/_health"):
                return Response(to_json({"version": "git-knotless sandbox"}), media_type=_JSON)
            case (("GET" | "HEAD"), "/.well-known/atproto-did"):
                name = request.headers.get("host", "").rpartition(":")[0]
                did = identity.own_did(self._sandbox, host, name or request.headers["host"])
                if did is not None:
                    return PlainTextResponse(did)
                return PlainTextResponse("User not found", 404)
            case (("GET" | "HEAD"), "/"):
                return PlainTextResponse(f"A PDS of a git-knotless sandbox, for {host.domain}\n")
        return PlainTextResponse("Not Found", 404)


_JSON = "application/json; charset=utf-8"


class _Exchange:
    """One XRPC request, from its headers to its answer."""

    def __init__(self, sandbox: Sandbox, host: Host, limiter: Limiter, request: Request) -> None:
        self._sandbox, self._host, self._limiter = sandbox, host, limiter
        self._request = request
        self._headers: dict[str, str] = {}
        self._keys: dict[str, str] = {}
        self._upload: Path | None = None

    async def answer(self) -> Response:
        try:
            return self._response(await self._run())
        except Refusal as refusal:
            body = {"error": refusal.name, "message": refusal.message}
            headers = {**self._headers, **refusal.headers}
            return Response(to_json(body), refusal.status, headers, media_type=_JSON)
        except ClientDisconnect:
            raise
        except Exception:  # noqa: BLE001  where the server begins: whatever it is, it is a 500
            _LOG.exception("%s failed", self._request.url.path)
            body = {"error": "InternalServerError", "message": "Internal Server Error"}
            return Response(to_json(body), 500, media_type=_JSON)
        finally:
            if self._upload is not None:
                self._upload.unlink(missing_ok=True)

    async def _run(self) -> Answer:
        request = self._request
        address = request.client.host if request.client else ""
        self._keys = {"address": address}
        if request.url.path != "/xrpc/com.atproto.sync.getRepo":
            self._charge([EVERY_CALL], 1)
        method = self._method()
        if method.wants.name != "NOTHING":
            self._headers.update(_CREDENTIALS_SEEN)
        auth = await run_in_threadpool(identify, self._sandbox, self._host, method, request.headers)
        body, upload, data = await self._body(method)
        self._keys |= {
            "account": auth.did,
            "identifier": f"{body.get('identifier')}-{address}",
        }
        params: dict[str, list[str]] = {}
        for name, value in request.query_params.multi_items():
            params.setdefault(name, []).append(value)
        call = Call(self._sandbox, self._host, params, auth, self._charge, body, upload, data)
        if method.limits:
            self._charge(method.limits, 1)
        return await run_in_threadpool(method.handler, call)

    def _method(self) -> Method:
        nsid, verb = self._request.url.path.removeprefix("/xrpc/"), self._request.method
        method = METHODS.get(nsid)
        if method is None:
            raise self._unknown(nsid)
        if verb != method.verb and not (verb == "HEAD" and method.verb == "GET"):
            raise invalid(f"Incorrect HTTP method ({verb}) expected {method.verb}")
        return method

    def _unknown(self, nsid: str) -> Refusal:
        """A PDS passes what it does not know to its AppView, for whoever is logged in; there is
        none here, which looks like one that is down."""
        if not is_nsid(nsid):
            return invalid("invalid xrpc path")
        if "authorization" not in self._request.headers:
            return unauthorized(name="AuthMissing")
        return Refusal(502, "UpstreamFailure", "Upstream service unreachable")

    def _charge(self, limits: Sequence[Limit], cost: int) -> None:
        if self._sandbox.behaviour.rate_limit:
            self._headers.update(self._limiter.take(limits, self._keys, cost))

    async def _body(self, method: Method) -> tuple[dict[str, Any], Upload | None, bytes]:
        match method.body:
            case "file":
                return {}, await self._file(), b""
            case "car":
                limit = too_large("request entity too large", "PayloadTooLarge")
                return {}, None, b"".join([c async for c in self._decoded(CAR_LIMIT, limit)])
            case int(limit):
                return await self._json(limit), None, b""
        return {}, None, b""

    async def _json(self, limit: int) -> dict[str, Any]:
        if self._request.headers.get("content-type", "").partition(";")[0] != "application/json":
            raise invalid("Request encoding (Content-Type) required but not provided")
        refusal = too_large("request entity too large", "PayloadTooLargeError")
        data = b"".join([chunk async for chunk in self._decoded(limit, refusal)])
        body = await run_in_threadpool(parse_json, data)
        if not isinstance(body, dict):
            raise invalid("Expected object value type at $")
        return body

    async def _file(self) -> Upload:
        mime = self._request.headers.get("content-type", "")
        if not mime:
            raise invalid("Request encoding (Content-Type) required but not provided")
        descriptor, name = mkstemp(dir=self._sandbox.folder / "incoming")
        self._upload = Path(name)
        size, head, digest = 0, b"", hashlib.sha256()
        with open(descriptor, "wb") as file:
            async for chunk in self._decoded(self._sandbox.behaviour.blob_limit, too_large()):
                size += len(chunk)
                head = (head + chunk[: blobs.HEAD])[: blobs.HEAD]
                await run_in_threadpool(_take, file, digest, chunk)
            file.flush()
            await run_in_threadpool(os.fsync, descriptor)
        return Upload(self._upload, size, digest.digest(), head, mime)

    async def _decoded(self, limit: int, refusal: Refusal) -> AsyncIterator[bytes]:
        """The body with its Content-Encoding undone; `refusal` beyond `limit` bytes of it."""
        announced = self._request.headers.get("content-length", "")
        encoding = self._request.headers.get("content-encoding", "identity").strip().lower()
        if encoding == "identity" and announced.isdigit() and int(announced) > limit:
            raise refusal
        decoder = _decoder(encoding)
        size = 0
        async for chunk in self._request.stream():
            for piece in decoder(chunk):
                size += len(piece)
                if size > limit:
                    raise refusal
                yield piece

    def _response(self, answer: Answer) -> Response:
        headers = {**self._headers, **answer.headers}
        match answer.body:
            case None:
                return Response(b"", headers=headers)
            case bytes() as data:
                return Response(data, headers=headers, media_type=answer.mime)
            case dict() as value:
                return self._json_response(to_json(value), headers)
            case chunks:
                headers["content-type"] = answer.mime
                return StreamingResponse(iterate_in_threadpool(_pieces(chunks)), headers=headers)

    def _json_response(self, data: bytes, headers: dict[str, str]) -> Response:
        if self._request.method == "POST":
            return Response(data, headers=headers, media_type=_JSON)
        etag = f'W/"{len(data):x}-{hashlib.sha256(data).hexdigest()[:24]}"'
        headers["etag"] = etag
        if etag in self._request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(data, headers=headers, media_type=_JSON)


def _take(file: Any, digest: Any, chunk: bytes) -> None:
    file.write(chunk)
    digest.update(chunk)


def _decoder(encoding: str) -> Callable[[bytes], Iterator[bytes]]:
    if encoding == "identity":
        return lambda chunk: iter((chunk,))
    if encoding not in ("gzip", "deflate"):
        raise Refusal(415, "UnsupportedMediaTypeError", f"unsupported encoding: {encoding[:80]}")
    inflate = zlib.decompressobj(31 if encoding == "gzip" else 15)

    def decode(chunk: bytes) -> Iterator[bytes]:
        """A little at a time: what a few bytes unpack to is not bounded."""
        try:
            while chunk and not inflate.eof:
                yield inflate.decompress(chunk, _CHUNK)
                chunk = inflate.unconsumed_tail
        except zlib.error as error:
            raise invalid("request body is not what its Content-Encoding says") from error

    return decode


def _pieces(source: Any) -> Iterator[bytes]:
    """Of a file or an iterator, closed at the end."""
    try:
        if not hasattr(source, "read"):
            yield from source
            return
        while piece := source.read(_CHUNK):
            yield piece
    finally:
        with suppress(AttributeError):
            source.close()
