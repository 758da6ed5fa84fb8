"""Records between JSON and DAG-CBOR, as the reference reads them: what only looks like a link,
like bytes or like a blob is kept as the object that it is.

https://atproto.com/specs/data-model
"""

import base64
import binascii
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from cbrrr import decode_dag_cbor

from git_knotless.atproto.dag_cbor import MAX_DEPTH, Link, cid_of, cid_text, decode, encode
from git_knotless.atproto.dag_cbor import to_json as to_xrpc_json
from git_knotless.atproto.syntax import is_cid
from git_knotless.sandbox.errors import internal, invalid

_SAFE = (1 << 53) - 1  # the greatest integer that JavaScript, and so the data model, holds exactly
# With or without padding, and nothing else: what is not base64 is not bytes.
_BASE64 = re.compile("[A-Za-z0-9+/]*={0,2}")
_LEGACY = -1
_BLOB_CID = b"\x01\x55\x12\x20"


@dataclass(frozen=True, slots=True)
class BlobRef:
    cid: str
    mime: str
    size: int


@dataclass(frozen=True, slots=True)
class Encoded:
    """A record as its repo holds it."""

    cid: bytes
    block: bytes
    blobs: tuple[BlobRef, ...]


def parse_json(data: bytes) -> Any:
    try:
        value = json.loads(data.decode(), parse_constant=_refuse_constant)
        if b"\\u" in data:
            json.dumps(value, ensure_ascii=False).encode()  # half a character has no UTF-8
    except (ValueError, RecursionError) as error:
        raise invalid("request body is not JSON", "SyntaxError") from error
    return value


def to_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def encode_record(value: dict[str, Any]) -> Encoded:
    """Raises a `Refusal` for what the data model does not hold."""
    record = _from_json(value, MAX_DEPTH)
    blobs = tuple(blob_refs(record))
    for blob in blobs:
        if blob.size == _LEGACY:
            raise invalid(f"Legacy blobs are not allowed ({blob.cid})")
    block = encode(record)
    return Encoded(cid_of(block), block, blobs)


def record_json(block: bytes) -> Any:
    """Of a block that was checked when it came in."""
    try:
        return decode_dag_cbor(block, atjson_mode=True)
    except ValueError:  # of what only looks like a link or bytes, which cbrrr refuses to write
        return to_xrpc_json(decode(block))


def blob_refs(value: Any, left: int = MAX_DEPTH) -> Iterator[BlobRef]:
    """The blobs that a decoded record references: a bare link counts for none.

    Those in the form that was used before 2023, which old repos hold, say no size.
    """
    if left == 0:
        raise invalid("a record is nested too deeply")
    match value:
        case {"$type": "blob", "ref": Link() as ref, "mimeType": str(mime), "size": int(size)}:
            yield BlobRef(cid_text(ref), mime, size)
        case {"cid": str(cid), "mimeType": str(mime)} if len(value) == 2 and is_cid(cid):
            yield BlobRef(cid, mime, _LEGACY)
        case dict():
            for each in value.values():
                yield from blob_refs(each, left - 1)
        case list():
            for each in value:
                yield from blob_refs(each, left - 1)


def blob_cid(digest: bytes) -> str:
    return cid_text(_BLOB_CID + digest)


def cid_bytes(text: str) -> bytes:
    """Raises a `Refusal` where that is not the CID of a record or a blob."""
    if not is_cid(text):
        raise invalid(f"Invalid cid {text[:80]!a}")
    return base64.b32decode(text[1:].upper() + "======")


def _from_json(value: Any, left: int) -> Any:
    if left == 0:
        raise invalid("a record is nested too deeply")
    match value:
        case bool():
            return value
        case dict():
            return _object(value, left)
        case list():
            return [_from_json(each, left - 1) for each in value]
        case int() | float():
            return _integer(value)
    return value


def _object(value: dict[str, Any], left: int) -> Any:
    if len(value) == 1:
        match value:
            case {"$link": str(cid)} if is_cid(cid):
                return Link(cid_bytes(cid))
            case {"$bytes": str(text)} if (data := _bytes(text)) is not None:
                return data
    return {key: _from_json(each, left - 1) for key, each in value.items()}


def _bytes(text: str) -> bytes | None:
    if not _BASE64.fullmatch(text):
        return None
    try:
        return base64.b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4))
    except binascii.Error:
        return None


def _integer(value: float) -> int:
    """JSON has one kind of number; `1.0` is the integer 1, as in JavaScript."""
    if value % 1:
        raise invalid("a record holds no fractions")
    if abs(value) > _SAFE:
        raise internal()
    return int(value)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
