"""What the requests of a stored session carry, whichever its kind, renewed when it must be."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Protocol, cast

import httpx

from git_knotless.atproto.credentials import Credential
from git_knotless.atproto.dpop import blame_clock, is_of_proof
from git_knotless.atproto.errors import SCOPE_NAMES, AuthRefused, ScopeMissing, ServerFault
from git_knotless.atproto.hosts import host_of, origin_of
from git_knotless.atproto.sessions import Session, SessionStore
from git_knotless.atproto.syntax import Did, parse_time
from git_knotless.atproto.xrpc import Client
from git_knotless.errors import LoginNeeded

# A token that ends within this is renewed before use: the request that it goes with may queue.
_LEEWAY_SECONDS = 60.0


class Kind(Protocol):
    """A module that knows one kind of session."""

    def credential(self, client: Client, session: Session) -> Credential: ...

    def refreshed(self, client: Client, session: Session) -> Session | None:
        """With new tokens; None where the host says that the session has ended."""
        ...


class SessionAuth:
    """An `Auth` that the threads of a process share.

    `login` may give another session where this one cannot be renewed.
    """

    def __init__(
        self,
        client: Client,
        store: SessionStore,
        session: Session,
        *,
        login: Callable[[], Session | None] = lambda: None,
    ) -> None:
        self._client = client
        self._store = store
        self._session = session
        self._login = login
        self._lock = threading.Lock()

    @property
    def did(self) -> Did:
        return self._session.did

    @property
    def session(self) -> Session:
        return self._session

    def credential(self, url: str, /) -> httpx.Auth:
        if origin_of(url) != self._session.pds:
            raise LoginNeeded(
                f"the login of {self._session.name} is for {host_of(self._session.pds)}, "
                f"not for {host_of(origin_of(url))}",
                hint=self._session.login_command,
            )
        with self._lock:
            if self._is_over(self._session):
                self._renew()
            return _kind(self._session).credential(self._client, self._session)

    def renewed(self, sent: httpx.Auth, refusal: AuthRefused, /) -> bool:
        if refusal.name in SCOPE_NAMES:
            raise ScopeMissing(
                f"the login of {self._session.name} does not cover this: {refusal.text}",
                hint=self._session.login_command,
            ) from refusal
        blame_clock(self._client, refusal, self._session.pds)
        if is_of_proof(refusal) or refusal.status == 403:
            return False
        with self._lock:
            if isinstance(sent, Credential) and sent.token == self._session.access:
                self._renew()
        return True

    def _renew(self) -> None:
        """Under a lock, since another process may be doing the same; then its session is ours."""
        with self._store.lock(self.did):
            stored = self._store.load(self.did)
            if stored is None or stored.pds != self._session.pds:
                raise self.over()
            if stored.access == self._session.access or self._is_over(stored):
                stored = self._refreshed(stored) or self._logged_in_again(stored)
                self._store.save(stored)
        self._session = stored

    def _refreshed(self, session: Session) -> Session | None:
        """None where it has ended. A host fails one of two refreshes that come at once."""
        if session.ended:
            return None
        kind = _kind(session)
        try:
            return kind.refreshed(self._client, session)
        except ServerFault:
            stored = self._store.load(session.did)
            if stored is not None and stored.refresh != session.refresh:
                return stored
            return kind.refreshed(self._client, session)

    def _logged_in_again(self, session: Session) -> Session:
        """Whatever comes, the tokens are dead, and the next to look is told so at once."""
        if not session.ended:
            self._store.save(replace(session, access="", refresh="", dpop_key=None))
        again = self._login()
        if again is None:
            raise self.over()
        return again

    def over(self) -> LoginNeeded:
        name = self._session.name
        return LoginNeeded(f"the login of {name} has ended", hint=self._session.login_command)

    def _is_over(self, session: Session) -> bool:
        """By the host's clock, where an answer has told us what it shows."""
        if session.expires_at is None or session.ended:
            return session.ended
        now = time.time() + (self._client.clock_offset(session.pds) or 0.0)
        return now > parse_time(session.expires_at).timestamp() - _LEEWAY_SECONDS


def _kind(session: Session) -> Kind:
    module: ModuleType
    if session.kind == "oauth":
        from git_knotless.atproto import oauth_tokens as module
    else:
        from git_knotless.atproto import password as module
    return cast(Kind, module)
