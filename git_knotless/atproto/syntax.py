"""The identifiers of atproto: what is one, and nothing about what it names.

Everything that a host, a record or a person hands us passes through here before it is believed.
Rules: https://atproto.com/specs/did, /handle, /nsid, /record-key, /tid, /at-uri-scheme, /lexicon.
"""

import re
from datetime import UTC, datetime
from typing import NewType, Self

from git_knotless.errors import KnotlessError
from git_knotless.value import value

Did = NewType("Did", str)
Handle = NewType("Handle", str)
Nsid = NewType("Nsid", str)
Rkey = NewType("Rkey", str)
Tid = NewType("Tid", str)
Cid = NewType("Cid", str)


class InvalidSyntax(KnotlessError):
    """Text that is not the identifier it stands for."""


_LABEL = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_TLD = "[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?"
_HOST = rf"(?:{_LABEL}\.)+{_TLD}"
_HANDLE = re.compile(_HOST)
_DID_PLC = re.compile("did:plc:[a-z2-7]{24}")
# A port is for localhost alone: nothing else is reached without TLS on its own port.
_DID_WEB = re.compile(rf"did:web:(?:{_HOST}|localhost(?:%3A[1-9][0-9]{{0,4}})?)")
_NSID = re.compile(
    r"[a-zA-Z](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
    r"(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)+"
    r"\.[a-zA-Z][a-zA-Z0-9]{0,62}"
)
_RKEY = re.compile("[A-Za-z0-9._~:-]{1,512}")
_TID = re.compile("[2-7a-j][2-7a-z]{12}")
# CIDv1 in base32, dag-cbor or raw, of a SHA-256, whose bits end within a character at either end.
_CID = re.compile("baf[yk]rei[a-h][a-z2-7]{50}[aeimquy4]")
_TIME = re.compile(
    r"(\d{4}-\d\d-\d\dT(?:[01]\d|2[0-3]):\d\d:\d\d)(?:\.(\d{1,20}))?(Z|[+-]\d\d:\d\d)", re.ASCII
)

_HOST_LENGTH = 253
_NSID_LENGTH = 317
# Never handles; `.test` is one for development only, which is what a loopback network is.
_RESERVED_TLDS = frozenset(
    ("alt", "arpa", "example", "internal", "invalid", "local", "localhost", "onion")
)
_TID_ALPHABET = "234567abcdefghijklmnopqrstuvwxyz"


def is_did(text: str) -> bool:
    """A did:plc, or a did:web without path; no other method is in use."""
    if _DID_WEB.fullmatch(text):
        host, _, port = text.removeprefix("did:web:").partition("%3A")
        return len(host) <= _HOST_LENGTH and (not port or int(port) < 1 << 16)
    return _DID_PLC.fullmatch(text) is not None


def is_handle(text: str) -> bool:
    """A handle in its one spelling, which is lower case."""
    return (
        _HANDLE.fullmatch(text) is not None
        and len(text) <= _HOST_LENGTH
        and _tld(text) not in _RESERVED_TLDS
    )


def is_reserved(text: str) -> bool:
    """What would be a handle, did it not end in what no handle ends in."""
    return _HANDLE.fullmatch(text) is not None and _tld(text) in _RESERVED_TLDS


def _tld(host: str) -> str:
    return host.rpartition(".")[2]


def is_nsid(text: str) -> bool:
    return len(text) <= _NSID_LENGTH and _NSID.fullmatch(text) is not None


def is_rkey(text: str) -> bool:
    return _RKEY.fullmatch(text) is not None and text not in (".", "..")


def is_tid(text: str) -> bool:
    return _TID.fullmatch(text) is not None


def is_cid(text: str) -> bool:
    """A CID of a record or a blob, in the one form that atproto uses."""
    return _CID.fullmatch(text) is not None


def parse_did(text: str) -> Did:
    if not is_did(text):
        raise InvalidSyntax(f"{_shown(text)} is not a DID")
    return Did(text)


def parse_handle(text: str) -> Handle:
    # Not str.lower alone: it folds the Kelvin sign and others into ASCII letters.
    handle = text.lower() if text.isascii() else text
    if not is_handle(handle):
        why = f": .{_tld(handle)} is reserved" if is_reserved(handle) else ""
        raise InvalidSyntax(f"{_shown(text)} is not a handle{why}")
    return Handle(handle)


def parse_identifier(text: str) -> Did | Handle:
    """What names an account."""
    if text.startswith("did:"):
        return parse_did(text)
    return parse_handle(text)


def tid(microseconds: int, clock_id: int) -> Tid:
    """The timestamp identifier of a moment since 1970; `clock_id` (10 bits) tells writers apart."""
    if not (0 <= microseconds < 1 << 53 and 0 <= clock_id < 1 << 10):
        raise ValueError(f"no TID holds {microseconds} µs of clock {clock_id}")
    bits = microseconds << 10 | clock_id
    return Tid("".join(_TID_ALPHABET[bits >> shift & 31] for shift in range(60, -1, -5)))


def tid_microseconds(tid: Tid) -> int:
    bits = 0
    for character in tid:
        bits = bits << 5 | _TID_ALPHABET.index(character)
    return bits >> 10


@value
class AtUri:
    """`at://authority[/collection[/rkey]]`, as records hold it: no query, no fragment."""

    authority: Did | Handle
    collection: Nsid | None = None
    rkey: Rkey | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        scheme, _, rest = text.partition("://")
        authority, *path = rest.split("/")
        if (
            scheme != "at"
            or len(path) > 2
            or (path and not is_nsid(path[0]))
            or (len(path) == 2 and not is_rkey(path[1]))
        ):
            raise InvalidSyntax(f"{_shown(text)} is not an at:// URI")
        collection, rkey = [*path, None, None][:2]
        return cls(
            parse_identifier(authority),
            None if collection is None else Nsid(collection),
            None if rkey is None else Rkey(rkey),
        )

    def __str__(self) -> str:
        parts = (self.authority, self.collection, self.rkey)
        return "at://" + "/".join(part for part in parts if part is not None)


def format_time(moment: datetime) -> str:
    """`2026-01-02T03:04:05.678Z`: always UTC and three digits, so that text sorts as time does."""
    utc = moment.astimezone(UTC).replace(tzinfo=None)
    return utc.isoformat(timespec="milliseconds") + "Z"


def parse_time(text: str) -> datetime:
    """A lexicon `datetime`, in UTC; what is finer than a microsecond is cut off."""
    match = _TIME.fullmatch(text)
    # RFC 3339 reads -00:00 as "no zone known", which atproto does not allow.
    if match is None or match[3] == "-00:00":
        raise InvalidSyntax(f"{_shown(text)} is not a time")
    fraction = (match[2] or "0")[:6].ljust(6, "0")
    try:
        return datetime.fromisoformat(f"{match[1]}.{fraction}{match[3]}").astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise InvalidSyntax(f"{_shown(text)} is not a time") from error


def _shown(text: str) -> str:
    """Untrusted text for an error's one line: quoted, escaped, and short."""
    return ascii(text if len(text) <= 80 else text[:77] + "...")
