"""What one login gave, and how its file spells it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from git_knotless.atproto.hosts import parse_origin
from git_knotless.atproto.syntax import (
    Did,
    Handle,
    format_time,
    parse_did,
    parse_handle,
    parse_time,
)
from git_knotless.errors import KnotlessError, LoginNeeded

VERSION = 1
KINDS = ("oauth", "password")
_YEAR_10000 = 253_402_300_800.0


class BadSession(KnotlessError):
    """A session file that cannot be used."""


class DamagedSession(BadSession, LoginNeeded):
    """A session file that holds no session any more: another login replaces it."""


@dataclass(frozen=True, slots=True)
class Session:
    """What one login gave; `kind` says how it is used and renewed.

    Of one that has ended no secret is left. Fields that this version does not know are kept in
    `extra`.
    """

    did: Did
    handle: Handle | None
    pds: str
    access: str = field(repr=False)
    refresh: str = field(repr=False)
    kind: str = "password"
    expires_at: str | None = None  # of `access`, by the host's clock, in RFC 3339
    # Of OAuth: who gave it and to which client, what it allows, and the private JWK it is bound to.
    issuer: str | None = None
    client_id: str | None = None
    scope: str | None = None
    dpop_key: Mapping[str, Any] | None = field(default=None, repr=False)
    version: int = VERSION
    extra: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """What to call the account when speaking to a person."""
        return self.handle or self.did

    @property
    def ended(self) -> bool:
        return not self.refresh

    def over(self) -> Self:
        """The same, ended."""
        return replace(self, access="", refresh="", dpop_key=None)

    @property
    def login_command(self) -> str:
        return f"git knotless login {self.name}"


def encode(session: Session) -> bytes:
    oauth = {
        "issuer": session.issuer,
        "client_id": session.client_id,
        "scope": session.scope,
        "dpop_key": session.dpop_key,
    }
    value = {
        **session.extra,
        "version": session.version,
        "kind": session.kind,
        "did": session.did,
        "handle": session.handle,
        "pds": session.pds,
        "access": session.access,
        "refresh": session.refresh,
        "expires_at": session.expires_at,
        **{name: each for name, each in oauth.items() if each is not None},
    }
    return json.dumps(value, indent=2).encode() + b"\n"


def decode(data: bytes, path: Path, did: Did) -> Session:
    try:
        value = json.loads(data)
        if value["version"] > VERSION or value["kind"] not in KINDS:
            raise BadSession(
                f"{path} was written by a newer git-knotless",
                hint="pip install --upgrade git-knotless",
            )
        return _session(value)
    except BadSession:
        raise
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
        KnotlessError,
    ) as error:
        raise damaged(f"{path} is damaged", did) from error


def _session(value: dict[str, Any]) -> Session:
    """Takes from `value` what it knows."""
    handle = value.pop("handle")
    session = Session(
        did=parse_did(value.pop("did")),
        handle=None if handle is None else parse_handle(handle),
        pds=parse_origin(value.pop("pds")),
        access=token(value.pop("access")),
        refresh=token(value.pop("refresh")),
        kind=value.pop("kind"),
        version=value.pop("version"),
        expires_at=_optional(value.pop("expires_at", None), str),
        issuer=_optional(value.pop("issuer", None), str),
        client_id=_optional(value.pop("client_id", None), str),
        scope=_optional(value.pop("scope", None), str),
        dpop_key=_optional(value.pop("dpop_key", None), dict),
        extra=value,
    )
    if session.expires_at is not None:
        parse_time(session.expires_at)
    if session.kind == "oauth":
        parse_origin(session.issuer or "")
        if session.client_id is None or session.scope is None:
            raise ValueError("not all of an OAuth session")
        if session.dpop_key is None and not session.ended:
            raise ValueError("an OAuth session without its key")
    return session


def _optional(value: Any, *kinds: type) -> Any:
    if value is not None and (isinstance(value, bool) or not isinstance(value, kinds)):
        raise TypeError(f"not what a session holds: {type(value).__name__}")
    return value


def damaged(message: str, did: Did) -> DamagedSession:
    return DamagedSession(message, hint=f"git knotless login {did}")


def moment(unix: float) -> str:
    """As `expires_at` has it."""
    return format_time(datetime.fromtimestamp(unix, UTC))


def expiry(unix: float) -> str | None:
    """The same; None for a moment that is in no calendar, whoever names it."""
    return moment(unix) if 0 <= unix < _YEAR_10000 else None


def token(value: object) -> str:
    """A token that may stand in a header."""
    if not isinstance(value, str) or not value.isascii() or not value.isprintable() or " " in value:
        raise ValueError("not a token")
    return value
