"""Where the history that a push brings can be cut, so that each piece stands on those before it.

Commits are gone through from the oldest on, in an order in which none comes before its parents;
what each brings that none before it had is its size. So what has been gone through at any point
is all that its heads reach, whatever merges, roots and tags there are: heads are those commits
that are no parent of another. A cut is its heads, and whoever has these has all before it.
"""

import os
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from git_knotless.storage.child import Child
from git_knotless.storage.git import Git, GitError
from git_knotless.storage.progress import Progress
from git_knotless.value import value

# Each head is a ref that is written with the piece. A cut waits for one where they are few, and
# twice as long for one that fits into a batch.
_FEW_HEADS, _MOST_HEADS = 4, 60
_READ = 1 << 16
_SHOWN_EACH = 1000  # objects
_CHECK = "--batch-check=%(objecttype) %(objectsize:disk) %(objectname) %(rest)"


@value
class Survey:
    """`size` is about what all of it takes, in bytes; what follows the last cut is a piece too."""

    size: int
    cuts: Sequence[Sequence[str]]


def survey(
    git: Git, tips: Sequence[str], haves: Sequence[str], piece: int, progress: Progress
) -> Survey:
    """What `tips` reach and `haves` do not, in pieces of about `piece` bytes where that can be."""
    cutter = _Cutter(piece)
    trunk = _trunk(git, tips)
    others = [oid for oid in tips if oid not in trunk]
    walks = chain(_objects(git, trunk, haves), _objects(git, others, [*haves, *trunk]))
    with progress.meter("Measuring objects", None) as meter:
        for number, (kind, size, oid, parents) in enumerate(walks, 1):
            if kind == "commit":
                cutter.begin(oid, parents)
            cutter.add(size)
            if number % _SHOWN_EACH == 0:
                meter.advance(_SHOWN_EACH)
    cutter.finish()
    return Survey(cutter.total, cutter.cuts)


def holds_more(git: Git, size: int) -> bool:
    """Whether all of the repository's objects take more than `size` bytes, or may.

    Asked before every push, so it looks at files' sizes alone.
    """
    objects = git.objects_dir
    if "GIT_ALTERNATE_OBJECT_DIRECTORIES" in git.env or (objects / "info/alternates").exists():
        return True
    total = 0
    for found in _sizes(objects):
        total += found
        if total > size:
            return True
    return False


class _Cutter:
    """A cut is made before the commit with which a piece would be too large."""

    def __init__(self, piece: int) -> None:
        self._piece = piece
        self._heads: dict[str, None] = {}
        self._size = 0  # since the last cut, up to the newest commit
        self._newest = 0  # and what that one brings
        self._parents: Sequence[str] = ()
        self._commit: str | None = None
        self.total = 0
        self.cuts: list[Sequence[str]] = []

    def begin(self, commit: str, parents: Sequence[str]) -> None:
        self.finish()
        self._commit, self._parents = commit, parents

    def add(self, size: int) -> None:
        self._newest += size
        self.total += size

    def finish(self) -> None:
        """All that the newest commit brings is known."""
        if self._is_full():
            self.cuts.append(tuple(self._heads))
            self._size = 0
        self._size += self._newest
        self._newest = 0
        if self._commit is not None:
            for parent in self._parents:
                self._heads.pop(parent, None)
            self._heads[self._commit] = None

    def _is_full(self) -> bool:
        size = self._size + self._newest
        most = _FEW_HEADS if size < 2 * self._piece else _MOST_HEADS
        return self._size > 0 and size > self._piece and 0 < len(self._heads) <= most


def _trunk(git: Git, tips: Sequence[str]) -> Sequence[str]:
    """What is checked out, or a mirror's default branch, is what others come off. Gone through
    first, it can be cut however many there are."""
    try:
        head = git.run("rev-parse", "--verify", "--quiet", "HEAD").decode().strip()
    except GitError:
        return ()
    return [oid for oid in tips if oid == head]


def _objects(
    git: Git, tips: Sequence[str], haves: Sequence[str]
) -> Iterator[tuple[str, int, str, Sequence[str]]]:
    """The type of each object, its size here, its id and a commit's parents."""
    if not tips:
        return
    known = [oid for oid, kind in git.types(haves).items() if kind is not None]
    order = ("--reverse", "--topo-order", "--parents", "--in-commit-order")
    # Of a partial clone, what is missing counts nothing: it is on some host already, or sent for.
    objects = ("--objects", "--no-object-names", "--missing=allow-any")
    listing = ("rev-list", *order, *objects, "--stdin")
    with (
        git.popen(*listing) as walk,
        git.popen("cat-file", "--buffer", _CHECK, source=walk) as sizes,
    ):
        walk.write("".join(f"{oid}\n" for oid in [*tips, *(f"^{k}" for k in known)]).encode())
        walk.end_input()
        for line in _lines(sizes):
            kind, size, *rest = line.split()
            if size != "missing":
                yield kind, int(size), rest[0], rest[1:]
        walk.finish()
        sizes.finish()


def _lines(child: Child) -> Iterator[str]:
    rest = b""
    while chunk := child.read(_READ):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from (line.decode() for line in lines)


def _sizes(objects: Path) -> Iterator[int]:
    """Of packs first: they hold nearly everything."""
    for entry in _entries(objects / "pack"):
        if entry.name.endswith(".pack"):
            yield _size(entry)
    for folder in _entries(objects):
        if len(folder.name) == 2:
            yield from map(_size, _entries(folder.path))


def _size(entry: os.DirEntry[str]) -> int:
    """Nothing of what a `git gc` has removed since it was listed."""
    try:
        return entry.stat().st_size
    except OSError:
        return 0


def _entries(folder: Path | str) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except (FileNotFoundError, NotADirectoryError):
        return
