"""Reading what hosts answer: JSON that nobody vouches for, refusals, and how long to stay away."""

import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, NoReturn

from git_knotless import limits
from git_knotless.atproto.errors import AtprotoError, BadAnswer, refusal
from git_knotless.atproto.redaction import without_secrets, without_tokens
from git_knotless.atproto.transport import Answer, http_date

# At most, of an empty list (72 bytes), a member of an object with both its strings (250) and the
# pair that it is before (64), …
_BYTES_A_VALUE = 320
# Python spends on each character of a text what the widest in it takes: 1 byte, 2 from U+0100 on,
# 4 from U+10000 on, which UTF-8 spells with these first bytes and JSON with these escapes.
_TWO_BYTES = re.compile(rb"[\xc4-\xef]|\\u")
_FOUR_BYTES = re.compile(rb"[\xf0-\xf4]|\\u[dD][89a-fA-F]")
# Half of a character, which JSON can spell and UTF-8 cannot: it would fail wherever it is written.
_SURROGATE = re.compile("[\ud800-\udfff]")
# What moves a terminal's cursor or colours it, and what reverses its text.
_UNPRINTABLE = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]+"
)
# RateLimit-Reset is a moment on some hosts and a span on others; no span is this long.
_FIRST_MOMENT = 1_000_000_000


def decode_json(data: bytes, host: str) -> Any:
    """JSON as the data model of atproto has it: UTF-8, no NaN, no name twice in an object, which
    the next reader might read otherwise; depth as Python's stack allows.
    """
    if _memory_for(data) > limits.MEMORY:
        raise BadAnswer(f"{host} answers with more than we could hold")
    try:
        text = data.decode()
        value = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_members)
        if _width(data) == 4 and any(map(_SURROGATE.search, _texts(value))):
            raise ValueError("half of a character")
    except _NamedTwice as error:
        raise BadAnswer(f"{host} answers with an object that names a thing twice") from error
    except (ValueError, RecursionError) as error:
        what = "HTML" if data[:512].lstrip()[:1] == b"<" else "something else than JSON"
        raise BadAnswer(f"{host} answers with {what}: is it an atproto host?") from error
    return value


def decode_object(data: bytes, host: str) -> dict[str, Any]:
    value = decode_json(data, host)
    if not isinstance(value, dict):
        raise BadAnswer(f"{host} answers with JSON that is not an object")
    return value


def encode_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def refuse(answer: Answer, nsid: str, *, plain: bool = False) -> NoReturn:
    """Raise what an answer that is not a success means; `plain` where it need not be XRPC's."""
    if 300 <= answer.status < 400:
        raise BadAnswer(f"{answer.host} sends {nsid} elsewhere, which is followed for blobs only")
    name, text = _error_of(answer)
    kind = refusal(answer.status, name, text)
    if not (name or plain or answer.status >= 500 or answer.status in (401, 413, 429)):
        raise BadAnswer(
            f"{answer.host} does not know {nsid} (status {answer.status}): is it an atproto host?"
        )
    raise kind(
        answer.status,
        name,
        text,
        nsid=nsid,
        host=answer.host,
        retry_after=retry_after(answer.headers),
    )


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to stay away, by `Retry-After`, else by `RateLimit-Reset` on the host's clock."""
    asked = headers.get("retry-after", "")
    if _is_number(asked):
        return float(asked)
    now = http_date(headers.get("date", "")) or time.time()
    moment = http_date(asked)
    if moment is None:
        reset = headers.get("ratelimit-reset", "")
        if not _is_number(reset) or headers.get("ratelimit-remaining", "0") != "0":
            return None
        if float(reset) < _FIRST_MOMENT:
            return float(reset)
        moment = float(reset)
    return max(0.0, moment - now)


def _error_of(answer: Answer) -> tuple[str, str]:
    """The error's name and message, '' where the answer has none."""
    with suppress(AtprotoError):
        value = decode_object(answer.read(limits.ERROR), answer.host)
        name, text = value.get("error"), value.get("message", value.get("error_description"))
        if isinstance(name, str):
            said = (name, text if isinstance(text, str) else "")
            name, text = (printable(without_secrets(each, answer.request)) for each in said)
            return name, text
    return "", ""


def visible(text: str) -> str:
    """A host's words, harmless on a terminal."""
    return _UNPRINTABLE.sub(" ", text)


def one_line(text: str) -> str:
    """The same, as few spaces as there are words."""
    return " ".join(visible(text).split())


def printable(text: str) -> str:
    """A host's words as part of a message; no token is."""
    clean = without_tokens(one_line(text))
    return clean if len(clean) <= limits.TEXT else clean[: limits.TEXT - 1] + "…"


def _memory_for(data: bytes) -> int:
    """What decoding this takes at most, in bytes: once as one text, and once as its values."""
    texts = 2 * _width(data) * len(data)
    if texts + _BYTES_A_VALUE * _marks(data) <= limits.MEMORY:
        return texts
    return texts + _BYTES_A_VALUE * _values(data)


def _width(data: bytes) -> int:
    """Bytes that a character of its widest text takes."""
    if data.isascii() and b"\\u" not in data:  # as most is, and soon seen
        return 1
    return 4 if _FOUR_BYTES.search(data) else 2 if _TWO_BYTES.search(data) else 1


def _marks(data: bytes) -> int:
    """How many values there are at most: each follows one of these, but for the outermost."""
    return sum(map(data.count, (b"[", b"{", b",")))


def _values(data: bytes) -> int:
    """The same, without the marks in strings; or how many strings, where that is too many."""
    bare = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    strings = bare.count(b'"') // 2
    if strings * _BYTES_A_VALUE > limits.MEMORY:
        return strings
    return sum(map(_marks, bare.split(b'"')[::2]))


def _texts(value: Any) -> Iterator[str]:
    """Every string in it, also the names of members."""
    stack = [value]
    while stack:
        match stack.pop():
            case str(text):
                yield text
            case list(items):
                stack.extend(items)
            case dict(members):
                yield from members
                stack.extend(members.values())


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 12


class _NamedTwice(ValueError):
    pass


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _NamedTwice
    return members


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
