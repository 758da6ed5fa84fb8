"""One XRPC call as its handler sees it, and the table line that says how it is called."""

import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import Any, Literal

from git_knotless.atproto.syntax import is_cid, is_did, is_handle, is_nsid, is_rkey
from git_knotless.sandbox.errors import invalid
from git_knotless.sandbox.limits import Limit
from git_knotless.sandbox.state import Host, Sandbox

_NUMBER = re.compile("-?[0-9]{1,15}")
JSON_LIMIT = 150 * 1024  # the reference's, but for writes
WRITES_LIMIT = 1_000_000


class Scope(Enum):
    """What a password session may do; the values are the tokens' `scope`."""

    ACCESS = "com.atproto.access"
    REFRESH = "com.atproto.refresh"
    APP_PASSWORD = "com.atproto.appPass"
    PRIVILEGED = "com.atproto.appPassPrivileged"
    TAKEN_DOWN = "com.atproto.takendown"


STANDARD = frozenset((Scope.ACCESS, Scope.PRIVILEGED, Scope.APP_PASSWORD))
FULL = frozenset((Scope.ACCESS,))


class Wants(Enum):
    """Which credentials a method asks for."""

    NOTHING = auto()
    SESSION = auto()
    SESSION_OR_ADMIN_OR_NOTHING = auto()
    SESSION_OR_SERVICE = auto()
    SERVICE_OR_NOTHING = auto()
    REFRESH = auto()
    EXPIRED_REFRESH = auto()
    ADMIN = auto()


@dataclass(frozen=True, slots=True)
class Credentials:
    kind: Literal["none", "session", "refresh", "service", "admin"] = "none"
    did: str = ""
    scope: Scope | None = None
    token_id: str = ""


@dataclass(frozen=True, slots=True)
class Upload:
    """A body that was written to a file on its way in."""

    path: Path
    size: int
    digest: bytes
    head: bytes
    mime: str


@dataclass(frozen=True, slots=True)
class Answer:
    """`body` is JSON, bytes of `mime`, or a file; None answers with nothing at all."""

    body: Any = None
    mime: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Call:
    sandbox: Sandbox
    host: Host
    params: Mapping[str, list[str]]
    auth: Credentials
    charge: Callable[[Sequence[Limit], int], None]
    """Takes points; where a rate limit is exceeded, raises its refusal."""
    body: dict[str, Any] = field(default_factory=dict)
    upload: Upload | None = None
    data: bytes = b""

    @property
    def did(self) -> str:
        """Who calls."""
        return self.auth.did

    def is_of(self, did: str) -> bool:
        """Whether it comes from the account itself, or from the host's administrator."""
        return self.auth.kind == "admin" or self.auth.did == did

    def param(self, name: str, check: "Check") -> str:
        values = self.params.get(name)
        if not values:
            raise invalid(f'Missing required key "{name}" at $')
        return check(values[0], name)

    def optional_param(self, name: str, check: "Check") -> str | None:
        return self.param(name, check) if self.params.get(name) else None

    def number(self, name: str, default: int, low: int, high: int) -> int:
        values = self.params.get(name)
        if not values:
            return default
        if not _NUMBER.fullmatch(values[0]) or not low <= int(values[0]) <= high:
            raise invalid(f"Invalid {name} (got {values[0][:80]!a}): from {low} to {high}")
        return int(values[0])

    def flag(self, name: str) -> bool:
        values = self.params.get(name)
        if not values:
            return False
        if values[0] not in ("true", "false"):
            raise invalid(f"Invalid {name} (got {values[0][:80]!a}): true or false")
        return values[0] == "true"

    def text(self, name: str, check: "Check | None" = None) -> str:
        """A field of the body that must be there."""
        return text_in(self.body, name, check)

    def optional_text(self, name: str, check: "Check | None" = None) -> str | None:
        return optional_text_in(self.body, name, check)


Check = Callable[[str, str], str]
Handler = Callable[[Call], Answer]


@dataclass(frozen=True, slots=True)
class Method:
    """`body` is the most bytes of JSON it takes, "file" for an upload, "car" for a repo, or None.

    `limits` each lose a point by a call; what records cost, a handler takes once it has seen them.
    """

    nsid: str
    handler: Handler
    verb: Literal["GET", "POST"] = "GET"
    wants: Wants = Wants.NOTHING
    scopes: frozenset[Scope] = STANDARD
    check_takedown: bool = False
    body: int | Literal["file", "car"] | None = None
    limits: tuple[Limit, ...] = ()


def procedure(
    name: str,
    handler: Handler,
    wants: Wants = Wants.SESSION,
    *,
    scopes: frozenset[Scope] = STANDARD,
    check_takedown: bool = False,
    body: int | None = JSON_LIMIT,
    limits: tuple[Limit, ...] = (),
) -> Method:
    """One of com.atproto.server that changes something."""
    return Method(
        f"com.atproto.server.{name}",
        handler,
        "POST",
        wants,
        scopes,
        check_takedown=check_takedown,
        body=body,
        limits=limits,
    )


def text_in(body: Mapping[str, Any], name: str, check: Check | None, at: str = "$") -> str:
    value = body.get(name)
    if name not in body:
        raise invalid(f'Missing required key "{name}" at {at}')
    if not isinstance(value, str):
        raise invalid(f"Expected string value type at {at}.{name}")
    return value if check is None else check(value, f"{at}.{name}")


def optional_text_in(
    body: Mapping[str, Any], name: str, check: Check | None, at: str = "$"
) -> str | None:
    return None if name not in body else text_in(body, name, check, at)


def _check(what: str, holds: Callable[[str], bool]) -> Check:
    def check(text: str, where: str) -> str:
        if not holds(text):
            raise invalid(f"Invalid {what} (got {text[:80]!a}) at {where}")
        return text

    return check


anything = _check("text", lambda _: True)
did_text = _check("DID", is_did)
identifier = _check("identifier", lambda text: is_did(text) or is_handle(text.lower()))
nsid = _check("NSID", is_nsid)
rkey = _check("record key", is_rkey)
cid = _check("CID", is_cid)


def account_row(connection: sqlite3.Connection, host: Host, name: str) -> sqlite3.Row | None:
    """The account with this DID or handle, whatever its state."""
    column = "did" if name.startswith("did:") else "handle"
    row: sqlite3.Row | None = connection.execute(
        f"SELECT * FROM account WHERE host = ? AND {column} = ?", (host.number, name.lower())
    ).fetchone()
    return row
