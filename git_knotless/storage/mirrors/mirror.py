"""A bare repository in the cache that holds what a repository in an account holds.

It is filled as any clone is, objects first and then refs, and can be lost at any time: nothing
rests on it. What it was when it was last known to be good stands in a file of its own,
`{"packs": {name: [size, mtime]}, "refs": digest}`. A pack that is not what it was means that the
mirror is made anew. Anything else, as after a process that was killed, means only that its refs
prove nothing: then the new ones are walked to the end.
"""

import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

from git_knotless.atproto.files import read_file, replace_cache
from git_knotless.errors import KnotlessError
from git_knotless.storage.filelocks import alone
from git_knotless.storage.git import GitError
from git_knotless.storage.packs.bare import Refs, git_in, is_laid_out, lay_out, show
from git_knotless.storage.progress import Progress
from git_knotless.storage.snapshot import Snapshot
from git_knotless.storage.store import RecordStore

_VERSION = 1
_LARGEST_FILE = 16 << 20
_MANY_PACKS = 20  # from which on git looks through too many for each object
_AT_ONCE = 10_000  # objects that are asked about together
DROPPED = ".dropped-"

_Packs = dict[str, list[int]]


class BadMirror(KnotlessError):
    """A folder of the cache that cannot be read or written."""


class Mirror:
    """In the folder `path`. Whoever has one keeps others from removing it (mirrors.py)."""

    def __init__(self, path: Path, env: Mapping[str, str]) -> None:
        self.path = path
        self.objects = path / "objects"
        self._packs = self.objects / "pack"
        self._good = path / "good"
        self._git = git_in(path, env)

    def has(self, oids: Iterable[str]) -> bool:
        """Whether it is good and holds them all."""
        with usable(self.path):
            if not self._is_sound():
                return False
            left = iter(oids)
            while asked := "".join(f"{oid}\n" for oid in islice(left, _AT_ONCE)):
                if not self._finds(asked.encode()):
                    return False
        return True

    def _finds(self, asked: bytes) -> bool:
        try:
            return b"missing" not in self._git.run("cat-file", "--batch-check=", input=asked)
        except GitError:
            return False

    def sync(
        self,
        store: RecordStore,
        snapshot: Snapshot,
        *,
        progress: Progress,
        source: str,
        waiting: Callable[[], None],
    ) -> Sequence[str] | None:
        """Make it what `snapshot` shows; None where it is that already.

        Else a few lines on pack records that could not be read. `source` is what errors call the
        repository; `waiting` is called where another process is at it.
        """
        refs = Refs.of(snapshot.repo.head, snapshot.live)
        with usable(self.path):
            if self._is_sound(refs):
                return None
            with alone(self.path.with_suffix(".lock"), waiting):
                if self._is_sound(refs):
                    return None
                self._mend()
                return self._bring(store, snapshot, refs, progress, source)

    def doubt(self) -> None:
        """Something may be wrong with it: whoever brings it up next looks closely."""
        with usable(self.path):
            self._good.unlink(missing_ok=True)

    def size(self) -> int:
        """In bytes, as far as that matters."""
        return sum(size for size, _ in self._listed().values())

    def drop(self) -> None:
        """All of it, at once for whoever looks for it."""
        aside = self.path.with_name(f"{self.path.name}{DROPPED}{secrets.token_hex(8)}")
        with suppress(FileNotFoundError):
            self.path.replace(aside)
            remove(aside)

    # --- bringing it up

    def _bring(
        self,
        store: RecordStore,
        snapshot: Snapshot,
        refs: Refs,
        progress: Progress,
        source: str,
    ) -> Sequence[str]:
        from git_knotless.storage.packs.intake import take

        wants, key, new = _by_target(snapshot.live), snapshot.repo.key, not self._listed()
        git = self._git
        taken = take(git, store, key, wants, progress=progress, clone=new, source=source)
        try:
            show(self.path, refs)
        finally:
            taken.release()
        self._note(refs)
        if sum(name.endswith(".pack") for name in self._listed()) > _MANY_PACKS:
            self._consolidate()
            self._note(refs)
        return taken.left_out

    def _consolidate(self) -> None:
        """What it costs is in proportion to what came in since; nothing is left out."""
        with suppress(GitError):  # of a git that is too old for it
            self._git.run("repack", "--geometric=2", "-d", "-n", "-q")

    # --- what it is, and what it was

    def _note(self, refs: Refs) -> None:
        state = {"version": _VERSION, "packs": self._listed(), "refs": refs.digest}
        replace_cache(self._good, json.dumps(state).encode())

    def _noted(self) -> tuple[_Packs, str | None]:
        """The packs, and the digest of the refs; nothing where the file is none of ours."""
        with suppress(OSError, ValueError, RecursionError):
            match json.loads(read_file(self._good, _LARGEST_FILE)):
                case {"version": version, "packs": dict() as packs, "refs": str() as refs}:
                    return (packs, refs) if version == _VERSION else ({}, None)
        return {}, None

    def _is_sound(self, refs: Refs | None = None) -> bool:
        """Whether it is as it was when it was good; with `refs`, where given."""
        packs, digest = self._noted()
        if digest is None or packs != self._listed() or not is_laid_out(self.path):
            return False
        return refs is None or (digest == refs.digest and Refs.read(self.path) == refs)

    def _mend(self) -> None:
        """What is not as it was when it was good becomes something to go on from: good packs, and
        no refs. Nobody else is at it."""
        packs, digest = self._noted()
        refs = Refs.read(self.path)
        try:
            self._sweep()
            if self._is_sound() and refs is not None and refs.digest == digest:
                return
            if not self._are_good(packs):
                self.drop()
            lay_out(self.path)
        except OSError:  # what should be a folder is none
            self.drop()
            lay_out(self.path)

    def _sweep(self) -> None:
        """What a process that was killed has left."""
        for name in self._listed():
            pack = self._packs / name
            lacks = pack.suffix == ".pack" and not pack.with_suffix(".idx").exists()
            if lacks or not name.startswith("pack-"):
                pack.unlink()
        for keep in self._packs.glob("*.keep"):
            keep.unlink()

    def _are_good(self, packs: _Packs) -> bool:
        """Whether no file of a pack is other than it was, and what came since is what it says."""
        there = self._listed()
        if any(there[name] != packs[name] for name in there.keys() & packs.keys()):
            return False
        new = [name for name in there.keys() - packs.keys() if name.endswith(".idx")]
        try:
            for name in new:
                self._git.run("verify-pack", "--", str(self._packs / name))
        except GitError:
            return False
        return True

    def _listed(self) -> _Packs:
        """Each file that belongs to a pack, with its size and when it was last changed."""
        found: _Packs = {}
        with suppress(FileNotFoundError, NotADirectoryError):
            for entry in os.scandir(self._packs):
                if not entry.name.endswith(".keep"):
                    status = entry.stat(follow_symlinks=False)
                    found[entry.name] = [status.st_size, status.st_mtime_ns]
        return found


def _by_target(refs: Mapping[str, str]) -> dict[str, list[str]]:
    """Each object that refs point to, with their names."""
    names: dict[str, list[str]] = {}
    for name, oid in refs.items():
        names.setdefault(oid, []).append(name)
    return names


def remove(path: Path) -> None:
    """Whatever it is; what cannot be removed now is left to the next who looks."""
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


@contextmanager
def usable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BadMirror(
            f"{error.filename or path} cannot be used: {error.strerror}",
            hint="to use another folder: export KNOTLESS_CACHE_DIR=<folder>",
        ) from error
