"""Where packs wait until all of them are found good: git sees none before, or all of them.

It is what `git receive-pack` does for a push (tmp-objdir.c): a directory beside the objects,
with the repository's own as its alternate. A process that outlives us removes it, even when we
are killed; were that killed too, `git gc` would, as it does with git's own.
"""

import os
import secrets
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from git_knotless.errors import KnotlessError
from git_knotless.storage.git import Git, GitError

# Reading ends when nobody is left who could write.
_REAPER = 'read -r _; exec rm -rf -- "$0"'
# Whoever removes the directory takes this too; git, which makes it again to write there, does not
# bring it back.
_OURS = "knotless"
# In the order in which they are handed over: a pack is read once its index is there.
_PARTS = (".pack", ".rev", ".idx")
_MAY_LACK = ".rev"
_KEEP = b"fetched by git-knotless\n"
# No fetch takes a day to write its refs: a keep that old was left by one that was killed.
_KEPT_TOO_LONG = 24 * 60 * 60


class QuarantineLost(KnotlessError):
    """Packs were removed before they were the repository's."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} was removed while packs came in",
            hint="fetch again, once nothing prunes this repository, as gc --prune=now does",
        )


class Quarantine:
    """`git` adds its objects here and sees the repository's too; `alone` sees only these.

    `hand_over` gives them to the repository; whatever is here when it is closed goes. Left by an
    error after somebody else removed it, it raises QuarantineLost: that is what went wrong.
    """

    def __init__(self, git: Git) -> None:
        self._objects = git.objects_dir
        self.path = self._objects / f"tmp_objdir-knotless-{secrets.token_hex(8)}"
        self.packs = self.path / "pack"
        self._reaper, self._held = self._watch(git)
        try:
            self._make()
        except BaseException:
            self.close()
            raise
        # Each git that writes here holds the pipe too: none is left when the directory goes.
        place = {"GIT_OBJECT_DIRECTORY": str(self.path)}
        alternates = [_quoted(self._objects), git.env.get("GIT_ALTERNATE_OBJECT_DIRECTORIES", "")]
        seen = {"GIT_ALTERNATE_OBJECT_DIRECTORIES": os.pathsep.join(filter(None, alternates))}
        self.git = git.within(place | seen, fds=(self._held,))
        self.alone = git.within(place | dict.fromkeys(seen, ""), fds=(self._held,))

    @property
    def is_all(self) -> bool:
        """Whether the repository has no objects but these, and borrows none."""
        if self.git.env.get("GIT_ALTERNATE_OBJECT_DIRECTORIES") != _quoted(self._objects):
            return False
        own = [name for name in os.listdir(self._objects) if not name.startswith("tmp_")]
        borrows = (self._objects / "info/alternates").exists()
        return not borrows and all(
            name == "info" or (name == "pack" and not os.listdir(self._objects / name))
            for name in own
        )

    def hand_over(self, indexes: Iterable[Path], keeps: list[Path]) -> None:
        """The packs that these are the indexes of become the repository's.

        `keeps` gets their new .keep files as they are made: gc spares a pack till refs do.
        """
        there = self._objects / "pack"
        try:
            there.mkdir(exist_ok=True)
            _sweep(there.glob("pack-*.keep"))
            for index in indexes:
                if _created(keep := there / f"{index.stem}.keep"):
                    keeps.append(keep)
                for part in map(index.with_suffix, _PARTS):
                    if part.suffix != _MAY_LACK or part.exists():
                        part.replace(there / part.name)
        except FileNotFoundError as error:
            raise QuarantineLost(self.path) from error
        except OSError as error:
            raise KnotlessError(f"cannot add to {there}: {error.strerror}") from error

    def check(self) -> None:
        """Raises QuarantineLost once somebody else has removed it."""
        if not (self.path / _OURS).exists():
            raise QuarantineLost(self.path)

    def close(self) -> None:
        os.close(self._held)
        self._reaper.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if isinstance(error, KnotlessError | OSError):
                self.check()
        finally:
            self.close()

    def _watch(self, git: Git) -> tuple[subprocess.Popen[bytes], int]:
        """Begun before there is anything to remove. Its own session: Ctrl-C is not for it."""
        pipe, held = os.pipe()
        try:
            reaper = subprocess.Popen(
                ["sh", "-c", _REAPER, str(self.path)],
                env=git.env,
                stdin=pipe,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            os.close(held)
            raise GitError(f"sh cannot be run: {error.strerror}") from error
        finally:
            os.close(pipe)
        return reaper, held

    def _make(self) -> None:
        try:
            self.packs.mkdir(mode=0o700, parents=True)
            (self.path / _OURS).touch()
        except OSError as error:
            raise KnotlessError(f"cannot add to {self._objects}: {error.strerror}") from error


def release(keeps: Iterable[Path]) -> None:
    """Packs that refs reach now need no .keep, and are to be repacked with the others."""
    for keep in keeps:
        keep.unlink(missing_ok=True)


def _created(keep: Path) -> bool:
    """False where the file is somebody else's, who will want to find it again."""
    try:
        with keep.open("xb") as file:
            file.write(_KEEP)
    except FileExistsError:
        return False
    return True


def _sweep(keeps: Iterable[Path]) -> None:
    """Ours only, by what they say."""
    for keep in keeps:
        try:
            old = time.time() - keep.stat().st_mtime > _KEPT_TOO_LONG
            if old and keep.read_bytes() == _KEEP:
                keep.unlink()
        except FileNotFoundError:
            continue  # whoever made it needs it no more


def _quoted(path: Path) -> str:
    """A path in a list of alternates: quoted, it may hold what would separate it from the next."""
    return '"' + str(path).replace("\\", "\\\\").replace('"', '\\"') + '"'
