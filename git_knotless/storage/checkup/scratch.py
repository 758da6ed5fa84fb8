"""Records of no repository, for a check-up: written, looked at, and removed again.

They lie under a repository key such as no clock of ours mints, of the first milliseconds of 1970.
So no reader looks at them, and what a check-up that was killed has left behind is found by its
keys alone, from any machine.
"""

import hashlib
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from git_knotless.atproto.errors import AtprotoError, BadAnswer
from git_knotless.atproto.syntax import Rkey, tid
from git_knotless.errors import KnotlessError
from git_knotless.storage.claims import EpochRecord
from git_knotless.storage.outcome import Batch, send
from git_knotless.storage.packs.packfile import HEADER, TRAILER, header
from git_knotless.storage.packs.packrecord import PackRecord
from git_knotless.storage.pushing.batches import MAX_WRITES, stamp_now
from git_knotless.storage.records import CLAIM, COLLECTIONS_OF_A_REPOSITORY, PACK, REPO, prefix_of
from git_knotless.storage.store import BlobRef, Record, RecordStore, Write

# What the keys begin with: bits of a TID that are 0 until 33 ms of 1970 are over.
_MARK = "2" * 8
_MICROSECONDS = 1 << 15
_CLOCK_IDS = 1 << 10
_SWEEPS = 8
# Of a collection: a check-up leaves a few hundred at most, and no account has so many repositories.
_MOST_LISTED = 10_000
_SWEEP_SECONDS = 60.0  # after which no other is begun
_PAUSE = 0.2  # seconds before another sweep, longer each time
_SETTLING = 2.0  # seconds after which what was sent without an answer has landed, or never will

_Records = Mapping[str, frozenset[tuple[str, Rkey]]]  # by the key that they lie under


class LeftBehind(KnotlessError):
    """Records that the host would not remove."""


class Scratch:
    """Under a key of its own in the account that `store` writes to; leaving it removes all of it.

    `unclear`: something was sent of which it is not known whether it landed. `found` is what
    check-ups before this one had left: it goes too, but for what changes meanwhile, since another
    machine may be at it.
    """

    def __init__(self, store: RecordStore) -> None:
        self.store = store
        self.key = ""
        self.unclear = False
        self.found: _Records = {}
        self._at = ""
        self._names = 0
        self._removed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: object, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._removed:
            with suppress(KnotlessError):
                self.remove()

    def begin(self) -> EpochRecord:
        """The first record, which has landed."""
        self._at = stamp_now(self.store).at
        self.found = self._marked()
        while not self.key or self.key in self.found:
            self.key = tid(secrets.randbelow(_MICROSECONDS), secrets.randbelow(_CLOCK_IDS))
        return self.land()

    def land(self, *writes: Write) -> EpochRecord:
        """Carried out, and with them the receipt that tells so; raises where that is not known."""
        receipt = self.epoch()
        batch = Batch([*writes, created(receipt)], receipt.rkey, receipt.nonce)
        send(self.store, batch, stale=lambda: False)
        return receipt

    def epoch(self) -> EpochRecord:
        """A record that is not written yet, under a name that was not used yet."""
        self._names += 1
        return EpochRecord(self.key, self._names, secrets.token_hex(16), self._at)

    def pack(self, data: bytes, *blobs: BlobRef) -> PackRecord:
        """With `data` in it where no blobs hold that."""
        self._names += 1
        return PackRecord(
            rkey=Rkey(f"{prefix_of(self.key)}{tid(self._names, 0)}"),
            repo=self.key,
            epoch=1,
            size=len(data),
            objects=0,
            checksum=data[-TRAILER:].hex(),
            data=None if blobs else data,
            blobs=blobs,
            created_at=self._at,
        )

    def remove(self) -> int:
        """How many records of check-ups before went; raises where any of this one are left."""
        if self.unclear:
            time.sleep(_SETTLING)
        try:
            swept = self._swept()
        except KnotlessError:
            self._removed = True
            raise
        self._removed = True  # and not before: whoever is ended here sweeps as they leave
        return swept

    def _swept(self) -> int:
        if self.key:
            self._sweep(self.key)
        now = self._marked() if self.found else {}
        untouched = [key for key, records in self.found.items() if now.get(key) == records]
        for key in untouched:
            self._sweep(key)
        return sum(len(self.found[key]) for key in untouched)

    def _sweep(self, key: str) -> None:
        """Ends when a listing has none of it."""
        why, begun = "the host does not say why", time.monotonic()
        for attempt in range(_SWEEPS):
            if time.monotonic() - begun > _SWEEP_SECONDS:
                break
            time.sleep(_PAUSE * attempt)
            deletes = [Write("delete", kind, rkey) for kind, rkey in self._under(prefix_of(key))]
            if not deletes:
                return
            try:
                for at in range(0, len(deletes), MAX_WRITES):
                    self.store.apply(deletes[at : at + MAX_WRITES])
            except AtprotoError as error:  # what it did is seen in the next listing
                why = error.message
        raise LeftBehind(f"not all that was written could be removed: {why}")

    def _marked(self) -> _Records:
        """What is there of check-ups, and of no repository."""
        repositories = {str(record.value.get("key")) for record in self._listed(REPO, "")}
        found: dict[str, set[tuple[str, Rkey]]] = {}
        for collection, rkey in self._under(_MARK):
            found.setdefault(rkey.partition(".")[0], set()).add((collection, rkey))
        return {key: frozenset(found[key]) for key in found if key not in repositories}

    def _under(self, prefix: str) -> Sequence[tuple[str, Rkey]]:
        return [
            (collection, record.rkey)
            for collection in COLLECTIONS_OF_A_REPOSITORY
            for record in self._listed(collection, prefix)
        ]

    def _listed(self, collection: str, prefix: str) -> Iterator[Record]:
        records = (record for page in self.store.list(collection, prefix) for record in page)
        for count, record in enumerate(records):
            if count == _MOST_LISTED:
                raise BadAnswer(f"the host lists more than {count:,} {collection} and no end")
            yield record


def created(record: EpochRecord | PackRecord) -> Write:
    collection = PACK if isinstance(record, PackRecord) else CLAIM
    return Write("create", collection, record.rkey, record.to_json())


def pack_bytes(size: int) -> bytes:
    """What begins and ends as a pack does, and is like no other."""
    data = header(0) + secrets.token_bytes(size - HEADER - TRAILER)
    return data + hashlib.sha1(data, usedforsecurity=False).digest()
