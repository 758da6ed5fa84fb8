"""Pushing: objects first, then each ref by its own compare-and-swap, in as few batches as it takes.

A push reads a snapshot, packs what the snapshot's refs do not reach, and sends batches that hold
only while the epoch it read stands. A batch that loses is read again: refs that have moved since
are refused, the others go on. What was reported is what a fresh clone shows.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from git_knotless.atproto.errors import BlobNotFound
from git_knotless.errors import KnotlessError
from git_knotless.storage.git import Git
from git_knotless.storage.outcome import Sent, send
from git_knotless.storage.packs.packrecord import PackRecord
from git_knotless.storage.progress import Progress
from git_knotless.storage.pushing.batches import Planner, PushBatch, Stamp, new_stamp
from git_knotless.storage.pushing.economy import POINTS, PushStopped, cost, stopping
from git_knotless.storage.pushing.parcel import Parcel
from git_knotless.storage.pushing.shallow import refuse_holes
from git_knotless.storage.pushing.slices import Slicing
from git_knotless.storage.pushing.standing import (
    conflicts,
    has_moved,
    is_there,
    new_default,
    reversals,
)
from git_knotless.storage.pushing.updates import Move, Outcome, Update, judge
from git_knotless.storage.repositories import Repository
from git_knotless.storage.snapshot import Snapshot, read_refs
from git_knotless.storage.store import AccountMoved

_READINGS = 12  # of the repository in one push: before each, somebody else's write landed
_ATOMIC = "atomic push failed"
_DOUBT = "pushed, but not known to stand: git ls-remote shows whether it does"


class PushRefused(KnotlessError):
    """A push that is refused whole, before anything is sent."""


def push(
    repository: Repository,
    git: Git,
    snapshot: Snapshot,
    updates: Sequence[Update],
    *,
    atomic: bool = False,
    dry_run: bool = False,
    progress: Progress,
    notify: Callable[[str], None],
    sending: Callable[[], None] = lambda: None,
) -> list[Outcome]:
    """Make `updates` of the repository that `snapshot` was read of, and say what became of each.

    `notify` gets a line for the person; `sending` is called before anything is sent. Raises
    `KnotlessError` where the push is refused, or fails before any ref has moved.
    """
    _check_allowed(repository, git, snapshot)
    with Parcel(repository, git, progress) as parcel:
        key = snapshot.repo.key
        slicing = Slicing(repository, git, progress, notify)
        pushing = _Push(repository, git, parcel, slicing, notify, sending, key=key, atomic=atomic)
        return pushing.run(snapshot, updates, dry_run=dry_run)


def _check_allowed(repository: Repository, git: Git, snapshot: Snapshot) -> None:
    if snapshot.repo.archived:
        hint = f"git knotless repo edit --no-archived {repository.url}"
        raise PushRefused(f"{repository.url} is archived", hint=hint)
    found, wanted = git.object_format(), snapshot.repo.object_format
    if found != wanted:
        ours = f"this repository by {found}"
        raise PushRefused(f"{repository.url} names its objects by {wanted}, and {ours}")


class _Push:
    def __init__(
        self,
        repository: Repository,
        git: Git,
        parcel: Parcel,
        slicing: Slicing,
        notify: Callable[[str], None],
        sending: Callable[[], None],
        *,
        key: str,
        atomic: bool,
    ) -> None:
        self.repository = repository
        self.git = git
        self.parcel = parcel
        self.notify = notify
        self.sending = sending
        self.key = key
        self.atomic = atomic
        self.outcomes: dict[str, str | None] = {}
        self.landed: list[Move] = []
        self.offered = False  # to another account, when it was pushed to
        self.slicing = slicing

    def run(self, snapshot: Snapshot, updates: Sequence[Update], *, dry_run: bool) -> list[Outcome]:
        moves = self._judge(snapshot, updates)
        if dry_run:
            refuse_holes(self.git, _tips(moves), frozenset(snapshot.targets.values()))
        elif moves:
            self.sending()
            with self._partly(moves):
                self._land(snapshot, updates, moves)
            with self._partly([]):
                self._take_back()
            if self.offered:
                with self._partly([]):
                    self._follow_up()
        return [Outcome(update.name, self.outcomes.get(update.name)) for update in updates]

    def _judge(self, snapshot: Snapshot, updates: Sequence[Update]) -> list[Move]:
        """The moves to make. Of an atomic push, none once any update is refused."""
        moves, known = judge(snapshot, updates, self.git)
        self.outcomes |= {outcome.name: outcome.error for outcome in known}
        if self.atomic and any(error is not None for error in self.outcomes.values()):
            self._refuse(moves, _ATOMIC)
            return []
        return moves

    def _refuse(self, moves: Sequence[Move], error: str) -> None:
        self.outcomes |= {move.name: error for move in moves}

    @contextmanager
    def _partly(self, moves: Sequence[Move]) -> Iterator[None]:
        """An error after some refs have moved is that of the others, not of the whole push."""
        try:
            with stopping(self.slicing):
                yield
        except KnotlessError as error:
            if not self.landed:
                raise
            self._refuse(self._unlanded(moves), error.message)
            if isinstance(error, PushStopped) and error.hint is not None:
                self.notify(error.hint)

    def _unlanded(self, moves: Sequence[Move]) -> list[Move]:
        done = {move.name for move in self.landed}
        return [m for m in moves if m.name not in done and self.outcomes.get(m.name) is None]

    def _land(self, snapshot: Snapshot, updates: Sequence[Update], moves: Sequence[Move]) -> None:
        """Send the moves; after each loss read again, and go on with what has not moved."""
        losses = 0
        while moves and losses < _READINGS:
            slice_ = self.slicing.next(snapshot, _tips(moves), partial(self._cost, snapshot, moves))
            now = self._send_all(snapshot, slice_ or moves)
            if now is not None:
                losses += 1
            elif not slice_:
                return
            else:
                self.slicing.landed(slice_)
                now = self._read_again()
            moves, snapshot = self._survivors(now, updates, self._unlanded(moves)), now
        self._refuse(moves, "others push too often to get in between: try again")

    def _survivors(
        self, now: Snapshot, updates: Sequence[Update], moves: Sequence[Move]
    ) -> list[Move]:
        """Of `moves`, read before, those that can still be made; the others have their outcome."""
        still = set[str]()
        for move in moves:
            ref = now.refs.get(move.name)
            if (ref.generation if ref else 0) == move.generation:
                still.add(move.name)
            elif now.live.get(move.name) != move.new:
                self.outcomes[move.name] = "fetch first"
        return self._judge(now, [update for update in updates if update.name in still])

    def _send_all(
        self, snapshot: Snapshot, moves: Sequence[Move], *, packed: bool = True
    ) -> Snapshot | None:
        """Send every batch. None once all have landed, else the repository as it is by now.

        `packed`: with what the moves need, unless that has been there before.
        """
        self.offered |= snapshot.repo.transfer is not None
        stamp = new_stamp(snapshot, self.repository.store.clock_offset())
        # Making and uploading it takes its time; how old the snapshot is counts after that.
        pack = self.parcel.packed(snapshot, _tips(moves), stamp) if packed else None
        default = new_default(snapshot, moves, self.git)
        for batch in self._batches(snapshot, moves, pack, stamp):
            if self.repository.too_old(snapshot):
                return self._read_again()
            newest = self._send(snapshot, batch)
            if newest is not None:
                return newest
            if default is not None:
                self.notify(f"{default} is the default branch of {self.repository.url} now")
                default = None
        return None

    def _cost(self, snapshot: Snapshot, moves: Sequence[Move]) -> int:
        """Of what moves them, in points; raises where that is refused."""
        packs = int(not set(_tips(moves)) <= set(snapshot.targets.values()))
        _, batches = self._plan(snapshot, moves, None, new_stamp(snapshot, 0.0), room=packs)
        return sum(cost(batch.batch.writes) for batch in batches) + packs * POINTS["create"]

    def _batches(
        self, snapshot: Snapshot, moves: Sequence[Move], pack: PackRecord | None, stamp: Stamp
    ) -> Iterator[PushBatch]:
        """Each as far as the host, by its last answer, allows it."""
        planner, batches = self._plan(snapshot, moves, pack, stamp)
        for batch in batches:
            left = None if self.atomic else self.repository.store.left("writes")
            yield from [batch] if left is None else planner.cut(batch, left.remaining)

    def _plan(
        self,
        snapshot: Snapshot,
        moves: Sequence[Move],
        pack: PackRecord | None,
        stamp: Stamp,
        *,
        room: int = 0,
    ) -> tuple[Planner, list[PushBatch]]:
        done = self.slicing.done_with(snapshot, moves) if not moves[0].is_own else []
        planner = Planner(snapshot.repo, stamp, new_default(snapshot, moves, self.git))
        batches = planner.plan([*moves, *done], pack, room=room)
        if self.atomic and len(moves) > sum(not move.is_own for move in batches[0].moves) > 0:
            raise PushRefused(
                f"{len(moves)} refs do not fit in one write: a host takes 200 records at a time",
                hint="git push --no-atomic",
            )
        return planner, batches

    def _send(self, snapshot: Snapshot, batch: PushBatch) -> Snapshot | None:
        """Send one batch. None once it has landed, else the repository as it is by now."""
        newest: list[Snapshot] = []

        def stale() -> bool:
            newest.append(self._read_again())
            return has_moved(snapshot, newest[-1], batch.moves)

        try:
            sent = send(self.repository.store, batch.batch, stale=stale)
        except AccountMoved:
            self.parcel.forget()
            return self._read_again()
        except BlobNotFound:
            if batch.pack is None:
                raise
            self.parcel.upload_again()  # in other slices, maybe: the batch is made anew
            return self._read_again()
        if sent is Sent.LOST:
            return newest[-1] if newest else self._read_again()
        landed = [move for move in batch.moves if not move.is_own]
        self.landed.extend(landed)
        self.outcomes |= {move.name: None for move in landed}
        if batch.pack is not None:
            self.parcel.landed(batch.pack)
        return None

    def _read_again(self) -> Snapshot:
        now = self.repository.snapshot()
        _check_allowed(self.repository, self.git, now)
        return now

    def _take_back(self) -> None:
        """A race can let `a` and `a/b` in side by side: whoever finds the other takes its own back.

        Whichever landed later sees the other, and both may; but none that was accepted is hidden.
        """
        created = [move for move in self.landed if move.new is not None and move.old is None]
        if not created:
            return
        self._refuse(created, _DOUBT)
        refs = read_refs(self.repository.store, self.key, self.repository.url)
        lost = dict(conflicts(created, refs))
        back = self.landed if self.atomic and lost else [m for m in created if m.name in lost]
        words = {move.name: lost.get(move.name, _ATOMIC) for move in back}
        raced = bool(back) and not self._reversed(back)
        self.outcomes |= {move.name: None for move in created if move.name in refs}
        self.outcomes |= dict.fromkeys(words, _DOUBT) if raced else words

    def _follow_up(self) -> None:
        """Whoever it is offered to may have accepted it meanwhile, and lack what was pushed.

        Who accepts looks once more afterwards, too: one of both sees what the old place has alone.
        """
        stand = [move for move in self.landed if self.outcomes.get(move.name) is None]
        self._refuse(stand, _DOUBT)
        there = self.repository.moved_on()
        refs = read_refs(there.store, self.key, there.url) if there is not None else {}
        late = [move for move in stand if there and not is_there(move, refs)]
        back = stand if self.atomic and late else late
        self.outcomes |= {move.name: None for move in stand if move not in back}
        if there is not None and back:
            self.repository = self.repository.where_it_was()
            if self._reversed(back):
                self._refuse(back, f"it is {there.url} now: push it there")

    def _reversed(self, moves: Sequence[Move]) -> bool:
        now = self.repository.snapshot()
        back = list(reversals(moves, now))
        return not back or self._send_all(now, back, packed=False) is None


def _tips(moves: Sequence[Move]) -> list[str]:
    return sorted({move.new for move in moves if move.new is not None})
