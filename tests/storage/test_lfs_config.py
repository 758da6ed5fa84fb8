"""Which remotes git-lfs is told to ask us about."""

from pathlib import Path

import pytest

from git_knotless.storage.git import Git
from git_knotless.storage.lfs.config import lead, let_go
from tests.gitenv import GitEnv

OURS, WEB = "knotless://alice.test/notes", "https://web.example/notes.git"


@pytest.mark.parametrize(
    ("section", "variable"),
    [
        ({"url": OURS}, "lfsurl"),
        ({"url": "knotless://did:plc:ewvi7nxzyoun6zhxrhs64oiz/notes"}, "lfsurl"),
        ({"url": OURS, "pushurl": f"{OURS}2"}, "lfsurl"),
        ({"url": WEB, "pushurl": OURS}, "lfspushurl"),
        ({"url": "mine:notes"}, "lfsurl"),
        ({"url": WEB}, None),
        ({"url": OURS, "pushurl": WEB}, None),
        ({"url": OURS, "lfsurl": WEB}, None),
        ({"url": OURS, "lfspushurl": WEB}, None),
        ({"fetch": "+refs/heads/*:refs/heads/*"}, None),
        ({}, None),
    ],
    ids=str,
)
def test_a_remote_of_ours_and_no_other(
    gitenv: GitEnv, section: dict[str, str], variable: str | None
) -> None:
    path = gitenv.repository(commits=0)
    gitenv.git("config", "url.knotless://alice.test/.insteadOf", "mine:", cwd=path)
    for name, value in section.items():
        gitenv.git("config", f"remote.a.b.{name}", value, cwd=path)
    gitenv.git("config", "remote.axb.lfsurl", WEB, cwd=path)
    before = (path / ".git/config").read_text()
    assert lead(here(gitenv, path), "a.b") is (variable is not None)
    if variable is None:
        assert (path / ".git/config").read_text() == before
        return
    assert gitenv.git("config", f"remote.a.b.{variable}", cwd=path).out == "knotless::\n"
    assert not lead(here(gitenv, path), "a.b"), "once"
    assert let_go(here(gitenv, path), "a.b")
    assert not let_go(here(gitenv, path), "a.b")
    assert (path / ".git/config").read_text() == before


def test_what_others_have_set_stays(gitenv: GitEnv) -> None:
    path = gitenv.repository(commits=0)
    gitenv.git("config", "remote.origin.lfsurl", WEB, cwd=path)
    assert not let_go(here(gitenv, path), "origin")
    assert gitenv.git("config", "remote.origin.lfsurl", cwd=path).out == f"{WEB}\n"


def here(gitenv: GitEnv, path: Path) -> Git:
    """Anew: a Git reads its config once."""
    return Git(path / ".git", env=gitenv.env)
