"""Pruning: what nothing needs goes, and what is left of the packs that held it is packed anew.

First the epoch moves: whoever pushes from then on has read the refs since, leaves out of a pack
only what refs reach, and lands it under the new epoch. Then packs, refs and claims are listed, in
that order. Packs of the new epoch stay whole; of the others what refs reach, and what a ref was
before, by a claim of the new epoch or one younger than the grace. Each batch that takes something
away moves the epoch once more, so that nothing else has happened since that moved it.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from functools import partial
from itertools import islice
from pathlib import Path
from time import time

from git_knotless import limits
from git_knotless.atproto.syntax import Rkey
from git_knotless.storage.claims import EpochRecord
from git_knotless.storage.editing import RacedTooOften
from git_knotless.storage.outcome import Batch, Sent, send
from git_knotless.storage.packs.gathering import Gathered
from git_knotless.storage.packs.listedpack import ListedPack, later_than, packed_size
from git_knotless.storage.packs.missing import MissingObjects
from git_knotless.storage.packs.packlist import PackList, any_gone
from git_knotless.storage.packs.packrecord import PackRecord
from git_knotless.storage.packs.reached import CannotPrune, Roots, reached, read_roots
from git_knotless.storage.progress import Progress
from git_knotless.storage.proofs.verified import MAY_HAVE_MOVED
from git_knotless.storage.proving import clear_probe, takes
from git_knotless.storage.pushing.batches import MAX_WRITES, Stamp, rewrite, stamp_now
from git_knotless.storage.records import CLAIM, PACK, RepoRecord
from git_knotless.storage.repositories import Repository
from git_knotless.storage.store import RecordStore, Write
from git_knotless.value import value

_READINGS = 8  # of a repository that others rewrite, or fold, at the same time
_LOOKS = 3  # for packs that came while the refs were listed
_OF_A_BATCH = 4  # writes: three move the epoch, one brings the pack


@value
class Pruned:
    """What went, or would. `packs` of them, `size` bytes, `into` others of `rewritten` bytes.

    `held` says why nothing is dropped, where that is so; `left_out` has a line on each pack that
    is none, and stays.
    """

    packs: tuple[Rkey, ...] = ()
    into: tuple[Rkey, ...] = ()
    size: int = 0
    rewritten: int = 0
    claims: int = 0
    held: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def freed(self) -> int:
        return self.size - self.rewritten


@value
class _Plan:
    """Packs that go, the objects in them that stay, and claims that go."""

    packs: Sequence[PackRecord]
    objects: Sequence[bytes]
    claims: Sequence[Rkey]
    held: tuple[str, ...]


def prune(
    repository: Repository, scratch: Path, *, progress: Progress, dry_run: bool = False
) -> Pruned:
    """Drop what nothing needs. `dry_run`: only find out what that is; nothing is written.

    In the folder `scratch` are to be a bare repository and temporary files.
    """
    with closing(PackList(scratch, limits.PACKS if dry_run else None)) as listed:
        pruning = _Prune(repository, listed, scratch, progress)
        return pruning.look() if dry_run else pruning.run()


class _Prune:
    def __init__(
        self, repository: Repository, listed: PackList, scratch: Path, progress: Progress
    ) -> None:
        self._repository = repository
        self._store = repository.store
        self._listed = listed
        self._scratch = scratch
        self._progress = progress
        self._gathered = Gathered(self._store, listed, scratch, progress)
        self._went: dict[Rkey, int] = {}
        self._into: dict[Rkey, int] = {}
        self._claims = 0

    def look(self) -> Pruned:
        """As if the epoch had just moved."""
        repo = self._repository.record()
        plan = self._plan(repo, repo.epoch + 1)
        self._went = {pack.rkey: pack.size for pack in plan.packs}
        self._claims = len(plan.claims)
        size = packed_size(self._gathered.git, plan.objects) if plan.objects else 0
        return self._outcome(plan, size)

    def run(self) -> Pruned:
        _check_host(self._store, self._repository.record())
        for _ in range(_READINGS):
            repo = self._move_epoch()
            if repo is None:
                continue
            try:
                plan = self._plan(repo, repo.epoch)
            except (CannotPrune, *MAY_HAVE_MOVED):
                if not self._repository.moved_from(repo):
                    raise
                continue
            if self._carry_out(repo, plan):
                return self._outcome(plan, sum(self._into.values()))
        raise RacedTooOften(f"others keep changing {self._repository.url}: try again")

    def _move_epoch(self) -> RepoRecord | None:
        old = self._repository.record()
        new, stamp = _next(old, self._store)
        batch = Batch(rewrite(old, new), EpochRecord.of(new).rkey, stamp.nonce)
        stale = partial(self._repository.moved_from, old)
        return new if send(self._store, batch, stale=stale) is Sent.LANDED else None

    # --- what goes

    def _plan(self, repo: RepoRecord, epoch: int) -> _Plan:
        """A pack that landed while packs were listed brings what refs that are listed later reach:
        where something is missing, it is looked once more."""
        url = str(self._repository.url)
        for look in range(1, _LOOKS + 1):
            self._listed.read(self._store, repo.key)
            roots = self._roots(repo, epoch)
            self._gathered.bring(self._listed.packs.values())
            try:
                found = reached(self._gathered.git, roots, url, [*self._bad(), *self._gone()])
            except MissingObjects:
                if look == _LOOKS:
                    raise
                continue
            if found.objects is not None:
                return self._sorted_out(epoch, found.objects, roots)
        return _Plan((), (), roots.outlived, found.lacking)

    def _roots(self, repo: RepoRecord, epoch: int) -> Roots:
        """Once the epoch has moved, by its claim: before that, it is the repository as it is."""
        since = time() + self._store.clock_offset() - self._repository.claim_grace
        stands = EpochRecord.of(repo).rkey if epoch == repo.epoch else None
        return read_roots(self._repository, repo, epoch, since, stands=stands)

    def _sorted_out(self, epoch: int, kept: frozenset[bytes], roots: Roots) -> _Plan:
        """A pack of which everything stays is left as it is, the largest first."""
        here = [pack for pack in self._listed.packs.values() if pack.rkey in self._gathered]
        covered = set[bytes]()
        going = list[PackRecord]()
        for pack in sorted(here, key=lambda pack: -pack.size):
            oids = list(self._gathered.objects(pack.rkey))
            stays = pack.epoch >= epoch or _all_new(oids, kept, covered)
            if stays:
                covered.update(oids)
            else:
                going.append(pack)
        going.sort(key=lambda pack: pack.rkey, reverse=True)
        listed = (oid for pack in going for oid in self._gathered.objects(pack.rkey))
        rest = dict.fromkeys(oid for oid in listed if oid in kept and oid not in covered)
        return _Plan(going, list(rest), roots.outlived, ())

    # --- its going

    def _carry_out(self, repo: RepoRecord, plan: _Plan) -> bool:
        """False where another writer was first: what went so far is in other packs, or needless."""
        deletes = [
            *(Write("delete", PACK, pack.rkey) for pack in plan.packs),
            *(Write("delete", CLAIM, rkey) for rkey in plan.claims),
        ]
        with ExitStack() as stack:
            pack = stack.enter_context(self._packed(plan)) if plan.objects else None
            for part in _parts(deletes):
                landed = self._send(repo, plan, part, pack)
                if landed is None:
                    return False
                repo, pack = landed, None
        return True

    def _packed(self, plan: _Plan) -> ListedPack:
        git = self._gathered.git
        return ListedPack.of(git, plan.objects, self._store, self._scratch, self._progress)

    def _send(
        self, old: RepoRecord, plan: _Plan, deletes: Sequence[Write], pack: ListedPack | None
    ) -> RepoRecord | None:
        new, stamp = _next(old, self._store)
        rkey = later_than(self._listed.packs, old.key, stamp)
        receipt = EpochRecord.of(new).rkey

        def batch() -> Batch:
            created = [] if pack is None else [_created(pack, rkey, new, plan)]
            return Batch([*rewrite(old, new), *created, *deletes], receipt, stamp.nonce)

        stale = partial(self._moved, old, deletes)
        sent = (
            send(self._store, batch(), stale=stale)
            if pack is None
            else pack.land(self._store, batch, stale)
        )
        if sent is Sent.LOST:
            return None
        self._note(deletes)
        if pack is not None:
            self._into[rkey] = pack.size
        return new

    def _moved(self, old: RepoRecord, deletes: Sequence[Write]) -> bool:
        """Whether a batch can land no more: the epoch has moved, or one of the packs is gone."""
        names = (each.rkey for each in deletes if each.collection == PACK)
        return self._repository.moved_from(old) or any_gone(self._store, old.key, names)

    def _note(self, deletes: Iterable[Write]) -> None:
        for each in deletes:
            if each.collection == CLAIM:
                self._claims += 1
            elif self._into.pop(each.rkey, None) is None:
                self._went[each.rkey] = self._listed.packs[each.rkey].size

    def _bad(self) -> list[str]:
        """A line on each pack that is none."""
        return [*self._listed.unreadable.values(), *self._gathered.bad.values()]

    def _gone(self) -> list[str]:
        return [f"pack {rkey}: a blob of it is not on the host" for rkey in self._gathered.gone]

    def _outcome(self, plan: _Plan, rewritten: int) -> Pruned:
        return Pruned(
            packs=tuple(self._went),
            into=tuple(self._into),
            size=sum(self._went.values()),
            rewritten=rewritten,
            claims=self._claims,
            held=plan.held,
            left_out=tuple(self._bad()),
        )


def _all_new(oids: Sequence[bytes], kept: frozenset[bytes], covered: set[bytes]) -> bool:
    return len(set(oids)) == len(oids) and kept.issuperset(oids) and covered.isdisjoint(oids)


def _created(pack: ListedPack, rkey: Rkey, repo: RepoRecord, plan: _Plan) -> Write:
    below = (oid for each in plan.packs for oid in each.bases)
    here = {oid.hex() for oid in plan.objects}
    bases = dict.fromkeys(oid for oid in below if oid not in here)
    tips = dict.fromkeys(oid for each in plan.packs for oid in each.tips if oid in here)
    record = pack.named(
        rkey, repo.key, epoch=repo.epoch, at=repo.updated_at, tips=tips, bases=bases
    )
    return Write("create", PACK, rkey, record.to_json())


def _parts(deletes: Sequence[Write]) -> Iterator[Sequence[Write]]:
    left = iter(deletes)
    while part := list(islice(left, MAX_WRITES - _OF_A_BATCH)):
        yield part


def _next(old: RepoRecord, store: RecordStore) -> tuple[RepoRecord, Stamp]:
    stamp = stamp_now(store)
    return old.next_epoch(stamp.nonce, stamp.at), stamp


def _check_host(store: RecordStore, repo: RepoRecord) -> None:
    """A push that was held up is refused once the epoch has moved, or nothing may be dropped."""
    missing = EpochRecord(repo.key, -1, "missing", repo.updated_at)
    if takes(store, Write("update", CLAIM, missing.rkey, missing.to_json())):
        clear_probe(store, missing)
        raise CannotPrune(
            "this host brings a record back that is gone when it is updated: a push could land "
            "on what was pruned, so nothing is"
        )
