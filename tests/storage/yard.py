"""A repository on an account in memory, and whoever pushes to it, clones it and folds its packs."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from git_knotless.atproto.syntax import Rkey
from git_knotless.storage.creation import create
from git_knotless.storage.git import Git
from git_knotless.storage.listing import Page
from git_knotless.storage.packs.folding import Folded, fold
from git_knotless.storage.packs.intake import take
from git_knotless.storage.packs.packrecord import PackRecord
from git_knotless.storage.packs.pruning import Pruned, prune
from git_knotless.storage.records import PACK
from git_knotless.storage.repositories import CLAIM_GRACE, Repository
from git_knotless.storage.store import BlobBody, BlobRef, Record, Write
from git_knotless.storage.url import parse_url
from tests.gitenv import GitEnv
from tests.storage.account import Account
from tests.storage.pushing import MAIN, SILENT, push_each

URL = parse_url("knotless://alice.test/repo")
DAY = 86_400.0


@dataclass
class Met(Account):
    """`meet` sees each request before anything of it is done, and once it is; it may raise.
    `shown` are the records of a page as the host lists them; `cached` is what it signs as."""

    meet: Callable[[str], None] = lambda moment: None
    shown: Callable[[Sequence[Record]], Sequence[Record]] = lambda records: records

    cached: Account | None = None

    def signed(self) -> tuple[bytes, dict[bytes, bytes]]:
        self.meet("before proof")
        return super().signed() if self.cached is None else self.cached.signed()

    def get(self, collection: str, rkey: Rkey) -> Record | None:
        self.meet("before get")
        return super().get(collection, rkey)

    def _page(self, collection: str, cursor: str | None, ascending: bool) -> Page:
        self.meet("before list")
        page = super()._page(collection, cursor, ascending)
        return Page(self.shown(page.records), page.cursor)

    def apply(self, writes: Sequence[Write]) -> Sequence[str]:
        self.meet("before apply")
        done = super().apply(writes)
        self.meet("after apply")
        return done

    def upload(self, body: BlobBody, **options: Any) -> BlobRef:
        self.meet("before upload")
        return super().upload(body, **options)

    def download(self, blob: BlobRef) -> Iterator[bytes]:
        self.meet("before download")
        yield from super().download(blob)


class Yard:
    def __init__(self, gitenv: GitEnv, host: Met, path: Path) -> None:
        self.gitenv, self.host, self.path = gitenv, host, path
        create(host, URL)
        host.batches.clear()
        host.requests.clear()
        self.git = Git(path / ".git", env=gitenv.env)
        self._numbers = count(1)

    def repository(self, *, grace: float = CLAIM_GRACE) -> Repository:
        return Repository(URL, self.host, writable=True, claim_grace=grace)

    @property
    def key(self) -> str:
        return self.repository().record().key

    def push(self, *revisions: str | None, name: str = MAIN) -> None:
        push_each(self.repository(), self.git, revisions, name=name, force=True)

    def commit(self, size: int = 0) -> str:
        """Of a file that does not compress, or of a few letters; its id."""
        number = next(self._numbers)
        content = Random(number).randbytes(size) if size else f"{number}\n".encode()
        return self.gitenv.commit(self.path, "file" if size else f"f{number}", content)

    def fold(self, **options: Any) -> Folded:
        return fold(self.repository(), self._new(), progress=SILENT, **options)

    def prune(self, *, dry_run: bool = False, later: float = 2 * DAY) -> Pruned:
        """As if it were so many seconds later."""
        before, self.host.offset = self.host.offset, later
        try:
            return prune(self.repository(), self._new(), progress=SILENT, dry_run=dry_run)
        finally:
            self.host.offset = before

    def _new(self) -> Path:
        return self.gitenv.root / f"new{next(self._numbers)}"

    # --- what is there

    def records(self) -> list[PackRecord]:
        found = self.host.records.get(PACK, {})
        return [PackRecord.from_record(Record(Rkey(k), found[k])) for k in sorted(found)]

    def bytes_of(self, record: PackRecord) -> bytes:
        if record.data is not None:
            return record.data
        return b"".join(self.host.blobs[blob.cid] for blob in record.blobs)

    def objects(self) -> set[str]:
        """Every object that is in a pack there, as git finds it."""
        place = self._new()
        self.gitenv.git("init", "-q", "--bare", str(place))
        for record in self.records():
            data = self.bytes_of(record)
            self.gitenv.git("index-pack", "--stdin", cwd=place, stdin=data)
        listing = ("cat-file", "--batch-all-objects", "--batch-check=%(objectname)")
        return set(self.gitenv.git(*listing, cwd=place).out.split())

    def held(self) -> int:
        """How many objects there are, twice what is twice there."""
        return sum(record.objects for record in self.records())

    def size(self) -> int:
        return sum(record.size for record in self.records())

    def reached(self, *revisions: str) -> set[str]:
        listed = self.gitenv.git("rev-list", "--objects", *revisions, cwd=self.path).out
        return {line.split(" ")[0] for line in listed.splitlines()}

    # --- readers

    def clone(self) -> Path:
        """By a stranger, of all refs: all that they reach is there, and sound."""
        place = self._new()
        self.gitenv.git("init", "-q", str(place))
        self.fetch(place)
        return place

    def fetch(self, place: Path) -> None:
        git = Git(place / ".git", env=self.gitenv.env)
        repository = self.repository()
        snapshot = repository.snapshot()
        wants = {oid: [name] for name, oid in snapshot.live.items()}
        key = snapshot.repo.key
        take(git, self.host, key, wants, progress=SILENT, clone=False).release()
        for name, oid in snapshot.live.items():
            git.run("update-ref", name.replace("heads", "remotes/origin"), oid)
        self.gitenv.git("fsck", "--strict", "--no-dangling", cwd=place)
