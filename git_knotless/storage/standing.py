"""Whether what a push has landed stands, beside what others did at the same time."""

from collections.abc import Iterator, Mapping, Sequence

from git_knotless.storage.records import RefRecord
from git_knotless.storage.refname import parents
from git_knotless.storage.snapshot import Snapshot
from git_knotless.storage.updates import Move, cannot_stand


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
