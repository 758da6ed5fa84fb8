"""App-password sessions: beginning, using, renewing and ending them.

An access token lives two hours, a refresh token ninety days, and none of these calls is ever
sent again by itself.
"""

import base64
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from git_knotless.atproto.credentials import Bearer, Once
from git_knotless.atproto.errors import AtprotoError, AuthRefused, BadAnswer
from git_knotless.atproto.hosts import host_of
from git_knotless.atproto.identity import Identity
from git_knotless.atproto.session import Session, expiry, token
from git_knotless.atproto.syntax import Did
from git_knotless.atproto.xrpc import Client

# What hosts call it. A refusal without a name may be of something in between.
_ENDED = frozenset({"ExpiredToken", "InvalidToken", "AuthenticationRequired"})


class LoginRefused(AtprotoError):
    """The host, or whoever sat at the browser, does not let this person in."""


def login_with_password(client: Client, identity: Identity, password: str) -> Session:
    """A new session, which the caller saves."""
    body = {"identifier": identity.did, "password": password}
    try:
        answer = client.post(identity.pds, "com.atproto.server.createSession", body)
    except AuthRefused as error:
        if error.name == "AuthFactorTokenRequired":
            raise LoginRefused(
                f"{host_of(identity.pds)} asks for a second factor",
                hint="an app password, made in the account's settings there, needs none",
            ) from error
        raise LoginRefused(
            f"wrong password for {identity.name}",
            hint=f"an app password is made in the account's settings at {host_of(identity.pds)}",
        ) from error
    access, refresh = _tokens(answer, identity.did, identity.pds)
    ends = _expiry(access)
    return Session(identity.did, identity.handle, identity.pds, access, refresh, expires_at=ends)


def ended(client: Client, session: Session) -> bool:
    """Has the host end it. Raises AtprotoError where that could not be told."""
    bearer = Once(Bearer(session.pds, session.refresh))
    try:
        client.post(session.pds, "com.atproto.server.deleteSession", None, auth=bearer)
    except AuthRefused as error:
        if error.name not in _ENDED:
            raise
    return True


def credential(_client: Client, session: Session) -> Bearer:
    return Bearer(session.pds, session.access)


def refreshed(client: Client, session: Session) -> Session | None:
    """With new tokens; None where the host says that the session has ended."""
    bearer = Once(Bearer(session.pds, session.refresh))
    try:
        answer = client.post(session.pds, "com.atproto.server.refreshSession", None, auth=bearer)
    except AuthRefused as error:
        if error.name in _ENDED:
            return None
        raise
    access, refresh = _tokens(answer, session.did, session.pds)
    return replace(session, access=access, refresh=refresh, expires_at=_expiry(access))


def _tokens(answer: Mapping[str, Any], did: Did, pds: str) -> tuple[str, str]:
    if answer.get("did") != did:
        raise BadAnswer(f"{host_of(pds)} answers with the session of another account")
    try:
        return token(answer.get("accessJwt")), token(answer.get("refreshJwt"))
    except ValueError as error:
        raise BadAnswer(f"{host_of(pds)} answers with no session") from error


def _expiry(jwt: str) -> str | None:
    """When a token ends, as it says itself; None for one that does not say so to us."""
    with suppress(ValueError, RecursionError, AttributeError, IndexError, OverflowError, OSError):
        payload = jwt.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        ends = claims.get("exp")
        return expiry(ends) if isinstance(ends, int | float) else None
    return None
