"""A person who pushes to an account, in this process."""

import io
import random
from pathlib import Path
from typing import Any

from git_knotless.storage.git import Git
from git_knotless.storage.packs.packrecord import PackRecord
from git_knotless.storage.progress import TextProgress
from git_knotless.storage.pushing.push import push
from git_knotless.storage.pushing.updates import Update
from git_knotless.storage.records import PACK
from git_knotless.storage.repositories import Repository
from git_knotless.storage.snapshot import Snapshot
from git_knotless.storage.store import Record
from git_knotless.storage.url import parse_url
from tests.gitenv import GitEnv
from tests.storage.account import Account

URL = parse_url("knotless://alice.test/repo")
MAIN = "refs/heads/main"


class Pusher:
    """One person's clone, and the account that they push to."""

    def __init__(self, gitenv: GitEnv, path: Path, host: Account) -> None:
        self.gitenv, self.path, self.host = gitenv, path, host
        self.repository = Repository(URL, host, writable=True)
        self.git = Git(path / ".git", env=gitenv.env)
        self.told: list[str] = []

    def oid(self, revision: str) -> str:
        return self.gitenv.oid(self.path, revision)

    def push(
        self, *specs: str, read: Snapshot | None = None, **options: Any
    ) -> dict[str, str | None]:
        """`specs` as git has them; what became of each."""
        outcomes = push(
            self.repository,
            self.git,
            read or self.repository.snapshot(),
            [self._update(spec) for spec in specs],
            progress=TextProgress(io.StringIO(), enabled=False),
            notify=self.told.append,
            **options,
        )
        return {outcome.name: outcome.error for outcome in outcomes}

    def _update(self, spec: str) -> Update:
        source, _, name = spec.removeprefix("+").partition(":")
        return Update(name, self.oid(source) if source else None, force=spec.startswith("+"))

    def reached(self, *revisions: str) -> set[str]:
        """Every object that these reach here."""
        listed = self.gitenv.git("rev-list", "--objects", *revisions, "--", cwd=self.path).out
        return {line.split(" ")[0] for line in listed.splitlines()}

    def live(self) -> dict[str, str]:
        return self.repository.snapshot().live

    def objects(self) -> set[str]:
        """Every object that the account's packs hold."""
        found: set[str] = set()
        for value in self.host.records.get(PACK, {}).values():
            found |= self.unpacked(value)
        return found

    def unpacked(self, value: dict[str, Any]) -> set[str]:
        """The objects of one pack, by its record."""
        scratch = self.gitenv.root / f"scratch-{random.random()}"
        self.gitenv.git("init", "-q", "--bare", str(scratch))
        self.gitenv.git("index-pack", "--stdin", cwd=scratch, stdin=self.bytes_of(self.host, value))
        listing = ("cat-file", "--batch-all-objects", "--batch-check=%(objectname)")
        return set(self.gitenv.git(*listing, cwd=scratch).out.split())

    @staticmethod
    def bytes_of(host: Account, value: dict[str, Any]) -> bytes:
        (rkey,) = [k for k, v in host.records[PACK].items() if v is value]
        record = PackRecord.from_record(Record(rkey, value))
        return record.data or b"".join(host.blobs[blob.cid] for blob in record.blobs)
