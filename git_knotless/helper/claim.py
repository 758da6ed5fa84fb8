"""The first push from a machine claims the address that git authors commits as there.

It goes on beside the push, on connections of its own: the account is looked up while the push
sends, and what is not answered by the time that git lets us go is dropped, for the next push to
try again. Whatever goes wrong is told in the log alone.
"""

import logging
import shlex
import threading

from git_knotless.atproto.errors import RateLimited, ServerFault, XrpcError
from git_knotless.atproto.syntax import Did
from git_knotless.context import Context
from git_knotless.errors import KnotlessError
from git_knotless.helper.stderr import say
from git_knotless.settings import Settings
from git_knotless.storage.accounts import emails
from git_knotless.storage.accounts.authorship import author_here
from git_knotless.storage.accounts.looked_up import LookedUp
from git_knotless.storage.accounts.own_record import SELF, OwnRecords
from git_knotless.storage.git import Git
from git_knotless.storage.scope import for_records, missing

_CLAIM_SECONDS = 2.0  # that git waits for us at most, once it has said what it pushed

_log = logging.getLogger(__name__)


class FirstClaim:
    """Of the account `did`, which pushes from the repository of `git`; begun as it is made.

    `landed` is whether a ref has.
    """

    def __init__(self, settings: Settings, git: Git, did: Did, looked_up: LookedUp) -> None:
        self.landed = False
        self._context = Context(settings)  # a person hears nothing of it
        self._client = self._context.client
        self._git = git
        self._did = did
        self._looked_up = looked_up
        self._answered = threading.Event()
        self._ended = threading.Event()
        self._claimed = ""  # by this push, once it is
        self._name = ""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Claim the address, if a ref has landed and the account is known by now to claim none."""
        self.landed = self.landed and self._answered.is_set()
        self._ended.set()
        if self.landed:
            self._thread.join(_CLAIM_SECONDS)
        self._client.close()  # ends what is under way still
        if self._claimed:
            say(
                "note",
                f"{self._name} claims {self._claimed} now, which git authors commits as;"
                " to take it back:",
            )
            say("hint", self._taken_back())

    def _run(self) -> None:
        try:
            self._look_up()
        except (KnotlessError, OSError) as error:
            _log.debug("no address was claimed: %s", error)

    def _look_up(self) -> None:
        address = self._address()
        if address is None or not self._may_write():
            return
        identity = self._context.identify(self._did)
        store = self._context.store(identity, write=True)
        is_free = store.get(emails.COLLECTION, SELF) is None
        self._answered.set()
        self._ended.wait()
        if not self.landed:
            return
        if is_free and self._claim(store, address):
            self._name, self._claimed = identity.name, address
        self._looked_up.remember(self._did)

    def _address(self) -> str | None:
        """One that tells whose commits are meant, and that git was given."""
        author = author_here(self._git)
        address = None if author is None else emails.parse_address(author.email)
        return None if address is None or emails.is_anonymous(address) else address

    def _may_write(self) -> bool:
        """Whether the login covers it: one by OAuth may be for other records alone."""
        session = self._context.sessions.load(self._did)
        return session is None or not missing(session.scope, for_records(emails.COLLECTION))

    def _claim(self, store: OwnRecords, address: str) -> bool:
        try:
            return emails.claim_first(store, address)
        except (ServerFault, RateLimited):
            raise
        except XrpcError as error:  # it would refuse the next one as well
            _log.debug("the address was not claimed: %s", error)
            return False

    def _taken_back(self) -> str:
        """The command that does, as the account that it was claimed for."""
        context = self._context
        only = context.settings.account is None and context.sessions.dids() == [self._did]
        account = "" if only else f" --account {self._name}"
        return f"git knotless account email remove {shlex.quote(self._claimed)}{account}"
