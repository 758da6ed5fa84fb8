"""Changing a repository's record, against others that change it, and pushes that rest on it."""

from collections.abc import Callable
from functools import partial

from git_knotless.errors import KnotlessError
from git_knotless.storage.claims import EpochRecord
from git_knotless.storage.outcome import Batch, Sent, send
from git_knotless.storage.pushing.batches import rewrite, stamp_now
from git_knotless.storage.records import RepoRecord
from git_knotless.storage.repositories import Repository

_READINGS = 8  # of a record that others rewrite at the same time


class RacedTooOften(KnotlessError):
    """Others rewrote the record each time that it was read."""


def edit(repository: Repository, change: Callable[[RepoRecord], RepoRecord]) -> RepoRecord:
    """Rewrite the record as `change` makes it of what is there, and move the epoch.

    `change` is asked again each time another writer was first; what it leaves as it is writes
    nothing.
    """
    store = repository.store
    for _ in range(_READINGS):
        old = repository.record()
        if change(old) == old:
            return old
        stamp = stamp_now(store)
        new = change(old).next_epoch(stamp.nonce, stamp.at)
        batch = Batch(rewrite(old, new), EpochRecord.of(new).rkey, stamp.nonce)
        if send(store, batch, stale=partial(repository.moved_from, old)) is Sent.LANDED:
            return new
    raise RacedTooOften(f"others keep changing {repository.url}: try again")
