"""Packs on their way to a host: cut and uploaded while git still makes them."""

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from git_knotless.storage.git import Git, GitError
from git_knotless.storage.packs.kept import Kept, Shelf
from git_knotless.storage.packs.packfile import HEADER, TRAILER, objects_in
from git_knotless.storage.packs.spool import Spool
from git_knotless.storage.packs.uploads import Upload, Uploads
from git_knotless.storage.progress import Progress
from git_knotless.storage.store import BlobRef

# What a record holds itself: a few such records fill neither a batch nor a page of a listing.
INLINE_LIMIT = 48 * 1024

_READ = 1 << 20


class OutgoingPack:
    """A self-contained pack, kept on disk and on the host until `close`.

    `objects` counts; `checksum` is the pack's own trailer, in hex. A pack of at most
    INLINE_LIMIT bytes is `data`, a larger one `blobs`, in order.
    """

    def __init__(self, spool: Spool, uploads: Uploads, progress: Progress) -> None:
        self._spool = spool
        self._uploads = uploads
        self._progress = progress
        self.objects = 0
        self.checksum = ""
        self.data: bytes | None = None
        self.blobs: tuple[BlobRef, ...] = ()
        self._kept: Kept | None = None

    @classmethod
    def build(
        cls,
        git: Git,
        tips: Sequence[str],
        haves: Sequence[str],
        *,
        limit: Callable[[], int | None],
        upload: Upload,
        progress: Progress,
        shelf: Shelf | None = None,
    ) -> Self | None:
        """Everything that `tips` reach and `haves` do not; None when that is nothing.

        `haves` that are not here are as none. `limit` says how many bytes one blob may
        have, None where the host does not say, and is asked only for a pack that needs blobs.
        With a `shelf`, one that needs them is kept there, whatever becomes of us, until `drop`.
        """
        kept, spool = (shelf and shelf.find()) or (None, Spool(git.common_dir / "knotless"))
        pack = cls(spool, Uploads(spool, upload, limit), progress)
        try:
            if shelf is not None and kept is not None:
                pack._resume(kept, shelf.account)
            else:
                # One to be kept is made to its end: what has been uploaded of it is not lost.
                pack._produce(git, tips, haves, at_once=shelf is None)
            pack._conclude(shelf)
        except BaseException:
            pack.close()
            raise
        if pack.objects:
            return pack
        pack.close()
        return None

    @property
    def size(self) -> int:
        return self._spool.size

    @property
    def limit(self) -> int | None:
        """What the host was found to take, in bytes of one blob; None where there was no need."""
        return self._uploads.limit if self.blobs else None

    def upload_again(self) -> None:
        """For blobs that were gone when the record that names them came."""
        self.blobs = self._uploads.again(self._progress)

    def drop(self) -> None:
        """It has landed, or will not: nobody comes back for it."""
        if self._kept is not None:
            self._kept.drop()

    def close(self) -> None:
        """Also calls off every transfer that still runs."""
        self._uploads.close()
        self._spool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _produce(
        self, git: Git, tips: Sequence[str], haves: Sequence[str], *, at_once: bool
    ) -> None:
        known = [oid for oid, kind in git.types(haves).items() if kind is not None]
        shown = "--all-progress" if self._progress.enabled else "-q"
        args = ("pack-objects", "--revs", "--stdout", "--delta-base-offset", shown)
        with git.fetching().popen(*args, progress=self._progress) as child:
            child.write("".join(f"{oid}\n" for oid in [*tips, "--not", *known]).encode())
            child.end_input()
            while chunk := child.read(_READ):
                self._spool.append(chunk)
                if self.size > INLINE_LIMIT:
                    self._uploads.begin_full(at_once=at_once)
            child.finish()

    def _resume(self, kept: Kept, account: str) -> None:
        self._kept = kept
        self._uploads.resume(kept.landed(account, self._spool))
        self._uploads.keep(kept)

    def _conclude(self, shelf: Shelf | None) -> None:
        objects = objects_in(self._spool.read(0, HEADER))
        if objects is None:
            raise GitError("git pack-objects made no pack that is known here")
        self.objects = objects
        self.checksum = self._spool.read(self.size - TRAILER, TRAILER).hex()
        if self.size <= INLINE_LIMIT:
            self.data = self._spool.read(0, self.size)
            return
        if shelf is not None and self._kept is None:
            self._kept = shelf.keep(self._spool, self.checksum)
            if self._kept is not None:
                self._uploads.keep(self._kept)
        self.blobs = self._uploads.conclude(self._progress)
