"""The git repository that a command runs in, if any."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, Self

from git_knotless.errors import KnotlessError
from git_knotless.storage.git import Git, GitError
from git_knotless.storage.pin import Pin
from git_knotless.storage.refname import BRANCHES
from git_knotless.storage.url import SCHEME

DEFAULT_REMOTE = "origin"
OBJECT_FORMAT = "sha1"  # of every repository that is made so far


class NotInARepository(KnotlessError):
    """The command needs a git repository around it."""


class NothingToPush(KnotlessError):
    """No branch is checked out, or one without a commit."""


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
        """The full name of the current branch, which a new repository can be given whole."""
        from git_knotless.storage.pushing.shallow import refuse_holes

        try:
            branch = self._line("symbolic-ref", "--quiet", "HEAD")
        except GitError as error:
            hint = "git switch BRANCH"
            raise NothingToPush("no branch is checked out to push", hint=hint) from error
        tip = self.git.resolve(branch)
        if tip is None:
            short = branch.removeprefix(BRANCHES)
            raise NothingToPush(f"{short} has no commit to push", hint="git commit")
        if (found := self.git.object_format()) != OBJECT_FORMAT:
            raise NothingToPush(
                f"repositories name objects by {OBJECT_FORMAT}, and this one by {found}"
            )
        refuse_holes(self.git, [tip], frozenset())
        return branch

    def remotes(self) -> list[str]:
        return self._line("remote").splitlines()

    def candidates(self) -> dict[str, str]:
        """The knotless:// URLs that may be meant, by their remotes.

        The current branch's alone, else origin's, else every one that there is.
        """
        for name in ([], [DEFAULT_REMOTE]):
            if url := _ours(self._remote_url(*name)):
                return {"".join(name): url}
        found = {name: _ours(self._remote_url(name)) for name in self.remotes()}
        return {name: url for name, url in found.items() if url}

    def remote_of(self, url: str) -> str | None:
        """The first remote that is fetched from `url`."""
        return next((name for name in self.remotes() if self._remote_url(name) == url), None)

    def redirect(self, url: str, new: str) -> str | None:
        """The remote that leads to `new` from now on, instead of to `url`.

        None where there is none whose one address that is, in this repository's own config.
        """
        remote = self.remote_of(url)
        if remote is None or self._urls(remote, "url") != [url]:
            return None
        pushed = self._urls(remote, "pushurl")
        if pushed not in ([], [url]):
            return None
        for options in ([], ["--push"]) if pushed else ([],):
            self.git.run("remote", "set-url", *options, "--", remote, new)
        return remote

    def _urls(self, remote: str, key: str) -> list[str] | None:
        """None where they are not this repository's own, or not its alone."""
        found = [self._values(f"remote.{remote}.{key}", *where) for where in ([], ["--local"])]
        return found[0] if found[0] == found[1] else None

    def _values(self, key: str, *where: str) -> list[str]:
        try:
            listed = self.git.run("config", *where, "--null", "--get-all", key)
        except GitError:  # there is none
            return []
        return os.fsdecode(listed).split("\0")[:-1]

    def pin_of(self, url: str) -> Pin | None:
        """What keeps the remote that is fetched from `url` to its repository."""
        from git_knotless.porcelain.output import note

        remote = self.remote_of(url)
        return Pin(self.git, remote, url, note) if remote else None

    def push(self, remote: str, branch: str) -> bool:
        """`git push -u`, whose words all go to stderr; whether it went through."""
        command = ["git", "push", "--set-upstream", remote, branch]
        with subprocess.Popen(command, stdout=sys.stderr) as child:
            try:
                return child.wait() == 0
            except KeyboardInterrupt:
                child.terminate()  # the block waits until it has put its own things in order
                raise

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


def _ours(url: str | None) -> str | None:
    return url if url is not None and url.startswith(SCHEME) else None


def become_git(*args: str) -> NoReturn:
    """git takes this process over: its output, its exit code, and Ctrl-C."""
    sys.stdout.flush()
    sys.stderr.flush()
    command = ["git", *args]
    try:
        os.execvp(command[0], command)
    except OSError as error:
        raise GitError(f"git cannot be run: {error.strerror}") from error
