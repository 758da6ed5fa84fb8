"""Many pushes, one for each commit, as a person makes them over a year and a test in a second."""

import io
from collections.abc import Iterable

from git_knotless.storage.git import Git
from git_knotless.storage.progress import TextProgress
from git_knotless.storage.pushing.push import push
from git_knotless.storage.pushing.updates import Update
from git_knotless.storage.repositories import Repository

MAIN = "refs/heads/main"
SILENT = TextProgress(io.StringIO(), enabled=False)


def push_each(
    repository: Repository,
    git: Git,
    revisions: Iterable[str | None],
    *,
    name: str = MAIN,
    force: bool = False,
) -> None:
    """None deletes the ref."""
    for revision in revisions:
        oid = None if revision is None else git.resolve(revision)
        updates = [Update(name, oid, force=force)]
        snapshot = repository.snapshot()
        outcomes = push(repository, git, snapshot, updates, progress=SILENT, notify=print)
        assert [outcome.error for outcome in outcomes] == [None], outcomes


def commits_of(git: Git, revision: str = "main") -> list[str]:
    """The oldest first."""
    return git.run("rev-list", "--reverse", revision).decode().split()
