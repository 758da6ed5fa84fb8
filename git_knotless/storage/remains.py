"""What is left of a repository that was deleted, or that never came to be, and taking it away.

An epoch's claim that says `deleted`, and which name it was, stands until all else is gone. Every
batch that takes something away begins with an update of it: whoever is late takes nothing from a
repository that has come back to the account since.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial

from git_knotless.atproto.errors import AtprotoError
from git_knotless.atproto.syntax import Rkey
from git_knotless.errors import KnotlessError
from git_knotless.storage.outcome import REFUSALS
from git_knotless.storage.places.references import (
    RedirectRecord,
    RepoRef,
    redirect_named,
    redirects_of,
)
from git_knotless.storage.pushing.batches import MAX_WRITES
from git_knotless.storage.records import CLAIM, COLLECTIONS_OF_A_REPOSITORY, REDIRECT, prefix_of
from git_knotless.storage.store import Record, RecordStore, Write

_EPOCH = ".epoch."
_PAUSE = 0.2  # seconds before another attempt, longer each time
_ATTEMPTS = 8  # at what others write to at the same time


class CannotDelete(KnotlessError):
    """Others wrote to what was being deleted, each time that it was read."""


def epochs(store: RecordStore, key: str) -> list[Record]:
    """The claims that stand, or stood, for an epoch of the repository `key`."""
    pages = store.list(CLAIM, f"{key}{_EPOCH}")
    return [record for page in pages for record in page]


def key_of(epoch: Record) -> str:
    """The key of the repository whose epoch it is."""
    return epoch.rkey.partition(_EPOCH)[0]


def is_marker(claim: Record) -> bool:
    """Whether it is left of a repository that was deleted."""
    return isinstance(claim.value.get("deleted"), str)


def finish(store: RecordStore, marker: Record) -> None:
    """Take away all that is left of the repository of `marker`, and then the marker."""
    key = key_of(marker)
    for collection in COLLECTIONS_OF_A_REPOSITORY:
        _empty(store, partial(_all_of, store, collection, key, marker.rkey), marker)
    _empty(store, partial(_old_names, store, key), marker)
    take_away(store, marker.rkey, lambda: _last(store, marker))


def take_away(store: RecordStore, claim: Rkey, writes: Callable[[], list[Write]]) -> None:
    """Have the host take the `writes`, of which one deletes the claim, until that is gone."""
    for attempt in range(_ATTEMPTS):
        _pause(attempt)
        if _apply_unless_gone(store, writes()) or store.get(CLAIM, claim) is None:
            return
    raise _unfinished()


def leads_to_itself(redirect: RedirectRecord, store: RecordStore) -> bool:
    """As no other does: one that only tells which repository's delete may have been cut."""
    return (redirect.repo.did, redirect.repo.name) == (store.did, redirect.name)


def placeholder(store: RecordStore, name: Rkey, key: str, at: str) -> RedirectRecord:
    """Such a one, by which whoever takes the name finds what is left of the repository `key`."""
    return RedirectRecord.new(name, RepoRef(store.did, name, key), at)


def unplaced(store: RecordStore, name: Rkey, key: str) -> list[Write]:
    """What takes that away again, if it is there."""
    redirect = redirect_named(store, name)
    if redirect and redirect.repo.key == key and leads_to_itself(redirect, store):
        return [Write("delete", REDIRECT, name)]
    return []


def _last(store: RecordStore, marker: Record) -> list[Write]:
    name = Rkey(str(marker.value.get("deleted", "")))
    return [Write("delete", CLAIM, marker.rkey), *unplaced(store, name, key_of(marker))]


def unnamed(store: RecordStore, names: Sequence[Rkey]) -> list[Write]:
    """Takes redirects away. What was cut, and waits for the name, is found by it from then on."""
    claims = (record for page in store.list(CLAIM, "") for record in page) if names else ()
    waiting = {name: claim for claim in claims if (name := _name_in(claim)) is not None}
    return [_without(store, name, waiting.get(name)) for name in names]


def _name_in(claim: Record) -> str | None:
    """What is deleted, or is to be made, under it."""
    accepting = claim.value.get("accepting")
    name = accepting.get("name") if isinstance(accepting, dict) else claim.value.get("deleted")
    return name if isinstance(name, str) else None


def _without(store: RecordStore, name: Rkey, waits: Record | None) -> Write:
    if waits is None:
        return Write("delete", REDIRECT, name)
    left = placeholder(store, name, key_of(waits), str(waits.value.get("createdAt", "")))
    return Write("update", REDIRECT, name, left.to_json())


def _all_of(store: RecordStore, collection: str, key: str, but: Rkey) -> list[Write]:
    records = (record for page in store.list(collection, prefix_of(key)) for record in page)
    return [Write("delete", collection, each.rkey) for each in records if each.rkey != but]


def _old_names(store: RecordStore, key: str) -> list[Write]:
    """Of the redirects to it; one into another account is to where it moved."""
    redirects = redirects_of(store, key)
    ours = (each for each in redirects if each.repo.did == store.did)
    return unnamed(store, [each.name for each in ours if not leads_to_itself(each, store)])


def _empty(store: RecordStore, listed: Callable[[], Sequence[Write]], marker: Record) -> None:
    """Carry out every write that is `listed`; another may be at it too."""
    guard = Write("update", CLAIM, marker.rkey, marker.value)
    for attempt in range(_ATTEMPTS):
        _pause(attempt)
        writes = listed()
        step = MAX_WRITES - 1
        batches = [[guard, *writes[at : at + step]] for at in range(0, len(writes), step)]
        refused = [batch for batch in batches if not _apply_unless_gone(store, batch)]
        if not refused or store.get(CLAIM, marker.rkey) is None:
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
