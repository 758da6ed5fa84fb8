"""Making a repository of another's packs and refs: what accepting and forking have in common.

Packs and refs come first and the repo record last, in one write with the end of the hold under
which they came (`holds`). What is refused takes back what it wrote; what is cut otherwise is
found by its claim, and gone on with by the next that makes the same.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from git_knotless.atproto.syntax import Did, Handle
from git_knotless.errors import KnotlessError
from git_knotless.storage.batches import MAX_WRITES
from git_knotless.storage.copying import Copy
from git_knotless.storage.creation import AlreadyExists
from git_knotless.storage.editing import RacedTooOften
from git_knotless.storage.holds import Hold, HoldRecord, held
from git_knotless.storage.offers import NotOffered
from git_knotless.storage.outcome import HostRefused
from git_knotless.storage.packfile import BadPack
from git_knotless.storage.places import RedirectRecord, RepoRef, redirects_of
from git_knotless.storage.progress import Progress
from git_knotless.storage.records import CLAIM, REDIRECT, REPO, RefRecord, RepoRecord
from git_knotless.storage.remains import clear_name
from git_knotless.storage.renaming import TooManyRedirects
from git_knotless.storage.repositories import AnotherRepository, Repository
from git_knotless.storage.snapshot import NoSuchRepository, UnreadableRepository
from git_knotless.storage.store import Record, RecordStore, Write
from git_knotless.storage.url import RepoUrl

_READINGS = 8  # of names that others write to at the same time
_OTHER_WRITES = 4  # of the last batch: two claims, the record, and a redirect under its name
# What another attempt meets again; whatever else ends one may be over by the next.
_REFUSALS = (
    *(NotOffered, AlreadyExists, TooManyRedirects, BadPack),
    *(NoSuchRepository, AnotherRepository, UnreadableRepository),
)

AsCopied = Callable[[RefRecord], RefRecord | None]
Fields = Callable[[RepoRecord], Mapping[str, Any]]


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
        clear_name(self.store, self.url.name)
        hold = Hold.take(self.store, self.url.authority, wanted)
        try:
            copy = Copy(
                self.source, hold, as_copied, directory=self._directory, progress=self._progress
            )
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

    def _concluded(
        self, hold: Hold, read: RepoRecord, fields: Mapping[str, Any]
    ) -> RepoRecord | None:
        """At an epoch that its place before has not had, where it has moved."""
        names = self._names(hold.key)

        def stale() -> bool:
            return self._is_taken() or self._names(hold.key) != names

        least = read.epoch + 1 if read.key == hold.key else 1
        return hold.conclude(fields, names, least=least, stale=stale)

    def _names(self, key: str) -> list[Write]:
        """No redirect under its name any more; and old names of it, if it was here before, lead
        here again.
        """
        here = RepoRef(self.store.did, self.url.name, key)
        old = [each for each in redirects_of(self.store, key) if each.name != self.url.name]
        if len(old) > MAX_WRITES - _OTHER_WRITES:
            raise TooManyRedirects(f"{len(old)} old names lead to {self.url}: more than one write")
        writes = [Write("update", REDIRECT, each.name, _leading(each, here)) for each in old]
        if self.store.get(REDIRECT, self.url.name) is not None:
            writes.append(Write("delete", REDIRECT, self.url.name))
        return writes

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
    value.pop("transferredFrom", None)
    return value


def cut(store: RecordStore, source: Did) -> list[HoldRecord]:
    """What in the account was to be made of the repositories of `source`, and is not."""
    claims = (record for page in store.list(CLAIM, "") for record in page)
    return [each for each in holds(claims) if each.source.did == source]


def holds(claims: Iterable[Record]) -> list[HoldRecord]:
    return [each for each in map(held, claims) if each is not None]


def drop(store: RecordStore, owner: Did | Handle, rest: Iterable[HoldRecord]) -> None:
    """Take away what nobody goes on with."""
    for each in rest:
        Hold.take(store, owner, each).discard()
