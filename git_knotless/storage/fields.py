"""What a host hands out for a field of a record, taken only where it is what it should be."""

import re
from collections.abc import Mapping
from typing import Any

from git_knotless.errors import KnotlessError

_OID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_SHA1 = re.compile(r"[0-9a-f]{40}")


class BadRecord(KnotlessError):
    """A record that is not what its key or its lexicon says."""


def is_oid(oid: object) -> bool:
    return isinstance(oid, str) and _OID.fullmatch(oid) is not None


def is_sha1(oid: object) -> bool:
    return isinstance(oid, str) and _SHA1.fullmatch(oid) is not None


def an_object(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadRecord(f"{what} is not an object")
    return value


def text(fields: Mapping[str, Any], name: str, *, limit: int, default: str | None = None) -> str:
    """`limit` is in bytes of UTF-8, as everywhere in lexicons."""
    found = fields.get(name, default)
    if not isinstance(found, str) or len(found.encode(errors="replace")) > limit:
        raise BadRecord(f"{name} is not a text of at most {limit} bytes")
    return found


def integer(fields: Mapping[str, Any], name: str, *, least: int, most: int = (1 << 53) - 1) -> int:
    number = fields.get(name)
    if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= most:
        raise BadRecord(f"{name} is not a whole number from {least} to {most}")
    return number


def items(fields: Mapping[str, Any], name: str) -> list[Any]:
    values = fields.get(name, [])
    if not isinstance(values, list):
        raise BadRecord(f"{name} is not a list")
    return values
