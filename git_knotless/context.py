"""What one process works with: settings, client, identities, sessions; each made as it is used."""

import logging
from collections.abc import Callable, Mapping
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from git_knotless import settings
from git_knotless.atproto.errors import AccountNotHere
from git_knotless.atproto.hosts import host_of, on_loopback
from git_knotless.atproto.identity import Identity, IdentityCache, Resolver
from git_knotless.atproto.log import PrintableFormatter
from git_knotless.atproto.syntax import Did, Handle, is_did
from git_knotless.atproto.xrpc import Client
from git_knotless.errors import KnotlessError, LoginNeeded
from git_knotless.settings import Settings
from git_knotless.storage.git import Git
from git_knotless.storage.hosts import HostCache
from git_knotless.storage.public import PublicStore
from git_knotless.storage.repositories import CLAIM_GRACE, Repository
from git_knotless.storage.url import RepoUrl, parse_target

if TYPE_CHECKING:  # whoever only reads carries no session, and waits for none of this
    from git_knotless.atproto.password import SessionAuth
    from git_knotless.atproto.sessions import Session, SessionStore

# Before a write the DID document is at most this old: after a move, the old host still takes
# writes for a while, and what is written there is lost.
_WRITE_AGE = 60.0

Deed = Literal["push to", "change"]


class AmbiguousAccount(KnotlessError):
    """Several accounts are logged in, and nothing says which one is meant."""


class NotTheOwner(KnotlessError):
    """Somebody else is logged in."""


class Context:
    """Closed at the end of a `with`, which also forgets where an account is not any more."""

    def __init__(self, settings: Settings, notify: Callable[[str], None] | None = None) -> None:
        self.settings = settings
        self._notify = notify
        self._used: set[Did] = set()

    @classmethod
    def from_environment(cls, env: Mapping[str, str], notify: Callable[[str], None]) -> Self:
        """Raises BadSetting, naming the variable or the key.

        `notify` gets a line for the person when a host makes us wait, or a login cannot be read.
        """
        listed = Git(None, env=env).run("config", "--show-scope", "-z", "--list")
        context = cls(settings.load(env, listed), notify)
        _start_log(context.settings.log)
        return context

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: object, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, AccountNotHere):
            for did in self._used:
                self.resolver.forget(did)
        self.client.close()

    @cached_property
    def client(self) -> Client:
        return Client() if self._notify is None else Client(notify=self._notify)

    @cached_property
    def resolver(self) -> Resolver:
        return Resolver(
            self.client,
            plc_url=self.settings.plc_url,
            handle_resolvers=self.settings.handle_resolvers,
            cache=IdentityCache(self.settings.cache_dir / "identity.json"),
            ttl=self.settings.identity_ttl,
        )

    @cached_property
    def sessions(self) -> "SessionStore":
        from git_knotless.atproto.sessions import SessionStore

        return SessionStore(self.settings.config_dir / "sessions", self._notify)

    @cached_property
    def _hosts(self) -> HostCache:
        return HostCache(self.settings.cache_dir / "hosts.json")

    def identify(self, who: Did | Handle, *, write: bool = False) -> Identity:
        """The account and its host, as they are now where something is to be written."""
        identity = self.resolver.resolve(who, max_age=_WRITE_AGE if write else None)
        self._used.add(identity.did)
        return identity

    def name_of(self, did: Did) -> str:
        """The handle of `did`, or `did` where it has none that leads back, or none can be told."""
        try:
            return self.resolver.resolve(did).handle or did
        except KnotlessError:
            return did

    def account(self) -> "Session":
        """The session of the account that the settings name, or of the only one logged in."""
        did = self.account_did()
        session = self._stored_or_new(did)
        if session is None:
            raise _not_logged_in(self.settings.account or did)
        return session

    def account_did(self) -> Did:
        """Whose session `account` is, whether or not it can be read; it logs nobody in."""
        if self.settings.account is not None:
            return self._did_of(self.settings.account)
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
                hint="say which one: --account HANDLE, or KNOTLESS_ACCOUNT",
            )
        return [session.did for session in stored]

    def session_for(self, did: Did) -> "SessionAuth | None":
        """What a request of the account carries, if it is logged in."""
        from git_knotless.atproto.password import SessionAuth

        session = self._stored_or_new(did)
        return None if session is None else SessionAuth(self.client, self.sessions, session)

    def store(self, identity: Identity, *, write: bool = False) -> PublicStore:
        """The account's records; to write them, its own session is needed."""
        auth = self._writer(identity) if write else None
        return PublicStore(self.client, identity, auth, self._hosts)

    def open(self, url_text: str, *, to: Deed | None = None) -> Repository:
        """The repository of a URL or `handle/name`; that it exists is not looked at.

        `to` do what, where it is to be written to: that takes its owner's session.
        """
        url = parse_target(url_text)
        identity = self.identify(url.authority, write=to is not None)
        canonical = RepoUrl(identity.handle or identity.did, url.name)
        if to is not None:
            self._check_owner(identity, canonical, to)
        return Repository(
            canonical,
            self.store(identity, write=to is not None),
            writable=to is not None,
            claim_grace=self.claim_grace(identity),
        )

    def _check_owner(self, owner: Identity, url: RepoUrl, to: Deed) -> None:
        """Whoever is logged in as somebody else is told that, rather than to log in."""
        if self.session_for(owner.did) is None and self.sessions.dids():
            raise NotTheOwner(
                f"only {owner.name} can {to} {url}", hint=f"git knotless login {owner.name}"
            )

    def _did_of(self, who: Did | Handle) -> Did:
        """Nobody is asked where nobody could be logged in."""
        if is_did(who):
            return Did(who)
        if session := self.sessions.of_handle(who):
            return session.did
        if not (self.sessions.dids() or self.settings.password):
            raise _not_logged_in(who)
        return self.identify(who).did  # it may have changed since the login

    def _writer(self, identity: Identity) -> "SessionAuth":
        auth = self.session_for(identity.did)
        if auth is None:
            raise _not_logged_in(identity.name)
        if auth.session.pds != identity.pds:
            moved = f"{identity.name} has moved to {host_of(identity.pds)} since it logged in"
            raise LoginNeeded(moved, hint=auth.session.login_command)
        return auth

    def _stored_or_new(self, did: Did) -> "Session | None":
        """A stored session comes first; else a password logs in the account named beside it.

        No other account: its host would be handed the password of somebody else.
        """
        session = self._stored(did)
        who, password = self.settings.account, self.settings.password
        if session is not None or who is None or password is None:
            return session
        identity = self.identify(who)
        if identity.did != did:
            return None
        from git_knotless.atproto.password import login_with_password

        session = login_with_password(self.client, identity, password)
        self.sessions.save(session)
        return session

    def _stored(self, did: Did) -> "Session | None":
        from git_knotless.atproto.sessions import DamagedSession

        try:
            return self.sessions.load(did)
        except DamagedSession as error:
            hint = f"git knotless login {self.name_of(did)}"
            raise DamagedSession(error.message, hint=hint) from error

    def claim_grace(self, identity: Identity) -> float:
        """Seconds; less than a day on a host of this machine only."""
        grace = float(self.settings.claim_grace)
        return grace if on_loopback(identity.pds) else max(grace, CLAIM_GRACE)


def _start_log(level: str) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(PrintableFormatter("%(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler], level=level.upper())
    # httpcore tells of every byte that it waits for; httpx's line a request is enough.
    logging.getLogger("httpcore").setLevel(logging.WARNING)


def _not_logged_in(name: str) -> LoginNeeded:
    return LoginNeeded(f"not logged in as {name}", hint=f"git knotless login {name}")
