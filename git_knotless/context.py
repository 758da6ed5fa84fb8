"""What one process works with: settings, client, identities, sessions; each made as it is used."""

from collections.abc import Mapping
from functools import cached_property
from types import TracebackType
from typing import Self

from git_knotless import settings
from git_knotless.atproto.errors import AccountNotHere
from git_knotless.atproto.hosts import host_of, on_loopback
from git_knotless.atproto.identity import Identity, IdentityCache, Resolver
from git_knotless.atproto.password import SessionAuth, login_with_password
from git_knotless.atproto.sessions import Session, SessionStore
from git_knotless.atproto.syntax import Did, Handle
from git_knotless.atproto.xrpc import Client
from git_knotless.errors import KnotlessError, LoginNeeded
from git_knotless.settings import Settings
from git_knotless.storage.git import Git
from git_knotless.storage.hosts import HostCache
from git_knotless.storage.public import PublicStore
from git_knotless.storage.repositories import CLAIM_GRACE, Repository
from git_knotless.storage.url import RepoUrl, parse_target

# Before a write the DID document is at most this old: after a move, the old host still takes
# writes for a while, and what is written there is lost.
_WRITE_AGE = 60.0


class AmbiguousAccount(KnotlessError):
    """Several accounts are logged in, and nothing says which one is meant."""


class Context:
    """Closed at the end of a `with`, which also forgets where an account is not any more."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._used: set[Did] = set()

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> Self:
        """Raises BadSetting, naming the variable or the key."""
        listed = Git(None, env=env).run("config", "--show-scope", "-z", "--list")
        return cls(settings.load(env, listed))

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
        return Client()

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
    def sessions(self) -> SessionStore:
        return SessionStore(self.settings.config_dir / "sessions")

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

    def account(self) -> Session:
        """The session of the account that the settings name, or of the only one logged in."""
        if self.settings.account is not None:
            return self._session_of(self.settings.account)
        stored = self.sessions.all()
        if len(stored) > 1:
            names = ", ".join(sorted(session.name for session in stored))
            raise AmbiguousAccount(
                f"several accounts are logged in: {names}",
                hint="say which one: --account HANDLE, or KNOTLESS_ACCOUNT",
            )
        if not stored:
            raise LoginNeeded("nobody is logged in", hint="git knotless login HANDLE")
        return stored[0]

    def session_for(self, did: Did) -> SessionAuth | None:
        """What a request of the account carries, if it is logged in."""
        session = self._stored_or_new(did)
        return None if session is None else SessionAuth(self.client, self.sessions, session)

    def store(self, identity: Identity, *, write: bool = False) -> PublicStore:
        """The account's records; to write them, its own session is needed."""
        auth = self._writer(identity) if write else None
        return PublicStore(self.client, identity, auth, self._hosts)

    def open(self, url_text: str, *, write: bool = False) -> Repository:
        """The repository of a URL or `handle/name`; that it exists is not looked at."""
        url = parse_target(url_text)
        identity = self.identify(url.authority, write=write)
        return Repository(
            RepoUrl(identity.handle or identity.did, url.name),
            self.store(identity, write=write),
            writable=write,
            claim_grace=self._claim_grace(identity),
        )

    def _session_of(self, who: Did | Handle) -> Session:
        stored = self.sessions.all()
        session = next((each for each in stored if who in (each.handle, each.did)), None)
        if session is None and (stored or self.settings.password):
            # A handle may have changed since the login.
            session = self._stored_or_new(self.identify(who).did)
        if session is None:
            raise _not_logged_in(who)
        return session

    def _writer(self, identity: Identity) -> SessionAuth:
        auth = self.session_for(identity.did)
        if auth is None:
            raise _not_logged_in(identity.name)
        if auth.session.pds != identity.pds:
            moved = f"{identity.name} has moved to {host_of(identity.pds)} since it logged in"
            raise LoginNeeded(moved, hint=auth.session.login_command)
        return auth

    def _stored_or_new(self, did: Did) -> Session | None:
        """A stored session comes first; else a password logs in the account named beside it.

        No other account: its host would be handed the password of somebody else.
        """
        session = self.sessions.load(did)
        who, password = self.settings.account, self.settings.password
        if session is not None or who is None or password is None:
            return session
        identity = self.identify(who)
        if identity.did != did:
            return None
        session = login_with_password(self.client, identity, password)
        self.sessions.save(session)
        return session

    def _claim_grace(self, identity: Identity) -> float:
        grace = float(self.settings.claim_grace)
        return grace if on_loopback(identity.pds) else max(grace, CLAIM_GRACE)


def _not_logged_in(name: str) -> LoginNeeded:
    return LoginNeeded(f"not logged in as {name}", hint=f"git knotless login {name}")
