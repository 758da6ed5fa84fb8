"""A repository as its reader or its owner holds it: finding and listing."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from git_knotless.storage.records import REPO, BadRecord, RepoRecord
from git_knotless.storage.snapshot import (
    NoSuchRepository,
    Snapshot,
    find_repository,
    read_snapshot,
)
from git_knotless.storage.store import RecordStore
from git_knotless.storage.url import RepoUrl

CLAIM_GRACE = 86_400.0  # seconds that a claim stays at least (trust.md)
_SECONDS_UNSURE = 2.0


@dataclass(slots=True)
class Repository:
    """One repository, by the account that holds it and the name that leads to it.

    `url` is the canonical one, with the name that its record has once that has been read.
    """

    url: RepoUrl
    store: RecordStore
    writable: bool  # the store carries the owner's session
    claim_grace: float = CLAIM_GRACE

    def snapshot(self) -> Snapshot:
        snapshot = read_snapshot(self.store, self.url)
        self._found(snapshot.repo)
        return snapshot

    def record(self) -> RepoRecord:
        repo = find_repository(self.store, self.url)
        self._found(repo)
        return repo

    def _found(self, repo: RepoRecord) -> None:
        self.url = replace(self.url, name=repo.rkey)

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
