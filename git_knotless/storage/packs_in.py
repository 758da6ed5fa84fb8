"""Packs on their way from a host into a repository: checked, indexed, and then shown to git."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import closing
from itertools import islice, pairwise
from pathlib import Path

from git_knotless.errors import KnotlessError
from git_knotless.storage import fsck
from git_knotless.storage.brief import brief
from git_knotless.storage.closure import NEEDS_OTHERS, Closure, most_wanted
from git_knotless.storage.fields import BadRecord
from git_knotless.storage.git import Child, Git, GitError
from git_knotless.storage.join import JoinedPacks, Member
from git_knotless.storage.missing import BrokenLink, MissingObjects, in_no_pack, still_moving
from git_knotless.storage.packfile import BadPack, checked
from git_knotless.storage.packindex import oids_in
from git_knotless.storage.packrecord import PackRecord
from git_knotless.storage.parts import Gone, Parts, unspooled
from git_knotless.storage.progress import Progress
from git_knotless.storage.quarantine import Quarantine, release
from git_knotless.storage.records import PACK, prefix_of
from git_knotless.storage.store import Record, RecordStore
from git_knotless.storage.taken import packs_taken, remember
from git_knotless.storage.transfers import Transfers
from git_knotless.storage.unshallow import unshallow as no_longer_shallow
from git_knotless.value import value

__all__ = ["MissingObjects", "Taken", "remember", "take"]

# A larger pack is worth an index-pack, and a place on disk, of its own.
_SMALL = 1024 * 1024


@value
class Taken:
    """What came in. `keeps` hold git's gc off the packs until refs reach them.

    `left_out` has a few lines on pack records that could not be read.
    """

    keeps: tuple[Path, ...]
    connected: bool
    left_out: tuple[str, ...] = ()

    def release(self) -> None:
        """Once the refs are written, or given up."""
        release(self.keeps)


def take(
    git: Git,
    store: RecordStore,
    repo_key: str,
    wants: Mapping[str, Sequence[str]],
    *,
    progress: Progress,
    clone: bool,
    unshallow: bool = False,
) -> Taken:
    """Add what `wants` reach to the repository: objects only, all of them good, or none at all.

    `wants` are object ids, each with the refs that it is wanted for. Only packs that were not
    taken before are looked at, the newest first, as far as the first page that holds one that
    was. Objects that are missing then were in packs added or folded meanwhile: so all that were
    not taken, and lastly all there are. `clone`: the repository is new, so that packs may prove
    themselves (closure.py). `unshallow`: the history that a shallow repository had cut off comes
    too, and is cut off no more.

    The first of `keeps` is of the pack with the most of `wants`: git heeds one, and looks no
    further for what is in that pack.
    """
    keeps: list[Path] = []
    try:
        with Transfers() as transfers, Quarantine(git) as quarantine:
            intake = _Intake(git, store, repo_key, progress, transfers, quarantine)
            whole = intake.take(wants, clone=clone, unshallow=unshallow)
            intake.hand_over(keeps, wants)
        if unshallow:
            no_longer_shallow(git, whole)
    except BaseException:
        release(keeps)
        raise
    return Taken(tuple(keeps), connected=True, left_out=intake.left_out)


class _Intake:
    """One fetch: what has come in so far, and what stood in the way."""

    def __init__(
        self,
        git: Git,
        store: RecordStore,
        repo_key: str,
        progress: Progress,
        transfers: Transfers,
        quarantine: Quarantine,
    ) -> None:
        self._git = git
        self._store = store
        self._key = repo_key
        self._progress = progress
        self._transfers = transfers
        self._quarantine = quarantine
        self._directory = git.common_dir / "knotless"
        self._parts = Parts(store, self._directory, transfers.check)
        self._taken: dict[str, None] = {}
        self._left_out: dict[str, str] = {}
        self._gone: dict[str, None] = {}
        self._indexes: dict[Path, None] = {}
        self._closure = Closure(alone=quarantine.is_all)

    def take(
        self, wants: Mapping[str, Sequence[str]], *, clone: bool, unshallow: bool
    ) -> Sequence[str]:
        """Until all is here: what is here with all it reaches. Raises MissingObjects.

        `unshallow`: with what a shallow repository has cut off, and its refs reach no more. All
        of it, as git has it, unless it is not on this host.
        """
        git = self._quarantine.git.unshallowed() if unshallow else self._quarantine.git

        def broken(oids: Sequence[str]) -> str | None:
            return git.broken_link(oids, whole=self._closure.tips, trusting=not unshallow)

        tips = [*wants, *self._git.shallow_commits()] if unshallow else list(wants)
        before = packs_taken(self._git, self._key)
        passes = (
            (before, before),
            (before, frozenset[str]()),
            (frozenset[str](), frozenset[str]()),
        )
        for at, (known, until) in enumerate(passes):
            came = self._bring(known, until, clone=clone and at == 0)
            if (came or at == 0) and (self._is_proven(tips) or broken(tips) is None):
                return tips
            self._quarantine.check()
        if unshallow and broken(list(wants)) is None:
            return list(wants)
        raise self._missing(wants, broken)

    def hand_over(self, keeps: list[Path], wants: Mapping[str, Sequence[str]]) -> None:
        """All of it to the repository; `keeps` gets the .keep files that hold gc off it."""
        if (strict := fsck.strictness(self._git)) is not None:
            fsck.examine(self._quarantine.git, self._quarantine.packs, strict)
        self._quarantine.hand_over(most_wanted(self._indexes, wants), keeps)
        remember(self._git, self._key, *self._taken)

    @property
    def left_out(self) -> tuple[str, ...]:
        return tuple(brief(self._left_out.values()))

    def _bring(self, known: Set[str], until: Set[str], *, clone: bool) -> bool:
        """Packs that are not `known`, up to the page with one of `until`; whether any came."""
        large: list[PackRecord] = []
        self._gone = {}  # of what is listed now: what was folded meanwhile is in other packs
        before = len(self._taken)
        with closing(JoinedPacks(self._directory)) as joined:
            with self._progress.meter("Receiving packs", None) as meter:
                for packs in self._listed(known, until):
                    large += (pack for pack in packs if _is_large(pack))
                    small = [pack for pack in packs if not _is_large(pack)]
                    meter.advance(self._join(joined, small))
            alone = clone and len(joined.members) + len(large) == 1
            self._index_large(sorted(large, key=lambda pack: pack.rkey), clone=clone)
            if joined.members:
                self._index_joined(joined, alone=alone)
        return len(self._taken) > before

    def _is_proven(self, wants: Iterable[str]) -> bool:
        whole = self._closure.holds_all
        return whole and None not in self._quarantine.alone.types(wants).values()

    def _missing(self, wants: Mapping[str, Sequence[str]], broken: BrokenLink) -> KnotlessError:
        kinds = self._quarantine.git.types(wants)
        what = list(in_no_pack(wants, kinds, broken))
        if self._gone:
            return still_moving(self._gone, what, self._left_out.values())
        return MissingObjects(what, self._left_out.values())

    def _listed(self, known: Set[str], until: Set[str]) -> Iterator[list[PackRecord]]:
        for page in self._store.list(PACK, prefix_of(self._key), newest_first=True):
            new = [r for r in page if r.rkey not in known and r.rkey not in self._taken]
            yield list(self._readable(new))
            if any(record.rkey in until for record in page):
                return

    def _readable(self, records: Iterable[Record]) -> Iterator[PackRecord]:
        """One that cannot be read is left out: if it matters, something is missing later."""
        for record in records:
            try:
                yield PackRecord.from_record(record)
            except BadRecord as error:
                why = error.message.removeprefix(f"pack {record.rkey}: ")
                self._left_out[record.rkey] = f"pack {record.rkey} is left out: {why}"

    def _join(self, joined: JoinedPacks, packs: Sequence[PackRecord]) -> int:
        """How many of `packs` were let in: all but those that are gone."""
        before = len(joined.members)
        for pack, data in zip(packs, self._transfers.map(self._parts.whole, packs), strict=True):
            if data is None:
                self._gone[pack.rkey] = None
            else:
                joined.add(pack, data)
        return len(joined.members) - before

    def _index_joined(self, joined: JoinedPacks, *, alone: bool) -> None:
        indexes = list(self._in_halves(joined, joined.members, alone=alone))
        if not indexes:
            return
        self._taken.update(dict.fromkeys(member.rkey for member in joined.members))
        if len(indexes) > 1 or any(one == next_ for one, next_ in pairwise(oids_in(indexes[0]))):
            indexes = [self._repack(indexes)]
        self._indexes.update(dict.fromkeys(indexes))

    def _in_halves(
        self, joined: JoinedPacks, members: Sequence[Member], *, alone: bool
    ) -> Iterator[Path]:
        """The indexes of `members`, in few packs: all together if git takes them so.

        Good packs need not go together: with two that hold the same object as a REF_DELTA, and
        its base, git has one delta too many. So only a pack refused by itself is a bad one.
        """
        try:
            index = self._index(joined.stream(members), check=alone)
        except GitError as error:
            if alone:
                return  # it may only lack what the next pass brings; that names what is bad
            if len(members) == 1:
                raise BadPack(members[0].rkey, error.message) from error
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
            if index != repacked and index not in self._indexes:
                for file in packs.glob(f"{index.stem}.*"):
                    file.unlink()
        return repacked

    def _index_large(self, packs: Sequence[PackRecord], *, clone: bool) -> None:
        """One after another, the oldest first, while the parts of what follows come in."""
        wanted = ((pack, blob) for pack in packs for blob in pack.blobs)
        parts = self._transfers.map(self._parts.spooled, wanted)
        for pack in packs:
            own = islice(parts, len(pack.blobs))
            check = clone and self._closure.expects(pack.bases)
            try:
                index = self._index(checked(pack, unspooled(own)), pack.tips, check=check)
                self._indexes[index] = self._taken[pack.rkey] = None
            except Gone:
                self._gone[pack.rkey] = None
            except GitError as error:
                if not check:  # as for joined packs
                    raise BadPack(pack.rkey, error.message) from error
            for spool in own:
                if spool is not None:
                    spool.close()

    def _index(self, stream: Iterable[bytes], tips: Iterable[str] = (), *, check: bool) -> Path:
        """Have git check and index a pack; its index. `check`: that it lacks nothing, too."""
        flags = ["--check-self-contained-and-connected"] if check else []
        if self._progress.enabled:
            flags.append("-v")
        with self._quarantine.git.popen(
            "index-pack", "--stdin", *flags, progress=self._progress
        ) as child:
            for chunk in stream:
                child.write(chunk)
            index = self._named(child)
            status = child.finish(NEEDS_OTHERS) if check else child.finish()
        self._closure.add(index, tips, status if check else None)
        return index

    def _named(self, child: Child) -> Path:
        """The index of the pack that a command has made: it ends its answer with the name."""
        child.end_input()
        name = child.read(1024).decode().split()[-1:]
        return self._quarantine.packs / f"pack-{''.join(name)}.idx"


def _is_large(pack: PackRecord) -> bool:
    return pack.data is None and pack.size > _SMALL
