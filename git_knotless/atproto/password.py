"""App-password sessions: beginning, using, renewing and ending them.

An access token lives two hours, a refresh token ninety days, and none of these calls is ever
sent again by itself.
"""

import base64
import json
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from git_knotless.atproto.errors import AtprotoError, AuthRefused, BadAnswer
from git_knotless.atproto.hosts import host_of, origin_of
from git_knotless.atproto.identity import Identity
from git_knotless.atproto.sessions import Session, SessionStore, token
from git_knotless.atproto.syntax import Did
from git_knotless.atproto.xrpc import Client
from git_knotless.errors import LoginNeeded

# A token that ends within this is renewed before use: the request that it goes with may queue.
_LEEWAY_SECONDS = 60.0


class LoginRefused(AtprotoError):
    """The password is wrong, or not enough."""


class OtherHost(AtprotoError):
    """A request that would carry a login to a host that it is not for."""


@dataclass(frozen=True, slots=True)
class Bearer:
    """A token that one host gave, and that no other host gets to see."""

    origin: str
    token: str

    def headers(self, _method: str, url: str, /) -> Mapping[str, str]:
        if origin_of(url) != self.origin:
            raise OtherHost(f"a login at {host_of(self.origin)} is not for {url}")
        return {"Authorization": f"Bearer {self.token}"}

    def renewed(self, _sent: Mapping[str, str], /) -> bool:
        return False


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
    return Session(identity.did, identity.handle, identity.pds, access, refresh)


def logout(client: Client, store: SessionStore, session: Session) -> None:
    """Forgotten here in any case: raises AtprotoError where the host could not be told."""
    try:
        bearer = Bearer(session.pds, session.refresh)
        client.post(session.pds, "com.atproto.server.deleteSession", None, auth=bearer)
    except AuthRefused:
        pass  # it had ended already
    finally:
        store.delete(session.did)


class SessionAuth:
    """What the requests of one account carry, renewed when it must be; threads share it."""

    def __init__(self, client: Client, store: SessionStore, session: Session) -> None:
        self._client = client
        self._store = store
        self._session = session
        self._lock = threading.Lock()

    @property
    def did(self) -> Did:
        return self._session.did

    @property
    def session(self) -> Session:
        return self._session

    def headers(self, method: str, url: str, /) -> Mapping[str, str]:
        if origin_of(url) != self._session.pds:
            raise LoginNeeded(
                f"the login of {self._session.name} is for {host_of(self._session.pds)}, "
                f"not for {host_of(origin_of(url))}",
                hint=self._session.login_command,
            )
        with self._lock:
            if self._has_ended(self._session.access):
                self._renew()
            return self._bearer().headers(method, url)

    def renewed(self, sent: Mapping[str, str], /) -> bool:
        with self._lock:
            if self._bearer().token in sent["Authorization"].split():
                self._renew()
        return True

    def _bearer(self) -> Bearer:
        return Bearer(self._session.pds, self._session.access)

    def _renew(self) -> None:
        """Under a lock, since another process may be doing the same; then its session is ours."""
        with self._store.lock(self.did):
            stored = self._store.load(self.did)
            if stored is None or stored.pds != self._session.pds:
                raise self._ended()
            if stored.access == self._session.access or self._has_ended(stored.access):
                stored = self._refreshed(stored)
                self._store.save(stored)
        self._session = stored

    def _refreshed(self, session: Session) -> Session:
        bearer = Bearer(session.pds, session.refresh)
        try:
            answer = self._client.post(
                session.pds, "com.atproto.server.refreshSession", None, auth=bearer
            )
        except AuthRefused as error:
            raise self._ended() from error
        access, refresh = _tokens(answer, session.did, session.pds)
        return replace(session, access=access, refresh=refresh)

    def _ended(self) -> LoginNeeded:
        return LoginNeeded(
            f"the login of {self._session.name} has ended", hint=self._session.login_command
        )

    def _has_ended(self, access: str) -> bool:
        """By the host's clock, where an answer has told us what it shows."""
        ends = _expiry(access)
        now = time.time() + (self._client.clock_offset(self._session.pds) or 0.0)
        return ends is not None and now > ends - _LEEWAY_SECONDS


def _tokens(answer: Mapping[str, Any], did: Did, pds: str) -> tuple[str, str]:
    if answer.get("did") != did:
        raise BadAnswer(f"{host_of(pds)} answers with the session of another account")
    try:
        return token(answer.get("accessJwt")), token(answer.get("refreshJwt"))
    except ValueError as error:
        raise BadAnswer(f"{host_of(pds)} answers with no session") from error


def _expiry(jwt: str) -> float | None:
    """When a token ends, as it says itself; None for one that does not say so to us."""
    with suppress(ValueError, RecursionError, AttributeError, IndexError):
        payload = jwt.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        ends = claims.get("exp")
        return float(ends) if isinstance(ends, int | float) else None
    return None
