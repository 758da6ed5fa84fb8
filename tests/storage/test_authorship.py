"""Who a commit is by, as the git that is installed has it."""

import os
from pathlib import Path
from typing import Any

import pytest

from git_knotless.atproto.syntax import Did, Handle
from git_knotless.storage.accounts.authorship import (
    CommitIdentity,
    Person,
    account_identity,
    author_here,
    commit_identity,
    runner_identity,
)
from git_knotless.storage.git import Git, GitError
from tests.gitenv import GitEnv

DID = Did("did:plc:ewvi7nxzyoun6zhxrhs64oiz")
HANDLE = Handle("alice.test")
ACCOUNT = Person("alice.test", f"{DID}@knotless.invalid")
HOME = Person("Home Person", "home@example.com")


@pytest.fixture
def nobody(gitenv: GitEnv) -> GitEnv:
    """A machine whose git was told no identity."""
    (gitenv.home / ".gitconfig").write_text("")
    return gitenv


@pytest.fixture
def somebody(gitenv: GitEnv) -> GitEnv:
    configure(gitenv, "user.name", HOME.name)
    configure(gitenv, "user.email", HOME.email)
    return gitenv


def configure(machine: GitEnv, key: str, value: str) -> None:
    machine.git("config", "--global", key, value)


def here(machine: GitEnv, at: Path | None = None, **env: str) -> CommitIdentity:
    """What is said of a commit in the directory `at`, and what `git commit` makes of it there."""
    git = Git(at and at / ".git", env={**machine.env, **env})
    return commit_identity(git, DID, HANDLE)


def committed(machine: GitEnv, at: Path, **env: str) -> CommitIdentity:
    machine.git("commit", "--quiet", "--allow-empty", "--message=x", cwd=at, env=env)
    shown = machine.git("log", "-1", "--format=%an%n%ae%n%cn%n%ce", cwd=at).out.splitlines()
    return CommitIdentity(Person(*shown[:2]), Person(*shown[2:]))


def test_git_knows_whom_it_was_told(somebody: GitEnv) -> None:
    assert here(somebody) == CommitIdentity.of(HOME)


def test_the_repository_says_more_than_the_home(somebody: GitEnv) -> None:
    work = somebody.repository()
    somebody.git("config", "user.email", "work@example.com", cwd=work)
    assert here(somebody, work) == CommitIdentity.of(Person(HOME.name, "work@example.com"))
    assert here(somebody, work) == committed(somebody, work)
    assert here(somebody) == CommitIdentity.of(HOME)


@pytest.mark.parametrize(
    "env",
    [
        {"GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.com"},
        {"GIT_COMMITTER_NAME": "C"},
        {"EMAIL": "mail@example.com"},
        {"GIT_AUTHOR_NAME": "  A <\n> B.", "GIT_AUTHOR_EMAIL": " a@example.com "},
        {"GIT_AUTHOR_NAME": "Tab\tBell\x07 Zo\u00eb"},
    ],
    ids=["author", "committer", "EMAIL", "crud", "controls"],
)
def test_the_environment_counts_as_git_counts_it(somebody: GitEnv, env: dict[str, str]) -> None:
    work = somebody.repository()
    assert here(somebody, work, **env) == committed(somebody, work, **env)


def test_email_is_not_a_guess(nobody: GitEnv) -> None:
    configure(nobody, "user.name", "Mail Person")
    work, env = nobody.repository(), {"EMAIL": "mail@example.com"}
    mail = CommitIdentity.of(Person("Mail Person", "mail@example.com"))
    assert here(nobody, work, **env) == committed(nobody, work, **env) == mail


def test_email_does_not_count_where_git_may_take_config_alone(nobody: GitEnv) -> None:
    configure(nobody, "user.name", "Mail Person")
    configure(nobody, "user.useConfigOnly", "true")
    assert here(nobody, EMAIL="mail@example.com") == CommitIdentity.of(ACCOUNT)


def test_a_name_that_git_would_guess_is_none(nobody: GitEnv) -> None:
    assert here(nobody, EMAIL="mail@example.com") == CommitIdentity.of(ACCOUNT)
    configure(nobody, "user.email", "mail@example.com")
    assert here(nobody) == CommitIdentity.of(ACCOUNT)


def test_author_and_committer_are_told_one_by_one(nobody: GitEnv) -> None:
    env = {"GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.com"}
    assert here(nobody, **env) == CommitIdentity(Person("A", "a@example.com"), ACCOUNT)


@pytest.mark.parametrize("name", ["", "<>", " . "])
def test_a_name_that_git_would_not_write_is_none(somebody: GitEnv, name: str) -> None:
    assert here(somebody, GIT_AUTHOR_NAME=name) == CommitIdentity(ACCOUNT, HOME)
    assert author_here(Git(None, env={**somebody.env, "GIT_AUTHOR_NAME": name})) is None


def test_bytes_that_are_not_utf_8_stay_what_they_are(somebody: GitEnv) -> None:
    work = somebody.repository()
    latin = os.fsdecode("Zoë".encode("latin-1"))
    assert here(somebody, work, GIT_AUTHOR_NAME=latin).author.name == "Zo\udceb"


def test_a_date_is_nobodys_concern(somebody: GitEnv) -> None:
    assert here(somebody, GIT_AUTHOR_DATE="nonsense") == CommitIdentity.of(HOME)


def test_a_config_that_git_cannot_read_is_said(somebody: GitEnv) -> None:
    (somebody.home / ".gitconfig").write_text("[user\n")
    with pytest.raises(GitError) as refused:
        here(somebody)
    assert refused.value.message.startswith("git does not say who commits here: bad config line 1")


def test_a_server_commits_as_the_account_and_a_runner_as_itself(somebody: GitEnv) -> None:
    assert account_identity(DID, HANDLE) == CommitIdentity.of(ACCOUNT)
    nameless = account_identity(DID, None)
    assert str(nameless.author) == f"{DID} <{DID}@knotless.invalid>"
    assert str(runner_identity(DID).committer) == f"knotless <{DID}@knotless.invalid>"


@pytest.mark.parametrize(
    "printed",
    [
        b"",
        b"Name <a@b>\n",
        b"Name a@b 1 +0000\n",
        b"Name <a@b> 1 +0000\nName <a@b> 1 +0000\n",
        b"Na<me <a@b> 1 +0000\n",
        b"Name <a@b> 1 UTC\n",
    ],
)
def test_what_is_no_identity_is_not_taken_for_one(
    gitenv: GitEnv, tmp_path: Path, printed: bytes
) -> None:
    """Of a git that is another than git."""
    (tmp_path / "said").write_bytes(printed)
    program = tmp_path / "git"
    program.write_text(f"#!/bin/sh\nexec cat {tmp_path}/said\n")
    program.chmod(0o755)
    env: dict[str, Any] = {**gitenv.env, "PATH": f"{tmp_path}:{gitenv.env['PATH']}"}
    with pytest.raises(GitError, match="its answer is not an identity"):
        author_here(Git(None, env=env))
