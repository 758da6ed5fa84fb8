"""Copying packs, LFS objects and refs into another account, until a reading brings nothing new.

Packs and objects come before the refs that need them: of each reading the refs are read first.
A pack's record is written right after its blobs, and what is there already, with the same size
and checksum, is left: a copy that was cut goes on where it was.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from git_knotless.atproto.errors import BlobNotFound
from git_knotless.atproto.syntax import Rkey
from git_knotless.errors import KnotlessError
from git_knotless.storage.fields import BadRecord
from git_knotless.storage.lfs.copy import LfsCopy
from git_knotless.storage.packs.packrecord import MOST_HINTS, PackRecord
from git_knotless.storage.packs.uploads import BlobsLost
from git_knotless.storage.places.carrying import carry
from git_knotless.storage.places.holds import Hold
from git_knotless.storage.progress import Progress
from git_knotless.storage.pushing.batches import Load
from git_knotless.storage.records import PACK, REF, RefRecord, RepoRecord, prefix_of
from git_knotless.storage.repositories import AnotherRepository, Repository
from git_knotless.storage.snapshot import UnreadableRepository
from git_knotless.storage.store import Action, Record, RecordStore, Write
from git_knotless.value import replace

_READINGS = 10  # of a repository that is pushed to while it is copied
_MOST_LOSSES = 3  # of blobs that the host had taken
_OF_THE_HOLD = 2  # writes of each batch: its claim goes, and the next comes


class KeepsChanging(KnotlessError):
    """A repository was pushed to each time that it had been copied."""


class BlobsMissing(KnotlessError):
    """A pack's blob is not on its host, though its record is."""


class Copy:
    """What of `source` is in the account of `hold`.

    `as_copied` makes of each ref what it is to be there, None where it is left out.
    """

    def __init__(
        self,
        source: Repository,
        hold: Hold,
        as_copied: Callable[[RefRecord], RefRecord | None],
        *,
        directory: Path,
        progress: Progress,
    ) -> None:
        self._source = source
        self._key = hold.record.source.key
        self._hold = hold
        self._as_copied = as_copied
        self._directory = directory
        self._progress = progress
        self._packs = _packs_there(hold.store, hold.key)
        self._refs = {record.rkey: record.value for record in _records(hold.store, REF, hold.key)}
        self._losses = 0
        self._objects = LfsCopy(source.store, self._key, hold, directory, progress)

    def catch_up(self, check: Callable[[RepoRecord], None]) -> RepoRecord:
        """Until a reading brings nothing new; the record as that reading found it.

        `check` is asked of the record at each reading, and raises where it is of no use to go on.
        """
        gone = ""
        for _ in range(_READINGS):
            repo = self.read()
            check(repo)
            refs = self._wanted()
            came, pack = self._bring_packs()
            brought, lfs = self._objects.bring()
            gone = f"pack {pack.rkey}" if pack else f"LFS object {lfs.oid}" if lfs else ""
            if not gone and not self._bring_refs(refs) and not (came or brought):
                return repo
        if gone:
            raise BlobsMissing(
                f"{self._source.url} is still being moved to its host, it seems: "
                f"{gone}: a blob of it is not there yet"
            )
        raise KeepsChanging(f"others keep pushing to {self._source.url}: try again")

    def read(self) -> RepoRecord:
        """What the source's record says now."""
        repo = self._source.record()
        if repo.key != self._key:
            raise AnotherRepository(f"{self._source.url} is another repository now")
        return repo

    def late(self) -> list[str]:
        """The names of the refs that are not at the source, by now, as they were copied."""
        wanted = self._wanted()
        return sorted(ref["name"] for rkey, ref in wanted.items() if self._refs.get(rkey) != ref)

    # --- refs

    def _wanted(self) -> dict[Rkey, dict[str, Any]]:
        refs = self._source.snapshot().refs
        copied = filter(None, map(self._as_copied, refs.values()))
        return {ref.rkey: ref.to_json() for ref in copied}

    def _bring_refs(self, wanted: Mapping[Rkey, dict[str, Any]]) -> bool:
        """Whether there was anything to bring, or to take away."""
        stale = [Write("delete", REF, rkey) for rkey in self._refs.keys() - wanted.keys()]
        new = [
            Write(_action(rkey in self._refs), REF, rkey, ref)
            for rkey, ref in wanted.items()
            if self._refs.get(rkey) != ref
        ]
        for batch in _batches([*stale, *new]):
            self._hold.write(batch)
        self._refs = dict(wanted)
        return bool(stale or new)

    # --- packs

    def _bring_packs(self) -> tuple[bool, PackRecord | None]:
        """Whether any came, and one of which a blob is gone: it may have been folded meanwhile."""
        gone: PackRecord | None = None
        came, batch, load = False, list[PackRecord](), _load()
        with self._progress.meter("Copying packs", None, unit="bytes") as meter:
            stores = self._source.store, self._hold.store
            carried = carry(self._lacking(), *stores, directory=self._directory, meter=meter)
            with closing(carried):
                for each in carried:
                    if each.pack is None:
                        gone = each.of
                        continue
                    came, pack = True, self._named(each.pack)
                    if not load.takes([self._write(pack)]):
                        self._write_packs(batch)
                        batch, load = [], _load()
                        load.takes([self._write(pack)])
                    batch.append(pack)
                    if pack.blobs:
                        self._write_packs(batch)
                        batch, load = [], _load()
            self._write_packs(batch)
        return came, gone

    def _lacking(self) -> Iterator[PackRecord]:
        """Raises where there is one that cannot be read: its objects may be in no other."""
        for record in _records(self._source.store, PACK, self._key):
            try:
                pack = PackRecord.from_record(record)
            except BadRecord as error:
                raise UnreadableRepository(f"{self._source.url}: {error.message}") from error
            if self._packs.get(self._rkey(pack)) != (pack.size, pack.checksum):
                yield pack

    def _rkey(self, pack: PackRecord) -> Rkey:
        return Rkey(prefix_of(self._hold.key) + pack.rkey.removeprefix(prefix_of(pack.repo)))

    def _named(self, pack: PackRecord) -> PackRecord:
        """As the copy's own: its key, and the epoch that it is copied in."""
        return replace(
            pack,
            rkey=self._rkey(pack),
            repo=self._hold.key,
            epoch=self._hold.record.epoch,
            tips=_few(pack.tips),
            bases=_few(pack.bases),
        )

    def _write(self, pack: PackRecord) -> Write:
        return Write(_action(pack.rkey in self._packs), PACK, pack.rkey, pack.to_json())

    def _write_packs(self, packs: Sequence[PackRecord]) -> None:
        """Where the host has lost a blob since, the next reading brings the pack again."""
        try:
            if packs:
                self._hold.write([self._write(pack) for pack in packs])
        except BlobNotFound as error:
            self._losses += 1
            if self._losses > _MOST_LOSSES:
                raise BlobsLost(
                    "the host loses what is uploaded to it before it can be named"
                ) from error
            return
        self._packs.update({pack.rkey: (pack.size, pack.checksum) for pack in packs})


def _action(exists: bool) -> Action:  # noqa: FBT001 # a word for either
    return "update" if exists else "create"


def _records(store: RecordStore, collection: str, key: str) -> Iterator[Record]:
    for page in store.list(collection, prefix_of(key)):
        yield from page


def _packs_there(store: RecordStore, key: str) -> dict[Rkey, tuple[object, object]]:
    """By what of each tells it from another; not the packs, which may fill the memory."""
    return {
        record.rkey: (record.value.get("size"), record.value.get("checksum"))
        for record in _records(store, PACK, key)
    }


def _few(oids: tuple[str, ...]) -> tuple[str, ...]:
    return oids if len(oids) <= MOST_HINTS else ()


def _load() -> Load:
    return Load(spare=_OF_THE_HOLD)


def _batches(writes: Sequence[Write]) -> Iterator[Sequence[Write]]:
    batch, load = list[Write](), _load()
    for write in writes:
        if not load.takes([write]):
            yield batch
            batch, load = [], _load()
            load.takes([write])
        batch.append(write)
    if batch:
        yield batch
