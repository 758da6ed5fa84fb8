"""OAuth sessions in use: what their requests carry, their renewal, and what a token answer holds.

An access token lives an hour; a refresh token is good once, and using it twice ends the session.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from git_knotless.atproto.credentials import Once
from git_knotless.atproto.dpop import Dpop, DpopKey, blame_clock
from git_knotless.atproto.errors import AuthRefused, BadAnswer, XrpcError
from git_knotless.atproto.hosts import host_of, origin_of
from git_knotless.atproto.oauth_metadata import AuthorizationServer, read_server
from git_knotless.atproto.session import DamagedSession, Session, expiry, token
from git_knotless.atproto.xrpc import Client

_LONGEST_LIFE = 366 * 86_400  # seconds; no host lets a token live longer
_LARGEST_SCOPE = 64 * 1024


@dataclass(frozen=True, slots=True)
class Tokens:
    """What a token endpoint answers, whichever grant was asked for."""

    access: str = field(repr=False)
    refresh: str = field(repr=False)
    sub: str
    scope: str
    expires_at: str | None  # by the host's clock, in RFC 3339


def credential(client: Client, session: Session) -> Dpop:
    return Dpop(session.pds, key_of(session), client.nonces, session.access)


def refreshed(client: Client, session: Session) -> Session | None:
    """With new tokens; None where the host says that the session has ended."""
    server = read_server(client, session.issuer or "")
    try:
        tokens = request_tokens(client, server.token, key_of(session), _renewal(session))
    except XrpcError as error:
        if error.name == "invalid_grant":
            return None
        raise
    if tokens.sub != session.did:
        raise BadAnswer(f"{host_of(server.issuer)} answers with the session of another account")
    return replace(
        session,
        access=tokens.access,
        refresh=tokens.refresh,
        scope=tokens.scope,
        expires_at=tokens.expires_at,
    )


def ended(client: Client, session: Session) -> bool:
    """Whether the host has ended it, as it is asked to.

    A host answers the same when it did nothing, so the token is tried afterwards. Raises
    AtprotoError where the host could not be told.
    """
    server, key = read_server(client, session.issuer or ""), key_of(session)
    form = {"client_id": session.client_id or "", "token": session.refresh}
    post(client, server.revoke, key, form)
    return _is_dead(client, server, session)


def _is_dead(client: Client, server: AuthorizationServer, session: Session) -> bool:
    """An access token may have been dead before, and a refresh token may live on beside it."""
    auth = Once(credential(client, session))
    try:
        client.get(session.pds, "com.atproto.server.getSession", auth=auth)
    except AuthRefused:
        pass
    else:
        return False
    try:
        post(client, server.token, key_of(session), _renewal(session))
    except XrpcError as error:
        if error.name == "invalid_grant":
            return True
        raise
    return False


def _renewal(session: Session) -> dict[str, str]:
    return {
        "grant_type": "refresh_token",
        "refresh_token": session.refresh,
        "client_id": session.client_id or "",
    }


def key_of(session: Session) -> DpopKey:
    try:
        return DpopKey.from_jwk(session.dpop_key or {})
    except ValueError as error:
        raise DamagedSession(
            f"the session of {session.name} is damaged", hint=session.login_command
        ) from error


def request_tokens(client: Client, url: str, key: DpopKey, form: Mapping[str, str]) -> Tokens:
    return _read_tokens(post(client, url, key, form), client, origin_of(url))


def post(client: Client, url: str, key: DpopKey, form: Mapping[str, str]) -> dict[str, Any]:
    """Of an authorization server. A proof that it refuses is put down to the clock if it may be."""
    try:
        return client.post_form(url, form, credential=Dpop(origin_of(url), key, client.nonces))
    except XrpcError as error:
        blame_clock(client, error, url)
        raise


def _read_tokens(answer: Mapping[str, Any], client: Client, issuer: str) -> Tokens:
    match answer:
        case {
            "access_token": str(access),
            "refresh_token": str(refresh),
            "token_type": str(kind),
            "sub": str(sub),
            "scope": str(scope),
        } if access and refresh and kind.lower() == "dpop" and len(scope) <= _LARGEST_SCOPE:
            try:
                tokens = token(access), token(refresh)
            except ValueError as error:
                raise _no_tokens(issuer) from error
            return Tokens(*tokens, sub, scope, _expiry(answer.get("expires_in"), client, issuer))
    raise _no_tokens(issuer)


def _expiry(seconds: object, client: Client, issuer: str) -> str | None:
    if isinstance(seconds, int) and not isinstance(seconds, bool) and 0 < seconds <= _LONGEST_LIFE:
        return expiry(time.time() + (client.clock_offset(issuer) or 0.0) + seconds)
    return None


def _no_tokens(issuer: str) -> BadAnswer:
    return BadAnswer(f"{host_of(issuer)} answers with no session that is bound to our key")
