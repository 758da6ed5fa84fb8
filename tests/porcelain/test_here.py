"""What a command makes of the git repository around it."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from git_knotless.errors import KnotlessError
from git_knotless.porcelain.here import Here, NotInARepository
from git_knotless.porcelain.options import SeveralRemotes, named
from git_knotless.porcelain.typed import remember
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
    remember(["repo", "show", "--json"])
    assert named(None, "repo show") == OURS, "two remotes, one repository"
    gitenv.git("config", "remote.b.url", f"{OURS}2", cwd=work)
    with pytest.raises(SeveralRemotes) as caught:
        named(None, "repo show")
    assert caught.value.message == (
        f"several remotes are knotless:// ones: a ({OURS}), b ({OURS}2)"
    )
    assert caught.value.hint == f"for example: git knotless repo show --json {OURS}"


def test_a_remote_is_redirected_where_its_one_address_is_the_old(
    gitenv: GitEnv, enter: Enter
) -> None:
    work, new = gitenv.repository(), f"{OURS}-new"
    gitenv.git("config", "remote.a.url", OURS, cwd=work)
    assert enter(work).redirect(f"{OURS}2", new) is None
    assert enter(work).redirect(OURS, new) == "a"
    assert gitenv.git("remote", "get-url", "a", cwd=work).out == f"{new}\n"
    gitenv.git("config", "remote.a.pushurl", new, cwd=work)
    assert enter(work).redirect(new, OURS) == "a"
    for key in ("url", "pushurl"):
        assert gitenv.git("config", "--get-all", f"remote.a.{key}", cwd=work).out == f"{OURS}\n"


@pytest.mark.parametrize(
    "config",
    [
        ["remote.a.url", f"{OURS}2"],
        ["remote.a.pushurl", "https://example.com/backup"],
        ["--global", "remote.a.url", OURS],
        ["--global", "remote.a.pushurl", OURS],
    ],
)
def test_a_remote_that_is_more_than_the_old_address_is_left_alone(
    config: list[str], gitenv: GitEnv, enter: Enter
) -> None:
    work = gitenv.repository()
    gitenv.git("config", "remote.a.url", OURS, cwd=work)
    gitenv.git("config", "--add", *config, cwd=work)
    before = gitenv.git("config", "--list", cwd=work).out
    assert enter(work).redirect(OURS, f"{OURS}-new") is None
    assert gitenv.git("config", "--list", cwd=work).out == before


def test_a_branch_with_commits_can_be_pushed(gitenv: GitEnv, enter: Enter) -> None:
    work = gitenv.repository()
    assert enter(work).pushable() == "refs/heads/main"
    gitenv.git("checkout", "--quiet", "--detach", cwd=work)
    with pytest.raises(KnotlessError, match="no branch is checked out"):
        enter(work).pushable()
    with pytest.raises(KnotlessError, match="main has no commit"):
        enter(gitenv.repository("empty", commits=0)).pushable()
