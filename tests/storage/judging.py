"""Whether what somebody was told of a task is what has happened."""

from collections.abc import Sequence

from git_knotless.errors import KnotlessError
from git_knotless.storage.outcome import OutcomeUnknown
from git_knotless.storage.proofs.verified import RolledBack
from git_knotless.storage.records import REPO
from tests.storage.histories import Histories
from tests.storage.ledger import Ledger, Moved
from tests.storage.steps import Task

_UNKNOWN = "not known"  # whether it stands: what is said of a ref then


def judge(task: Task, ledger: Ledger, histories: Histories, *, since: int) -> None:
    """`since`: the number of the first batch that landed after it began."""
    assert task.over
    if task.killed:
        return
    if task.error is not None and not isinstance(task.error, KnotlessError):
        raise task.error
    assert not isinstance(task.error, RolledBack), "the host has done nothing wrong"
    if isinstance(task.error, OutcomeUnknown):
        return
    if task.what.verb == "push":
        _Pushed(task, ledger, histories, since).judge()
    elif task.what.verb in ("edit", "create", "rename"):
        _judge_rewrite(task, ledger)


def _judge_rewrite(task: Task, ledger: Ledger) -> None:
    """It is written once, or never."""
    verb = "update" if task.what.verb == "edit" else "create"
    wrote = [each for each in ledger.wrote(task, REPO) if each["$type"].endswith(verb)]
    if task.error is None:
        assert len(wrote) == 1
    else:
        assert wrote == [], f"{task.what} is refused, and done: {task.error}"


class _Pushed:
    def __init__(self, task: Task, ledger: Ledger, histories: Histories, since: int) -> None:
        self.deed = task.what
        self.errors = {ref: self._error(task, ref) for ref, _, _ in self.deed.specs}
        self.ledger = ledger
        self.histories = histories
        self.since = since
        self.moves = [move for move in ledger.moves if move.task is task]

    @staticmethod
    def _error(task: Task, ref: str) -> str | None:
        return str(task.error) if task.result is None else task.result[ref]

    def judge(self) -> None:
        for ref, commit, force in self.deed.specs:
            target = self.histories.oids[commit] if commit else None
            moves = [move for move in self.moves if move.name == ref]
            error = self.errors[ref]
            if error is None:
                self._check_landed(ref, target, moves)
            elif _UNKNOWN not in error:
                assert self._is_undone(moves), f"{ref} is refused, and has moved: {error}"
            if not force:
                assert all(self._is_forward(move) for move in moves if move.new == target)
        if self.deed.atomic:
            self._check_atomic()

    def _check_atomic(self) -> None:
        """All or none; but what was there already is reported as it is."""
        errors = [error for error in self.errors.values() if error is not None]
        if errors and not any(_UNKNOWN in error for error in errors):
            for ref in self.errors:
                assert self._is_undone([move for move in self.moves if move.name == ref])

    def _check_landed(self, ref: str, target: str | None, moves: Sequence[Moved]) -> None:
        if moves:
            assert moves[-1].new == target
        else:
            assert self.ledger.was(ref, target, self.since)

    def _is_undone(self, moves: Sequence[Moved]) -> bool:
        """None were made, or taken back, unless somebody was quicker to move it on."""
        if not moves or moves[-1].new == moves[0].old:
            return True
        last = moves[-1]
        after = (last.key, last.name, last.generation + 1)
        return any((m.key, m.name, m.generation) == after for m in self.ledger.moves)

    def _is_forward(self, move: Moved) -> bool:
        if move.old is None or move.new is None:
            return True
        return self.histories.is_ancestor(move.old, move.new)
