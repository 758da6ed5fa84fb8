"""What one process works with: settings, client, identities, sessions; each made as it is used."""

import logging
import shlex
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from git_knotless import settings
from git_knotless.atproto.errors import (
    AccountNotHere,
    AtprotoError,
    HandleNotFound,
    HostTimeout,
    HostUnreachable,
    IdentityMismatch,
    RepoTakendown,
    StillMoving,
)
from git_knotless.atproto.hosts import host_of, on_loopback
from git_knotless.atproto.log import PrintableFormatter
from git_knotless.atproto.syntax import Did, Handle
from git_knotless.errors import KnotlessError
from git_knotless.logins import Logins
from git_knotless.settings import Settings
from git_knotless.storage.git import Git
from git_knotless.storage.hosts import HostCache
from git_knotless.storage.proofs.large import LargeSnapshots
from git_knotless.storage.proofs.revs import Revs
from git_knotless.storage.proofs.verified import Verified
from git_knotless.storage.repositories import CLAIM_GRACE, Repository
from git_knotless.storage.snapshot import NoSuchRepository
from git_knotless.storage.url import RepoUrl, parse_target
from git_knotless.value import replace

# Whoever only reads carries no session, and whoever makes no request waits for no httpx.
if TYPE_CHECKING:
    from git_knotless.atproto.guard import Guard
    from git_knotless.atproto.identity import Identity, Resolver
    from git_knotless.atproto.keys import PublicKey
    from git_knotless.atproto.session import Session
    from git_knotless.atproto.session_auth import SessionAuth
    from git_knotless.atproto.sessions import SessionStore
    from git_knotless.atproto.xrpc import Client
    from git_knotless.storage.pin import Pin
    from git_knotless.storage.places.lookup import Accounts
    from git_knotless.storage.public import PublicStore

# Before a write the DID document is at most this old: after a move, the old host still takes
# writes for a while, and what is written there is lost.
_WRITE_AGE = 60.0

Deed = Literal["push to", "change"]
Working = Callable[[str], AbstractContextManager[None]]


def _quietly(_: str) -> AbstractContextManager[None]:
    return nullcontext()


class NotTheOwner(KnotlessError):
    """Somebody else is logged in."""


class Context:
    """Closed at the end of a `with`, which also forgets where an account is not any more."""

    def __init__(
        self,
        settings: Settings,
        notify: Callable[[str], None] | None = None,
        working: Working = _quietly,
        *,
        hurried: bool = False,
    ) -> None:
        self.settings = settings
        self._notify = notify
        self._working = working
        self._hurried = hurried
        self._used: dict[Did, Identity] = {}

    @classmethod
    def from_environment(
        cls,
        env: Mapping[str, str],
        notify: Callable[[str], None],
        git: Git | None = None,
        working: Working = _quietly,
        *,
        account: Did | Handle | None = None,
        hurried: bool = False,
    ) -> Self:
        """Raises BadSetting, naming the variable or the key.

        `notify` gets a line for the person when a host makes us wait, or a login cannot be read;
        `working` is entered for as long as what it is called with is done. `account` comes before
        the one that is set. Of `hurried`, see `Client`.
        """
        found = settings.load(env, (git or Git(None, env=env)).config)
        if account is not None:
            found = replace(found, account=account)
        context = cls(found, notify, working, hurried=hurried)
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
        if isinstance(error, AtprotoError) and _is_unreached(error) and error.hint is None:
            error.hint = _way_to_host(self.settings.config_dir)
        if "client" in self.__dict__:
            self.client.close()

    @cached_property
    def client(self) -> "Client":
        from git_knotless.atproto.xrpc import Client

        return Client(notify=self._notify, hurried=self._hurried, guard=self._guard())

    def _guard(self) -> "Guard":
        """What is set here is the user's choice, as are the hosts where they are logged in."""
        from git_knotless.atproto.guard import Guard

        return Guard(
            allowed=self.settings.allow_hosts,
            free=(self.settings.plc_url, *self.settings.handle_resolvers),
            own=lambda: [session.pds for session in self.sessions.all()],
        )

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
    def _hosts(self) -> HostCache:
        return HostCache(self.settings.cache_dir / "hosts.json")

    @cached_property
    def revs(self) -> Revs:
        """The newest revisions that were seen of accounts."""
        return Revs(self.settings.config_dir / "revs.json")

    @cached_property
    def verified(self) -> Verified:
        """How refs are read: checked as the settings want them."""
        large = LargeSnapshots(self.settings.cache_dir / "snapshots")
        return Verified(self.settings.verify, self.revs, large)

    def signing_key(self, did: Did, *, fresh: bool) -> "PublicKey":
        return self.resolver.signing_key(did, fresh=fresh)

    def identify(self, who: Did | Handle, *, write: bool = False) -> "Identity":
        """The account that a user named, and its host: as they are now where something is to be
        written."""
        self.resolver.trust(who)
        return self._identify(who, write=write)

    def _identify(self, who: Did | Handle, *, write: bool = False) -> "Identity":
        """The same of whomever anybody named."""
        with self._working(f"looking for {who}"):
            identity = self.resolver.resolve(who, max_age=_WRITE_AGE if write else None)
        self._used[identity.did] = identity
        return identity

    def host_of(self, did: Did) -> str:
        """Where an account is that was identified, as messages name it."""
        return host_of(self._used[did].pds)

    def find_again(self, identity: "Identity") -> "Identity":
        """The account as it is now; kept only if it is at another host than `identity` says."""
        self.resolver.forget(identity.did)
        now = self._identify(identity.did)
        if now.pds == identity.pds:
            self.resolver.forget(identity.did)
        return now

    def name_of(self, did: Did) -> str:
        """The handle of `did`, or `did` where it has none that leads back, or none can be told."""
        try:
            return self.resolver.resolve(did).handle or did
        except KnotlessError:
            return did

    @cached_property
    def logins(self) -> Logins:
        return Logins(self, self.settings, self._notify)

    @property
    def sessions(self) -> "SessionStore":
        return self.logins.sessions

    def account(self) -> "Session":
        """The session of whom commands act as. Raises LoginNeeded, AmbiguousAccount."""
        return self.logins.account()

    def account_did(self) -> Did:
        """Whom commands act as, whether or not the session can be read."""
        return self.logins.account_did()

    def session_for(self, did: Did) -> "SessionAuth | None":
        """What a request of the account carries, if it is logged in or a password is there."""
        return self.logins.session_for(did)

    def writer(self, identity: "Identity") -> "SessionAuth":
        """The owner's own session at the host where the account is. Raises LoginNeeded."""
        return self.logins.writer(identity)

    def store(self, identity: "Identity", *, write: bool = False) -> "PublicStore":
        """The account's records; to write them, its own session is needed."""
        return self._store(identity, self.writer(identity) if write else None)

    def _store(self, identity: "Identity", auth: "SessionAuth | None") -> "PublicStore":
        from git_knotless.storage.public import PublicStore

        if auth is not None and self.client.allowances is None:
            from git_knotless.atproto.allowance import Allowances

            self.client.allowances = Allowances(self.settings.cache_dir / "limits.json")
        return PublicStore(self.client, identity, auth, self._hosts, self, self.revs)

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
        self.verified.prepare()
        identity = self._asked(url.authority, pin, write=to is not None)
        repository = Repository(
            RepoUrl(identity.handle or identity.did, url.name),
            self.store(identity),
            writable=False,
            sure=to == "push to",
            own=to == "change",
            claim_grace=self.claim_grace(identity),
            asked=url,
            accounts=self.accounts(write=to is not None) if moves else None,
            hold=pin.hold if pin else None,
            elsewhere=pin.elsewhere if pin and moves else None,
            verified=self.verified,
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
            pin.hold_account(identity.did, self.accounts(write=write))
        return identity

    def accounts(self, *, write: bool = False) -> "Accounts":
        """Where a look-up goes on: with `write`, in accounts as they are now."""
        return _Accounts(self, write=write)

    def _own(self, repository: Repository, to: Deed) -> None:
        try:
            repository.look()
        except NoSuchRepository as error:  # a delete that was cut is finished, and its record gone
            if error.hint is not None:  # it is elsewhere, where another may be the owner
                raise
        owner = self._identify(repository.store.did, write=True)
        auth = self._owner(owner, repository, to)
        repository.owned(self._store(owner, auth), self.claim_grace(owner))

    def _owner(self, owner: "Identity", repository: Repository, to: Deed) -> "SessionAuth":
        """Whoever is logged in as somebody else is told that, rather than to log in.

        Raises ScopeMissing before anything is sent that would be refused in the end.
        """
        auth = self.session_for(owner.did)
        if auth is None and self.sessions.dids():
            only = f"only {owner.name} can {to}"
            said = f"{only} {repository.url}"
            if repository.moved:
                said = f"{repository.asked} is now {repository.url}, and {only} it"
            raise NotTheOwner(said, hint=f"git knotless login {owner.name}")
        auth = self.logins.writer(owner, auth)
        self.logins.check_scope(auth.session)
        return auth

    def claim_grace(self, identity: "Identity") -> float:
        """Seconds; less than a day on a host of this machine only."""
        grace = float(self.settings.claim_grace)
        return grace if on_loopback(identity.pds) else max(grace, CLAIM_GRACE)


class _Accounts:
    def __init__(self, context: Context, *, write: bool) -> None:
        self._context = context
        self._write = write

    def open_account(self, who: Did | Handle) -> "tuple[Did | Handle, PublicStore]":
        identity = self._context._identify(who, write=self._write)
        return identity.handle or identity.did, self._context.store(identity)


def _is_unreached(error: AtprotoError) -> bool:
    kinds = HostUnreachable | HostTimeout
    return isinstance(error, kinds) or isinstance(error.__cause__, kinds)


def _way_to_host(config_dir: Path) -> str:
    """Whoever keeps their logins in a sandbox asks that one, which may have been stopped."""
    folder = config_dir.parent
    if config_dir.name != settings.SANDBOX_CONFIG or not (folder / settings.SANDBOX_LOCK).exists():
        return "git knotless doctor"
    place = [] if folder == settings.sandbox_dir() else ["--dir", str(folder)]
    return shlex.join(["git", "knotless", "sandbox", "start", *place])


def _start_log(level: str) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(PrintableFormatter("%(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler], level=level.upper())
    # httpcore tells of every byte that it waits for; httpx's line a request is enough.
    logging.getLogger("httpcore").setLevel(logging.WARNING)
