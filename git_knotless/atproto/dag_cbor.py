"""Blocks of DAG-CBOR and their CIDs, as atproto has them: one encoding of a value, no other read.

A CID here is its 36 bytes: version 1, dag-cbor, SHA-256. Blobs have CIDs of their own kind, and
records may hold any. https://atproto.com/specs/data-model
"""

from base64 import b32encode, b64encode
from hashlib import sha256
from typing import Any, TypeGuard

from cbrrr import decode_dag_cbor, encode_dag_cbor

from git_knotless.atproto.errors import AtprotoError
from git_knotless.atproto.syntax import Cid

CID_PREFIX = b"\x01\x71\x12\x20"
CID_LENGTH = len(CID_PREFIX) + 32
# More than any record needs, and little enough for whatever walks a value by recursion.
MAX_DEPTH = 128
# Bytes of a block whose square is little enough: see _check_counts, which takes longer than cbrrr.
_SMALL = 1024


class BadData(AtprotoError):
    """Bytes that are not what they pass for: a block, an archive, a tree, a signature, a proof."""


class Link(bytes):
    """A CID as a value of DAG-CBOR: bytes are another kind of value."""

    __slots__ = ()


def cid_of(block: bytes) -> bytes:
    return CID_PREFIX + sha256(block).digest()


def cid_text(cid: bytes) -> Cid:
    return Cid("b" + b32encode(cid).decode().rstrip("=").lower())


def is_link(value: object) -> TypeGuard[Link]:
    """A CID of the kind that blocks of a repo have."""
    return type(value) is Link and len(value) == CID_LENGTH and value.startswith(CID_PREFIX)


def encode(value: Any) -> bytes:
    """The block of a value, in which every CID is a Link."""
    return encode_dag_cbor(value, cid_type=Link)


def decode(block: bytes) -> Any:
    """The value, every CID in it a Link. It nests as deep as the block's length allows."""
    if len(block) > _SMALL:
        _check_counts(block)
    try:
        return decode_dag_cbor(block, cid_ctor=Link)
    except ValueError as error:
        raise BadData(f"a block is not DAG-CBOR: {error}") from error


def encode_json(value: Any) -> bytes:
    """The block of a record as the JSON of XRPC has it. Raises BadData for what is no record."""
    try:
        return encode_dag_cbor(value, atjson_mode=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadData(f"a value is no record's: {error}") from error


def decode_json(block: bytes) -> Any:
    """The record of a block, as the JSON of XRPC has it."""
    if len(block) > _SMALL:
        _check_counts(block)
    try:
        return decode_dag_cbor(block, atjson_mode=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadData(f"a block is not DAG-CBOR of a record: {error}") from error


def to_json(value: Any, *, depth: int = MAX_DEPTH) -> Any:
    """The value as the JSON of XRPC has it: `{"$link": …}` and `{"$bytes": …}`."""
    if depth < 0:
        raise BadData(f"a record nests deeper than {MAX_DEPTH}")
    match value:
        case dict():
            return {name: to_json(each, depth=depth - 1) for name, each in value.items()}
        case list():
            return [to_json(each, depth=depth - 1) for each in value]
        case Link():
            return {"$link": cid_text(value)}
        case bytes():
            return {"$bytes": b64encode(value).decode().rstrip("=")}
        case float():
            raise BadData("a record has a float, which atproto does not know")
    return value


def _check_counts(block: bytes) -> None:
    """Refuse a block that announces more items than it has bytes left for.

    cbrrr makes an array as long as announced before it reads an item, and checks each against the
    whole rest: arrays within arrays make it take the square of a block's length.
    """
    at, end, awaited = 0, len(block), 1
    while awaited and at < end:
        kind, count = block[at] >> 5, block[at] & 31
        at += 1
        if 24 <= count < 28:
            size = 1 << (count - 24)
            count = int.from_bytes(block[at : at + size], "big")
            at += size
        awaited -= 1
        if kind in (2, 3):  # bytes, text
            at += count
        elif kind == 4:  # an array
            awaited += count
        elif kind == 5:  # a map
            awaited += 2 * count
        elif kind == 6:  # a tag, which is before its value
            awaited += 1
        if awaited > end - at:
            raise BadData("a block is not DAG-CBOR: it ends before its value does")
