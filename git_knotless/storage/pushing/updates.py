"""Which updates of a push may go ahead, and the words for those that may not.

git asks a helper to do what its own server would: it compares with what it was told, but where
the remote's object is not here, it sends a plain update on and believes the answer. So ancestry,
tags, leases and rules are all judged here, in git's own words.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import Enum
from typing import Protocol

from git_knotless.storage.records import RefRecord
from git_knotless.storage.refname import BRANCHES, TAGS, blocker_of, is_own, is_ref_name
from git_knotless.storage.rules import History, refusal, rule_of
from git_knotless.storage.snapshot import Snapshot
from git_knotless.value import value


class Lease(Enum):
    """`NONE`: the user asked for no comparison."""

    NONE = "none"


@value
class Update:
    """One ref as the user wants it. `new` None deletes it.

    `lease` is the object id that the user expects there; None: that the ref must not exist.
    """

    name: str
    new: str | None
    force: bool = False
    lease: str | Lease | None = Lease.NONE


@value
class Outcome:
    """What became of one update: `error` in git's own words, None where it landed."""

    name: str
    error: str | None = None


@value
class Move:
    """An update that may go ahead, and the ref as it was read; None: it has no record yet."""

    name: str
    ref: RefRecord | None
    new: str | None

    @property
    def old(self) -> str | None:
        return self.ref.target if self.ref else None

    @property
    def is_own(self) -> bool:
        """Of what git is not told."""
        return is_own(self.name)

    @property
    def generation(self) -> int:
        return self.ref.generation if self.ref else 0


class Objects(History, Protocol):
    """What judging asks of the repository that pushes."""

    def types(self, oids: Collection[str]) -> Mapping[str, str | None]:
        """Each object's type; None for one that is not here."""
        ...


def judge(
    snapshot: Snapshot, updates: Sequence[Update], objects: Objects
) -> tuple[list[Move], list[Outcome]]:
    """The moves to make, and the outcomes already known: refusals, and what changes nothing."""
    there = snapshot.targets
    asked = {oid for u in updates for oid in (u.new, there.get(u.name)) if oid is not None}
    judgement = _Judgement(snapshot, there, objects, objects.types(asked) if asked else {})
    moves: list[Move] = []
    outcomes: list[Outcome] = []
    for update in updates:
        error = judgement.error(update)
        if error is not None or update.new == there.get(update.name):
            outcomes.append(Outcome(update.name, error))
        else:
            moves.append(Move(update.name, snapshot.refs.get(update.name), update.new))
    blocked = dict(_blocked(there, moves))
    outcomes += [Outcome(name, error) for name, error in blocked.items()]
    return [move for move in moves if move.name not in blocked], outcomes


@value
class _Judgement:
    snapshot: Snapshot
    there: Mapping[str, str]
    objects: Objects
    types: Mapping[str, str | None]

    def error(self, update: Update) -> str | None:
        old = self.there.get(update.name)
        if not is_ref_name(update.name):
            return "funny refname"
        if is_own(update.name):
            return "refs/knotless/ is kept for git-knotless itself"
        if update.lease is not Lease.NONE and update.lease != old:
            return "stale info"
        if update.new == old:
            return None
        return (
            self._wrong_object(update)
            or (None if self._forced(update) else self._not_forward(update, old))
            or self._rule_broken(update, old)
        )

    @staticmethod
    def _forced(update: Update) -> bool:
        """A lease that holds forces, as in git; so does deleting."""
        return update.force or update.new is None or update.lease is not Lease.NONE

    def _wrong_object(self, update: Update) -> str | None:
        if update.new is None:
            return None
        if self.types.get(update.new) is None:
            return f"{update.new} is not here"
        if update.name.startswith(BRANCHES) and self.types[update.new] != "commit":
            return f"trying to write non-commit object {update.new} to a branch"
        return None

    def _not_forward(self, update: Update, old: str | None) -> str | None:
        if old is None or update.new is None:
            return None
        if update.name.startswith(TAGS):
            return "already exists"
        if self.types.get(old) is None:
            return "fetch first"
        if not {self.types[old], self.types[update.new]} <= {"commit", "tag"}:
            return "needs force"
        return None if self.objects.is_ancestor(old, update.new) else "non-fast forward"

    def _rule_broken(self, update: Update, old: str | None) -> str | None:
        rule = rule_of(self.snapshot.repo, update.name)
        if rule is None:
            return None
        if old is not None and update.new is not None and self.types.get(old) is None:
            return "fetch first"
        return refusal(rule, old, update.new, self.objects)


def _blocked(there: Mapping[str, str], moves: Sequence[Move]) -> Iterator[tuple[str, str]]:
    """New names that could not stand beside others once all the moves are made, and why.

    What is there stays; of two new ones, the shorter.
    """
    gone = {move.name for move in moves if move.new is None}
    new = {move.name for move in moves if move.new is not None} - there.keys()
    after = (there.keys() - gone) | new
    for name in after:
        blocker = blocker_of(name, after)
        if blocker is not None and not new.isdisjoint((name, blocker)):
            loser, winner = (name, blocker) if name in new else (blocker, name)
            yield loser, cannot_stand(loser, winner)


def cannot_stand(name: str, beside: str) -> str:
    """git's words for a name that another one, shorter or longer, keeps from existing."""
    return f"'{beside}' exists; cannot create '{name}'"
