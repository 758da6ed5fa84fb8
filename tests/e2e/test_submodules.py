"""Submodules whose addresses are knotless:// ones, or relative to one."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import Person
from tests.gitenv import GitEnv
from tests.marks import sandbox_only

pytestmark = sandbox_only
REFUSED = "fatal: transport 'knotless' not allowed"


def with_submodule(person: Person, name: str, url: str, path: str = "sub") -> Path:
    """A pushed repository with a submodule at `path`, whose address is written as `url`."""
    work = person.published(name, commits=1)
    allow = ("-c", "protocol.knotless.allow=always")
    person.git(*allow, "submodule", "--quiet", "add", "--name", path, url, path, cwd=work)
    person.git("commit", "--quiet", "-m", "A submodule", cwd=work)
    person.git("push", "--quiet", "origin", "main", cwd=work)
    return work


@pytest.mark.slow
def test_relative_ones_and_those_within(
    alice: Person, person: Callable[..., Person], bob: GitEnv
) -> None:
    """As git resolves them: one up is the same account, two up are the account's name too."""
    carol = person("carol", host=1)
    carol.published("deep", commits=2)
    with_submodule(alice, "lib", f"../../{carol.handle}/deep")
    with_submodule(alice, "app", "../lib.git", "libs/a lib")
    bob.git("knotless", "clone", "--recurse-submodules", f"{alice.handle}/app", "there")
    there = bob.root / "there"
    assert (there / "libs/a lib/sub/file2").exists()
    inner = bob.git("config", "remote.origin.url", cwd=there / "libs/a lib/sub").out
    assert inner == f"{carol.url('deep')}\n"
    assert bob.git("submodule", "status", "--recursive", cwd=there).out.count("\n ") == 1
    assert bob.git("config", "--get-regexp", "^protocol", cwd=there, code=1).out == ""


@pytest.mark.slow
@pytest.mark.parametrize("by_did", [False, True])
def test_git_alone_asks_to_be_allowed(alice: Person, bob: GitEnv, by_did: bool) -> None:
    alice.published("lib", commits=2)
    with_submodule(alice, "app", "../lib")
    url = f"knotless://{alice.account.did}/app" if by_did else alice.url("app")
    bob.git("clone", "--quiet", url, "there")
    there = bob.root / "there"
    update = ("submodule", "--quiet", "update", "--init")
    assert REFUSED in bob.git(*update, cwd=there, code=None).err
    assert not (there / "sub/file1").exists()
    bob.git("config", "--global", "protocol.knotless.allow", "always")
    bob.git(*update, cwd=there)
    assert (there / "sub/file2").exists()
    other = bob.git("clone", "--recurse-submodules", url, "once more")
    assert other.code == 0
    assert (bob.root / "once more/sub/file2").exists()


@pytest.mark.slow
def test_one_is_allowed_for_one_command(alice: Person, bob: GitEnv) -> None:
    alice.published("lib", commits=1)
    with_submodule(alice, "app", alice.url("lib"))
    bob.git("knotless", "clone", alice.url("app"), "there", "--", "--recurse-sub")
    there = bob.root / "there"
    assert (there / "sub/file1").exists()
    assert REFUSED in bob.git("submodule", "update", "--remote", cwd=there, code=None).err
    bob.git("-c", "protocol.knotless.allow=always", "submodule", "update", "--remote", cwd=there)


def test_below_a_repository_there_is_none(alice: Person, bob: GitEnv) -> None:
    work = alice.published("app", commits=1)
    allow = ("-c", "protocol.knotless.allow=always")
    added = alice.git(*allow, "submodule", "add", "./lib", cwd=work, code=None)
    assert added.code != 0
    assert "'app/lib' cannot be the name of a repository" in added.err
