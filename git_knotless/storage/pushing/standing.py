"""What a push makes of a repository: whether what it has landed stands, beside what others did
at the same time, and which branch is the default of one that had none.
"""

from collections.abc import Iterator, Mapping, Sequence

from git_knotless.storage.git import Git
from git_knotless.storage.pushing.updates import Move, cannot_stand
from git_knotless.storage.records import RefRecord
from git_knotless.storage.refname import BRANCHES, parents
from git_knotless.storage.snapshot import Snapshot

_LIKELY_DEFAULTS = ("main", "master", "trunk")


def new_default(snapshot: Snapshot, moves: Sequence[Move], git: Git) -> str | None:
    """The branch that becomes the default, where a repository without refs gets others.

    The only one; of several the one that is checked out here, or the likeliest.
    """
    if snapshot.live:
        return None
    names = sorted(m.name for m in moves if m.new is not None and m.name.startswith(BRANCHES))
    if not names or snapshot.repo.head in names:
        return None
    likely = [git.head(), *(BRANCHES + branch for branch in _LIKELY_DEFAULTS)]
    chosen = next((name for name in likely if name in names), names[0])
    return chosen.removeprefix(BRANCHES)


def conflicts(created: Sequence[Move], refs: Mapping[str, RefRecord]) -> Iterator[tuple[str, str]]:
    """Of `created`, the names beside which another's stands that cannot, and why."""
    mine = {move.name for move in created}
    there = {name for name, ref in refs.items() if ref.target is not None}
    for name in there:
        for parent in parents(name):
            if parent in there and (name in mine) != (parent in mine):
                loser, winner = (name, parent) if name in mine else (parent, name)
                yield loser, cannot_stand(loser, winner)


def is_there(move: Move, refs: Mapping[str, RefRecord]) -> bool:
    ref = refs.get(move.name)
    return (ref.target if ref else None) == move.new


def reversals(landed: Sequence[Move], now: Snapshot) -> Iterator[Move]:
    """Moves back to where the refs were, of those that nobody has moved since."""
    for move in landed:
        ref = now.refs.get(move.name)
        if ref is not None and ref.target == move.new and ref.generation == move.generation + 1:
            yield Move(move.name, ref, move.old)


def has_moved(before: Snapshot, now: Snapshot, moves: Sequence[Move]) -> bool:
    """Whether what a batch with `moves` rests on has moved, so that it cannot land any more."""
    if (before.repo.key, before.repo.epoch) != (now.repo.key, now.repo.epoch):
        return True
    refs = (now.refs.get(move.name) for move in moves)
    return any(
        (ref.generation if ref else 0) != move.generation
        for ref, move in zip(refs, moves, strict=True)
    )
