"""An account, the repository whose packs are put there, and another that fetches them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from git_knotless.storage.git import Git
from tests.gitenv import GitEnv
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
