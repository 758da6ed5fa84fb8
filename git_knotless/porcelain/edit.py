"""What `git knotless repo edit` makes of a repository's record."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from git_knotless.atproto.syntax import Did
from git_knotless.errors import KnotlessError
from git_knotless.porcelain.output import WrongUsage
from git_knotless.storage.creation import check_branch
from git_knotless.storage.records import RepoRecord


class BadCollaborator(KnotlessError):
    """One that cannot be put in, or that is not there to be taken out."""


class NoSuchRule(KnotlessError):
    """The branch that a rule was to be taken from has none."""


@dataclass(frozen=True, slots=True)
class Change:
    """Applied to the record as it is at that moment; what is None or empty stays as it is.

    `history` goes for the branches in `protect`. A rule keeps whatever else it says. `names` is
    what the accounts in `add` and `remove` were called.
    """

    description: str | None = None
    default_branch: str | None = None
    archived: bool | None = None
    add: tuple[Did, ...] = ()
    remove: tuple[Did, ...] = ()
    protect: tuple[str, ...] = ()
    unprotect: tuple[str, ...] = ()
    history: str | None = None
    names: Mapping[Did, str] = field(default_factory=dict)

    def check(self, owner: Did) -> None:
        """Refuse what makes no sense whatever the record says."""
        if self.history is not None and not self.protect:
            raise WrongUsage("--history says what goes for --protect BRANCH, which is missing")
        if replace(self, names={}) == Change():
            raise WrongUsage("nothing to change: give at least one option")
        accounts = {self._called(did) for did in set(self.add) & set(self.remove)}
        for both in sorted(accounts | set(self.protect) & set(self.unprotect)):
            raise WrongUsage(f"{both} cannot be put in and taken out at once")
        if owner in self.add:
            raise BadCollaborator("the owner pushes without being a collaborator")
        for branch in self.protect:
            check_branch(branch)
        if self.default_branch is not None:
            check_branch(self.default_branch)

    def __call__(self, repo: RepoRecord) -> RepoRecord:
        fields: dict[str, Any] = {}
        if self.description is not None:
            fields["description"] = self.description or None
        if self.default_branch is not None:
            fields["defaultBranch"] = self.default_branch
        if self.archived is not None:
            fields["archived"] = self.archived or None
        if self.add or self.remove:
            fields["collaborators"] = self._collaborators(repo) or None
        if self.protect or self.unprotect:
            fields["rules"] = self._rules(repo) or None
        return repo.changed(**fields)

    def _collaborators(self, repo: RepoRecord) -> list[Did]:
        for did in self.remove:
            if did not in repo.collaborators:
                raise BadCollaborator(f"{self._called(did)} is not a collaborator on {repo.name}")
        kept = [did for did in repo.collaborators if did not in self.remove]
        return list(dict.fromkeys([*kept, *self.add]))

    def _rules(self, repo: RepoRecord) -> list[dict[str, Any]]:
        ruled = {rule.branch for rule in repo.rules}
        for branch in self.unprotect:
            if branch not in ruled:
                check_branch(branch)
                raise NoSuchRule(f"no rule of {repo.name} protects {branch}")
        history = {} if self.history is None else {"history": self.history}
        rules = [
            {**rule.fields, **(history if rule.branch in self.protect else {})}
            for rule in repo.rules
            if rule.branch not in self.unprotect
        ]
        new = dict.fromkeys(branch for branch in self.protect if branch not in ruled)
        return rules + [{"branch": branch, **history} for branch in new]

    def _called(self, did: Did) -> str:
        return self.names.get(did, did)
