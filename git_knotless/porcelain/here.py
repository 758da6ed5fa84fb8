"""The git repository that a command runs in, if any."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, Self

from git_knotless.errors import KnotlessError
from git_knotless.storage.git import Git, GitError
from git_knotless.storage.refname import BRANCHES
from git_knotless.storage.url import SCHEME

DEFAULT_REMOTE = "origin"


class NotInARepository(KnotlessError):
    """The command needs a git repository around it."""


@dataclass(frozen=True, slots=True)
class Here:
    git: Git

    @classmethod
    def find(cls) -> Self:
        git = Git(None, env=os.environ)
        try:
            git.run("rev-parse", "--git-dir")
        except GitError as error:
            if "not a git repository" in error.message:
                raise NotInARepository("not in a git repository") from error
            raise  # one that git will not read, as when its files are another user's
        return cls(git)

    @classmethod
    def look(cls) -> Self | None:
        try:
            return cls.find()
        except NotInARepository:
            return None

    def directory(self) -> Path:
        """The one that people know the repository by; a bare one is its own."""
        if self._line("rev-parse", "--is-inside-work-tree") == "true":
            return Path(self._line("rev-parse", "--show-toplevel"))
        return self.git.common_dir

    def pushable(self) -> str:
        """The full name of the current branch, which has commits."""
        try:
            branch = self._line("symbolic-ref", "--quiet", "HEAD")
        except GitError as error:
            hint = "git switch BRANCH"
            raise KnotlessError("no branch is checked out to push", hint=hint) from error
        if self.git.resolve(branch) is None:
            short = branch.removeprefix(BRANCHES)
            raise KnotlessError(f"{short} has no commit to push", hint="git commit")
        return branch

    def remotes(self) -> list[str]:
        return self._line("remote").splitlines()

    def url(self) -> str | None:
        """Of the current branch's remote, else of origin, else of the one that is knotless://."""
        candidates = [self._remote_url(), self._remote_url(DEFAULT_REMOTE)]
        if not any(map(_is_ours, candidates)):
            others = {self._remote_url(name) for name in self.remotes()}
            candidates = list(filter(_is_ours, others))
            if len(candidates) > 1:
                return None
        return next(filter(_is_ours, candidates), None)

    def add_remote(self, name: str, url: str) -> None:
        self.git.run("remote", "add", "--", name, url)

    def _remote_url(self, *name: str) -> str | None:
        """As git would use it, `insteadOf` included; without a name, the current branch's."""
        try:
            return self._line("ls-remote", "--get-url", "--", *name)
        except GitError:
            return None

    def _line(self, *args: str) -> str:
        return os.fsdecode(self.git.run(*args)).removesuffix("\n")


def _is_ours(url: str | None) -> bool:
    return url is not None and url.startswith(SCHEME)


def become_git(*args: str, to_stderr: bool = False) -> NoReturn:
    """git takes this process over: its output, its exit code, and Ctrl-C, which it cleans up after.

    With `to_stderr` nothing of it goes to stdout.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    if to_stderr:
        os.dup2(2, 1)
    command = ["git", *args]
    try:
        os.execvp(command[0], command)
    except FileNotFoundError as error:
        raise KnotlessError("git is not installed") from error
