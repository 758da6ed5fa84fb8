"""Packs on their way from a host into a repository: checked, indexed, and then shown to git."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import closing
from itertools import islice
from pathlib import Path

from git_knotless import limits
from git_knotless.errors import KnotlessError
from git_knotless.storage.brief import brief
from git_knotless.storage.fields import BadRecord
from git_knotless.storage.git import Git, GitError
from git_knotless.storage.packs import fsck
from git_knotless.storage.packs.closure import most_wanted
from git_knotless.storage.packs.indexing import Indexing
from git_knotless.storage.packs.join import JoinedPacks
from git_knotless.storage.packs.missing import (
    BrokenLink,
    MissingObjects,
    TooManyPacks,
    in_no_pack,
    still_moving,
)
from git_knotless.storage.packs.packfile import BadPack, checked
from git_knotless.storage.packs.packrecord import PackRecord
from git_knotless.storage.packs.parts import Gone, Parts, unspooled
from git_knotless.storage.packs.pointed import check_branches
from git_knotless.storage.packs.quarantine import Quarantine, release
from git_knotless.storage.packs.room import check_room
from git_knotless.storage.packs.taken import packs_taken, remember
from git_knotless.storage.packs.transfers import SIDE_BY_SIDE, Transfers
from git_knotless.storage.packs.unshallow import unshallow as no_longer_shallow
from git_knotless.storage.progress import Progress
from git_knotless.storage.records import PACK, prefix_of
from git_knotless.storage.store import Record, RecordStore
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
    source: str = "",
) -> Taken:
    """Add what `wants` reach to the repository: objects only, all of them good, or none at all.

    `wants` are object ids, each with the refs that it is wanted for. Only packs that were not
    taken before are looked at, the newest first, as far as the first page that holds one that
    was. Objects that are missing then were in packs added or folded meanwhile: so all that were
    not taken, and lastly all there are. `clone`: the repository is new, so that packs may prove
    themselves (closure.py). `unshallow`: the history that a shallow repository had cut off comes
    too, and is cut off no more. `source` is what errors call the repository; the account, where
    nothing is given.

    The first of `keeps` is of the pack with the most of `wants`: git heeds one, and looks no
    further for what is in that pack.
    """
    keeps: list[Path] = []
    source = source or store.did
    try:
        with Transfers() as transfers, Quarantine(git) as quarantine:
            intake = _Intake(git, store, repo_key, progress, transfers, quarantine, source)
            whole = intake.take(wants, clone=clone, unshallow=unshallow)
            check_branches(quarantine.git, wants, source)
            intake.hand_over(keeps, wants)
        if unshallow:
            no_longer_shallow(git, whole)
    except BadPack as error:
        release(keeps)
        raise error.said_by(source) from error
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
        source: str,
    ) -> None:
        self._git = git
        self._store = store
        self._key = repo_key
        self._progress = progress
        self._transfers = transfers
        self._quarantine = quarantine
        self._source = source
        self._directory = git.common_dir / "knotless"
        self._parts = Parts(store, self._directory, transfers.check)
        self._taken: dict[str, None] = {}
        self._left_out: dict[str, str] = {}
        self._gone: dict[str, None] = {}
        self._indexing = Indexing(quarantine, progress)

    def take(
        self, wants: Mapping[str, Sequence[str]], *, clone: bool, unshallow: bool
    ) -> Sequence[str]:
        """Until all is here: what is here with all it reaches. Raises MissingObjects.

        `unshallow`: with what a shallow repository has cut off, and its refs reach no more. All
        of it, as git has it, unless it is not on this host.
        """
        git = self._quarantine.git.unshallowed() if unshallow else self._quarantine.git

        def broken(oids: Sequence[str]) -> str | None:
            return git.broken_link(oids, whole=self._indexing.closure.tips, trusting=not unshallow)

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
            try:
                fsck.examine(self._quarantine.git, self._quarantine.packs, strict)
            except GitError as error:
                raise GitError(f"{self._source}: {error.message}") from error
        self._quarantine.hand_over(most_wanted(self._indexing.indexes, wants), keeps)
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
                    self._check_room(2 * sum(pack.size for pack in small))
                    meter.advance(self._join(joined, small))
            self._check_room(_on_disk(large))
            alone = clone and len(joined.members) + len(large) == 1
            self._index_large(sorted(large, key=lambda pack: pack.rkey), clone=clone)
            if joined.members and self._indexing.joined(joined, alone=alone):
                self._taken.update(dict.fromkeys(member.rkey for member in joined.members))
        return len(self._taken) > before

    def _check_room(self, size: int) -> None:
        check_room(self._git.common_dir, size, self._source)

    def _is_proven(self, wants: Iterable[str]) -> bool:
        if not self._indexing.closure.holds_all:
            return False
        kinds = self._quarantine.alone.types(wants)
        self._quarantine.git.learn_types({oid: kind for oid, kind in kinds.items() if kind})
        return None not in kinds.values()

    def _missing(self, wants: Mapping[str, Sequence[str]], broken: BrokenLink) -> KnotlessError:
        kinds = self._quarantine.git.types(wants)
        what = list(in_no_pack(wants, kinds, broken))
        if self._gone:
            left_out = self._left_out.values()
            return still_moving(self._gone, what, left_out, source=self._source)
        return MissingObjects(what, self._left_out.values(), source=self._source)

    def _listed(self, known: Set[str], until: Set[str]) -> Iterator[list[PackRecord]]:
        packs = blobs = 0
        for page in self._store.list(PACK, prefix_of(self._key), newest_first=True):
            packs += len(page)
            new = [r for r in page if r.rkey not in known and r.rkey not in self._taken]
            readable = list(self._readable(new))
            blobs += sum(len(pack.blobs) for pack in readable)
            if packs > limits.PACKS or blobs > limits.BLOBS:
                raise TooManyPacks(self._source)
            yield readable
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

    def _index_large(self, packs: Sequence[PackRecord], *, clone: bool) -> None:
        """One after another, the oldest first, while the parts of what follows come in."""
        wanted = ((pack, blob) for pack in packs for blob in pack.blobs)
        parts = self._transfers.map(self._parts.spooled, wanted)
        for pack in packs:
            own = islice(parts, len(pack.blobs))
            check = clone and self._indexing.closure.expects(pack.bases)
            try:
                if self._indexing.large(pack, checked(pack, unspooled(own)), check=check):
                    self._taken[pack.rkey] = None
            except Gone:
                self._gone[pack.rkey] = None
            for spool in own:
                if spool is not None:
                    spool.close()


def _on_disk(packs: Sequence[PackRecord]) -> int:
    """At most, while they come in: themselves, and the parts that are ahead of them."""
    largest = max((blob.size for pack in packs for blob in pack.blobs), default=0)
    return sum(pack.size for pack in packs) + SIDE_BY_SIDE * largest


def _is_large(pack: PackRecord) -> bool:
    return pack.data is None and pack.size > _SMALL
