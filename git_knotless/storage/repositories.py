"""A repository as its reader or its owner holds it: finding and listing."""

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from git_knotless.errors import KnotlessError
from git_knotless.storage.fields import BadRecord
from git_knotless.storage.records import REPO, RepoRecord
from git_knotless.storage.snapshot import (
    NoSuchRepository,
    Snapshot,
    record_named,
    snapshot_of,
)
from git_knotless.storage.store import RecordStore
from git_knotless.storage.url import RepoUrl
from git_knotless.value import replace

if TYPE_CHECKING:  # a record that is there is read without either
    from git_knotless.storage.lookup import Accounts, Found
    from git_knotless.storage.places import RepoRef

CLAIM_GRACE = 86_400.0  # seconds that a claim stays at least (trust.md)
_SECONDS_UNSURE = 2.0


class AnotherRepository(KnotlessError):
    """One that was deleted, or moved, while another took its name."""


class MovedAway(KnotlessError):
    """One that moved to another account while it was written to."""


class Repository:
    """One repository, by the account that holds it and the name that leads to it.

    `asked` is the address that it was asked for by. `url` is the canonical one, and `store` that
    account's, of the place where it is, once it has been read; `moved` is whether that is another
    than asked for. `writable`: the store carries the owner's session. Without `accounts` no move
    to another account is followed. `hold` is asked of each record that is read, before anything
    comes of it, and raises for one that is not to be the repository.
    """

    def __init__(
        self,
        url: RepoUrl,
        store: RecordStore,
        *,
        writable: bool,
        claim_grace: float = CLAIM_GRACE,
        asked: RepoUrl | None = None,
        accounts: "Accounts | None" = None,
        hold: "Callable[[Repository, RepoRecord], None] | None" = None,
    ) -> None:
        self.url = url
        self.store = store
        self.writable = writable
        self.claim_grace = claim_grace
        self.asked = asked or url
        self.moved = False
        self._home = url.authority, store  # of the account asked, wherever it leads
        self._accounts = accounts
        self._hold = hold
        self._key: str | None = None
        self._ahead: tuple[RepoRecord, float] | None = None

    def look(self) -> None:
        """Find where it is. What is read is what the next reading begins with."""
        self._ahead = self._read()

    def snapshot(self) -> Snapshot:
        repo, taken = self._next()
        return snapshot_of(repo, taken, self.store, self.url)

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
            repo = self._follow(repo)
        if self._key not in (None, repo.key):
            hint = f"git knotless repo list {self.url.authority}"
            raise AnotherRepository(f"{self.url} is another repository now", hint=hint)
        if self._hold is not None:
            self._hold(self, repo)
        self._key = repo.key
        self.url = replace(self.url, name=repo.rkey)
        return repo, began + self.store.clock_offset()

    def _follow(self, repo: RepoRecord | None) -> RepoRecord:
        from git_knotless.storage.lookup import go_on

        found = go_on(self.url, self.store, self._accounts, repo)
        if found.store.did != self.store.did:
            if self.writable:
                hint = "run the command again: it goes on there"
                raise MovedAway(f"{self.url} has moved to {found.url}", hint=hint)
            self.store = found.store
        self.url, self.moved = found.url, self.moved or found.moved
        return found.repo

    def of_key(self, key: str) -> "Found | None":
        """Where the account asked has the repository of `key`, or leads to; None: it knows none."""
        from git_knotless.storage.lookup import of_key

        return of_key(*self._home, self._accounts, key)

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
