"""Pushing: objects first, then each ref by its own compare-and-swap, in as few batches as it takes.

A push reads a snapshot, packs what the snapshot's refs do not reach, and sends batches that hold
only while the epoch it read stands. A batch that loses is read again: refs that have moved since
are refused, the others go on. What was reported is what a fresh clone shows.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from git_knotless.atproto.errors import BlobNotFound
from git_knotless.errors import KnotlessError
from git_knotless.storage.batches import Planner, PushBatch, new_stamp
from git_knotless.storage.git import Git
from git_knotless.storage.outcome import Sent, send
from git_knotless.storage.parcel import Parcel
from git_knotless.storage.progress import Progress
from git_knotless.storage.refname import BRANCHES
from git_knotless.storage.repositories import Repository
from git_knotless.storage.shallow import refuse_holes
from git_knotless.storage.snapshot import Snapshot
from git_knotless.storage.updates import Move, Outcome, Update, judge

_READINGS = 12  # of the repository in one push: before each, somebody else's write landed
_UPLOADS = 3  # of one pack, should the host lose its blobs before the batch that names them
_ATOMIC = "atomic push failed"
_LIKELY_DEFAULTS = ("main", "master", "trunk")


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
) -> list[Outcome]:
    """Make `updates` of the repository that `snapshot` was read of, and say what became of each.

    Raises `KnotlessError` where the push is refused or fails before any ref has moved.
    """
    _check_allowed(repository, git, snapshot)
    with Parcel(repository, git, progress) as parcel:
        pushing = _Push(repository, git, parcel, atomic)
        return pushing.run(snapshot, updates, dry_run=dry_run)


def _check_allowed(repository: Repository, git: Git, snapshot: Snapshot) -> None:
    if snapshot.repo.archived:
        hint = f"git knotless repo edit --no-archived {repository.url}"
        raise PushRefused(f"{repository.url} is archived", hint=hint)
    found, wanted = git.object_format(), snapshot.repo.object_format
    if found != wanted:
        raise PushRefused(
            f"{repository.url} names its objects by {wanted}, and this repository by {found}"
        )


@dataclass(slots=True)
class _Push:
    repository: Repository
    git: Git
    parcel: Parcel
    atomic: bool
    outcomes: dict[str, str | None] = field(default_factory=dict)
    landed: list[Move] = field(default_factory=list)

    def run(self, snapshot: Snapshot, updates: Sequence[Update], *, dry_run: bool) -> list[Outcome]:
        moves = self._judge(snapshot, updates)
        refuse_holes(self.git, _tips(moves), frozenset(snapshot.live.values()))
        if moves and not dry_run:
            with self._partly(moves):
                self._land(snapshot, updates, moves)
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
            yield
        except KnotlessError as error:
            if not self.landed:
                raise
            self._refuse(self._unlanded(moves), error.message)

    def _unlanded(self, moves: Sequence[Move]) -> list[Move]:
        done = {move.name for move in self.landed}
        return [m for m in moves if m.name not in done and self.outcomes.get(m.name) is None]

    def _land(self, snapshot: Snapshot, updates: Sequence[Update], moves: Sequence[Move]) -> None:
        """Send the moves; after each loss read again, and go on with what has not moved."""
        for _ in range(_READINGS):
            now = self._send_all(snapshot, moves)
            if now is None:
                break
            moves, snapshot = self._survivors(now, updates, self._unlanded(moves)), now
            if not moves:
                break
        else:
            self._refuse(moves, "others push too often to get in between: try again")
        self._take_back_hidden()

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

    def _send_all(self, snapshot: Snapshot, moves: Sequence[Move]) -> Snapshot | None:
        """Send every batch. None once all have landed, else the repository as it is by now."""
        if self.repository.too_old(snapshot):
            return self._read_again(snapshot)
        stamp = new_stamp(snapshot, self.repository.store.clock_offset())
        pack = self.parcel.packed(snapshot, _tips(moves), stamp)
        planner = Planner(snapshot.repo, stamp, self._new_default(snapshot, moves))
        batches = planner.plan(moves, pack)
        if self.atomic and len(batches) > 1:
            raise PushRefused(
                f"{len(moves)} refs do not fit in one write: a host takes 200 records at a time",
                hint="git push --no-atomic",
            )
        for batch in batches:
            newest = self._send(snapshot, batch)
            if newest is not None:
                return newest
        return None

    def _send(self, snapshot: Snapshot, batch: PushBatch) -> Snapshot | None:
        """Send one batch. None once it has landed, else the repository as it is by now."""
        newest: list[Snapshot] = []

        def stale() -> bool:
            newest.append(self._read_again(snapshot))
            return _moved(snapshot, newest[-1], batch.moves)

        if self._sent(batch, stale) is Sent.LOST:
            return newest[-1] if newest else self._read_again(snapshot)
        self.landed.extend(batch.moves)
        self.outcomes |= {move.name: None for move in batch.moves}
        if batch.pack is not None:
            self.parcel.landed(batch.pack)
        return None

    def _new_default(self, snapshot: Snapshot, moves: Sequence[Move]) -> str | None:
        """The branch that becomes the default, where a repository without refs gets others.

        The only one; of several the one that is checked out here, or the likeliest.
        """
        if snapshot.live:
            return None
        names = sorted(m.name for m in moves if m.new is not None and m.name.startswith(BRANCHES))
        if not names or snapshot.repo.head in names:
            return None
        likely = [self.git.head(), *(BRANCHES + branch for branch in _LIKELY_DEFAULTS)]
        chosen = next((name for name in likely if name in names), names[0])
        return chosen.removeprefix(BRANCHES)

    def _read_again(self, before: Snapshot) -> Snapshot:
        now = self.repository.snapshot()
        if now.repo.key != before.repo.key:
            raise PushRefused(f"{self.repository.url} is another repository now")
        _check_allowed(self.repository, self.git, now)
        return now

    def _sent(self, batch: PushBatch, stale: Callable[[], bool]) -> Sent:
        """`send`, with the pack's blobs uploaded again where the host has lost them since."""
        for _ in range(_UPLOADS):
            try:
                return send(self.repository.store, batch.batch, stale=stale)
            except BlobNotFound:
                if batch.pack is None:
                    raise
                self.parcel.upload_again()
        return send(self.repository.store, batch.batch, stale=stale)

    def _take_back_hidden(self) -> None:
        """A race can let `a` and `a/b` in side by side: whoever pushed the longer takes it back."""
        created = [move for move in self.landed if move.new is not None and move.old is None]
        if not created:
            return
        now = self.repository.snapshot()
        for move in created:
            blocker, ref = now.hidden.get(move.name), now.refs.get(move.name)
            if blocker is None or ref is None or ref.target != move.new:
                continue
            self._send_all(now, [Move(move.name, ref, None)])
            self.outcomes[move.name] = f"'{blocker}' exists; cannot create '{move.name}'"


def _tips(moves: Sequence[Move]) -> list[str]:
    return sorted({move.new for move in moves if move.new is not None})


def _moved(before: Snapshot, now: Snapshot, moves: Sequence[Move]) -> bool:
    """Whether what a batch with `moves` rests on has moved, so that it cannot land any more."""
    if (before.repo.key, before.repo.epoch) != (now.repo.key, now.repo.epoch):
        return True
    refs = (now.refs.get(move.name) for move in moves)
    return any(
        (ref.generation if ref else 0) != move.generation
        for ref, move in zip(refs, moves, strict=True)
    )
