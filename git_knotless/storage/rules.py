"""What a rule of the repository's record allows: one function, for owners and gateways alike.

The owner is held by no-deletion, forward-only and linear alone (`queue` and `reviews` are for
those who push through a gateway).
"""

from typing import Protocol

from git_knotless.storage.records import RepoRecord, Rule
from git_knotless.storage.refname import BRANCHES


class History(Protocol):
    """What a decision asks of the objects at hand."""

    def is_ancestor(self, old: str, new: str) -> bool: ...

    def has_merge(self, new: str, old: str | None) -> bool:
        """Whether a commit with two parents is reached from `new` and not from `old`."""
        ...


def rule_of(repo: RepoRecord, ref: str) -> Rule | None:
    """The rule that protects `ref`. Of several for one branch, any that is linear holds."""
    rules = [rule for rule in repo.rules if BRANCHES + rule.branch == ref]
    return next((rule for rule in rules if rule.linear), rules[0] if rules else None)


def refusal(rule: Rule, old: str | None, new: str | None, history: History) -> str | None:
    """Why the owner may not move a branch under `rule` from `old` to `new`; None if they may."""
    if new is None:
        return "protected branch: it is not deleted"
    if old is not None and not history.is_ancestor(old, new):
        return "protected branch: it only moves forward"
    if rule.linear and history.has_merge(new, old):
        return "protected branch: no merge commits; squash or rebase"
    return None
