"""Packs on their way to a host: cut and uploaded while git still makes them."""

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from git_knotless.storage.git import Git, GitError
from git_knotless.storage.packfile import HEADER, TRAILER, objects_in
from git_knotless.storage.progress import Progress
from git_knotless.storage.spool import Spool
from git_knotless.storage.store import BlobRef
from git_knotless.storage.uploads import Upload, Uploads

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
    ) -> Self | None:
        """Everything that `tips` reach and `haves` do not; None when that is nothing.

        `haves` that are not here are as none. `limit` says how many bytes one blob may
        have, None where the host does not say, and is asked only for a pack that needs blobs.
        """
        spool = Spool(git.common_dir / "knotless")
        pack = cls(spool, Uploads(spool, upload, limit), progress)
        try:
            pack._produce(git, tips, haves)
            pack._conclude()
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

    def _produce(self, git: Git, tips: Sequence[str], haves: Sequence[str]) -> None:
        known = [oid for oid, kind in git.types(haves).items() if kind is not None]
        shown = "--all-progress" if self._progress.enabled else "-q"
        args = ("pack-objects", "--revs", "--stdout", "--delta-base-offset", shown)
        with git.popen(*args, progress=self._progress) as child:
            child.write("".join(f"{oid}\n" for oid in [*tips, "--not", *known]).encode())
            child.end_input()
            while chunk := child.read(_READ):
                self._spool.append(chunk)
                if self.size > INLINE_LIMIT:
                    self._uploads.begin_full()
            child.finish()

    def _conclude(self) -> None:
        objects = objects_in(self._spool.read(0, HEADER))
        if objects is None:
            raise GitError("git pack-objects made no pack that is known here")
        self.objects = objects
        self.checksum = self._spool.read(self.size - TRAILER, TRAILER).hex()
        if self.size <= INLINE_LIMIT:
            self.data = self._spool.read(0, self.size)
        else:
            self.blobs = self._uploads.conclude(self._progress)
