"""Proving that a host keeps what pushes rely on: it is asked to take what it should refuse."""

import time
from contextlib import suppress

from git_knotless.atproto.errors import AtprotoError, RateLimited, XrpcError
from git_knotless.errors import KnotlessError
from git_knotless.storage.claims import EpochRecord
from git_knotless.storage.outcome import Batch, send
from git_knotless.storage.pushing.batches import Stamp
from git_knotless.storage.records import CLAIM
from git_knotless.storage.store import RecordStore, Write

_ASKINGS = 3
_PAUSE = 0.5  # seconds before a write is asked about again, longer each time
# Refusals of a write for what it is; 401, 403, 429 and 502 and up say nothing of it.
_ABOUT_THE_WRITE = frozenset({400, 409, 412, 422, 500})


class UnsafeHost(KnotlessError):
    """A host that does not keep what the compare-and-swap of every push relies on."""


def prove(store: RecordStore, key: str, stamp: Stamp) -> tuple[EpochRecord, bool]:
    """Have the host refuse what every push relies on its refusing, under a key nobody knows yet.

    The record that is left, for the caller to delete, and whether the host also refuses to
    update a record that is not there. Raises `UnsafeHost`, leaving nothing.
    """
    probe = EpochRecord(key, 0, stamp.nonce, stamp.at)
    again = EpochRecord(key, 0, "second", stamp.at)
    missing = EpochRecord(key, -1, "missing", stamp.at)
    first = Write("create", CLAIM, probe.rkey, probe.to_json())
    try:
        send(store, Batch([first], probe.rkey, probe.nonce), stale=lambda: False)
        if takes(store, Write("create", CLAIM, again.rkey, again.to_json())):
            raise UnsafeHost(
                "this host lets a record that exists be created again, so that two pushes could "
                "overwrite each other: it cannot keep a repository"
            )
        resurrects = takes(store, Write("update", CLAIM, missing.rkey, missing.to_json()))
    except BaseException:  # Ctrl-C too
        clear_probe(store, probe)
        raise
    if resurrects:
        clear_probe(store, missing)
    return probe, not resurrects


def takes(store: RecordStore, *writes: Write) -> bool:
    """Whether the host takes a batch that it should refuse, by what it says and by the record that
    the first write is of.

    Only an answer counts that is about the write: a host that is down or busy refuses anything.
    Raises `RateLimited`, and `UnsafeHost` where it cannot be told.
    """
    first = writes[0]
    for attempt in range(_ASKINGS):
        if attempt:
            time.sleep(_PAUSE * attempt)
        try:
            store.apply(writes)
        except RateLimited:  # which says when to ask again
            raise
        except AtprotoError as error:
            trouble = error
        else:
            return True
        record = store.get(first.collection, first.rkey)
        if record is not None and record.value == first.value:
            return True
        if isinstance(trouble, XrpcError) and trouble.status in _ABOUT_THE_WRITE:
            return False
    raise UnsafeHost(
        f"it could not be found out whether this host can keep a repository: {trouble.message}",
        hint="try again",
    ) from trouble


def clear_probe(store: RecordStore, record: EpochRecord) -> None:
    """What cannot be deleted now is a record that nobody reads."""
    with suppress(KnotlessError):
        store.apply([Write("delete", CLAIM, record.rkey)])
