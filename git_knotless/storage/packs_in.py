"""Packs on their way from a host into a repository: checked, indexed, and then shown to git."""

from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby, islice, pairwise
from pathlib import Path

from git_knotless.errors import KnotlessError
from git_knotless.storage import fsck
from git_knotless.storage.git import Git, GitError
from git_knotless.storage.join import JoinedPacks, oids_in
from git_knotless.storage.packfile import BadPack, checked
from git_knotless.storage.parts import Gone, Parts, unspooled
from git_knotless.storage.progress import Progress
from git_knotless.storage.quarantine import Quarantine, release
from git_knotless.storage.records import PACK, BadRecord, PackRecord, prefix_of
from git_knotless.storage.store import Record, RecordStore
from git_knotless.storage.taken import packs_taken, remember
from git_knotless.storage.transfers import Transfers

__all__ = ["MissingObjects", "Taken", "remember", "take"]

# A larger pack is worth an index-pack, and a place on disk, of its own.
_SMALL = 1024 * 1024


class MissingObjects(KnotlessError):
    """What was asked for, or something that it reaches, is in no pack on the host."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What came in. `keeps` hold git's gc off the packs until refs reach them.

    `left_out` has a line for each pack record that could not be read.
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
    wants: Sequence[str],
    *,
    progress: Progress,
    clone: bool,
) -> Taken:
    """Add what `wants` reach to the repository: objects only, all of them good, or none at all.

    Only packs that were not taken before are looked at, the newest first, as far as the first
    page that holds one that was. Objects that are missing then were in packs added or folded
    meanwhile: so all that were not taken, and lastly all there are. `clone`: the repository is
    new, so that one pack which needs no other proves itself.
    """
    with Transfers() as transfers, Quarantine(git) as quarantine:
        intake = _Intake(git, store, repo_key, progress, transfers, quarantine)
        before = packs_taken(git, repo_key)
        passes = (
            (before, before),
            (before, frozenset[str]()),
            (frozenset[str](), frozenset[str]()),
        )
        for at, (known, until) in enumerate(passes):
            came = intake.bring(known, until, alone=clone and at == 0)
            if (came or at == 0) and intake.reaches(wants):
                return intake.conclude()
        raise intake.missing(wants)


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
        self._gone: set[str] = set()
        self._proven = False
        self._broken = ""

    def bring(self, known: Set[str], until: Set[str], *, alone: bool) -> bool:
        """Packs that are not `known`, up to the page with one of `until`; whether any came."""
        large: list[PackRecord] = []
        before = len(self._taken)
        with closing(JoinedPacks(self._directory)) as joined:
            with self._progress.meter("Receiving packs", None) as meter:
                for packs in self._listed(known, until):
                    large += (pack for pack in packs if _is_large(pack))
                    small = [pack for pack in packs if not _is_large(pack)]
                    meter.advance(self._join(joined, small))
            alone = alone and len(joined.members) + len(large) == 1
            if joined.members:
                self._index_joined(joined, alone=alone)
        self._index_large(large, alone=alone)
        return len(self._taken) > before

    def reaches(self, wants: Sequence[str]) -> bool:
        """Whether `wants` and all that they need are here now."""
        if self._proven and None not in self._quarantine.alone.types(wants).values():
            return True
        broken = self._quarantine.git.broken_link(wants)
        self._broken = broken or ""
        return broken is None

    def conclude(self) -> Taken:
        if (strict := fsck.strictness(self._git)) is not None:
            fsck.examine(self._quarantine.git, self._quarantine.packs, strict)
        keeps = self._quarantine.hand_over()
        remember(self._git, self._key, *self._taken)
        return Taken(keeps, connected=True, left_out=tuple(self._left_out.values()))

    def missing(self, wants: Sequence[str]) -> MissingObjects:
        absent = [oid for oid, kind in self._quarantine.git.types(wants).items() if kind is None]
        what = f"{absent[0]} is in no pack" if absent else self._broken
        known = [*self._left_out.values(), *(f"pack {rkey}: a blob is gone" for rkey in self._gone)]
        return MissingObjects("; ".join((f"objects are missing on the host: {what}", *known)))

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
                self._left_out[record.rkey] = f"pack {record.rkey} is left out: {error.message}"

    def _join(self, joined: JoinedPacks, packs: Sequence[PackRecord]) -> int:
        """How many of `packs` were let in: all but those that are gone."""
        before = len(joined.members)
        for pack, data in zip(packs, self._transfers.map(self._parts.whole, packs), strict=True):
            if data is None:
                self._gone.add(pack.rkey)
            else:
                joined.add(pack, data)
        return len(joined.members) - before

    def _index_joined(self, joined: JoinedPacks, *, alone: bool) -> None:
        try:
            index = self._index(joined.stream(), alone=alone)
        except GitError:
            if alone:
                return  # it may only lack what the next pass brings; that names what is bad
            self._blame(joined)
            raise
        self._taken.update(dict.fromkeys(member.rkey for member in joined.members))
        if any(one == next_ for one, next_ in pairwise(oids_in(index))):
            self._repack(index)

    def _blame(self, joined: JoinedPacks) -> None:
        """Name the pack that git does not take, by offering it each alone."""
        for member in joined.members:
            try:
                self._index(joined.stream_of(member), alone=False)
            except GitError as error:
                raise BadPack(member.rkey, error.message) from error

    def _repack(self, index: Path) -> None:
        """Once more, with nothing twice. Deltas are kept as they are: none is looked for."""
        packs = self._quarantine.packs
        args = ("pack-objects", "-q", "--delta-base-offset", "--window=0", str(packs / "pack"))
        with self._quarantine.alone.popen(*args) as child:
            for oid, _ in groupby(oids_in(index)):
                child.write(oid.hex().encode() + b"\n")
            child.finish()
        for file in packs.glob(f"{index.stem}.*"):
            file.unlink()

    def _index_large(self, packs: Sequence[PackRecord], *, alone: bool) -> None:
        """One after another, while the parts of what follows come in."""
        wanted = ((pack, blob) for pack in packs for blob in pack.blobs)
        parts = self._transfers.map(self._parts.spooled, wanted)
        for pack in packs:
            own = islice(parts, len(pack.blobs))
            try:
                self._index(checked(pack, unspooled(own)), alone=alone)
                self._taken[pack.rkey] = None
            except Gone:
                self._gone.add(pack.rkey)
            except GitError as error:
                if not alone:  # as for joined packs
                    raise BadPack(pack.rkey, error.message) from error
            for spool in own:
                if spool is not None:
                    spool.close()

    def _index(self, stream: Iterable[bytes], *, alone: bool) -> Path:
        """Have git check and index a pack; its index. `alone`: also whether it needs no other."""
        flags = ["--check-self-contained-and-connected"] if alone else []
        if self._progress.enabled:
            flags.append("-v")
        with self._quarantine.git.popen(
            "index-pack", "--stdin", *flags, progress=self._progress
        ) as child:
            for chunk in stream:
                child.write(chunk)
            child.end_input()
            said = child.read(1024)
            if alone:  # 1 is the answer of a pack that does need another
                self._proven = child.finish(1) == 0
            else:
                child.finish()
        return self._quarantine.packs / f"pack-{said.split()[-1].decode()}.idx"


def _is_large(pack: PackRecord) -> bool:
    return pack.data is None and pack.size > _SMALL
