"""HTTP of a sandbox: one application for all its ports, told apart by the port of the socket.

Handlers are plain functions, run in threads, one a call: to change threads takes as long as a
short call. What is async is here and reads bodies, bounded.
"""

import errno
import hashlib
import logging
import os
import sqlite3
from collections.abc import AsyncIterator, Mapping, Sequence
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
from git_knotless.sandbox.bodies import decoder, pieces, read_object
from git_knotless.sandbox.call import Answer, Call, Credentials, Method, Upload
from git_knotless.sandbox.directory import answer_plc
from git_knotless.sandbox.errors import Refusal, invalid, too_large, unauthorized
from git_knotless.sandbox.limits import EVERY_CALL, Limit, Limiter
from git_knotless.sandbox.sessions import identify
from git_knotless.sandbox.state import Host, Sandbox
from git_knotless.sandbox.values import to_json

_LOG = logging.getLogger(__name__)
_TABLES = (admin, blobs, identity, login, migration, records, repos, server, sync)
METHODS: Mapping[str, Method] = {
    method.nsid: method for table in _TABLES for method in table.METHODS
}
CAR_LIMIT = 256 * 1024 * 1024
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
        except Exception as error:  # noqa: BLE001  where the server begins: whatever it is, it is a 500
            return self._failed(error)
        finally:
            if self._upload is not None:
                self._upload.unlink(missing_ok=True)

    def _failed(self, error: Exception) -> Response:
        message = "Internal Server Error"
        if _is_full(error):
            message = "no space left on the sandbox's disk"
            _LOG.error("%s failed: %s", self._request.url.path, message)
        else:
            _LOG.error("%s failed", self._request.url.path, exc_info=error)
        body = {"error": "InternalServerError", "message": message}
        return Response(to_json(body), 500, media_type=_JSON)

    async def _run(self) -> Answer:
        request = self._request
        address = request.client.host if request.client else ""
        self._keys = {"address": address}
        if request.url.path != "/xrpc/com.atproto.sync.getRepo":
            self._charge([EVERY_CALL], 1)
        method = self._method()
        if method.wants.name != "NOTHING":
            self._headers.update(_CREDENTIALS_SEEN)
        # Before the body is read. It takes a signature and a row, at most.
        auth = identify(self._sandbox, self._host, method, request.headers)
        return await run_in_threadpool(self._carry_out, method, auth, await self._body(method))

    def _carry_out(self, method: Method, auth: Credentials, given: bytes | Upload) -> Answer:
        upload, data = (given, b"") if isinstance(given, Upload) else (None, given)
        body = read_object(data) if isinstance(method.body, int) else {}
        self._keys |= {
            "account": auth.did,
            "identifier": f"{body.get('identifier')}-{self._keys['address']}",
        }
        params: dict[str, list[str]] = {}
        for name, value in self._request.query_params.multi_items():
            params.setdefault(name, []).append(value)
        if method.limits:
            self._charge(method.limits, 1)
        call = Call(self._sandbox, self._host, params, auth, self._charge, body, upload, data)
        return method.handler(call)

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

    async def _body(self, method: Method) -> bytes | Upload:
        match method.body:
            case "file":
                return await self._file()
            case "car":
                refusal = too_large("request entity too large", "PayloadTooLarge")
                return await self._whole(CAR_LIMIT, refusal)
            case int(limit):
                if self._header("content-type").partition(";")[0] != "application/json":
                    raise invalid("Request encoding (Content-Type) required but not provided")
                refusal = too_large("request entity too large", "PayloadTooLargeError")
                return await self._whole(limit, refusal)
        return b""

    async def _whole(self, limit: int, refusal: Refusal) -> bytes:
        return b"".join([chunk async for chunk in self._decoded(limit, refusal)])

    def _header(self, name: str) -> str:
        return self._request.headers.get(name, "")

    async def _file(self) -> Upload:
        mime = self._header("content-type")
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
        announced = self._header("content-length")
        encoding = self._request.headers.get("content-encoding", "identity").strip().lower()
        if encoding == "identity" and announced.isdigit() and int(announced) > limit:
            raise refusal
        decode = decoder(encoding)
        size = 0
        async for chunk in self._request.stream():
            for piece in decode(chunk):
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
                return StreamingResponse(iterate_in_threadpool(pieces(chunks)), headers=headers)

    def _json_response(self, data: bytes, headers: dict[str, str]) -> Response:
        if self._request.method == "POST":
            return Response(data, headers=headers, media_type=_JSON)
        etag = f'W/"{len(data):x}-{hashlib.sha256(data).hexdigest()[:24]}"'
        headers["etag"] = etag
        if etag in self._header("if-none-match"):
            return Response(status_code=304, headers=headers)
        return Response(data, headers=headers, media_type=_JSON)


def _is_full(error: Exception) -> bool:
    if isinstance(error, sqlite3.OperationalError):
        return error.sqlite_errorcode == sqlite3.SQLITE_FULL
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def _take(file: Any, digest: Any, chunk: bytes) -> None:
    file.write(chunk)
    digest.update(chunk)
