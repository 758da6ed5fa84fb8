"""What a shallow repository has after a fetch that is to make it whole, beside git's own."""

from pathlib import Path

import pytest

from git_knotless.storage.git import Git
from git_knotless.storage.packs.intake import MissingObjects
from tests.gitenv import GitEnv
from tests.storage.packs import publish
from tests.storage.reader import Host, Reader, push_each


@pytest.fixture
def branches(gitenv: GitEnv) -> Path:
    """Five commits on main, and two on a branch that leaves it after the third."""
    work = gitenv.repository("branches", commits=5)
    gitenv.git("checkout", "-q", "-b", "side", "main~2", cwd=work)
    gitenv.commit(work, "side1")
    gitenv.commit(work, "side2")
    gitenv.git("checkout", "-q", "main", cwd=work)
    return work


def shallow(gitenv: GitEnv, work: Path, name: str, host: Host) -> Reader:
    where = gitenv.root / name
    many = ("--depth=1", "--no-single-branch", "--no-checkout")
    gitenv.git("clone", "-q", *many, work.as_uri(), str(where))
    return Reader(gitenv, where, host)


def cut(reader: Reader) -> set[str]:
    file = reader.git_dir / "shallow"
    return set(file.read_text().split()) if file.exists() else set()


@pytest.mark.parametrize("taken_before", [False, True])
@pytest.mark.parametrize("names", [("main",), ("side",), ("main", "side")])
def test_history_is_cut_off_where_git_leaves_it(
    gitenv: GitEnv, branches: Path, host: Host, names: tuple[str, ...], taken_before: bool
) -> None:
    git = Git(branches / ".git", env=gitenv.env)
    tips = [gitenv.oid(branches, name) for name in names]
    publish(host, git, [gitenv.oid(branches, "main"), gitenv.oid(branches, "side")])
    theirs = shallow(gitenv, branches, "theirs", host)
    ours = shallow(gitenv, branches, "ours", host)
    if taken_before:  # and remembered, though gc drops what is cut off again
        ours.take(*tips).release()
        gitenv.git("gc", "-q", "--prune=now", cwd=ours.path)
        assert cut(ours) == cut(theirs)
    assert len(cut(ours)) == 2
    gitenv.git("fetch", "-q", "--unshallow", "origin", *names, cwd=theirs.path)
    ours.take(*tips, unshallow=True)
    assert cut(ours) == cut(theirs)
    assert (ours.git_dir / "shallow").exists() == (theirs.git_dir / "shallow").exists()
    assert ours.leftovers() == []
    for tip in tips:
        assert ours.has(tip)
        listed = [gitenv.git("rev-list", tip, cwd=reader.path).out for reader in (ours, theirs)]
        assert listed[0] == listed[1]


def test_history_that_is_not_on_the_host_stays_cut_off(
    gitenv: GitEnv, branches: Path, host: Host
) -> None:
    git = Git(branches / ".git", env=gitenv.env)
    records = push_each(gitenv, branches, git, host)
    host.records["dev.knotless.pack"].pop(records[1].rkey)
    ours = shallow(gitenv, branches, "ours", host)
    before, tip = cut(ours), gitenv.oid(branches)
    assert ours.take(tip).connected
    with pytest.raises(MissingObjects, match=f"{tip} reaches what is in no pack"):
        ours.take(tip, unshallow=True)
    assert cut(ours) == before


def test_history_of_another_remote_stays_cut_off(
    gitenv: GitEnv, branches: Path, host: Host
) -> None:
    """git drops the whole shallow file, and leaves a repository that is broken."""
    publish(host, Git(branches / ".git", env=gitenv.env), [tip := gitenv.oid(branches)])
    other = gitenv.repository("other", commits=0)
    gitenv.commit(other, "elsewhere")
    theirs = gitenv.commit(other, "elsewhere", "more\n")
    ours = shallow(gitenv, branches, "ours", host)
    gitenv.git("fetch", "-q", "--depth=1", other.as_uri(), "main:other", cwd=ours.path)
    gitenv.git("update-ref", "-d", "refs/remotes/origin/side", cwd=ours.path)
    before = cut(ours)
    ours.take(tip, unshallow=True)
    assert cut(ours) == before - {tip} >= {theirs}
    assert ours.has(tip)


def test_a_repository_that_is_whole(gitenv: GitEnv, work: Path, host: Host, reader: Reader) -> None:
    publish(host, Git(work / ".git", env=gitenv.env), [tip := gitenv.oid(work)])
    assert reader.take(tip, unshallow=True).connected
    assert not list(reader.git_dir.glob("shallow*"))
