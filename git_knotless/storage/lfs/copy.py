"""Copying the LFS objects of a repository into another account, one blob after another.

What is there already is left, and records are written soon after their blobs: a copy that was cut
goes on where it was. Nothing of a blob is sent on before all of it is what its CID says.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

from git_knotless.atproto.errors import BlobNotFound
from git_knotless.storage.lfs.blobs import Kept, part_limit, send_parts
from git_knotless.storage.lfs.download import verified
from git_knotless.storage.lfs.landing import read_lfs
from git_knotless.storage.lfs.record import LfsRecord
from git_knotless.storage.lfs.source import Part
from git_knotless.storage.packs.spool import Spool
from git_knotless.storage.packs.transfers import Transfers
from git_knotless.storage.packs.uploads import BlobsLost
from git_knotless.storage.places.holds import Hold
from git_knotless.storage.progress import Progress
from git_knotless.storage.pushing.batches import Load
from git_knotless.storage.records import LFS, prefix_of
from git_knotless.storage.store import BlobRef, RecordStore, Write
from git_knotless.value import replace, value

_OF_THE_HOLD = 2  # writes of each batch: its claim goes, and the next comes
_MOST_UNNAMED = 64 << 20  # bytes on the second host that no record names yet
_MOST_LOSSES = 3  # of blobs that the host had taken


@value
class _Carried:
    """`record` is what is to be on the second host; None where a blob is gone from the first."""

    of: LfsRecord
    record: LfsRecord | None


class LfsCopy:
    """Of the repository `key` on `source`, what is in the account of `hold`."""

    def __init__(
        self, source: RecordStore, key: str, hold: Hold, directory: Path, progress: Progress
    ) -> None:
        self._source = source
        self._key = key
        self._hold = hold
        self._directory = directory
        self._progress = progress
        self._there = {each.oid for each in _objects(hold.store, hold.key)}
        self._losses = 0

    def bring(self) -> tuple[bool, LfsRecord | None]:
        """Whether any came, and one of which a blob is gone: it is perhaps not there yet."""
        came, gone = False, None
        batch, load = list[LfsRecord](), _load()
        meter = self._progress.meter("Copying LFS objects", None, unit="bytes")
        with meter, Transfers() as transfers:
            carrier = _Carrier(self._source, self._hold.store, self._directory, transfers.check)
            for each in transfers.map(carrier.carry, self._lacking()):
                meter.advance(each.of.size)
                if each.record is None:
                    gone = each.of
                    continue
                came, record = True, self._named(each.record)
                if not load.takes([_write(record)]) or _size(batch) > _MOST_UNNAMED:
                    self._land(batch)
                    batch, load = [], _load()
                    load.takes([_write(record)])
                batch.append(record)
        self._land(batch)
        return came, gone

    def _lacking(self) -> Iterator[LfsRecord]:
        return (each for each in _objects(self._source, self._key) if each.oid not in self._there)

    def _named(self, record: LfsRecord) -> LfsRecord:
        return replace(record, repo=self._hold.key)

    def _land(self, records: Sequence[LfsRecord]) -> None:
        """Where the host has lost a blob since, the next reading brings the objects again."""
        try:
            if records:
                self._hold.write([_write(each) for each in records])
        except BlobNotFound as error:
            self._losses += 1
            if self._losses > _MOST_LOSSES:
                raise BlobsLost(
                    "the host loses what is uploaded to it before it can be named"
                ) from error
            return
        self._there.update(each.oid for each in records)


class _Carrier:
    """Any thread may carry; `check` calls it off by raising."""

    def __init__(
        self, source: RecordStore, target: RecordStore, directory: Path, check: Callable[[], None]
    ) -> None:
        self._source = source
        self._target = target
        self._directory = directory
        self._check = check

    def carry(self, record: LfsRecord) -> _Carried:
        try:
            blobs = [landed for blob in record.blobs for landed in self._sent(record, blob)]
        except BlobNotFound:
            return _Carried(record, None)
        return _Carried(record, replace(record, blobs=tuple(blobs)))

    def _sent(self, record: LfsRecord, blob: BlobRef) -> tuple[BlobRef, ...]:
        with closing(Spool(self._directory)) as spool:
            for chunk in verified(self._source, blob, record.oid):
                self._check()
                spool.append(chunk)
            return send_parts(
                spool, self._parts(spool), self._target, kept=Kept(), count=self._heard
            )

    def _parts(self, spool: Spool) -> list[Part]:
        limit = part_limit(self._target)
        return [
            Part(offset, min(limit, spool.size - offset)) for offset in range(0, spool.size, limit)
        ]

    def _heard(self, _: int) -> None:
        self._check()


def _objects(store: RecordStore, key: str) -> Iterator[LfsRecord]:
    records = (record for page in store.list(LFS, prefix_of(key)) for record in page)
    return filter(None, map(read_lfs, records))


def _write(record: LfsRecord) -> Write:
    return Write("create", LFS, record.rkey, record.to_json())


def _load() -> Load:
    return Load(spare=_OF_THE_HOLD)


def _size(records: Sequence[LfsRecord]) -> int:
    return sum(record.size for record in records)
