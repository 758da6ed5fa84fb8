"""The account that a remote belongs to, in the config of a real repository."""

from pathlib import Path

import pytest

from git_knotless.atproto.syntax import Did
from git_knotless.helper.pin import OtherAccount, Pin
from git_knotless.storage.git import Git
from tests.gitenv import GitEnv

URL = "knotless://alice.test/hello"
OURS = Did("did:plc:aaaaaaaaaaaaaaaaaaaaaaaa")
OTHER = Did("did:plc:bbbbbbbbbbbbbbbbbbbbbbbb")
KEY = "remote.origin.knotlessdid"


@pytest.fixture
def work(gitenv: GitEnv) -> Path:
    work = gitenv.repository(commits=0)
    gitenv.git("remote", "add", "origin", URL, cwd=work)
    return work


def pin(gitenv: GitEnv, work: Path, remote: str = "origin", url: str = URL) -> Pin:
    return Pin(Git(work / ".git", env=gitenv.env), remote, url)


def pinned(gitenv: GitEnv, work: Path, key: str = KEY) -> str:
    return gitenv.git("config", "--get-all", key, cwd=work, code=None).out


def test_the_first_account_is_kept_and_no_other_taken(gitenv: GitEnv, work: Path) -> None:
    pin(gitenv, work).hold(OURS)
    pin(gitenv, work).hold(OURS)
    with pytest.raises(OtherAccount) as raised:
        pin(gitenv, work).hold(OTHER)
    assert raised.value.message == f"{URL} leads to {OTHER} now, and origin is a remote of {OURS}"
    assert raised.value.hint
    assert raised.value.hint.endswith(f"git config --unset {KEY}")
    assert pinned(gitenv, work) == f"{OURS}\n"


def test_another_address_of_the_remote_is_held_to_it_too(gitenv: GitEnv, work: Path) -> None:
    pin(gitenv, work).hold(OURS)
    other = "knotless://bob.test/hello"
    gitenv.git("remote", "set-url", "origin", other, cwd=work)
    with pytest.raises(OtherAccount):
        pin(gitenv, work, url=other).hold(OTHER)


def test_where_one_pushes_to_is_another_matter(gitenv: GitEnv, work: Path) -> None:
    fork = "knotless://bob.test/hello"
    gitenv.git("remote", "set-url", "--push", "origin", fork, cwd=work)
    pin(gitenv, work, url=fork).hold(OTHER)
    assert pinned(gitenv, work) == ""
    pin(gitenv, work).hold(OURS)
    pin(gitenv, work, url=fork).hold(OTHER)
    assert pinned(gitenv, work) == f"{OURS}\n"


def test_an_address_that_git_rewrote_is_the_remotes(gitenv: GitEnv, work: Path) -> None:
    gitenv.git("config", "remote.origin.url", "alice:hello", cwd=work)
    pin(gitenv, work).hold(OURS)
    with pytest.raises(OtherAccount):
        pin(gitenv, work).hold(OTHER)


def test_a_bare_address_belongs_to_no_remote(gitenv: GitEnv, work: Path) -> None:
    before = (work / ".git/config").read_text()
    pin(gitenv, work, remote=URL).hold(OURS)
    pin(gitenv, work, remote="nowhere").hold(OURS)
    pin(gitenv, work, remote="orig.n").hold(OURS)
    assert (work / ".git/config").read_text() == before


def test_names_of_remotes_are_taken_as_they_are(gitenv: GitEnv, work: Path) -> None:
    gitenv.git("config", "remote.a.b.C.url", URL, cwd=work)
    pin(gitenv, work, remote="a.b.C").hold(OURS)
    assert pinned(gitenv, work, "remote.a.b.C.knotlessdid") == f"{OURS}\n"
    with pytest.raises(OtherAccount):
        pin(gitenv, work, remote="a.b.C").hold(OTHER)


def test_without_a_repository_nothing_is_kept(gitenv: GitEnv) -> None:
    Pin(Git(None, env=gitenv.env), "origin", URL).hold(OURS)


def test_a_config_that_cannot_be_written_now_stops_nothing(gitenv: GitEnv, work: Path) -> None:
    (work / ".git/config.lock").touch()
    pin(gitenv, work).hold(OURS)
    assert pinned(gitenv, work) == ""
