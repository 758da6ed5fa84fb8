"""People with accounts and machines, who push to and clone from each other."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.gitenv import GitEnv, Result
from tests.network import Account

REPO, REF = "dev.knotless.repo", "dev.knotless.ref"
CLAIM, PACK = "dev.knotless.claim", "dev.knotless.pack"


@dataclass
class Person:
    """An account, and a machine that is logged in to it."""

    account: Account
    machine: GitEnv

    @property
    def handle(self) -> str:
        return self.account.handle

    def url(self, name: str = "work") -> str:
        return f"knotless://{self.handle}/{name}"

    def git(self, *args: str, **options: Any) -> Result:
        return self.machine.git(*args, **options)

    def create(self, name: str = "work", **options: str) -> str:
        self.machine.create(self.url(name), **options)
        return self.url(name)

    def published(self, name: str = "work", *, commits: int = 3) -> Path:
        """A repository with a remote `origin`, created and pushed."""
        path = self.machine.repository(name, commits=commits)
        self.git("remote", "add", "origin", self.create(name), cwd=path)
        self.machine.push_main(path)
        return path

    def clone(self, url: str, name: str = "clone", *args: str) -> Path:
        path = self.machine.root / name
        self.git("clone", *args, url, str(path))
        self.git("fsck", "--strict", "--no-dangling", cwd=path)
        return path

    def remote_refs(self, url: str) -> dict[str, str]:
        lines = self.git("ls-remote", url).out.splitlines()
        return {name: oid for oid, name in (line.split("\t") for line in lines)}

    def commits(self) -> int:
        """How often the account has been written to: its newest revision changes with each."""
        status = self.account.host.get("com.atproto.sync.getLatestCommit", did=self.account.did)
        return int.from_bytes(status["rev"].encode())


@pytest.fixture
def person(account: Callable[..., Account], machine: Callable[[], GitEnv]) -> Callable[..., Person]:
    """Makes people: `person("alice")`."""

    def make(stem: str = "user", **options: Any) -> Person:
        made = Person(account(stem, **options), machine())
        made.machine.log_in(made.account)
        return made

    return make


@pytest.fixture
def alice(person: Callable[..., Person]) -> Person:
    return person("alice")


@pytest.fixture
def bob(machine: Callable[[], GitEnv]) -> GitEnv:
    """A machine where nobody is logged in."""
    return machine()
