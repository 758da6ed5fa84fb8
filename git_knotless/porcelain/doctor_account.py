"""What `git knotless doctor` looks at of an account: its names, its host, and the login to it."""

from collections.abc import Iterator

from git_knotless.atproto.errors import (
    AccountNotHere,
    AtprotoError,
    HandleNotFound,
    IdentityMismatch,
)
from git_knotless.atproto.hosts import host_of
from git_knotless.atproto.identity import Identity, Resolver, read_document
from git_knotless.atproto.keys import signing_key
from git_knotless.atproto.repo import get_repo_status
from git_knotless.atproto.session import Session
from git_knotless.atproto.session_auth import SessionAuth
from git_knotless.atproto.syntax import Did, Handle, is_did
from git_knotless.context import Context
from git_knotless.errors import LoginNeeded
from git_knotless.logins import AmbiguousAccount
from git_knotless.storage.checkup.checks import Check, Verdict, fail, ok, skipped, warn
from git_knotless.storage.scope import login_scope, missing

_NOBODY = "nobody is logged in: reading takes no login, writing does"


class AccountChecks:
    """Of `who`, else of the account that commands act as, whose `identity` is then known."""

    def __init__(
        self,
        context: Context,
        resolver: Resolver,
        who: Did | Handle | None,
        *,
        source: str,
        directory: bool,
    ) -> None:
        """`source` is what names an account, if it is not `who`; `directory`: does it answer."""
        self._context = context
        self._resolver = resolver
        self._who = who
        self._source = source
        self._directory = directory
        self.identity: Identity | None = None
        self._active = False
        self._auth: SessionAuth | None = None
        self._nobody: Verdict | None = None
        self._unheld: Verdict | None = None

    def at(self, host: str) -> tuple[SessionAuth | None, Did | None]:
        """The login that `host` takes, and the account if it is there."""
        if self.identity is None or self.identity.pds != host:
            return None, None
        return self._auth, self.identity.did if self._active else None

    def lacks_to_write(self) -> Verdict | None:
        """What a login lacks, wherever it is to be written to."""
        if self._who is None and self._nobody is not None:
            return fail(self._nobody.detail, self._nobody.hint)
        return skipped(_UNKNOWN) if self.identity is None else None

    def lacks_login_for(self, host: str) -> Verdict:
        if self.identity is None or self.identity.pds != host:
            hint = "log in with a handle there: git knotless login HANDLE"
            return fail(f"no login that is in use is for {host_of(host)}", hint)
        return self._unheld or skipped("the login does not hold, as its check says")

    def checks(self) -> Iterator[Check]:
        yield Check("login", self._login)
        if self._who is None:
            return
        yield Check("handle", self._handle, _NETWORK)
        yield Check("document", self._document, _ASK)
        yield Check("account", self._account, _NETWORK)
        yield Check("session", self._session, f"git knotless login {self._who}")
        yield Check("scopes", self._scopes)

    def _login(self) -> Verdict:
        """Also decides whom the others are about, where nobody was named."""
        wanted = self._context.settings.account
        try:
            session = self._context.account()
        except AmbiguousAccount as error:
            self._nobody = warn(error.message, error.hint)
            return self._nobody
        except LoginNeeded as error:
            self._who = self._who or wanted
            if wanted is not None or self._context.sessions.dids():
                raise
            self._nobody = warn(_NOBODY, error.hint)
            return self._nobody
        except AtprotoError as error:
            if not self._directory and not isinstance(error, HandleNotFound):
                return skipped(_NO_DIRECTORY)
            return fail(f"{self._source} names {wanted}: {error.message}", self._unnamed())
        self._who = self._who or session.did
        others = len(self._context.sessions.dids()) - 1
        more = f"; and {others} other{'' if others == 1 else 's'}" if others > 0 else ""
        return ok(_called(session) + more)

    def _unnamed(self) -> str:
        """What takes a name back that nobody has."""
        return {
            "KNOTLESS_ACCOUNT": "unset KNOTLESS_ACCOUNT",
            "--account": "name another: git knotless account list",
        }.get(self._source, "see where it is set: git config --show-origin knotless.account")

    def _handle(self) -> Verdict:
        who = self._who
        assert who is not None
        try:
            identity = self.identity = self._resolver.resolve(who)
        except HandleNotFound as error:
            return fail(error.message, _names(who, "the account's DID"))
        except IdentityMismatch as error:
            return fail(error.message, f"have its host set {who} as the account's handle")
        except AtprotoError:
            if self._directory:
                raise
            return skipped(_NO_DIRECTORY)
        if identity.handle is not None:
            return ok(f"{identity.handle} leads to {identity.did} and back")
        _, claimed = read_document(
            identity.did, self._resolver.document(identity.did), name=identity.did
        )
        if claimed is None:
            return warn(f"{identity.did} has none: its repositories are known by the DID")
        return fail(f"{claimed} does not lead to {identity.did}", _names(claimed, identity.did))

    def _document(self) -> Verdict:
        if self.identity is None:
            return skipped(_UNKNOWN)
        key = signing_key(self._resolver.document(self.identity.did), self.identity.did)
        host = host_of(self.identity.pds)
        return ok(f"it names {host}, and a {key.curve.name} key that signs commits")

    def _account(self) -> Verdict:
        if self.identity is None:
            return skipped(_UNKNOWN)
        host = host_of(self.identity.pds)
        try:
            status = get_repo_status(self._context.client, self.identity.pds, self.identity.did)
        except AccountNotHere:
            return fail(f"{host} does not keep it, though its DID document says so", _ASK)
        if not status.active:
            return fail(f"it is not active at {host}: {status.status or 'why is not said'}", _ASK)
        self._active = True
        return ok(f"active at {host}")

    def _session(self) -> Verdict:
        """Whether the host still takes it; one that is for another host is not sent."""
        if self.identity is None:
            return skipped(_UNKNOWN)
        auth = self._context.session_for(self.identity.did)
        if auth is None:
            name = self.identity.name
            self._unheld = fail(f"not logged in as {name}", f"git knotless login {name}")
            return skipped(f"not logged in as {name}, which pushing takes")
        session, host = auth.session, host_of(self.identity.pds)
        if session.pds != self.identity.pds:
            moved = f"the login is for {host_of(session.pds)}, and the account has moved to {host}"
            return fail(moved, session.login_command)
        answer = self._context.client.get(session.pds, _GET_SESSION, auth=auth)
        if answer.get("did") != session.did:
            return fail(f"{host} takes it for another account's", session.login_command)
        self._auth = auth
        return ok(f"{host} takes it")

    def _scopes(self) -> Verdict:
        if self._auth is None:
            return skipped("there is no session to look at")
        session = self._auth.session
        if session.scope is None:
            return ok("all that the account may do, as with every app password")
        if lacking := missing(session.scope, login_scope().split()):
            return fail(f"not granted: {', '.join(lacking)}", session.login_command)
        return ok("all that was asked for is granted")


_GET_SESSION = "com.atproto.server.getSession"
_UNKNOWN = "the account could not be found"
_NO_DIRECTORY = "the directory of accounts does not answer"
_NETWORK = "try again; if it stays so, tell whoever runs the host"
_ASK = "look at the account's settings at its host, or ask whoever runs that"


def _called(session: Session) -> str:
    kind = "an app password" if session.kind == "password" else "a browser"
    return f"{session.name}, by {kind}"


def _names(handle: str, did: str) -> str:
    """How a handle is made to lead to its account; a DID is only looked up."""
    if is_did(handle):
        return "is it spelt right?"
    return f'a TXT record of _atproto.{handle} is to be "did={did}"'
