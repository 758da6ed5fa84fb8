"""git takes the packs that have come: it checks and indexes each object of them."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from git_knotless.storage.child import TooMuchWork
from git_knotless.storage.git import Child, GitError
from git_knotless.storage.packs.closure import NEEDS_OTHERS, Closure
from git_knotless.storage.packs.join import JoinedPacks, Member
from git_knotless.storage.packs.packfile import BadPack
from git_knotless.storage.packs.packindex import oids_in
from git_knotless.storage.packs.packrecord import PackRecord
from git_knotless.storage.packs.quarantine import Quarantine
from git_knotless.storage.packs.unpacking import index_pack, reason
from git_knotless.storage.progress import Progress


class Indexing:
    """The packs of one fetch, in their quarantine. `indexes` are of those that are taken."""

    def __init__(self, quarantine: Quarantine, progress: Progress) -> None:
        self.indexes: dict[Path, None] = {}
        self.closure = Closure(alone=quarantine.is_all)
        self._quarantine = quarantine
        self._progress = progress

    def joined(self, joined: JoinedPacks, *, alone: bool) -> bool:
        """Whether its packs are taken. `alone`: they are to lack nothing, or come again."""
        made = list(self._in_halves(joined, joined.members, alone=alone))
        if not made:
            return False
        if len(made) > 1 or any(one == next_ for one, next_ in pairwise(oids_in(made[0]))):
            made = [self._repack(made)]
        self.indexes.update(dict.fromkeys(made))
        return True

    def large(self, pack: PackRecord, stream: Iterable[bytes], *, check: bool) -> bool:
        """Whether the pack is taken. With `check` it is to prove itself (closure.py), or come
        again."""
        try:
            index = self._index(stream, pack.size, pack.tips, check=check)
        except GitError as error:
            if check and not isinstance(error, TooMuchWork):
                return False
            raise BadPack(pack.rkey, reason(error, pack.size)) from error
        self.indexes[index] = None
        return True

    def _in_halves(
        self, joined: JoinedPacks, members: Sequence[Member], *, alone: bool
    ) -> Iterator[Path]:
        """The indexes of `members`, in few packs: all together if git takes them so.

        Good packs need not go together: with two that hold the same object as a REF_DELTA, and
        its base, git has one delta too many. So only a pack refused by itself is a bad one.
        """
        size = sum(member.size for member in members)
        try:
            index = self._index(joined.stream(members), size, check=alone)
        except GitError as error:
            over = isinstance(error, TooMuchWork)
            if alone and not over:
                return  # it may only lack what the next pass brings; that names what is bad
            if len(members) == 1 or over:
                raise BadPack(_called(members), reason(error, size)) from error
            half = len(members) // 2
            yield from self._in_halves(joined, members[:half], alone=False)
            yield from self._in_halves(joined, members[half:], alone=False)
        else:
            yield index

    def _repack(self, indexes: Sequence[Path]) -> Path:
        """As one, with nothing twice. Deltas are kept as they are: none is looked for."""
        packs = self._quarantine.packs
        args = ("pack-objects", "-q", "--delta-base-offset", "--window=0", str(packs / "pack"))
        with self._quarantine.alone.popen(*args) as child:
            for oid in (oid for index in indexes for oid in oids_in(index)):
                child.write(oid.hex().encode() + b"\n")
            repacked = self._named(child)
            child.finish()
        for index in indexes:
            if index != repacked and index not in self.indexes:
                for file in packs.glob(f"{index.stem}.*"):
                    file.unlink()
        return repacked

    def _index(
        self, stream: Iterable[bytes], size: int, tips: Iterable[str] = (), *, check: bool
    ) -> Path:
        """Have git check and index a pack; its index. `check`: that it lacks nothing, too."""
        flags = ["--check-self-contained-and-connected"] if check else []
        if self._progress.enabled:
            flags.append("-v")
        with index_pack(self._quarantine.git, size, *flags, progress=self._progress) as child:
            for chunk in stream:
                child.write(chunk)
            index = self._named(child)
            status = child.finish(NEEDS_OTHERS) if check else child.finish()
        self.closure.add(index, tips, status if check else None)
        return index

    def _named(self, child: Child) -> Path:
        """The index of the pack that a command has made: it ends its answer with the name."""
        child.end_input()
        name = child.read(1024).decode().split()[-1:]
        return self._quarantine.packs / f"pack-{''.join(name)}.idx"


def _called(members: Sequence[Member]) -> str:
    """All of them, as one cannot be told from the next."""
    rkeys = sorted(member.rkey for member in members)
    return rkeys[0] if len(rkeys) == 1 else f"{rkeys[0]} to {rkeys[-1]}"
