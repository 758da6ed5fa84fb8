"""Deleting a repository: in one write it is gone for every reader; its records follow.

The first batch deletes the repo record and replaces the epoch's by one that says `deleted` and
the name, so that pushes in flight are refused, and a delete that was cut is found and finished.
That record goes last.
"""

import time
from collections.abc import Sequence
from functools import partial

from git_knotless.atproto.errors import AtprotoError
from git_knotless.atproto.syntax import Rkey
from git_knotless.errors import KnotlessError
from git_knotless.storage.batches import MAX_WRITES, stamp_now
from git_knotless.storage.outcome import REFUSALS, Batch, Sent, send
from git_knotless.storage.records import (
    CLAIM,
    COLLECTIONS_OF_A_REPOSITORY,
    REPO,
    EpochRecord,
    prefix_of,
)
from git_knotless.storage.repositories import Repository
from git_knotless.storage.snapshot import NoSuchRepository
from git_knotless.storage.store import Record, RecordStore, Write

_PAUSE = 0.2  # seconds before another attempt, longer each time
_READINGS = 8  # of what others write to at the same time


class CannotDelete(KnotlessError):
    """Others wrote to what was being deleted, each time that it was read."""


def delete(repository: Repository) -> None:
    """Delete the repository, and finish deleting any of that name that was cut.

    Raises `NoSuchRepository` where neither is there.
    """
    try:
        _delete_record(repository)
    except NoSuchRepository:
        markers = _half_deleted(repository)
        if not markers:
            raise
    else:
        markers = _half_deleted(repository)
    for marker in markers:
        _delete_rest(repository, marker)


def _delete_record(repository: Repository) -> None:
    """From here on it is gone for everybody; one claim says so, until the rest is."""
    store = repository.store
    for _ in range(_READINGS):
        repo, stamp = repository.record(), stamp_now(store)
        gone = EpochRecord(repo.key, repo.epoch + 1, stamp.nonce, stamp.at, deleted=repo.name)
        writes = [
            Write("delete", CLAIM, EpochRecord.of(repo).rkey),
            Write("create", CLAIM, gone.rkey, gone.to_json()),
            Write("delete", REPO, repo.rkey),
        ]
        batch = Batch(writes, gone.rkey, stamp.nonce)
        if send(store, batch, stale=partial(repository.moved_from, repo)) is Sent.LANDED:
            return
    raise CannotDelete(f"others keep changing {repository.url}: try again")


def _half_deleted(repository: Repository) -> list[Record]:
    """What deletes of this name left standing: the last one's, and any that was cut."""
    pages = repository.store.list(CLAIM, "")
    claims = (record for page in pages for record in page)
    return [claim for claim in claims if claim.value.get("deleted") == repository.url.name]


def _delete_rest(repository: Repository, marker: Record) -> None:
    store, key = repository.store, str(marker.value.get("repo", ""))
    for collection in COLLECTIONS_OF_A_REPOSITORY:
        _empty(store, collection, key, spared=marker.rkey)
    for attempt in range(_READINGS):
        _pause(attempt)
        if _apply_unless_gone(store, [Write("delete", CLAIM, marker.rkey)]):
            return
        if store.get(CLAIM, marker.rkey) is None:
            return
    raise _unfinished()


def _empty(store: RecordStore, collection: str, key: str, *, spared: Rkey) -> None:
    """Delete every record of the repository in `collection`; another may be at it too."""
    for attempt in range(_READINGS):
        _pause(attempt)
        rkeys = [record.rkey for page in store.list(collection, prefix_of(key)) for record in page]
        writes = [Write("delete", collection, rkey) for rkey in rkeys if rkey != spared]
        batches = [writes[at : at + MAX_WRITES] for at in range(0, len(writes), MAX_WRITES)]
        refused = [batch for batch in batches if not _apply_unless_gone(store, batch)]
        if not refused:
            return
    raise _unfinished()


def _pause(attempt: int) -> None:
    """Before another attempt: whoever is at it too, or the host, may need a moment."""
    if attempt:
        time.sleep(_PAUSE * attempt)


def _unfinished() -> CannotDelete:
    return CannotDelete(
        "the repository is gone, but not all that it was made of",
        hint="run the command again: it removes the rest",
    )


def _apply_unless_gone(store: RecordStore, writes: Sequence[Write]) -> bool:
    """False where the host did not say why it refused, or anything: some of them may be gone."""
    try:
        store.apply(writes)
    except REFUSALS:
        raise
    except AtprotoError:
        return False
    return True
