"""What one process works with: settings, client, identities, sessions; each made as it is used."""

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property, partial
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from git_knotless import settings
from git_knotless.atproto.errors import (
    AccountNotHere,
    HandleNotFound,
    IdentityMismatch,
    RepoTakendown,
    ScopeMissing,
    StillMoving,
)
from git_knotless.atproto.hosts import host_of, on_loopback
from git_knotless.atproto.log import PrintableFormatter
from git_knotless.atproto.syntax import Did, Handle, is_did
from git_knotless.errors import KnotlessError, LoginNeeded
from git_knotless.settings import Settings
from git_knotless.storage.git import Git
from git_knotless.storage.hosts import HostCache
from git_knotless.storage.repositories import CLAIM_GRACE, Repository
from git_knotless.storage.snapshot import NoSuchRepository
from git_knotless.storage.url import RepoUrl, parse_target

# Whoever only reads carries no session, and whoever makes no request waits for no httpx.
if TYPE_CHECKING:
    from git_knotless.atproto.identity import Identity, Resolver
    from git_knotless.atproto.session_auth import SessionAuth
    from git_knotless.atproto.sessions import Session, SessionStore
    from git_knotless.atproto.xrpc import Client
    from git_knotless.storage.lookup import Accounts
    from git_knotless.storage.pin import Pin
    from git_knotless.storage.public import PublicStore

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
        self._used: dict[Did, Identity] = {}

    @classmethod
    def from_environment(
        cls, env: Mapping[str, str], notify: Callable[[str], None], git: Git | None = None
    ) -> Self:
        """Raises BadSetting, naming the variable or the key.

        `notify` gets a line for the person when a host makes us wait, or a login cannot be read.
        """
        context = cls(settings.load(env, (git or Git(None, env=env)).config), notify)
        _start_log(context.settings.log)
        return context

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: object, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, AccountNotHere | RepoTakendown | StillMoving):
            for did in self._used:
                self.resolver.forget(did)
        if "client" in self.__dict__:
            self.client.close()

    @cached_property
    def client(self) -> "Client":
        from git_knotless.atproto.xrpc import Client

        return Client() if self._notify is None else Client(notify=self._notify)

    @cached_property
    def resolver(self) -> "Resolver":
        from git_knotless.atproto.identity import IdentityCache, Resolver

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

    def identify(self, who: Did | Handle, *, write: bool = False) -> "Identity":
        """The account and its host, as they are now where something is to be written."""
        identity = self.resolver.resolve(who, max_age=_WRITE_AGE if write else None)
        self._used[identity.did] = identity
        return identity

    def host_of(self, did: Did) -> str:
        """Where an account is that was identified, as messages name it."""
        return host_of(self._used[did].pds)

    def find_again(self, identity: "Identity") -> "Identity":
        """The account as it is now; kept only if it is at another host than `identity` says."""
        self.resolver.forget(identity.did)
        now = self.identify(identity.did)
        if now.pds == identity.pds:
            self.resolver.forget(identity.did)
        return now

    def name_of(self, did: Did) -> str:
        """The handle of `did`, or `did` where it has none that leads back, or none can be told."""
        try:
            return self.resolver.resolve(did).handle or did
        except KnotlessError:
            return did

    def account(self) -> "Session":
        """The session of `account_did`, or a new one where a password is there to get it with."""
        did = self.account_did()
        session = self._stored_or_new(did)
        if session is None:
            raise _not_logged_in(self.settings.account or did)
        return session

    def account_did(self) -> Did:
        """Whom commands act as: as the settings say, or as was chosen, or the only one logged in.

        Whether or not the session can be read; it logs nobody in.
        """
        if self.settings.account is not None:
            return self._did_of(self.settings.account)
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
                hint="git knotless account use HANDLE, or --account HANDLE for one command",
            )
        return [session.did for session in stored]

    def session_for(self, did: Did) -> "SessionAuth | None":
        """What a request of the account carries, if it is logged in or a password is there."""
        session = self._stored_or_new(did)
        return None if session is None else self._auth(session)

    def _auth(self, session: "Session") -> "SessionAuth":
        from git_knotless.atproto.session_auth import SessionAuth

        again = partial(self._logged_in_with_password, session.did)
        return SessionAuth(self.client, self.sessions, session, login=again)

    def store(self, identity: "Identity", *, write: bool = False) -> "PublicStore":
        """The account's records; to write them, its own session is needed."""
        return self._store(identity, self.writer(identity) if write else None)

    def _store(self, identity: "Identity", auth: "SessionAuth | None") -> "PublicStore":
        from git_knotless.storage.public import PublicStore

        return PublicStore(self.client, identity, auth, self._hosts, self)

    def open(
        self,
        url_text: str,
        *,
        to: Deed | None = None,
        moves: bool = True,
        pin: "Pin | None" = None,
    ) -> Repository:
        """The repository of a URL or `handle/name`; that it exists is not looked at.

        `to` do what, where it is to be written to: that takes the session of its owner, who may
        be another than the one asked for, if it has moved. Without `moves` it is what is in the
        account asked for, wherever readers are led from there. `pin` is of the remote that the
        URL is of: nobody is told to log in as whoever has the handle now.
        """
        url = parse_target(url_text)
        identity = self._asked(url.authority, pin, write=to is not None)
        repository = Repository(
            RepoUrl(identity.handle or identity.did, url.name),
            self.store(identity),
            writable=False,
            claim_grace=self.claim_grace(identity),
            asked=url,
            accounts=self.accounts(write=to is not None) if moves else None,
            hold=pin.hold if pin else None,
        )
        repository.moved = url.authority not in (identity.handle, identity.did)
        if to is not None:
            self._own(repository, to)
        return repository

    def _asked(self, who: Did | Handle, pin: "Pin | None", *, write: bool) -> "Identity":
        """A remote whose handle names nobody any more leads to whom it named, by another handle."""
        try:
            identity = self.identify(who, write=write)
        except (HandleNotFound, IdentityMismatch):
            if pin is None or pin.did is None:
                raise
            identity = self.identify(pin.did, write=write)
        if pin is not None:
            pin.hold_account(identity.did)
        return identity

    def accounts(self, *, write: bool = False) -> "Accounts":
        """Where a look-up goes on: with `write`, in accounts as they are now."""
        return _Accounts(self, write=write)

    def _own(self, repository: Repository, to: Deed) -> None:
        with suppress(NoSuchRepository):  # a delete that was cut is finished, and its record gone
            repository.look()
        owner = self.identify(repository.store.did, write=True)
        auth = self._owner(owner, repository, to)
        repository.owned(self._store(owner, auth), self.claim_grace(owner))

    def _owner(self, owner: "Identity", repository: Repository, to: Deed) -> "SessionAuth":
        """Whoever is logged in as somebody else is told that, rather than to log in.

        Raises ScopeMissing before anything is sent that would be refused in the end.
        """
        auth = self.session_for(owner.did)
        if auth is None and self.sessions.dids():
            only = f"only {owner.name} can {to} {repository.url}"
            news = f"{repository.asked} is there now: " if repository.moved else ""
            raise NotTheOwner(news + only, hint=f"git knotless login {owner.name}")
        auth = self.writer(owner, auth)
        self._check_scope(auth.session)
        return auth

    def _check_scope(self, session: "Session") -> None:
        from git_knotless.storage.scope import missing, of_a_repository

        if lacking := missing(session.scope, of_a_repository()):
            raise ScopeMissing(
                f"the login of {session.name} does not cover {', '.join(lacking)}",
                hint=session.login_command,
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

    def writer(self, identity: "Identity", auth: "SessionAuth | None" = None) -> "SessionAuth":
        """The owner's own session at the host where the account is. Raises LoginNeeded."""
        auth = auth or self.session_for(identity.did)
        if auth is None:
            raise _not_logged_in(identity.name)
        if auth.session.pds != identity.pds:
            auth = self._at_new_host(identity)
        if auth.session.ended:
            raise auth.over()
        return auth

    def _at_new_host(self, identity: "Identity") -> "SessionAuth":
        """Whose login is for the host that the account has left, where a password gets another."""
        new = self._logged_in_with_password(identity.did)
        if new is None or new.pds != identity.pds:
            moved = f"{identity.name} moved to {host_of(identity.pds)}"
            raise LoginNeeded(moved, hint=f"git knotless login {identity.name}")
        self.sessions.save(new)
        return self._auth(new)

    def _stored_or_new(self, did: Did) -> "Session | None":
        """A stored session comes first, unless it has ended and a password gets another."""
        session = self._stored(did)
        if session is not None and not session.ended:
            return session
        new = self._logged_in_with_password(did)
        if new is None:
            return session
        self.sessions.save(new)
        return new

    def _logged_in_with_password(self, did: Did) -> "Session | None":
        """None where no password is there, or it is for another account.

        The host of that would be handed the password of somebody else.
        """
        who, password = self.settings.account, self.settings.password
        if who is None or password is None:
            return None
        identity = self.identify(who)
        if identity.did != did:
            return None
        from git_knotless.atproto.password import login_with_password

        return login_with_password(self.client, identity, password)

    def _stored(self, did: Did) -> "Session | None":
        from git_knotless.atproto.sessions import DamagedSession

        try:
            return self.sessions.load(did)
        except DamagedSession as error:
            hint = f"git knotless login {self.name_of(did)}"
            raise DamagedSession(error.message, hint=hint) from error

    def claim_grace(self, identity: "Identity") -> float:
        """Seconds; less than a day on a host of this machine only."""
        grace = float(self.settings.claim_grace)
        return grace if on_loopback(identity.pds) else max(grace, CLAIM_GRACE)


class _Accounts:
    def __init__(self, context: Context, *, write: bool) -> None:
        self._context = context
        self._write = write

    def open_account(self, who: Did | Handle) -> "tuple[Did | Handle, PublicStore]":
        identity = self._context.identify(who, write=self._write)
        return identity.handle or identity.did, self._context.store(identity)


def _start_log(level: str) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(PrintableFormatter("%(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler], level=level.upper())
    # httpcore tells of every byte that it waits for; httpx's line a request is enough.
    logging.getLogger("httpcore").setLevel(logging.WARNING)


def _not_logged_in(name: str) -> LoginNeeded:
    return LoginNeeded(f"not logged in as {name}", hint=f"git knotless login {name}")
