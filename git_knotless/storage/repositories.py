"""A repository as its reader or its owner holds it: finding and listing."""

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from git_knotless.errors import KnotlessError
from git_knotless.storage.fields import BadRecord
from git_knotless.storage.proofs.verified import MAY_HAVE_MOVED, Verified
from git_knotless.storage.records import REPO, RefRecord, RepoRecord
from git_knotless.storage.snapshot import (
    NoSuchRepository,
    Snapshot,
    hidden_among,
    read_refs,
    record_named,
)
from git_knotless.storage.store import RecordStore
from git_knotless.storage.url import RepoUrl
from git_knotless.value import replace

if TYPE_CHECKING:  # a record that is there is read without either
    from git_knotless.atproto.syntax import Did
    from git_knotless.storage.places.lookup import Accounts, Found
    from git_knotless.storage.places.references import RepoRef

CLAIM_GRACE = 86_400.0  # seconds that a claim stays at least (trust.md)
_SECONDS_UNSURE = 2.0
_READINGS = 3  # of what differs from what is signed, as when pushes land while it is read


class AnotherRepository(KnotlessError):
    """One that was deleted, or moved, while another took its name."""


class MovedAway(KnotlessError):
    """One that moved to another account while it was written to."""


class Repository:
    """One repository, by the account that holds it and the name that leads to it.

    `asked` is the address that it was asked for by. `url` is the canonical one, and `store` that
    account's, of the place where it is, once it has been read; `moved` is whether that is another
    than asked for, and `through` the other accounts that lead there. `writable`: the store carries
    the owner's session. Without `accounts` no move to another account is followed. `sure`: it is
    not read where it is `unsure` whether it has moved on. `own`: an account's own record is all
    that has to be known, wherever it may lead. `hold` is asked of each record that is read, before
    anything comes of it, and raises for one that is not to be the repository. `elsewhere` is asked
    where there is none, for the command by which it is found. `verified` says which refs are taken
    for its own; without it, those that the host lists.
    """

    def __init__(
        self,
        url: RepoUrl,
        store: RecordStore,
        *,
        writable: bool,
        sure: bool = False,
        own: bool = False,
        claim_grace: float = CLAIM_GRACE,
        asked: RepoUrl | None = None,
        accounts: "Accounts | None" = None,
        hold: "Callable[[Repository, RepoRecord], None] | None" = None,
        elsewhere: Callable[[], str | None] | None = None,
        verified: Verified | None = None,
    ) -> None:
        self.url = url
        self.store = store
        self.writable = writable
        self.claim_grace = claim_grace
        self.asked = asked or url
        self.moved = False
        self.through: tuple[Did, ...] = ()
        self.unsure: KnotlessError | None = None
        self._sure = sure
        self._own = own
        self._accounts = accounts
        self._hold = hold
        self._elsewhere = elsewhere
        self._verified = verified
        self._key: str | None = None
        self._ahead: tuple[RepoRecord, float] | None = None

    def look(self) -> None:
        """Find where it is. What is read is what the next reading begins with."""
        self._ahead = self._read()

    def snapshot(self) -> Snapshot:
        """The record came first, at `taken`: a ref that moves since is newer, never older."""
        for left in reversed(range(_READINGS)):
            repo, taken = self._next()
            try:
                refs = self._refs(repo)
            except MAY_HAVE_MOVED:
                if not left:
                    raise
            else:
                return Snapshot(repo, refs, hidden_among(refs), taken)
        raise AssertionError("the last reading is the last")

    def _refs(self, repo: RepoRecord) -> dict[str, RefRecord]:
        if self._verified is None:
            return read_refs(self.store, repo.key, self.url)
        return self._verified.read(repo, self.store, self.url)

    def record(self) -> RepoRecord:
        return self._next()[0]

    def owned(self, store: RecordStore, claim_grace: float) -> None:
        """From here on it can be written to, where it is now: `store` carries the session."""
        self.store = store
        self.claim_grace = claim_grace
        self.writable = True

    def offered(self, repo: RepoRecord) -> "RepoRef | None":
        """The place in another account that an offer names which was not accepted so far.

        `repo` is what was read: of one that was accepted, the record is that of the new place.
        """
        to = repo.transfer
        return to if to is not None and to.did != self.store.did else None

    def _next(self) -> tuple[RepoRecord, float]:
        ahead, self._ahead = self._ahead, None
        return ahead or self._read()

    def _read(self) -> tuple[RepoRecord, float]:
        """The record, and when it was read, by the host's clock."""
        began = time.time()
        repo = record_named(self.store, self.url)
        if repo is None or "transfer" in repo.fields:
            repo = self._led_on(repo)
        if self._key not in (None, repo.key):
            hint = f"git knotless repo list {self.url.authority}"
            raise AnotherRepository(f"{self.url} is another repository now", hint=hint)
        if self._hold is not None:
            self._hold(self, repo)
        self._key = repo.key
        self.url = replace(self.url, name=repo.rkey)
        return repo, began + self.store.clock_offset()

    def _led_on(self, repo: RepoRecord | None) -> RepoRecord:
        try:
            return self._follow(repo)
        except NoSuchRepository as error:
            if self._elsewhere is None:
                raise
            raise NoSuchRepository(error.message, hint=self._elsewhere()) from error

    def _follow(self, repo: RepoRecord | None) -> RepoRecord:
        from git_knotless.storage.places.lookup import go_on

        try:
            found = go_on(self.url, self.store, self._accounts, repo)
        except NoSuchRepository:
            if self._own and repo is not None:
                return repo
            raise
        if self._sure and found.unsure is not None:
            raise found.unsure
        self.unsure = found.unsure
        if found.store.did != self.store.did:
            if self.writable:
                hint = "run the command again: it goes on there"
                raise MovedAway(f"{self.url} has moved to {found.url}", hint=hint)
            self.store, self.through = found.store, found.through
        self.url, self.moved = found.url, self.moved or found.moved
        return found.repo

    def moved_on(self) -> "Found | None":
        """Where it is by now, if that is another account. Raises what keeps us from knowing."""
        from git_knotless.storage.places.lookup import go_on

        repo = record_named(self.store, self.url)
        found = go_on(self.url, self.store, self._accounts, repo)
        if found.unsure is not None:
            raise found.unsure
        return found if found.store.did != self.store.did else None

    def where_it_was(self) -> "Repository":
        """The same in its account, wherever it has moved to by now."""
        return Repository(
            self.url,
            self.store,
            writable=self.writable,
            claim_grace=self.claim_grace,
            verified=self._verified,
        )

    def moved_from(self, old: RepoRecord) -> bool:
        """Whether the repository is not any more what it was at `old`."""
        try:
            now = self.record()
        except NoSuchRepository:
            return True
        return (now.key, now.epoch) != (old.key, old.epoch)

    def too_old(self, snapshot: Snapshot) -> bool:
        """Whether claims may be gone since `snapshot`: half their grace, by the host's clock.

        That is known to a second; a time before the snapshot's is a clock that was set.
        """
        age = time.time() + self.store.clock_offset() - snapshot.taken
        return not -_SECONDS_UNSURE <= age <= self.claim_grace / 2


def repositories(store: RecordStore) -> Iterator[RepoRecord]:
    """Every repository of an account that can be read, by name."""
    records = sorted(
        (record for page in store.list(REPO, "") for record in page), key=lambda r: r.rkey
    )
    for record in records:
        try:
            yield RepoRecord.from_record(record)
        except BadRecord:
            continue
