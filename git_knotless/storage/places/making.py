"""Making a repository of another's packs and refs: what accepting and forking have in common.

Packs and refs come first and the repo record last, in one write with the end of the hold under
which they came (`holds`). What is refused takes back what it wrote; what is cut otherwise is
found by its claim, and gone on with by the next that makes the same.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from git_knotless.errors import KnotlessError
from git_knotless.storage.claims import EpochRecord
from git_knotless.storage.creation import AlreadyExists
from git_knotless.storage.editing import RacedTooOften
from git_knotless.storage.lfs.download import BadObject
from git_knotless.storage.outcome import Batch, HostRefused, Sent, send
from git_knotless.storage.packs.packfile import BadPack
from git_knotless.storage.places.copying import Copy
from git_knotless.storage.places.holds import Hold, HoldRecord, Overtaken
from git_knotless.storage.places.offers import NotOffered
from git_knotless.storage.places.references import RedirectRecord, RepoRef, redirects_of
from git_knotless.storage.places.renaming import TooManyRedirects
from git_knotless.storage.places.taking import Left, clear_name, drop, freed, holds, left_under
from git_knotless.storage.progress import Progress
from git_knotless.storage.pushing.batches import MAX_WRITES, stamp_now
from git_knotless.storage.records import CLAIM, REDIRECT, REPO, RefRecord, RepoRecord
from git_knotless.storage.remains import epochs, finish, placeholder
from git_knotless.storage.repositories import AnotherRepository, Repository
from git_knotless.storage.snapshot import NoSuchRepository, UnreadableRepository
from git_knotless.storage.store import Record, RecordStore, Write
from git_knotless.storage.url import RepoUrl
from git_knotless.value import value

_READINGS = 8  # of names that others write to at the same time
# Of the last batch: two claims, the record, a redirect under its name, and the three that tell the
# repository which that led to.
_OTHER_WRITES = 7
# What another attempt meets again; whatever else ends one may be over by the next.
_REFUSALS = (
    *(NotOffered, AlreadyExists, TooManyRedirects, BadPack, BadObject),
    *(NoSuchRepository, AnotherRepository, UnreadableRepository),
)

# In a redirect, what the record said that is gone.
_STANDS_FOR = ("transferredFrom", "transferredBefore")

AsCopied = Callable[[RefRecord], RefRecord | None]
Fields = Callable[[RepoRecord], Mapping[str, Any]]


@value
class _Names:
    """What has the name, and the old names of the repository, if it was here before."""

    under: Left | None
    old: Sequence[RedirectRecord]


class Making:
    """Of `source`, which is read where it is now and nowhere else, the repository `url`."""

    def __init__(
        self,
        source: Repository,
        store: RecordStore,
        url: RepoUrl,
        *,
        directory: Path,
        progress: Progress,
    ) -> None:
        self.source = Repository(source.url, source.store, writable=False)
        self.store = store
        self.url = url
        self._directory = directory
        self._progress = progress
        self._before = _Names(None, ())

    def refuse_taken(self, rest: Iterable[HoldRecord]) -> None:
        """Raises AlreadyExists, and takes away the `rest` of what was to have that name."""
        if self._is_taken():
            drop(
                self.store,
                self.url.authority,
                (each for each in rest if each.name == self.url.name),
            )
            raise self._exists()

    def make(
        self,
        wanted: HoldRecord,
        *,
        check: Callable[[RepoRecord], None],
        fields: Fields,
        as_copied: AsCopied,
    ) -> tuple[RepoRecord, Copy]:
        """`check` raises where the source is not to be copied any more."""
        clear_name(self.store, self.url, spare=wanted.repo)
        try:
            hold = Hold.take(self.store, self.url.authority, wanted)
            return self._held(hold, check, fields, as_copied)
        except (*_REFUSALS, Overtaken):
            self._leave_name(wanted.repo)
            raise

    def _held(
        self, hold: Hold, check: Callable[[RepoRecord], None], fields: Fields, as_copied: AsCopied
    ) -> tuple[RepoRecord, Copy]:
        progress = self._progress
        try:
            copy = Copy(self.source, hold, as_copied, directory=self._directory, progress=progress)
            return self._finished(hold, copy, check, fields), copy
        except _REFUSALS:
            _give_up(hold)
            raise

    def _finished(
        self, hold: Hold, copy: Copy, check: Callable[[RepoRecord], None], fields: Fields
    ) -> RepoRecord:
        for _ in range(_READINGS):
            copy.catch_up(check)
            read = copy.read()
            check(read)
            if self._is_taken():
                raise self._exists()
            try:
                made = self._concluded(hold, read, fields(read))
            except HostRefused:  # its name: all else it took before
                _give_up(hold)
                raise
            if made is not None:
                return made
        raise RacedTooOften(f"others keep changing {self.url}: try again")

    def undo(self, made: RepoRecord) -> bool:
        """Take it away again, and give its old names back what they were.

        False where another has written to it meanwhile: then it stays.
        """
        stamp = stamp_now(self.store)
        gone = EpochRecord(made.key, made.epoch + 1, stamp.nonce, stamp.at, deleted=made.name)
        left = self._before.under
        under = placeholder(self.store, made.rkey, made.key, stamp.at).to_json()
        writes = [
            Write("delete", CLAIM, EpochRecord.of(made).rkey),
            Write("create", CLAIM, gone.rkey, gone.to_json()),
            Write("delete", REPO, made.rkey),
            Write("create", REDIRECT, made.rkey, left.redirect.value if left else under),
            *(Write("update", REDIRECT, old.name, old.to_json()) for old in self._before.old),
        ]
        stands = partial(self.store.get, CLAIM, EpochRecord.of(made).rkey)
        batch = Batch(writes, gone.rkey, stamp.nonce)
        if send(self.store, batch, stale=lambda: stands() is None) is not Sent.LANDED:
            return False
        finish(self.store, Record(gone.rkey, gone.to_json()))
        return True

    def _concluded(
        self, hold: Hold, read: RepoRecord, fields: Mapping[str, Any]
    ) -> RepoRecord | None:
        """At an epoch that its place before has not had, where it has moved."""
        names = self._names(hold.key)

        def stale() -> bool:
            return self._is_taken() or self._names(hold.key) != names

        least = read.epoch + 1 if read.key == hold.key else 1
        self._before = names
        return hold.conclude(fields, self._renamed(names, hold.key), least=least, stale=stale)

    def _names(self, key: str) -> _Names:
        under = left_under(self.store, self.url.name)
        old = [each for each in redirects_of(self.store, key) if each.name != self.url.name]
        return _Names(under, old)

    def _renamed(self, names: _Names, key: str) -> list[Write]:
        """No redirect has its name any more; and its old names lead here again."""
        if len(names.old) > MAX_WRITES - _OTHER_WRITES:
            count = len(names.old)
            raise TooManyRedirects(f"{count} old names lead to {self.url}: more than one write")
        here = RepoRef(self.store.did, self.url.name, key)
        writes = [Write("update", REDIRECT, each.name, _leading(each, here)) for each in names.old]
        return writes + (freed(names.under, key, stamp_now(self.store)) if names.under else [])

    def _leave_name(self, key: str) -> None:
        """Who took it has moved the hold, and nobody can go on with it: raises AlreadyExists."""
        rest = [each for each in holds(epochs(self.store, key)) if each.name == self.url.name]
        if rest:
            self.refuse_taken(rest)

    def _is_taken(self) -> bool:
        return self.store.get(REPO, self.url.name) is not None

    def _exists(self) -> AlreadyExists:
        return AlreadyExists(f"{self.url} already exists")


def _give_up(hold: Hold) -> None:
    """What cannot be taken back now, the next that makes the same finds."""
    with suppress(KnotlessError):
        hold.discard()


def _leading(redirect: RedirectRecord, to: RepoRef) -> dict[str, Any]:
    """It stands for nothing that is gone any more."""
    value = redirect.leading_to(to).to_json()
    return {name: each for name, each in value.items() if name not in _STANDS_FOR}
