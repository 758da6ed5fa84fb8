"""A pack of objects that are named one by one, in place of packs that hold them."""

import secrets
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Self

from git_knotless.atproto.errors import BlobNotFound
from git_knotless.atproto.syntax import Rkey, Tid, is_tid, tid, tid_microseconds
from git_knotless.storage.git import Git
from git_knotless.storage.outcome import Batch, Sent, send
from git_knotless.storage.packs.outgoing import INLINE_LIMIT, OutgoingPack
from git_knotless.storage.packs.packrecord import MOST_HINTS, PackRecord
from git_knotless.storage.packs.spool import Spool
from git_knotless.storage.packs.uploads import BlobsLost, Uploads
from git_knotless.storage.progress import Progress
from git_knotless.storage.pushing.batches import Stamp
from git_knotless.storage.records import prefix_of
from git_knotless.storage.store import RecordStore

_READ = 1 << 20
_MOST_UPLOADS = 3  # of one pack after the first
_CLOCK_IDS = 1024  # of a TID: two writers in one microsecond
# Of objects that are large, fewer are looked at for a delta.
_WINDOW = ("--window=10", "--window-memory=100m", "--depth=50")
_COMMAND = ("pack-objects", "--stdout", "--delta-base-offset", *_WINDOW)


class ListedPack(OutgoingPack):
    """Deltas that are there are kept, and others looked for between objects of different packs."""

    @classmethod
    def of(
        cls,
        git: Git,
        oids: Iterable[bytes],
        store: RecordStore,
        directory: Path,
        progress: Progress,
    ) -> Self:
        """`oids`, each once, with what shall stand first in the pack first."""
        spool = Spool(directory)
        uploads = Uploads(spool, store.upload, lambda: store.host().blob_limit)
        pack = cls(spool, uploads, progress)
        try:
            pack._list(git, oids)
            pack._conclude(None)
        except BaseException:
            pack.close()
            raise
        if pack.limit is not None and pack.limit != store.host().blob_limit:
            store.learn_blob_limit(pack.limit)
        return pack

    def named(
        self,
        rkey: Rkey,
        repo: str,
        *,
        epoch: int,
        at: str,
        tips: Iterable[str] = (),
        bases: Iterable[str] = (),
    ) -> PackRecord:
        """Its record. Of many tips the first are named; of many bases none."""
        below = tuple(bases)
        return PackRecord(
            rkey=rkey,
            repo=repo,
            epoch=epoch,
            size=self.size,
            objects=self.objects,
            checksum=self.checksum,
            data=self.data,
            blobs=self.blobs,
            created_at=at,
            tips=tuple(tips)[:MOST_HINTS],
            bases=below if len(below) <= MOST_HINTS else (),
        )

    def land(
        self, store: RecordStore, batch: Callable[[], Batch], stale: Callable[[], bool]
    ) -> Sent:
        """Send a batch with its record, made anew each time that the host has lost a blob of it."""
        for _ in range(_MOST_UPLOADS):
            try:
                return send(store, batch(), stale=stale)
            except BlobNotFound:
                self.upload_again()
        try:
            return send(store, batch(), stale=stale)
        except BlobNotFound as error:
            why = "the host loses what is uploaded to it before it can be named"
            raise BlobsLost(why) from error

    def _list(self, git: Git, oids: Iterable[bytes]) -> None:
        shown = "--all-progress" if self._progress.enabled else "-q"
        with git.popen(*_COMMAND, shown, progress=self._progress) as child:
            for oid in oids:
                child.write(oid.hex().encode() + b"\n")
            child.end_input()
            while chunk := child.read(_READ):
                self._spool.append(chunk)
                if self.size > INLINE_LIMIT:
                    self._uploads.begin_full()
            child.finish()


def packed_size(git: Git, oids: Iterable[bytes]) -> int:
    """How many bytes such a pack has."""
    size = 0
    with git.popen(*_COMMAND, "-q") as child:
        for oid in oids:
            child.write(oid.hex().encode() + b"\n")
        child.end_input()
        while chunk := child.read(_READ):
            size += len(chunk)
        child.finish()
    return size


def later_than(packs: Iterable[Rkey], key: str, stamp: Stamp) -> Rkey:
    """A new pack's record key, after those of `packs` whatever their writers' clocks said."""
    names = (rkey.removeprefix(prefix_of(key)) for rkey in packs)
    newest = max((tid_microseconds(Tid(name)) for name in names if is_tid(name)), default=0)
    at = max(int(stamp.time.timestamp() * 1_000_000), newest + 1)
    return Rkey(prefix_of(key) + tid(at, secrets.randbelow(_CLOCK_IDS)))
