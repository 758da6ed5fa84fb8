"""The pack of one push: built once, uploaded as often as it takes, built anew when it must be."""

import secrets
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from git_knotless.atproto.syntax import Rkey, tid
from git_knotless.storage.git import Git
from git_knotless.storage.packs.intake import remember
from git_knotless.storage.packs.kept import Shelf
from git_knotless.storage.packs.outgoing import OutgoingPack
from git_knotless.storage.packs.packrecord import MOST_HINTS, PackRecord
from git_knotless.storage.packs.taken import note_size
from git_knotless.storage.packs.uploads import BlobsLost
from git_knotless.storage.progress import Progress
from git_knotless.storage.pushing.batches import Stamp
from git_knotless.storage.pushing.shallow import refuse_holes
from git_knotless.storage.records import prefix_of
from git_knotless.storage.repositories import Repository
from git_knotless.storage.snapshot import Snapshot

_MOST_UPLOADS = 3  # of one pack after the first
_CLOCK_IDS = 1024  # of a TID: two pushers in one microsecond


class Parcel:
    """What a push sends besides its refs: the objects that the snapshot's refs do not reach.

    What they reach is on the host for as long as the epoch stands, so a pack made at one epoch
    serves for that epoch; at a later one it serves if all that it was built on is still there.
    """

    def __init__(self, repository: Repository, git: Git, progress: Progress) -> None:
        self._repository = repository
        self._git = git
        self._progress = progress
        self._pack: OutgoingPack | None = None
        self._epoch: int | None = None
        self._tips: list[str] = []
        self._bases = frozenset[str]()
        self._landed_at: int | None = None  # the epoch; at a later one it may have been pruned
        self._uploads = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """What an error has kept from landing is kept for whoever comes back."""
        self._close(drop=kind is None)

    def packed(self, snapshot: Snapshot, tips: list[str], stamp: Stamp) -> PackRecord | None:
        """The record of the pack that brings `tips`; None when there is nothing (more) to bring."""
        bases = frozenset(snapshot.targets.values())
        if not self._serves(snapshot, tips, bases):
            self._build(snapshot, tips, bases)
        if self._pack is None or self._landed_at == snapshot.repo.epoch:
            return None
        return self._record(self._pack, snapshot, stamp)

    def landed(self, record: PackRecord) -> None:
        """The pack is on the host: nothing of it need be sent, or fetched, again."""
        self._landed_at = record.epoch
        if self._pack is not None:
            self._pack.drop()
        remember(self._git, record.repo, record.rkey)
        note_size(self._git, record.repo, record.rkey, record.size)

    def forget(self) -> None:
        """What it was built on, epoch or not, may not be on the host that the account is at now."""
        self._epoch = None

    def upload_again(self) -> None:
        """For blobs that the host has lost, again and again or not."""
        self._uploads += 1
        if self._uploads > _MOST_UPLOADS:
            raise BlobsLost("the host loses what is uploaded to it before it can be named")
        if self._pack is not None:
            self._pack.upload_again()

    def _serves(self, snapshot: Snapshot, tips: Sequence[str], bases: frozenset[str]) -> bool:
        if self._epoch is None or not set(tips) <= set(self._tips):
            return False
        if self._landed_at is not None:
            return snapshot.repo.epoch == self._landed_at
        return snapshot.repo.epoch == self._epoch or self._bases <= bases

    def _build(self, snapshot: Snapshot, tips: list[str], bases: frozenset[str]) -> None:
        self._close()
        self._epoch, self._tips, self._bases = snapshot.repo.epoch, tips, bases
        if set(tips) <= bases:
            return
        refuse_holes(self._git, tips, bases)
        store = self._repository.store
        self._pack = OutgoingPack.build(
            self._git,
            tips,
            sorted(bases),
            limit=lambda: store.host().blob_limit,
            upload=store.upload,
            progress=self._progress,
            shelf=self._shelf(tips, bases),
        )
        limit = self._pack.limit if self._pack else None
        if limit is not None and limit != store.host().blob_limit:
            store.learn_blob_limit(limit)

    def _shelf(self, tips: Sequence[str], bases: frozenset[str]) -> Shelf:
        kinds = self._git.types(sorted(bases))
        here = [oid for oid, kind in kinds.items() if kind is not None]
        return Shelf.of(self._git.common_dir, self._repository.store.did, tips, here)

    def _record(self, pack: OutgoingPack, snapshot: Snapshot, stamp: Stamp) -> PackRecord:
        key, tips, bases = snapshot.repo.key, self._tips, sorted(self._bases)
        name = tid(int(stamp.time.timestamp() * 1_000_000), secrets.randbelow(_CLOCK_IDS))
        return PackRecord(
            rkey=Rkey(prefix_of(key) + name),
            repo=key,
            epoch=snapshot.repo.epoch,
            size=pack.size,
            objects=pack.objects,
            checksum=pack.checksum,
            data=pack.data,
            blobs=pack.blobs,
            created_at=stamp.at,
            tips=tuple(tips) if len(tips) <= MOST_HINTS else (),
            bases=tuple(bases) if len(bases) <= MOST_HINTS else (),
        )

    def _close(self, *, drop: bool = True) -> None:
        if self._pack is not None:
            if drop:
                self._pack.drop()
            self._pack.close()
        self._pack, self._landed_at = None, None
