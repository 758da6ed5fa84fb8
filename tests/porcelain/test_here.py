"""What a command makes of the git repository around it."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from git_knotless.errors import KnotlessError
from git_knotless.porcelain.here import Here, NotInARepository
from git_knotless.porcelain.options import SeveralRemotes, named
from tests.gitenv import GitEnv

Enter = Callable[[Path], Here]
OURS, OTHER = "knotless://alice.test/notes", "https://git.example/notes"


@pytest.fixture
def enter(gitenv: GitEnv, monkeypatch: pytest.MonkeyPatch) -> Enter:
    """Go there, on the machine of `gitenv`."""
    for name in list(os.environ):
        monkeypatch.delenv(name)
    for name, value in gitenv.env.items():
        monkeypatch.setenv(name, value)

    def go(place: Path) -> Here:
        monkeypatch.chdir(place)
        return Here.find()

    return go


def test_outside_there_is_none(gitenv: GitEnv, enter: Enter) -> None:
    with pytest.raises(NotInARepository):
        enter(gitenv.root)
    assert Here.look() is None


def test_a_repository_that_git_will_not_read_is_not_none(gitenv: GitEnv, enter: Enter) -> None:
    work = gitenv.repository()
    (work / ".git/config").write_text("[core\n")
    with pytest.raises(KnotlessError, match="bad config"):
        enter(work)


def test_the_directory_is_that_of_the_whole_work_tree(gitenv: GitEnv, enter: Enter) -> None:
    work = gitenv.repository("a name")
    (work / "sub").mkdir()
    assert enter(work / "sub").directory() == work
    bare = gitenv.repository("bare.git", bare=True)
    assert enter(bare).directory() == bare


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, []),
        ({"remote.origin.url": OTHER}, []),
        ({"remote.origin.url": OURS}, [OURS]),
        ({"remote.origin.url": OURS, "remote.up.url": f"{OURS}2", "branch.main.remote": "up"},
         [f"{OURS}2"]),
        ({"remote.origin.url": OURS, "remote.up.url": OTHER, "branch.main.remote": "up"}, [OURS]),
        ({"remote.origin.url": OTHER, "remote.mine.url": OURS}, [OURS]),
        ({"remote.origin.url": OTHER, "remote.a.url": OURS, "remote.b.url": f"{OURS}2"},
         [OURS, f"{OURS}2"]),
        ({"branch.main.remote": OURS}, [OURS]),
        ({"remote.origin.url": "kn:notes", f"url.{OURS.removesuffix('notes')}.insteadOf": "kn:"},
         [OURS]),
        ({"remote.--upload-pack=x.url": OURS}, [OURS]),
    ],
)  # fmt: skip
def test_the_url_is_found_among_the_remotes(
    config: dict[str, str], expected: list[str], gitenv: GitEnv, enter: Enter
) -> None:
    work = gitenv.repository()
    for key, value in config.items():
        gitenv.git("config", key, value, cwd=work)
    assert list(enter(work).candidates().values()) == expected


def test_of_several_each_is_told_with_its_remote(gitenv: GitEnv, enter: Enter) -> None:
    work = gitenv.repository()
    for name in ("a", "b"):
        gitenv.git("config", f"remote.{name}.url", OURS, cwd=work)
    enter(work)
    assert named(None, "repo show") == OURS, "two remotes, one repository"
    gitenv.git("config", "remote.b.url", f"{OURS}2", cwd=work)
    with pytest.raises(SeveralRemotes) as caught:
        named(None, "repo show")
    assert caught.value.message == (
        f"several remotes are knotless:// ones: a ({OURS}), b ({OURS}2)"
    )
    assert caught.value.hint == f"git knotless repo show {OURS}"


def test_a_branch_with_commits_can_be_pushed(gitenv: GitEnv, enter: Enter) -> None:
    work = gitenv.repository()
    assert enter(work).pushable() == "refs/heads/main"
    gitenv.git("checkout", "--quiet", "--detach", cwd=work)
    with pytest.raises(KnotlessError, match="no branch is checked out"):
        enter(work).pushable()
    with pytest.raises(KnotlessError, match="main has no commit"):
        enter(gitenv.repository("empty", commits=0)).pushable()
