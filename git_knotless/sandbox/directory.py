"""HTTP of the PLC directory."""

from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from git_knotless.sandbox import plc
from git_knotless.sandbox.errors import Refusal
from git_knotless.sandbox.state import Sandbox
from git_knotless.sandbox.values import parse_json, to_json

_OPERATION_LIMIT = 16 * 1024  # bytes; the public directory takes 4,000 of the encoded operation
_DOCUMENT = "application/did+ld+json"


async def answer_plc(sandbox: Sandbox, request: Request) -> Response:
    try:
        body = await _read(request) if request.method == "POST" else b""
        return await run_in_threadpool(_answer, sandbox, request, body)
    except plc.PlcError as error:
        return _json({"message": error.message}, error.status)
    except Refusal as refusal:
        return _json({"message": refusal.message}, refusal.status)


async def _read(request: Request) -> bytes:
    data = b""
    async for chunk in request.stream():
        data += chunk
        if len(data) > _OPERATION_LIMIT:
            raise plc.PlcError(413, "request entity too large")
    return data


def _answer(sandbox: Sandbox, request: Request, body: bytes) -> Response:
    did, *rest = request.url.path.strip("/").split("/")
    if request.method == "POST" and did.startswith("did:") and not rest:
        operation = parse_json(body)
        with sandbox.database.writing() as transaction:
            plc.submit(transaction.connection, did, operation)
        return Response("OK", media_type="text/plain")
    if request.method not in ("GET", "HEAD"):
        raise plc.PlcError(404, "Not Found")
    if (did, rest) == ("_health", []):
        return _json({"version": "git-knotless sandbox"})
    return _read_did(sandbox, did, "/".join(rest))


def _read_did(sandbox: Sandbox, did: str, what: str) -> Response:
    with sandbox.database.reading() as connection:
        match what:
            case "":
                return _json(plc.document(connection, did), mime=_DOCUMENT)
            case "data":
                return _json(plc.data(connection, did))
            case "log":
                return _json([each.operation for each in plc.history(connection, did)])
            case "log/last":
                return _json(plc.history(connection, did)[-1].operation)
            case "log/audit":
                entries = plc.history(connection, did, nullified=True)
                return _json([_audited(did, each) for each in entries])
    raise plc.PlcError(404, "Not Found")


def _audited(did: str, entry: plc.Entry) -> dict[str, Any]:
    return {
        "did": did,
        "operation": entry.operation,
        "cid": entry.cid,
        "nullified": entry.nullified,
        "createdAt": entry.created_at,
    }


def _json(value: Any, status: int = 200, *, mime: str = "application/json") -> Response:
    return Response(to_json(value), status, media_type=f"{mime}; charset=utf-8")
