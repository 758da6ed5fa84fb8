"""What refs may point at: any object has an id, and not every one can be a branch."""

from collections.abc import Mapping, Sequence

from git_knotless.errors import KnotlessError
from git_knotless.storage.git import Git
from git_knotless.storage.refname import BRANCHES


class NoCommit(KnotlessError):
    """A branch that points at something else than a commit."""


def check_branches(git: Git, wants: Mapping[str, Sequence[str]], source: str) -> None:
    """Raises NoCommit: git would refuse it later, with the objects here and no word of whose.

    `wants` are object ids, which are here, each with the refs that point at it.
    """
    branches = {oid: [n for n in names if n.startswith(BRANCHES)] for oid, names in wants.items()}
    kinds = git.types(oid for oid, names in branches.items() if names)
    for oid, kind in kinds.items():
        if kind not in ("commit", None):
            raise NoCommit(f"{source}: {branches[oid][0]} points at a {kind}, {oid}: no commit")
