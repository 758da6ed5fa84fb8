"""Whom commands act as, and with which session: one that is stored, or got with a password."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, Protocol

from git_knotless.atproto.errors import AtprotoError, ScopeMissing
from git_knotless.atproto.hosts import host_of
from git_knotless.atproto.syntax import Did, Handle, is_did
from git_knotless.errors import KnotlessError, LoginNeeded
from git_knotless.settings import Settings

# Whoever only reads carries no session, and whoever makes no request waits for no httpx.
if TYPE_CHECKING:
    from git_knotless.atproto.identity import Identity
    from git_knotless.atproto.session import Session
    from git_knotless.atproto.session_auth import SessionAuth
    from git_knotless.atproto.sessions import SessionStore
    from git_knotless.atproto.xrpc import Client


class Network(Protocol):
    """Where logins are found out about, and made."""

    @property
    def client(self) -> "Client": ...

    def identify(self, who: Did | Handle, *, write: bool = False) -> "Identity": ...

    def name_of(self, did: Did) -> str: ...


class AmbiguousAccount(KnotlessError):
    """Several accounts are logged in, and nothing says which one is meant."""


class OthersPassword(KnotlessError):
    """The password in the environment is another account's than the one to be logged in."""


class Logins:
    """`notify` gets a line for the person about each session that cannot be read."""

    def __init__(
        self, network: Network, settings: Settings, notify: Callable[[str], None] | None
    ) -> None:
        self._network = network
        self._settings = settings
        self._notify = notify

    @cached_property
    def sessions(self) -> "SessionStore":
        from git_knotless.atproto.sessions import SessionStore

        return SessionStore(self._settings.config_dir / "sessions", self._notify)

    def account(self) -> "Session":
        """The session of `account_did`, or a new one where a password is there to get it with."""
        did = self.account_did()
        session = self._stored_or_new(did)
        if session is None:
            raise not_logged_in(self._settings.account or did)
        return session

    def account_did(self) -> Did:
        """Whom commands act as: as the settings say, or as was chosen, or the only one logged in.

        Whether or not the session can be read; it logs nobody in.
        """
        if self._settings.account is not None:
            return self._did_of(self._settings.account)
        if (chosen := self.sessions.chosen()) is not None:
            return chosen
        dids = self.sessions.dids()
        if len(dids) > 1:
            dids = self._only_account()
        if not dids:
            raise LoginNeeded("nobody is logged in", hint="git knotless login HANDLE")
        return dids[0]

    def _only_account(self) -> list[Did]:
        """Of several files those that hold a session: one at most."""
        stored = self.sessions.all()
        if len(stored) > 1:
            names = ", ".join(sorted(session.name for session in stored))
            raise AmbiguousAccount(
                f"several accounts are logged in: {names}",
                hint="git knotless account use HANDLE",
            )
        return [session.did for session in stored]

    def _did_of(self, who: Did | Handle) -> Did:
        """Nobody is asked where nobody could be logged in."""
        if is_did(who):
            return Did(who)
        if session := self.sessions.of_handle(who):
            return session.did
        if not (self.sessions.dids() or self._settings.password):
            raise not_logged_in(who)
        return self._network.identify(who).did  # it may have changed since the login

    def session_for(self, did: Did) -> "SessionAuth | None":
        """What a request of the account carries, if it is logged in or a password is there."""
        session = self._stored_or_new(did)
        return None if session is None else self._auth(session)

    def writer(self, identity: "Identity", auth: "SessionAuth | None" = None) -> "SessionAuth":
        """The owner's own session at the host where the account is. Raises LoginNeeded."""
        auth = auth or self.session_for(identity.did)
        if auth is None:
            raise not_logged_in(identity.name)
        if auth.session.pds != identity.pds:
            auth = self._at_new_host(identity)
        if auth.session.ended:
            raise auth.over()
        return auth

    def check_scope(self, session: "Session", more: Sequence[str] = ()) -> None:
        """Raises ScopeMissing for a login that does not cover `more` and what repositories take."""
        from git_knotless.storage.scope import missing, of_a_repository

        if lacking := missing(session.scope, (*of_a_repository(), *more)):
            raise ScopeMissing(
                f"the login of {session.name} does not cover {', '.join(lacking)}",
                hint=session.login_command,
            )

    def with_password(self, identity: "Identity", password: str) -> "Session":
        """A new session, saved where there was room for it before the password was sent."""
        from git_knotless.atproto.password import login_with_password

        return self.saved(
            identity.did, lambda: login_with_password(self._network.client, identity, password)
        )

    def saved(self, did: Did, log_in: Callable[[], "Session"]) -> "Session":
        """What `log_in` gives, which is not asked for where it could not be kept.

        If it cannot be kept after all, its host is told to end it.
        """
        from git_knotless.atproto.session import BadSession
        from git_knotless.atproto.session_auth import end

        with self.sessions.room(did) as save:
            self.sessions.keep_choice()
            session = log_in()
            try:
                save(session)
            except BadSession:
                with suppress(AtprotoError):
                    end(self._network.client, session)
                raise
        return session

    def password_for(self, identity: "Identity") -> str:
        """The environment's, for an account that a person logs in. Raises OthersPassword."""
        password = self._settings.password
        assert password is not None
        if password.owner is None or self._is(password.owner, identity):
            return password.text
        raise OthersPassword(
            f"KNOTLESS_PASSWORD is the password of {password.owner}, whom KNOTLESS_ACCOUNT names, "
            f"and not of {identity.name}",
            hint=f"env -u KNOTLESS_PASSWORD git knotless login {identity.name}",
        )

    def _is(self, who: Did | Handle, identity: "Identity") -> bool:
        if who in (identity.did, identity.handle):
            return True
        with suppress(KnotlessError):
            return self._network.identify(who).did == identity.did
        return False

    def _auth(self, session: "Session") -> "SessionAuth":
        from git_knotless.atproto.session_auth import SessionAuth

        again = partial(self._by_password, session.did)
        return SessionAuth(self._network.client, self.sessions, session, login=again)

    def _at_new_host(self, identity: "Identity") -> "SessionAuth":
        """Whose login is for the host that the account has left, where a password gets another."""
        new = self._by_password(identity.did)
        if new is None or new.pds != identity.pds:
            moved = f"{identity.name} moved to {host_of(identity.pds)}"
            raise LoginNeeded(moved, hint=f"git knotless login {identity.name}")
        return self._auth(new)

    def _stored_or_new(self, did: Did) -> "Session | None":
        """A stored session comes first, unless it has ended and a password gets another."""
        session = self._stored(did)
        if session is not None and not session.ended:
            return session
        return self._by_password(did) or session

    def _by_password(self, did: Did) -> "Session | None":
        """Got by one process, and taken from the store by all that have waited for it.

        None where no password is there, or it is another account's, whose host alone gets it.
        """
        password = self._settings.password
        if password is None or password.owner is None:
            return None
        identity = self._found(password.owner)
        if identity is None or identity.did != did:
            return None
        with self.sessions.lock(did):
            stored = self._stored(did)
            if stored is not None and stored.pds == identity.pds and not stored.ended:
                return stored
            return self.with_password(identity, password.text)

    def _found(self, owner: Did | Handle) -> "Identity | None":
        """None where it cannot be told who has the password, and another account is named."""
        try:
            return self._network.identify(owner, write=True)
        except AtprotoError:
            if self._settings.account == owner:
                raise
            return None

    def _stored(self, did: Did) -> "Session | None":
        from git_knotless.atproto.session import DamagedSession

        try:
            return self.sessions.load(did)
        except DamagedSession as error:
            hint = f"git knotless login {self._network.name_of(did)}"
            raise DamagedSession(error.message, hint=hint) from error


def not_logged_in(name: str) -> LoginNeeded:
    return LoginNeeded(f"not logged in as {name}", hint=f"git knotless login {name}")
