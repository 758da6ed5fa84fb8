"""A repository in the making: whoever copies one into an account holds it until it is there.

As long as there is no repo record, there is no repository for anyone. What is copied until then
rests on an epoch of its own, a claim that says `accepting`. Every batch replaces it by the next,
so of two that copy the same repository at once one takes over and the other writes nothing more,
not even a batch that is under way yet. The last batch brings the repo record, with an epoch that
is no different from any other's. A claim without that record is of one that was cut: whoever
copies it again goes on from there.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Self

from git_knotless.atproto.syntax import Did, Handle, Rkey, is_rkey, tid
from git_knotless.errors import KnotlessError
from git_knotless.storage.claims import EpochRecord, epoch_rkey
from git_knotless.storage.fields import BadRecord
from git_knotless.storage.outcome import Batch, Sent, send
from git_knotless.storage.places.references import RepoRef
from git_knotless.storage.proving import prove
from git_knotless.storage.pushing.batches import Stamp, stamp_now
from git_knotless.storage.records import CLAIM, REDIRECT, REPO, RepoRecord
from git_knotless.storage.remains import (
    epochs,
    finish,
    is_marker,
    key_of,
    placeholder,
    take_away,
    unplaced,
)
from git_knotless.storage.store import Record, RecordStore, Write
from git_knotless.storage.url import RepoUrl
from git_knotless.value import replace, value

_READINGS = 8  # of claims that others write at the same time
_MOST_DIGITS = 16  # of the greatest epoch that there can be


class CopyExists(KnotlessError):
    """The account has a repository of that key already, and there can be one only."""


class Overtaken(KnotlessError):
    """Another command goes on with the same copy."""


@value
class HoldRecord:
    """The claim of an epoch in which a repository is copied from `source`, to be called `name`."""

    repo: str
    epoch: int
    nonce: str
    created_at: str
    name: Rkey
    source: RepoRef

    @classmethod
    def from_record(cls, record: Record) -> Self:
        match record.value:
            case {"nonce": str(nonce), "createdAt": str(at), "accepting": {"name": str(name)}}:
                if is_rkey(name):
                    source = RepoRef.from_json(record.value["accepting"].get("from"))
                    return cls(key_of(record), epoch_of(record), nonce, at, Rkey(name), source)
        raise BadRecord(f"claim {record.rkey}: it holds no repository in the making")

    @property
    def rkey(self) -> Rkey:
        return epoch_rkey(self.repo, self.epoch)

    def to_json(self) -> dict[str, Any]:
        value: dict[str, Any] = {"$type": CLAIM, "repo": self.repo, "epoch": self.epoch}
        value |= {"nonce": self.nonce, "createdAt": self.created_at}
        return value | {"accepting": {"name": self.name, "from": self.source.to_json()}}

    def next(self, stamp: Stamp) -> "HoldRecord":
        return replace(self, epoch=self.epoch + 1, nonce=stamp.nonce, created_at=stamp.at)


def epoch_of(claim: Record) -> int:
    """By its key; 0 where that says no number."""
    text = claim.rkey.rpartition(".")[2]
    return int(text) if text.isdecimal() and text.isascii() and len(text) <= _MOST_DIGITS else 0


def held(claim: Record) -> HoldRecord | None:
    """What was, or is being, copied under this claim; None for a claim of another kind."""
    try:
        return HoldRecord.from_record(claim)
    except BadRecord:
        return None


class Hold:
    """What the holder writes, and nobody else."""

    def __init__(self, store: RecordStore, record: HoldRecord) -> None:
        self.store = store
        self.record = record

    @property
    def key(self) -> str:
        return self.record.repo

    @classmethod
    def take(cls, store: RecordStore, owner: Did | Handle, wanted: HoldRecord) -> Self:
        """Hold what `wanted` says, at its epoch or a later one; from whoever held it before.

        Raises CopyExists where the account has a repository of that key: that is asked before the
        claim is written, and again once it stands. The claims are read again then too, so that
        of two who begin at once one at least sees the other.
        """
        prove_host(store)
        ours: HoldRecord | None = None
        for _ in range(_READINGS):
            there = _without_markers(store, epochs(store, wanted.repo))
            # After the claims: a repository that is there by now has replaced one of them.
            try:
                refuse_copy(store, owner, wanted.repo)
            except CopyExists:
                if ours is not None:
                    let_go(store, ours)
                raise
            rkeys = [claim.rkey for claim in there]
            if ours is not None and ours.rkey not in rkeys:
                raise _overtaken(ours)
            if ours is not None and rkeys == [ours.rkey]:
                return cls(store, ours)
            ours = _claim(store, wanted, there) or ours
        raise Overtaken(f"others keep changing {wanted.name}: try again")

    def write(self, writes: Sequence[Write]) -> None:
        """All of it or nothing. Raises Overtaken once somebody else holds it."""
        new = self.record.next(stamp_now(self.store))
        if not self._land(new, Write("create", CLAIM, new.rkey, new.to_json()), writes):
            raise _overtaken(self.record)
        self.record = new

    def conclude(
        self,
        fields: Mapping[str, Any],
        others: Sequence[Write],
        *,
        least: int,
        stale: Callable[[], bool],
    ) -> RepoRecord | None:
        """Make it a repository of those fields, with `others` in the same batch.

        At the epoch `least` or a later one. None where it has to be read again what goes with
        it: `stale` says whether that has moved. Raises Overtaken.
        """
        stamp = stamp_now(self.store)
        own = {"key": self.key, "epoch": max(least, self.record.epoch + 1)}
        own |= {"nonce": stamp.nonce, "createdAt": stamp.at}
        repo = RepoRecord.from_record(Record(self.record.name, {**fields, **own}))
        epoch = EpochRecord.of(repo)
        writes = [Write("create", REPO, repo.rkey, repo.to_json()), *others]
        create = Write("create", CLAIM, epoch.rkey, epoch.to_json())
        if self._land(epoch, create, writes, stale):
            return repo
        if self._is_lost():
            raise _overtaken(self.record)
        return None

    def discard(self) -> None:
        """Take all of it back: it ends as a repository that was deleted does."""
        stamp = stamp_now(self.store)
        gone = EpochRecord(
            self.key, self.record.epoch + 1, stamp.nonce, stamp.at, deleted=self.record.name
        )
        if self._land(gone, Write("create", CLAIM, gone.rkey, gone.to_json()), ()):
            finish(self.store, Record(gone.rkey, gone.to_json()))

    def _land(
        self,
        epoch: HoldRecord | EpochRecord,
        create: Write,
        writes: Sequence[Write],
        stale: Callable[[], bool] = lambda: False,
    ) -> bool:
        batch = [Write("delete", CLAIM, self.record.rkey), create, *writes]

        def moved() -> bool:
            return self._is_lost() or stale()

        sent = send(self.store, Batch(batch, epoch.rkey, epoch.nonce), stale=moved)
        return sent is Sent.LANDED

    def _is_lost(self) -> bool:
        return self.store.get(CLAIM, self.record.rkey) is None


def refuse_copy(store: RecordStore, owner: Did | Handle, key: str) -> None:
    """Raises CopyExists for a repository of that key, whether or not it can be read."""
    records = (record for page in store.list(REPO, "") for record in page)
    for record in records:
        if record.value.get("key") == key:
            url = RepoUrl(owner, record.rkey)
            raise CopyExists(
                f"your account has a copy of that repository already: {url}",
                hint=f"to have it anew, delete that one first: git knotless repo delete {url}",
            )


def prove_host(store: RecordStore) -> None:
    """Whether its host keeps what the claims rely on. Raises UnsafeHost."""
    stamp = stamp_now(store)
    nobodys = tid(int(stamp.time.timestamp() * 1_000_000), 0)
    probe, _ = prove(store, nobodys, stamp)
    with suppress(KnotlessError):
        take_away(store, probe.rkey, lambda: [Write("delete", CLAIM, probe.rkey)])


def _without_markers(store: RecordStore, claims: Sequence[Record]) -> list[Record]:
    """The others: what is left of one that was deleted goes first."""
    for claim in claims:
        if is_marker(claim):
            finish(store, claim)
    return [claim for claim in claims if not is_marker(claim)]


def _claim(store: RecordStore, wanted: HoldRecord, there: Sequence[Record]) -> HoldRecord | None:
    """In the place of whatever is `there`; None where another was first."""
    stamp = stamp_now(store)
    epoch = max([wanted.epoch, *(epoch_of(claim) + 1 for claim in there)])
    new = replace(wanted, epoch=epoch, nonce=stamp.nonce, created_at=stamp.at)
    names = _names(store, new, there, stamp)
    writes = [Write("delete", CLAIM, claim.rkey) for claim in there]
    writes += [Write("create", CLAIM, new.rkey, new.to_json()), *names]

    def moved() -> bool:
        now = [claim.rkey for claim in epochs(store, wanted.repo)]
        return now != [c.rkey for c in there] or _names(store, new, there, stamp) != names

    sent = send(store, Batch(writes, new.rkey, stamp.nonce), stale=moved)
    return new if sent is Sent.LANDED else None


def _names(
    store: RecordStore, new: HoldRecord, there: Sequence[Record], stamp: Stamp
) -> list[Write]:
    """Under the name that it is to have, if that is free, what tells of it; under no other."""
    others = {old.name for old in map(held, there) if old is not None} - {new.name}
    writes = [write for name in sorted(others) for write in unplaced(store, name, new.repo)]
    if store.get(REDIRECT, new.name) is None:
        left = placeholder(store, new.name, new.repo, stamp.at)
        writes.append(Write("create", REDIRECT, left.name, left.to_json()))
    return writes


def let_go(store: RecordStore, hold: HoldRecord) -> None:
    """Only the claim: what else is there is the repository's that was finished meanwhile.

    What cannot be deleted now is a record that nobody reads.
    """

    def writes() -> list[Write]:
        return [Write("delete", CLAIM, hold.rkey), *unplaced(store, hold.name, hold.repo)]

    with suppress(KnotlessError):
        take_away(store, hold.rkey, writes)


def _overtaken(record: HoldRecord) -> Overtaken:
    return Overtaken(f"another command goes on with {record.name}: this one stops")
