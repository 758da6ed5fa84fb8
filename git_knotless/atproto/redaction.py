"""What was sent and is nobody's to read, taken out of what a host says back to it."""

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote_plus

if TYPE_CHECKING:
    import httpx

_HIDDEN = "[hidden]"
# Tokens and proofs, also where only their beginning is quoted; and what follows a scheme's name.
_TOKENS = re.compile(
    r"eyJ[\w-]{8,}(?:\.[\w-]*)*|(?<=\bDPoP )[\w.~+/=-]{8,}|(?<=\bBearer )[\w.~+/=-]{8,}"
)
# Members of the forms and the JSON that we send.
_SECRETS = frozenset({"code", "code_verifier", "password", "refresh_token", "token"})
_LONGEST_BODY = 64 * 1024  # of one with a secret in it
_BEGINNING = 12  # characters of a secret that tell it, where a host quotes no more


def without_tokens(text: str) -> str:
    """Without anything that looks like one, whoever's it is."""
    return _TOKENS.sub(_HIDDEN, text)


def without_secrets(text: str, request: "httpx.Request") -> str:
    """Without what `request` carries."""
    for secret in _spellings(_sent(request)):
        text = re.sub(_quoted(secret), _HIDDEN, text)
    return without_tokens(text)


def _sent(request: "httpx.Request") -> Iterator[str]:
    yield request.headers.get("authorization", "").partition(" ")[2]
    yield request.headers.get("dpop", "")
    kind, body = request.headers.get("content-type", ""), _body(request)
    if kind == "application/x-www-form-urlencoded":
        yield from (value for name, value in parse_qsl(body) if name in _SECRETS)
    elif kind == "application/json":
        with suppress(ValueError):
            fields = json.loads(body)
            yield from (str(fields[name]) for name in _SECRETS & fields.keys())


def _body(request: "httpx.Request") -> str:
    """Of one that is held in memory and short; a pack is neither."""
    if int(request.headers.get("content-length", "0")) > _LONGEST_BODY:
        return ""
    try:
        return request.content.decode(errors="replace")
    except RuntimeError:  # httpx's, of one that is read as it is sent
        return ""


def _spellings(secrets: Iterable[str]) -> Iterator[str]:
    """As it is, and as forms and JSON have it."""
    for secret in filter(None, secrets):
        yield from {secret, quote_plus(secret), json.dumps(secret)[1:-1]}


def _quoted(secret: str) -> str:
    """A pattern: a long one from its beginning on; a short one as a word, or it is in many."""
    if len(secret) > _BEGINNING:
        return re.escape(secret[:_BEGINNING]) + r"[\w.~+/=%-]*"
    return rf"(?<!\w){re.escape(secret)}(?!\w)"
