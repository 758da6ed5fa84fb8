"""git itself, run so that nothing of the user's set-up bends what it says about objects."""

import os
import re
import subprocess
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from git_knotless.storage.child import (
    Child,
    GitError,
    NoSpace,
    command,
    failure,
    readable,
)
from git_knotless.storage.progress import Progress

__all__ = ["Child", "Git", "GitError", "NoSpace"]

_HERMETIC = {
    # What is pushed and checked is what is there, not what a replacement or a graft shows. A
    # graft file that cannot exist is ignored without a word; one that can be opened is warned of.
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_GRAFT_FILE": "/dev/null/none",
    "GIT_TERMINAL_PROMPT": "0",
    # Of a partial clone: to ask whether an object is here is not to send for it.
    "GIT_NO_LAZY_FETCH": "1",
    "LC_ALL": "C",
}
_FALSE = ("false", "no", "off", "0", "")


class Git:
    """The git commands of one repository; none where `git_dir` is None and none is found.

    A Git remembers what it has learned of the repository's own shape: make one a run.
    """

    def __init__(
        self, git_dir: Path | None, *, env: Mapping[str, str], fds: Sequence[int] = ()
    ) -> None:
        self.env = {**env, **_HERMETIC}
        self._fds = fds
        self._types: dict[str, str] = {}
        if git_dir is not None:
            self.env["GIT_DIR"] = str(git_dir.absolute())

    def within(self, env: Mapping[str, str], *, fds: Sequence[int] = ()) -> "Git":
        """The same repository with more of an environment, and `fds` kept open by its children."""
        return Git(None, env={**self.env, **env}, fds=fds)

    def run(self, *args: str, input: bytes | None = None) -> bytes:  # noqa: A002 # as subprocess
        """What a command prints; raises GitError with its own last word when it fails."""
        done = self._run(args, input)
        if done.returncode != 0:
            raise failure(args, done.returncode, readable(done.stderr))
        return done.stdout

    def ok(self, *args: str) -> bool:
        """A command that answers by its status, 0 or 1."""
        return self._answer(args) is not None

    def popen(
        self,
        *args: str,
        progress: Progress | None = None,
        source: Child | None = None,
        settings: Sequence[str] = (),
        seconds: int | None = None,
    ) -> Child:
        return Child(
            args,
            self.env,
            progress=progress,
            fds=self._fds,
            source=source,
            settings=settings,
            seconds=seconds,
        )

    @cached_property
    def common_dir(self) -> Path:
        """What all worktrees share; absolute."""
        return _common_dir(self.env) or self._shape[2]

    @cached_property
    def objects_dir(self) -> Path:
        """Where objects are added; absolute."""
        return Path(self.env.get("GIT_OBJECT_DIRECTORY") or self.common_dir / "objects").absolute()

    @cached_property
    def config(self) -> bytes:
        """Every setting that counts here, as `git config --show-scope -z --list` prints them."""
        return self.run("config", "--show-scope", "-z", "--list")

    def settings(self, pattern: str, *, scopes: Collection[str] = ()) -> list[tuple[str, str]]:
        """Names that begin as `pattern` has it, and their values, in git's order.

        A name without `=` is true, as git has it. `scopes`: of these alone, where any are given.
        """
        parts = os.fsdecode(self.config).split("\0")
        entries = (
            entry
            for scope, entry in zip(parts[::2], parts[1::2], strict=False)
            if not scopes or scope in scopes
        )
        pairs = (entry.partition("\n") for entry in entries if re.match(pattern, entry))
        return [(name, text if given else "true") for name, given, text in pairs]

    def object_format(self) -> str:
        return self._shape[0]

    def is_shallow(self) -> bool:
        return self._shape[1]

    def shallow_commits(self) -> set[str]:
        """The commits whose parents are not here."""
        if not self.is_shallow():
            return set()
        return set(self.shallow_file().read_text().split())

    def shallow_file(self) -> Path:
        """Where the commits are named whose parents are not here; absolute."""
        return _path(self.run("rev-parse", "--git-path", "shallow"))

    @cached_property
    def is_partial(self) -> bool:
        """Whether objects may be missing here that a remote has promised."""
        names = r"(?i)(remote\..*\.promisor|extensions\.partialclone)(\n|$)"
        return any(text.lower() not in _FALSE for _, text in self.settings(names))

    def fetching(self) -> "Git":
        """The same repository, which sends for what is missing of a partial clone."""
        git = self.within({})
        git.env["GIT_NO_LAZY_FETCH"] = "0"
        return git

    def unshallowed(self) -> "Git":
        """The same repository as if nothing were cut off its history."""
        return self.within({"GIT_SHALLOW_FILE": ""})

    def resolve(self, src: str) -> str | None:
        """The object that a push source names, a tag not peeled; None where it names none."""
        args = ("rev-parse", "--verify", "--quiet", "--end-of-options", src)
        answer = self._answer(args)
        return None if answer is None else answer.decode().strip()

    def head(self) -> str | None:
        """The full name of the branch that is checked out; None where HEAD is detached."""
        answer = self._answer(("symbolic-ref", "--quiet", "HEAD"))
        return None if answer is None else answer.decode(errors="replace").strip()

    def types(self, oids: Iterable[str]) -> dict[str, str | None]:
        """What kind of object each is; None for one that is not here."""
        wanted = list(oids)
        asked = [oid for oid in wanted if oid not in self._types]
        if asked:
            answer = self._answered(("cat-file", "--batch-check=%(objecttype)"), _lines(asked))
            pairs = zip(asked, answer.decode().splitlines(), strict=True)
            self.learn_types({oid: kind for oid, kind in pairs if not kind.endswith(" missing")})
        return {oid: self._types.get(oid) for oid in wanted}

    def _answered(self, args: Sequence[str], asked: bytes) -> bytes:
        """For git what is missing and was promised is an error, unless there is no promise."""
        try:
            return self.run(*args, input=asked)
        except GitError:
            if not self.is_partial:
                raise
        import tempfile

        with tempfile.TemporaryDirectory(prefix="knotless-") as name:
            Path(name, "refs").mkdir()
            Path(name, "HEAD").write_text("ref: refs/heads/none\n")
            there = {"GIT_DIR": name, "GIT_OBJECT_DIRECTORY": str(self.objects_dir)}
            return self.within(there, fds=self._fds).run(*args, input=asked)

    def learn_types(self, types: Mapping[str, str]) -> None:
        """Of objects that are here: they are not asked about again. Others may yet come."""
        self._types.update(types)

    def is_ancestor(self, old: str, new: str) -> bool:
        """Whether `old` is reached from `new`; both are commits that are here."""
        return self.ok("merge-base", "--is-ancestor", old, new)

    def has_merge(self, new: str, old: str | None) -> bool:
        """Whether a merge is reached from `new` and not from `old`."""
        less = () if old is None else (f"^{old}",)
        return bool(self.run("rev-list", "--min-parents=2", "--max-count=1", new, *less, "--"))

    def missing(self, tips: Iterable[str]) -> bool:
        """Whether `tips`, or anything they reach that no ref here does, is not here."""
        return self.broken_link(tips) is not None

    def broken_link(
        self, tips: Iterable[str], *, whole: Iterable[str] = (), trusting: bool = True
    ) -> str | None:
        """git's word for the first thing that is missing; None where all is here.

        git's own test after a fetch (connected.c). `whole`: what lacks nothing that it reaches.
        `trusting`: that the same is true of the refs.
        """
        known = ("--not", "--all", "--alternate-refs") if trusting else ()
        asked = _lines([*tips, *(f"^{oid}" for oid in whole)])
        args = ("--quiet", "--objects", "--stdin", *known)
        broken = self._broken(args, asked)
        if broken is not None and self.is_partial:
            broken = self._broken(("--exclude-promisor-objects", *args), asked)
        return broken

    def _broken(self, args: Sequence[str], asked: bytes) -> str | None:
        try:
            self.run("rev-list", *args, input=asked)
        except GitError as error:
            return error.message
        return None

    @cached_property
    def _shape(self) -> tuple[str, bool, Path]:
        asked = ("--show-object-format", "--is-shallow-repository", "--git-common-dir")
        kind, shallow, common = self.run("rev-parse", *asked).split(b"\n", 2)
        return kind.decode(), shallow == b"true", _path(common)

    def _answer(self, args: Sequence[str]) -> bytes | None:
        done = self._run(args, None)
        if done.returncode not in (0, 1):
            raise failure(args, done.returncode, readable(done.stderr))
        return None if done.returncode else done.stdout

    def _run(self, args: Sequence[str], given: bytes | None) -> subprocess.CompletedProcess[bytes]:
        """The standard input is never ours: in a helper that is where git talks to us."""
        try:
            return subprocess.run(
                command(args),
                env=self.env,
                input=given if given is not None else b"",
                capture_output=True,
                pass_fds=self._fds,
                check=False,
            )
        except OSError as error:
            raise GitError(f"git cannot be run: {error.strerror}") from error


def _common_dir(env: Mapping[str, str]) -> Path | None:
    """As git finds it where it is told where the repository is; None for git to say."""
    if "GIT_COMMON_DIR" in env:
        return None
    git_dir = Path(env.get("GIT_DIR") or "/dev/null").absolute()
    if not (git_dir / "HEAD").exists():  # nowhere, or a file that says where
        return None
    try:
        named = os.fsdecode((git_dir / "commondir").read_bytes()).removesuffix("\n")
    except FileNotFoundError:
        return git_dir
    return Path(os.path.realpath(git_dir / named))


def _path(line: bytes) -> Path:
    return Path(os.fsdecode(line.removesuffix(b"\n"))).absolute()


def _lines(words: Iterable[str]) -> bytes:
    return "".join(f"{word}\n" for word in words).encode()
