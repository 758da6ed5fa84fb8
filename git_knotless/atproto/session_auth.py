"""What the requests of a stored session carry, whichever its kind, renewed when it must be."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Protocol, cast

import httpx

from git_knotless.atproto.credentials import Credential
from git_knotless.atproto.dpop import blame_clock, is_of_proof
from git_knotless.atproto.errors import (
    SCOPE_NAMES,
    AccountNotHere,
    AtprotoError,
    AuthRefused,
    ClockWrong,
    NotRenewed,
    RepoTakendown,
    ScopeMissing,
    ServerFault,
    TransferCancelled,
)
from git_knotless.atproto.hosts import host_of, origin_of
from git_knotless.atproto.session import BadSession, Session
from git_knotless.atproto.sessions import SessionStore
from git_knotless.atproto.syntax import Did, parse_time
from git_knotless.atproto.xrpc import Client
from git_knotless.errors import LoginNeeded

# A token that ends within this is renewed before use: the request that it goes with may queue.
_LEEWAY_SECONDS = 60.0
# A host that does not renew is not asked again by each of the threads that wait for it.
_REST_SECONDS = 30.0
# What is wrong is no matter of the renewal.
_PLAIN = (AccountNotHere, ClockWrong, RepoTakendown, TransferCancelled)


class Kind(Protocol):
    """A module that knows one kind of session."""

    def credential(self, client: Client, session: Session) -> Credential: ...

    def refreshed(self, client: Client, session: Session) -> Session | None:
        """With new tokens; None where the host says that the session has ended."""
        ...

    def ended(self, client: Client, session: Session) -> bool:
        """Has the host end it, and says whether it did. Raises AtprotoError."""
        ...


class SessionAuth:
    """An `Auth` that the threads of a process share.

    `login` may give another session, which is saved, where this one has ended.
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
        self._failed: NotRenewed | None = None
        self._not_before = 0.0

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
        if time.monotonic() < self._not_before and self._failed is not None:
            raise NotRenewed(self._failed.message, hint=self._failed.hint) from self._failed
        with self._store.lock(self.did):
            stored = self._store.load(self.did)
            if stored is None or stored.pds != self._session.pds:
                raise self.over()
            if stored.access == self._session.access or self._is_over(stored):
                stored = self._refreshed(stored) or self._logged_in_again()
        self._session = stored

    def _refreshed(self, session: Session) -> Session | None:
        """Saved, where there was room before anything was asked; None where it has ended.

        Then the tokens are dead, and the next to look is told so at once.
        """
        if session.ended:
            return None
        with self._store.room(session.did) as save:
            new = self._asked_for(session)
            save(new or session.over())
        return new

    def _asked_for(self, session: Session) -> Session | None:
        try:
            return self._asked_twice(session)
        except _PLAIN:
            raise
        except AtprotoError as error:
            hint = session.login_command if isinstance(error, AuthRefused) else error.hint
            self._failed = NotRenewed(
                f"the login of {session.name} could not be renewed: {error.message}; "
                "nothing was sent",
                hint=hint or "git knotless doctor",
            )
            self._not_before = time.monotonic() + _REST_SECONDS
            raise self._failed from error

    def _asked_twice(self, session: Session) -> Session | None:
        """A host fails one of two refreshes that come at once."""
        kind = _kind(session)
        try:
            return kind.refreshed(self._client, session)
        except ServerFault:
            return kind.refreshed(self._client, session)

    def _logged_in_again(self) -> Session:
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


@dataclass(frozen=True, slots=True)
class Ended:
    """`session` is None where none could be read; `trouble`: why its host has not ended it."""

    session: Session | None
    trouble: str | None = None


def log_out(client: Client, store: SessionStore, did: Did) -> Ended:
    """Of the session that there is when nobody renews it any more; it is forgotten in any case.

    Raises BadSession where it cannot be removed.
    """
    with store.lock(did):
        session: Session | None = None
        try:
            session = store.load(did)
            done = session is None or session.ended or end(client, session)
        except (AtprotoError, BadSession) as error:
            return Ended(session, f"could not be told: {error.message}")
        finally:
            store.delete(did)
    return Ended(session, None if done else "did not end the session")


def end(client: Client, session: Session) -> bool:
    """Whether the host has ended it, as it is asked to. Raises AtprotoError, DamagedSession."""
    return _kind(session).ended(client, session)


def _kind(session: Session) -> Kind:
    module: ModuleType
    if session.kind == "oauth":
        from git_knotless.atproto import oauth_tokens as module
    else:
        from git_knotless.atproto import password as module
    return cast(Kind, module)
