"""An account, the repository whose packs are put there, and another that fetches them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from git_knotless.storage import outcome, remains
from git_knotless.storage.git import Git
from tests.gitenv import GitEnv
from tests.storage.places import World
from tests.storage.reader import LIMIT, Host, Reader


@pytest.fixture
def host() -> Host:
    return Host(blob_limit=LIMIT)


@pytest.fixture
def work(gitenv: GitEnv) -> Path:
    return gitenv.repository(commits=3)


@pytest.fixture
def git(gitenv: GitEnv, work: Path) -> Git:
    return Git(work / ".git", env=gitenv.env)


@pytest.fixture
def other(gitenv: GitEnv) -> Path:
    """The repository that fetches."""
    return gitenv.repository("other", commits=0)


@pytest.fixture
def reader(gitenv: GitEnv, other: Path, host: Host) -> Iterator[Reader]:
    reader = Reader(gitenv, other, host)
    yield reader
    assert reader.leftovers() == []


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def in_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pause before a write is tried again: nobody else is at it."""
    for module in (outcome, remains):
        monkeypatch.setattr(module, "_PAUSE", 0.001)
