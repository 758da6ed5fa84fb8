"""The bytes of a repository, looked at: every pack and LFS object, and what refs reach in them."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from git_knotless.atproto.errors import BlobNotFound
from git_knotless.atproto.syntax import Rkey
from git_knotless.storage.brief import brief
from git_knotless.storage.git import GitError
from git_knotless.storage.lfs.record import LfsRecord
from git_knotless.storage.packs.bare import Refs, git_in, lay_out, show
from git_knotless.storage.packs.fsck import faults
from git_knotless.storage.packs.join import JoinedPacks, Member
from git_knotless.storage.packs.packfile import BadPack, checked
from git_knotless.storage.packs.packrecord import PackRecord
from git_knotless.storage.packs.parts import Gone, Parts, unspooled
from git_knotless.storage.packs.room import check_room
from git_knotless.storage.packs.transfers import Transfers
from git_knotless.storage.packs.unpacking import index_pack, reason
from git_knotless.storage.progress import Progress
from git_knotless.storage.proofs.findings import Findings
from git_knotless.storage.records import LFS, PACK
from git_knotless.storage.refname import BRANCHES
from git_knotless.storage.store import RecordStore

_SMALL = 1 << 20  # bytes: packs up to there are indexed many at a time
_MOST_JOINED = 64 << 20  # bytes of those
_NOWHERE = "refs/heads/none"  # what HEAD has to name, and none of the refs that are shown
_MOST_CULPRITS = 20  # refs that reach what is not there: each is looked for by itself


class Objects:
    """In a repository in `folder`, which is made, and not removed; `source` is its address."""

    def __init__(
        self,
        store: RecordStore,
        folder: Path,
        env: Mapping[str, str],
        progress: Progress,
        found: Findings,
        source: str,
    ) -> None:
        self._store = store
        self._source = source
        self._folder = folder
        self._progress = progress
        self._found = found
        lay_out(folder)
        self._git = git_in(folder, env)
        self._transfers = Transfers()
        self._parts = Parts(store, folder, self._transfers.check)
        self._joined = JoinedPacks(folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._transfers.close()
        self._joined.close()

    def take_packs(self, packs: Sequence[PackRecord]) -> None:
        check_room(self._folder, 2 * sum(pack.size for pack in packs), self._source)
        small = [pack for pack in packs if pack.size <= _SMALL]
        with self._progress.meter("Receiving packs", sum(p.size for p in packs), unit="bytes") as m:
            for pack, data in zip(small, self._transfers.map(self._whole, small), strict=True):
                self._join(pack, data)
                m.advance(pack.size)
            for pack in packs:
                if pack.size > _SMALL:
                    self._index_large(pack)
                    m.advance(pack.size)

    def take_lfs(self, records: Sequence[LfsRecord]) -> None:
        size = sum(record.size for record in records)
        with self._progress.meter("Receiving LFS objects", size, unit="bytes") as meter:
            for record in records:
                self._check_lfs(record)
                meter.advance(record.size)

    def finish(self, targets: Mapping[str, str]) -> None:
        """Once all packs are here: each object by itself, and what `targets` reach."""
        self._flush()
        kinds = self._git.types(targets.values())
        self._found.counts["objects"] = self._count()
        for name, oid in targets.items():
            if kinds[oid] is None:
                self._found.add(name, f"{oid} is in no pack")
            elif name.startswith(BRANCHES) and kinds[oid] != "commit":
                self._found.add(name, f"a branch points at a {kinds[oid]}, {oid}")
        here = {name: oid for name, oid in targets.items() if kinds[oid] is not None}
        tips = dict.fromkeys(here.values())
        show(self._folder, Refs.of(_NOWHERE, {f"refs/tips/{n}": oid for n, oid in enumerate(tips)}))
        with self._progress.meter("Checking objects", None):
            for what, why in faults(self._git):
                self._found.add(what, why)
            self._check_links(here)

    # --- packs

    def _whole(self, pack: PackRecord) -> bytes | BadPack:
        try:
            data = self._parts.whole(pack)
        except BadPack as error:
            return error
        return self._gone(pack) if data is None else data

    def _join(self, pack: PackRecord, data: bytes | BadPack) -> None:
        try:
            if isinstance(data, BadPack):
                raise data
            self._joined.add(pack, data)
            self._found.bytes += pack.size
        except BadPack as error:
            self._bad(error)
        if sum(member.size for member in self._joined.members) > _MOST_JOINED:
            self._flush()

    def _flush(self) -> None:
        joined, self._joined = self._joined, JoinedPacks(self._folder)
        if joined.members:
            self._index_joined(joined, joined.members)
        joined.close()

    def _index_joined(self, joined: JoinedPacks, members: Sequence[Member]) -> None:
        """Where git does not take them together, half of them, down to the one that is bad."""
        size = sum(member.size for member in members)
        try:
            self._index(joined.stream(members), size)
        except GitError as error:
            if len(members) == 1:
                self._bad(BadPack(members[0].rkey, reason(error, size)))
                return
            half = len(members) // 2
            self._index_joined(joined, members[:half])
            self._index_joined(joined, members[half:])

    def _index_large(self, pack: PackRecord) -> None:
        parts = self._transfers.map(self._parts.spooled, ((pack, blob) for blob in pack.blobs))
        try:
            self._index(checked(pack, unspooled(parts)), pack.size)
            self._found.bytes += pack.size
        except Gone:
            self._bad(self._gone(pack))
        except GitError as error:
            self._bad(BadPack(pack.rkey, reason(error, pack.size)))
        except BadPack as error:
            self._bad(error)

    def _index(self, stream: Iterator[bytes], size: int) -> None:
        with index_pack(self._git, size, progress=self._progress) as child:
            for chunk in stream:
                child.write(chunk)
            child.end_input()
            child.read(1024)
            child.finish()

    def _gone(self, pack: PackRecord) -> BadPack:
        return BadPack(pack.rkey, self._why_gone(PACK, pack.rkey))

    def _why_gone(self, collection: str, rkey: Rkey) -> str:
        if self._store.get(collection, rkey) is None:
            return "it was folded or deleted while it was read: verify again"
        return "a blob of it is not on the host"

    def _bad(self, error: BadPack) -> None:
        self._found.add(f"pack {error.rkey}", error.why)

    # --- LFS objects

    def _check_lfs(self, record: LfsRecord) -> None:
        digest = hashlib.sha256()
        name = f"LFS object {record.oid}"
        try:
            for blob in record.blobs:
                for chunk in self._parts.checked(record.rkey, blob):
                    digest.update(chunk)
        except BadPack as error:
            self._found.add(name, error.why)
        except BlobNotFound:
            self._found.add(name, self._why_gone(LFS, record.rkey))
        else:
            self._found.bytes += record.size
            if digest.hexdigest() != record.oid:
                self._found.add(name, "its bytes are not those that it is named by")

    # --- objects

    def _count(self) -> int:
        lines = self._git.run("count-objects", "-v").decode().splitlines()
        return next(int(line.partition(": ")[2]) for line in lines if line.startswith("in-pack"))

    def _check_links(self, refs: Mapping[str, str]) -> None:
        """Which refs reach what is not there, and what git says of the first of it."""
        named: dict[str, list[str]] = {}
        for name, oid in refs.items():
            named.setdefault(oid, []).append(name)
        for oid, why in self._broken(list(named), _MOST_CULPRITS):
            what = ", ".join(brief(named[oid]))
            self._found.add(what, f"{oid} reaches what is in no pack: {why}")

    def _broken(self, oids: Sequence[str], most: int) -> Iterator[tuple[str, str]]:
        why = self._git.broken_link(oids, trusting=False) if oids else None
        if why is None:
            return
        if len(oids) == 1:
            yield oids[0], why
            return
        half = len(oids) // 2
        for some in (oids[:half], oids[half:]):
            for found in self._broken(some, most):
                yield found
                most -= 1
                if not most:
                    return
