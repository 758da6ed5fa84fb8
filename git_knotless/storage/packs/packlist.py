"""The packs of a repository as a host lists them; what travels in records waits on disk."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from git_knotless.atproto.syntax import Rkey
from git_knotless.storage.fields import BadRecord
from git_knotless.storage.packs.missing import TooManyPacks
from git_knotless.storage.packs.packrecord import PackRecord
from git_knotless.storage.packs.spool import Spool
from git_knotless.storage.records import PACK, prefix_of
from git_knotless.storage.store import Record, RecordStore
from git_knotless.value import replace


class PackList:
    """`packs` are their records as they were last read, each without its `data`; `unreadable` are
    records that are no packs, each with why."""

    def __init__(self, directory: Path, most: int | None = None) -> None:
        """`most` is how many there may be; who puts his own in order takes what there is."""
        self.packs: dict[Rkey, PackRecord] = {}
        self.unreadable: dict[Rkey, str] = {}
        self._most = most
        self._spool = Spool(directory)
        self._places: dict[tuple[Rkey, str], int] = {}

    def read(self, store: RecordStore, key: str) -> None:
        self.unreadable, self.packs = {}, {}
        for pack in self._listed(store, key):
            self.packs[pack.rkey] = pack
            if self._most is not None and len(self.packs) > self._most:
                raise TooManyPacks(store.did)

    def data(self, pack: PackRecord) -> bytes | None:
        """The pack itself, where it travels in its record."""
        at = self._places.get((pack.rkey, pack.checksum))
        return None if at is None else self._spool.read(at, pack.size)

    def close(self) -> None:
        self._spool.close()

    def _listed(self, store: RecordStore, key: str) -> Iterator[PackRecord]:
        for page in store.list(PACK, prefix_of(key)):
            for record in page:
                if (pack := self._pack(record)) is not None:
                    yield pack

    def _pack(self, record: Record) -> PackRecord | None:
        try:
            pack = PackRecord.from_record(record)
        except BadRecord as error:
            why = error.message.removeprefix(f"pack {record.rkey}: ")
            self.unreadable[record.rkey] = f"pack {record.rkey}: {why}"
            return None
        if pack.data is not None and (pack.rkey, pack.checksum) not in self._places:
            self._places[pack.rkey, pack.checksum] = self._spool.size
            self._spool.append(pack.data)
        return replace(pack, data=None)


def any_gone(store: RecordStore, key: str, packs: Iterable[Rkey]) -> bool:
    """Whether one of `packs` is not there any more, so that no batch that deletes it can land."""
    pages = store.list(PACK, prefix_of(key))
    there = {record.rkey for page in pages for record in page}
    return not there.issuperset(packs)
