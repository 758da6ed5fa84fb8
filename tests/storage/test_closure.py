"""Packs of a clone that prove one another: what is walked all the same, and what not believed."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from git_knotless.storage.git import Git, GitError
from git_knotless.storage.packs.intake import MissingObjects
from git_knotless.storage.packs.packindex import held, oids_in
from git_knotless.storage.packs.packrecord import PackRecord
from git_knotless.storage.packs.quarantine import Quarantine
from tests.gitenv import GitEnv
from tests.storage.packs import noise, publish
from tests.storage.reader import KIB, Host, Reader, rewrite

LARGE = 1100 * KIB


class Author:
    """Pushes to an account, with what a push says of its packs."""

    def __init__(self, gitenv: GitEnv, work: Path, host: Host) -> None:
        self._gitenv, self._work, self._host = gitenv, work, host
        self._git = Git(work / ".git", env=gitenv.env)

    def commit(self, size: int, seed: int = 1) -> str:
        return self._gitenv.commit(self._work, f"noise{seed}", noise(size, seed))

    def push(self, tip: str, *bases: str, tips: Sequence[str] = ()) -> PackRecord:
        record = publish(self._host, self._git, [tip], bases)
        rewrite(self._host, record, tips=tuple(tips) or (tip,), bases=bases)
        return record


@pytest.fixture
def author(gitenv: GitEnv, work: Path, host: Host) -> Author:
    return Author(gitenv, work, host)


@pytest.fixture
def walks(gitenv: GitEnv) -> Path:
    gitenv.env["GIT_TRACE"] = str(gitenv.root / "trace")
    return gitenv.root / "trace"


def walked(trace: Path) -> int:
    return trace.read_text().count("built-in: git rev-list")


def test_each_pack_on_closed_ones_is_closed(author: Author, reader: Reader, walks: Path) -> None:
    first, second = author.commit(LARGE), author.commit(LARGE, 2)
    author.push(first)
    newest = author.push(second, first)
    taken = reader.take(second, clone=True)
    assert walked(walks) == 0
    assert len(taken.keeps) == 2
    assert taken.keeps[0].stem == f"pack-{newest.checksum}", "git heeds one: of what is wanted"
    assert reader.has(second)


def test_what_came_after_large_packs_is_walked(author: Author, reader: Reader, walks: Path) -> None:
    first, second = author.commit(LARGE), author.commit(KIB, 2)
    author.push(first)
    small = author.push(second, first)
    taken = reader.take(second, clone=True)
    assert walked(walks) == 1
    assert taken.keeps[0].stem == f"pack-{small.checksum}"
    assert reader.has(second)


def test_what_is_whole_is_not_walked(gitenv: GitEnv, work: Path, git: Git) -> None:
    first, tip = gitenv.oid(work, "main~1"), gitenv.oid(work)
    gitenv.git("update-ref", "-d", "refs/heads/main", cwd=work)
    oldest = gitenv.oid(work, f"{first}~1")
    (work / ".git/objects" / oldest[:2] / oldest[2:]).unlink()
    assert git.broken_link([tip])
    assert git.broken_link([tip], whole=[tip]) is None


def test_a_pack_on_one_that_is_not_there(author: Author, reader: Reader) -> None:
    first, second = author.commit(LARGE), author.commit(LARGE, 2)
    author.push(second, first)
    with pytest.raises(MissingObjects, match=f"{second} reaches what is in no pack"):
        reader.take(second, clone=True)


@pytest.mark.parametrize("bases", [True, False])
def test_a_record_that_is_wrong_about_its_tips_proves_nothing(
    gitenv: GitEnv, work: Path, author: Author, host: Host, reader: Reader, bases: bool
) -> None:
    """The first pack lacks nothing, and says that it has what only the second one has."""
    parent, bad = author.commit(LARGE), author.commit(LARGE, 2)
    gitenv.git("checkout", "-q", "--orphan", "other", cwd=work)
    other = author.commit(LARGE, 3)
    author.push(other, tips=[other, bad])
    rewrite(host, author.push(bad, parent), tips=(bad,), bases=(bad,) if bases else ())
    with pytest.raises(MissingObjects, match=f"{bad} reaches what is in no pack"):
        reader.take(bad, other, clone=True)
    assert reader.packs() == []


def test_a_pack_on_one_that_lacks_something_proves_nothing(
    gitenv: GitEnv, work: Path, author: Author, host: Host, reader: Reader
) -> None:
    """All that the last one names is there; what that names in turn is not."""
    parent, lacking, tip = author.commit(LARGE), author.commit(LARGE, 2), author.commit(LARGE, 3)
    gitenv.git("checkout", "-q", "--orphan", "other", cwd=work)
    other = author.commit(LARGE, 4)
    author.push(other)
    author.push(lacking, parent)
    rewrite(host, author.push(tip, lacking), tips=(tip,), bases=(other,))
    with pytest.raises(MissingObjects, match=f"{tip} reaches what is in no pack"):
        reader.take(tip, other, clone=True)


def test_a_pack_that_says_it_stands_alone_comes_again(
    author: Author, host: Host, reader: Reader
) -> None:
    """Folded since: what it stands on is in a pack that is newer than it."""
    first, second = author.commit(LARGE), author.commit(LARGE, 2)
    early = author.push(second, first)
    rewrite(host, early, bases=())
    author.push(first)
    assert reader.take(second, clone=True).connected
    assert reader.has(second)


def test_a_quarantine_is_all_there_is_in_a_new_repository_alone(
    gitenv: GitEnv, work: Path, other: Path
) -> None:
    def is_all(path: Path, **env: str) -> bool:
        with Quarantine(Git(path / ".git", env={**gitenv.env, **env})) as quarantine:
            return quarantine.is_all

    assert is_all(other)
    assert not is_all(work)
    assert not is_all(other, GIT_ALTERNATE_OBJECT_DIRECTORIES=str(work / ".git/objects"))
    gitenv.git("repack", "-adq", cwd=work)
    assert not is_all(work)
    (other / ".git/objects/info/alternates").write_text(f"{work}/.git/objects\n")
    assert not is_all(other)


def test_an_object_is_found_in_an_index(gitenv: GitEnv, work: Path) -> None:
    gitenv.git("repack", "-adq", cwd=work)
    (index,) = (work / ".git/objects/pack").glob("*.idx")
    there = [oid.hex() for oid in oids_in(index)]
    assert len(there) == 9
    near = [f"{int(oid, 16) + step:040x}" for oid in there for step in (-1, 1)]
    assert held(index, [*there, *near, "0" * 40, "f" * 40]) == there
    broken = gitenv.root / "broken.idx"
    broken.write_bytes(index.read_bytes()[: 8 + 1024 + 8 * 20 + 7])
    with pytest.raises(GitError, match="cut short"):
        held(broken, there)
