"""Packs of a repository brought together in a bare one of our own, each checked as it comes.

Small ones are indexed many at once; a few such heaps are made, with neighbours in different ones:
of two objects in one pack git takes it that no delta between them was worth it.
"""

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from itertools import islice
from pathlib import Path

from git_knotless.atproto.syntax import Rkey
from git_knotless.storage.child import TooMuchWork
from git_knotless.storage.git import Git, GitError
from git_knotless.storage.packs.bare import git_in, lay_out
from git_knotless.storage.packs.join import JoinedPacks, Member
from git_knotless.storage.packs.packfile import HEADER, BadPack, checked
from git_knotless.storage.packs.packindex import placed
from git_knotless.storage.packs.packlist import PackList
from git_knotless.storage.packs.packrecord import PackRecord
from git_knotless.storage.packs.parts import Gone, Parts, unspooled
from git_knotless.storage.packs.room import check_room
from git_knotless.storage.packs.transfers import Transfers
from git_knotless.storage.packs.unpacking import index_pack, reason
from git_knotless.storage.progress import Progress
from git_knotless.storage.store import RecordStore

_HEAPS = 16
_SMALL = 1024 * 1024  # bytes; a larger pack is indexed by itself, as it streams in
_OID = 20


class Gathered:
    """`bad` are the packs that are not what their records say, each with why; `gone` those of which
    a blob is not on the host. `git` has the objects of all others, and nothing else."""

    def __init__(
        self, store: RecordStore, listed: PackList, scratch: Path, progress: Progress
    ) -> None:
        self.bad: dict[Rkey, str] = {}
        self.gone: set[Rkey] = set()
        self.git = _bare(scratch / "objects.git")
        self._packs = scratch / "objects.git/objects/pack"
        self._store = store
        self._listed = listed
        self._scratch = scratch
        self._progress = progress
        self._oids: dict[Rkey, bytes] = {}

    def __contains__(self, rkey: object) -> bool:
        return rkey in self._oids

    def objects(self, rkey: Rkey) -> Iterator[bytes]:
        """The object ids of a pack, in its order; twice what is in it twice."""
        oids = self._oids[rkey]
        return (oids[at : at + _OID] for at in range(0, len(oids), _OID))

    def bring(self, packs: Iterable[PackRecord]) -> None:
        """Those of `packs` that are not here, as far as they are good."""
        new = [p for p in packs if p.rkey not in self._oids and p.rkey not in self.bad]
        self.gone.clear()
        total = sum(pack.size for pack in new)
        check_room(self._scratch, 2 * total, self._store.did)
        meter = self._progress.meter("Receiving packs", total, unit="bytes")
        with Transfers() as transfers, ExitStack() as stack, stack.enter_context(meter):
            parts = Parts(self._store, self._scratch, transfers.check)
            small = [pack for pack in new if pack.size <= _SMALL]
            heaps = [
                stack.enter_context(closing(JoinedPacks(self._scratch)))
                for _ in range(min(_HEAPS, len(small)))
            ]
            coming = transfers.map(lambda pack: self._whole(parts, pack), small)
            for at, (pack, data) in enumerate(zip(small, coming, strict=True)):
                self._add(heaps[at % _HEAPS], pack, data)
                meter.advance(pack.size)
            for heap in heaps:
                self._index_heap(heap, heap.members)
            large = (pack for pack in new if pack.size > _SMALL)
            for pack in self._index_large(parts, transfers, list(large)):
                meter.advance(pack.size)

    def _whole(self, parts: Parts, pack: PackRecord) -> bytes | BadPack | None:
        data = self._listed.data(pack)
        if data is not None:
            return data
        try:
            return parts.whole(pack)
        except BadPack as error:
            return error

    def _add(self, heap: JoinedPacks, pack: PackRecord, data: bytes | BadPack | None) -> None:
        if data is None:
            self.gone.add(pack.rkey)
            return
        try:
            if isinstance(data, BadPack):
                raise data
            heap.add(pack, data)
        except BadPack as error:
            self._refuse(error)

    def _index_heap(self, heap: JoinedPacks, members: Sequence[Member]) -> None:
        """Together, or in halves where git does not take them so: a pack that it refuses by itself
        is a bad one."""
        if not members:
            return
        size = sum(member.size for member in members)
        try:
            index = self._index(heap.stream(members), size)
        except GitError as error:
            if len(members) == 1 or isinstance(error, TooMuchWork):
                for member in members:
                    self._refuse(BadPack(member.rkey, reason(error, size)))
                return
            half = len(members) // 2
            self._index_heap(heap, members[:half])
            self._index_heap(heap, members[half:])
        else:
            self._place(index, members)

    def _refuse(self, error: BadPack) -> None:
        self.bad[Rkey(error.rkey)] = error.message

    def _place(self, index: Path, members: Sequence[Member]) -> None:
        """Which of the objects came with which of `members`."""
        begins = [HEADER + member.offset - members[0].offset for member in members]
        found = [bytearray() for _ in members]
        for offset, oid in placed(index):
            found[bisect_right(begins, offset) - 1] += oid
        for member, oids in zip(members, found, strict=True):
            self._oids[Rkey(member.rkey)] = bytes(oids)

    def _index_large(
        self, parts: Parts, transfers: Transfers, packs: Sequence[PackRecord]
    ) -> Iterator[PackRecord]:
        """One after another, while the parts of what follows come in."""
        for pack in packs:
            blobs = ((pack, blob) for blob in pack.blobs)
            try:
                spools = transfers.map(parts.spooled, blobs)
                stream = checked(pack, unspooled(islice(spools, len(pack.blobs))))
                index = self._index(stream, pack.size)
                self._oids[pack.rkey] = b"".join(oid for _, oid in placed(index))
            except Gone:
                self.gone.add(pack.rkey)
            except BadPack as error:
                self._refuse(error)
            except GitError as error:
                self._refuse(BadPack(pack.rkey, reason(error, pack.size)))
            yield pack

    def _index(self, stream: Iterable[bytes], size: int) -> Path:
        with index_pack(self.git, size, progress=self._progress) as child:
            for chunk in stream:
                child.write(chunk)
            child.end_input()
            name = child.read(1024).decode().split()[-1:]
            child.finish()
        return self._packs / f"pack-{''.join(name)}.idx"


def _bare(place: Path) -> Git:
    """A repository that nobody's configuration has a say in."""
    place.parent.mkdir(parents=True, exist_ok=True)
    lay_out(place)
    return git_in(place, {"PATH": os.pathsep.join(os.get_exec_path()), "HOME": str(place)})
