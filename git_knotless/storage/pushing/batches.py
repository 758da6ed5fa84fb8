"""What goes into one batch of writes, and how many batches a push takes."""

import json
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from git_knotless.atproto.syntax import InvalidSyntax, format_time, parse_time
from git_knotless.storage.claims import ClaimRecord, EpochRecord
from git_knotless.storage.outcome import Batch
from git_knotless.storage.packs.packrecord import PackRecord
from git_knotless.storage.pushing.economy import cost
from git_knotless.storage.pushing.updates import Move
from git_knotless.storage.records import CLAIM, PACK, REF, REPO, RefRecord, RepoRecord
from git_knotless.storage.snapshot import Snapshot
from git_knotless.storage.store import RecordStore, Write
from git_knotless.value import replace, value

MAX_WRITES = 200  # in one batch, on every host
# Of the 1,000,000 bytes of JSON that hosts take, less what surrounds the writes.
MAX_BYTES = 950_000
MAX_DATA = 512 * 1024  # of them, that are what packs hold
# The host's clock is known to a second, and an answer may have been under way for some.
_AHEAD = timedelta(minutes=5)
_SMALL = 2048  # bytes, of a record that holds no text of anybody's


class Stamp:
    """What every record of one write says alike."""

    def __init__(self, time: datetime) -> None:
        self.time = time
        self.nonce = secrets.token_hex(16)

    @property
    def at(self) -> str:
        """In RFC 3339."""
        return format_time(self.time)


def stamp_now(store: RecordStore) -> Stamp:
    """Now by the host's clock."""
    return Stamp(datetime.now(UTC) + timedelta(seconds=store.clock_offset()))


def new_stamp(snapshot: Snapshot, clock_offset: float) -> Stamp:
    """Now by the host's clock, and later than whatever a push wrote into `snapshot`."""
    now = datetime.now(UTC) + timedelta(seconds=clock_offset)
    newest = max((ref.updated_at for ref in snapshot.refs.values()), default=None)
    try:
        after = parse_time(newest) + timedelta(milliseconds=1) if newest else now
    except InvalidSyntax:
        return Stamp(now)
    # A time that lies ahead of the host's own is nobody's honest one.
    return Stamp(max(now, after) if after - now < _AHEAD else now)


def rewrite(old: RepoRecord, new: RepoRecord) -> list[Write]:
    """`new`, the next epoch of `old`, in its place: of two that rewrite one epoch, one loses."""
    written = EpochRecord.of(new)
    return [
        Write("delete", CLAIM, EpochRecord.of(old).rkey),
        Write("create", CLAIM, written.rkey, written.to_json()),
        Write("update", REPO, new.rkey, new.to_json()),
    ]


def hold_epoch(repo: RepoRecord) -> Write:
    """An update of the epoch's record to what it is: refused once the epoch has moved."""
    held = EpochRecord.of(repo)
    return Write("update", CLAIM, held.rkey, held.to_json())


class Load:
    """Of one batch, what is in it so far, as far as every host takes it.

    `fixed` goes with it, and room is kept for `spare` writes that are small.
    """

    def __init__(self, fixed: Sequence[Write] = (), *, spare: int = 0) -> None:
        self._writes = len(fixed) + spare
        self._size = sum(map(_size, fixed)) + spare * _SMALL
        self._data = sum(map(_data, fixed))
        self._empty = True

    def takes(self, group: Sequence[Write]) -> bool:
        """Whether `group` went into it, whole; one that is too large by itself goes alone."""
        writes = self._writes + len(group)
        size = self._size + sum(map(_size, group))
        data = self._data + sum(map(_data, group))
        if not self._empty and (writes > MAX_WRITES or size > MAX_BYTES or data > MAX_DATA):
            return False
        self._writes, self._size, self._data, self._empty = writes, size, data, False
        return True


@value
class PushBatch:
    """A batch, the moves that land with it, and whether it brings the pack. `fixed` are those of
    its writes that go with any move."""

    batch: Batch
    fixed: Sequence[Write]
    moves: Sequence[Move]
    pack: PackRecord | None


class Planner:
    """Cuts the moves of a push into batches; the first brings the pack and the default branch."""

    def __init__(self, repo: RepoRecord, stamp: Stamp, default_branch: str | None) -> None:
        self._read = repo
        self._repo = repo
        self._stamp = stamp
        if default_branch is not None:
            changed = repo.next_epoch(stamp.nonce, stamp.at)
            self._repo = changed.changed(defaultBranch=default_branch)

    def plan(
        self, moves: Sequence[Move], pack: PackRecord | None, *, room: int = 0
    ) -> list[PushBatch]:
        """Deletions first: a name may be free only once another is gone. Then the default branch:
        the record that names it goes with the first batch. What is our own goes last of all.
        There is `room` in each for so many writes that are small.
        """
        ordered = sorted(moves, key=self._place)
        pack = None if pack is None else replace(pack, epoch=self._repo.epoch)
        fixed = self._first(pack)
        batches: list[PushBatch] = []
        while ordered:
            count = self._fitting(fixed, ordered, room)
            batches.append(self._batch(fixed, ordered[:count], pack))
            ordered = ordered[count:]
            fixed, pack = [hold_epoch(self._repo)], None
        return batches

    def cut(self, batch: PushBatch, points: int) -> list[PushBatch]:
        """`batch` in two, where the host allows no more than `points` and some of it fits in them.

        It would be refused whole, and take them all the same.
        """
        if cost(batch.batch.writes) <= points:
            return [batch]
        for count in range(len(batch.moves) - 1, 0, -1):
            first = self._batch(batch.fixed, batch.moves[:count], batch.pack)
            if cost(first.batch.writes) <= points:
                return [first, self._batch([hold_epoch(self._repo)], batch.moves[count:], None)]
        return [batch]

    def _place(self, move: Move) -> tuple[bool, bool, bool]:
        return (move.is_own, move.new is not None, move.name != self._repo.head)

    def _first(self, pack: PackRecord | None) -> list[Write]:
        same = self._repo is self._read
        writes = [hold_epoch(self._repo)] if same else rewrite(self._read, self._repo)
        if pack is not None:
            writes.append(Write("create", PACK, pack.rkey, pack.to_json()))
        return writes

    def _fitting(self, fixed: Sequence[Write], moves: Sequence[Move], room: int) -> int:
        """How many of `moves` go with `fixed`; a claim is kept free for a receipt."""
        load = Load(fixed, spare=1 + room)
        for count, move in enumerate(moves):
            if not load.takes(self._writes_of(move)):
                return count
        return len(moves)

    def _batch(
        self, fixed: Sequence[Write], moves: Sequence[Move], pack: PackRecord | None
    ) -> PushBatch:
        writes = [write for move in moves for write in self._writes_of(move)]
        claims = [write for write in writes if write.collection == CLAIM]
        if not claims:
            claims = [self._claim(moves[0])]
            writes = claims + writes
        batch = Batch([*fixed, *writes], claims[0].rkey, self._stamp.nonce)
        return PushBatch(batch, fixed, moves, pack)

    def _writes_of(self, move: Move) -> list[Write]:
        """A ref's first record is its own compare-and-swap; later ones are claimed.

        One of our own goes with its record: no other will ever have its name.
        """
        ref = RefRecord(self._repo.key, move.name, move.new, move.generation + 1, self._stamp.at)
        if move.ref is None:
            return [Write("create", REF, ref.rkey, ref.to_json())]
        if move.new is None and move.is_own:
            return [self._claim(move), Write("delete", REF, ref.rkey)]
        return [self._claim(move), Write("update", REF, ref.rkey, ref.to_json())]

    def _claim(self, move: Move) -> Write:
        claim = ClaimRecord(
            repo=self._repo.key,
            ref=move.name,
            generation=move.generation,
            epoch=self._repo.epoch,
            old=move.old,
            new=move.new,
            nonce=self._stamp.nonce,
            created_at=self._stamp.at,
        )
        return Write("create", CLAIM, claim.rkey, claim.to_json())


def _size(write: Write) -> int:
    """What `write` takes in the request, in bytes, and a little more."""
    return len(json.dumps(write.value, ensure_ascii=False).encode()) + len(write.rkey) + 128


def _data(write: Write) -> int:
    """What it holds of a pack, in bytes and about."""
    data = (write.value or {}).get("data")
    return len(data.get("$bytes", "")) * 3 // 4 if isinstance(data, dict) else 0
