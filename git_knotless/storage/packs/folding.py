"""Folding: one pack in place of many small ones, with every object that they hold.

None is left out for being reached from nowhere, or for being in another pack: so a fold needs no
walk and races nothing. The new pack comes and the old ones go in one batch, which a host refuses
whole once any of them is gone; of two that fold the same pack one loses, and others both land.
"""

from collections.abc import Iterable, Sequence
from contextlib import closing
from functools import cached_property
from pathlib import Path

from git_knotless.atproto.syntax import Rkey
from git_knotless.storage.outcome import Batch, Sent
from git_knotless.storage.packs.gathering import Gathered
from git_knotless.storage.packs.geometry import foldable
from git_knotless.storage.packs.listedpack import ListedPack, later_than
from git_knotless.storage.packs.packlist import PackList, any_gone
from git_knotless.storage.packs.packrecord import PackRecord
from git_knotless.storage.progress import Progress
from git_knotless.storage.pushing.batches import MAX_WRITES, hold_epoch, stamp_now
from git_knotless.storage.records import PACK, RepoRecord
from git_knotless.storage.repositories import Repository
from git_knotless.storage.store import Write
from git_knotless.value import value

# Folded at once: a batch also holds the epoch, and brings the pack.
_MOST = MAX_WRITES - 2
_READINGS = 64  # of the packs in one fold, each after one of its own or somebody else's writes
_MOST_LOSSES = 4


@value
class Folded:
    """What became of it. `packs` went into those of `into`, `size` bytes all together.

    `sizes` are of all packs that are there now, as far as is known, but for those that are left
    as they are, being none: `left_out` has a line on each.
    """

    packs: tuple[Rkey, ...] = ()
    into: tuple[Rkey, ...] = ()
    size: int = 0
    sizes: tuple[tuple[Rkey, int], ...] = ()
    left_out: tuple[str, ...] = ()


def fold(
    repository: Repository, scratch: Path, *, progress: Progress, at_least: int = 50
) -> Folded:
    """Fold the packs that are small beside the others, where there are `at_least` so many.

    `repository` is one that can be written to; in the folder `scratch` are to be a bare repository
    and temporary files. What others fold meanwhile is theirs.
    """
    with closing(PackList(scratch)) as listed:
        return _Fold(repository, listed, scratch, progress).run(at_least)


class _Fold:
    def __init__(
        self, repository: Repository, listed: PackList, scratch: Path, progress: Progress
    ) -> None:
        self._repository = repository
        self._store = repository.store
        self._listed = listed
        self._scratch = scratch
        self._progress = progress
        self._left_alone: dict[Rkey, str] = {}
        self._folded: list[Rkey] = []
        self._into: dict[Rkey, int] = {}

    def run(self, at_least: int) -> Folded:
        losses = 0
        for _ in range(_READINGS):
            repo = self._read()
            chosen = self._chosen(at_least)
            if not chosen or losses > _MOST_LOSSES:
                break
            part = self._good(chosen[:_MOST])
            if len(part) < 2:
                continue  # what is bad, or gone, is chosen no more
            if not self._land(repo, part):
                losses += 1
            elif len(chosen) <= _MOST:
                break
            else:
                at_least = 2  # these were to be one: a batch has not room for all
        return self._outcome()

    @cached_property
    def _gathered(self) -> Gathered:
        return Gathered(self._store, self._listed, self._scratch, self._progress)

    def _read(self) -> RepoRecord:
        repo = self._repository.record()
        self._listed.read(self._store, repo.key)
        return repo

    def _chosen(self, at_least: int) -> Sequence[PackRecord]:
        left = self._left_alone
        packs = {rkey: pack for rkey, pack in self._listed.packs.items() if rkey not in left}
        chosen = foldable({rkey: pack.size for rkey, pack in packs.items()})
        return [packs[rkey] for rkey in chosen] if len(chosen) >= at_least else []

    def _good(self, packs: Sequence[PackRecord]) -> Sequence[PackRecord]:
        """Those that are what they should be, the newest first, all of them here now."""
        self._gathered.bring(packs)
        for rkey in self._gathered.gone:
            if self._store.get(PACK, rkey) is not None:  # nobody has folded it meanwhile
                self._left_alone[rkey] = f"pack {rkey}: a blob of it is not on the host"
        self._left_alone |= self._gathered.bad
        good = [pack for pack in packs if pack.rkey in self._gathered]
        return sorted(good, key=lambda pack: pack.rkey, reverse=True)

    def _land(self, repo: RepoRecord, packs: Sequence[PackRecord]) -> bool:
        """False where another writer was first: then the packs are what they were, or theirs."""
        stamp = stamp_now(self._store)
        rkey = later_than(self._listed.packs, repo.key, stamp)
        oids = self._objects(packs)
        tips, bases = hints(packs, oids)
        with ListedPack.of(
            self._gathered.git, oids, self._store, self._scratch, self._progress
        ) as pack:
            epoch = max(each.epoch for each in packs)

            def batch() -> Batch:
                record = pack.named(
                    rkey, repo.key, epoch=epoch, at=stamp.at, tips=tips, bases=bases
                )
                writes = [
                    hold_epoch(repo),
                    Write("create", PACK, rkey, record.to_json()),
                    *(Write("delete", PACK, each.rkey) for each in packs),
                ]
                return Batch(writes, rkey, pack.checksum, PACK, "checksum")

            sent = pack.land(self._store, batch, lambda: self._moved(repo, packs))
            if sent is Sent.LOST:
                return False
            self._note(packs, rkey, pack.size)
            return True

    def _moved(self, repo: RepoRecord, packs: Sequence[PackRecord]) -> bool:
        """Whether the batch can land no more: the epoch has moved, or one of the packs is gone."""
        names = (pack.rkey for pack in packs)
        return self._repository.moved_from(repo) or any_gone(self._store, repo.key, names)

    def _objects(self, packs: Iterable[PackRecord]) -> dict[bytes, None]:
        return {oid: None for pack in packs for oid in self._gathered.objects(pack.rkey)}

    def _note(self, packs: Iterable[PackRecord], rkey: Rkey, size: int) -> None:
        for pack in packs:
            del self._listed.packs[pack.rkey]
            if self._into.pop(pack.rkey, None) is None:
                self._folded.append(pack.rkey)
        self._into[rkey] = size

    def _outcome(self) -> Folded:
        listed = {rkey: pack.size for rkey, pack in self._listed.packs.items()} | self._into
        there = {rkey: size for rkey, size in listed.items() if rkey not in self._left_alone}
        return Folded(
            packs=tuple(self._folded),
            into=tuple(self._into),
            size=sum(self._into.values()),
            sizes=tuple(there.items()),
            left_out=(*self._listed.unreadable.values(), *self._left_alone.values()),
        )


def hints(
    packs: Sequence[PackRecord], oids: dict[bytes, None]
) -> tuple[Sequence[str], Sequence[str]]:
    """Tips and bases of one pack with `oids` in place of `packs`, the newest first.

    The tips are the newest's, and what the refs were before it that is here too.
    """
    here = {oid.hex() for oid in oids}
    newest = packs[0]
    tips = [oid for oid in dict.fromkeys((*newest.tips, *newest.bases)) if oid in here]
    bases = dict.fromkeys(oid for pack in packs for oid in pack.bases if oid not in here)
    return tips, list(bases)
