"""A repository that fetches the packs of an account, and looks at what it got."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from git_knotless.storage.git import Git
from git_knotless.storage.packs.intake import Taken, take
from git_knotless.storage.packs.packrecord import PackRecord
from git_knotless.storage.records import PACK
from git_knotless.storage.store import BlobRef
from git_knotless.value import replace
from tests.gitenv import GitEnv
from tests.storage.account import Account
from tests.storage.packs import KEY, SILENT, publish

ROOT = Path(__file__).parents[2]
KIB = 1024
LIMIT = 300 * KIB


@dataclass
class Host(Account):
    """An account whose blobs may be served by somebody who does it otherwise."""

    serve: Callable[[BlobRef], Iterator[bytes]] | None = None

    def download(self, blob: BlobRef) -> Iterator[bytes]:
        return (self.serve or self.kept)(blob)

    def kept(self, blob: BlobRef) -> Iterator[bytes]:
        return super().download(blob)


class Reader:
    """Fetches into one repository, as git would have it done."""

    def __init__(self, gitenv: GitEnv, path: Path, host: Account) -> None:
        self.gitenv, self.path, self.host = gitenv, path, host

    def take(
        self,
        *wants: str,
        clone: bool = False,
        unshallow: bool = False,
        refs: Sequence[str] = (),
        progress: Any = SILENT,
    ) -> Taken:
        git = Git(self.git_dir, env=self.gitenv.env)
        return take(
            git,
            self.host,
            KEY,
            dict.fromkeys(wants, refs),
            progress=progress,
            clone=clone,
            unshallow=unshallow,
        )

    def update(self, name: str, oid: str) -> None:
        self.gitenv.git("update-ref", f"refs/heads/{name}", oid, cwd=self.path)

    @property
    def git_dir(self) -> Path:
        return self.path / ".git" if (self.path / ".git").is_dir() else self.path

    def packs(self) -> list[str]:
        return sorted(path.name for path in (self.git_dir / "objects/pack").glob("*"))

    def leftovers(self) -> list[str]:
        """Whatever is there besides objects and our memory."""
        found = [
            *(self.git_dir / "objects").glob("tmp_*"),
            *self.git_dir.glob("objects/pack/tmp_*"),
        ]
        found += (p for p in self.git_dir.glob("knotless/*") if p.suffix != ".taken")
        return [path.name for path in found]

    def has(self, oid: str) -> bool:
        """All that `oid` reaches, and sound."""
        self.gitenv.git("fsck", "--full", "--strict", cwd=self.path)
        done = self.gitenv.git("rev-list", "--objects", "--quiet", oid, cwd=self.path, code=None)
        return done.code == 0


def push_each(gitenv: GitEnv, work: Path, git: Git, host: Account) -> list[PackRecord]:
    """One pack for each commit of main."""
    oids = gitenv.git("rev-list", "--reverse", "main", cwd=work).out.split()
    return [publish(host, git, [oid], oids[:at]) for at, oid in enumerate(oids)]


def rewrite(host: Account, record: PackRecord, **fields: Any) -> None:
    host.records[PACK][record.rkey] = replace(record, **fields).to_json()
