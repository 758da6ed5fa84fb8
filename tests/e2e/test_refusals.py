"""Pushes that are refused, each in git's own words, with nothing sent."""

from collections.abc import Callable

import pytest

from tests.e2e.conftest import Person
from tests.gitenv import GitEnv


def test_a_push_that_is_not_a_fast_forward(alice: Person) -> None:
    work = alice.published()
    alice.git("reset", "-q", "--hard", "HEAD~1", cwd=work)
    alice.machine.commit(work)
    refused = alice.git("push", cwd=work, code=1)
    assert "! [rejected]        main -> main (non-fast-forward)" in refused.err
    alice.git("push", "--force", cwd=work)
    assert alice.remote_refs(alice.url())["refs/heads/main"] == alice.machine.oid(work)


def test_where_the_remote_has_what_is_not_here(alice: Person) -> None:
    """git itself cannot tell, and would believe an `ok`."""
    work = alice.published()
    clone = alice.clone(alice.url())
    theirs = alice.machine.commit(work, "theirs")
    alice.git("push", cwd=work)
    alice.machine.commit(clone, "mine")
    refused = alice.git("push", cwd=clone, code=1)
    assert "! [rejected]        main -> main (fetch first)" in refused.err
    assert "git pull" in refused.err
    assert alice.remote_refs(alice.url())["refs/heads/main"] == theirs
    alice.git("pull", "--rebase", cwd=clone)
    alice.git("push", cwd=clone)


def test_a_tag_that_exists(alice: Person) -> None:
    work = alice.published()
    alice.git("tag", "v1", cwd=work)
    alice.git("push", "origin", "v1", cwd=work)
    alice.git("tag", "-f", "v1", "HEAD~1", cwd=work)
    refused = alice.git("push", "origin", "v1", cwd=work, code=1)
    assert "! [rejected]        v1 -> v1 (already exists)" in refused.err
    alice.git("push", "origin", "+v1", cwd=work)


def test_leases(alice: Person) -> None:
    work = alice.published()
    clone = alice.clone(alice.url())
    alice.machine.commit(work, "theirs")
    alice.git("push", cwd=work)
    alice.git("commit", "-q", "--amend", "-m", "Mine", cwd=clone)
    refused = alice.git("push", "--force-with-lease", cwd=clone, code=1)
    assert "(stale info)" in refused.err
    alice.git("fetch", cwd=clone)
    alice.git("push", "--force-with-lease", cwd=clone)
    assert alice.remote_refs(alice.url())["refs/heads/main"] == alice.machine.oid(clone)
    alice.machine.commit(clone, "more")
    refused = alice.git("push", "--force-with-lease=main:", "origin", "main", cwd=clone, code=1)
    assert "(stale info)" in refused.err
    alice.git("push", "--force-with-lease=new:", "origin", "main:new", cwd=clone)


def test_atomic(alice: Person) -> None:
    work = alice.published()
    clone = alice.clone(alice.url())
    alice.machine.commit(work, "theirs")
    alice.git("push", cwd=work)
    alice.machine.commit(clone, "mine")
    refused = alice.git("push", "--atomic", "origin", "main", "main:other", cwd=clone, code=1)
    assert "fetch first" in refused.err
    assert "atomic push failed" in refused.err
    assert "refs/heads/other" not in alice.remote_refs(alice.url())
    alice.git("push", "--atomic", "origin", "main:a", "main:b", cwd=clone)


def test_a_branch_holds_commits_only(alice: Person) -> None:
    work = alice.published()
    refused = alice.git("push", "origin", "HEAD^{tree}:refs/heads/tree", cwd=work, code=1)
    assert "non-commit object" in refused.err


def test_names_side_by_side(alice: Person) -> None:
    work = alice.published()
    refused = alice.git("push", "origin", "main:refs/heads/main/sub", cwd=work, code=1)
    assert "'refs/heads/main' exists; cannot create 'refs/heads/main/sub'" in refused.err


def test_push_options_and_signatures(alice: Person) -> None:
    work = alice.published()
    alice.git("push", "--signed=if-asked", "origin", "main:a", cwd=work)
    alice.git("push", "-o", 'a  "b" c', "-o", "d", "origin", "main:b", cwd=work)
    refused = alice.git("push", "--signed=yes", "origin", "main:c", cwd=work, code=None)
    assert refused.code != 0
    assert set(alice.remote_refs(alice.url())) == {
        "HEAD",
        "refs/heads/a",
        "refs/heads/b",
        "refs/heads/main",
    }


def test_from_a_sha256_repository(alice: Person) -> None:
    url = alice.create()
    work = alice.machine.root / "sha256"
    alice.git("init", "-q", "--object-format=sha256", str(work))
    alice.machine.commit(work)
    before = alice.commits()
    assert "sha256" in alice.git("push", url, "main", cwd=work, code=1).err
    assert alice.commits() == before


def test_from_a_shallow_clone(alice: Person) -> None:
    url = alice.create()
    work = alice.machine.repository(commits=3)
    shallow = alice.machine.root / "shallow"
    alice.git("clone", "-q", "--depth=2", f"file://{work}", str(shallow))
    refused = alice.git("push", url, "main", cwd=shallow, code=1)
    assert "hint: git fetch --unshallow" in refused.err
    alice.git("push", url, "main~1:refs/heads/main", cwd=work)
    alice.git("push", url, "main", cwd=shallow)
    alice.clone(url)


def test_archived(alice: Person) -> None:
    work = alice.published()
    alice.git("knotless", "repo", "edit", alice.url(), "--archived")
    alice.machine.commit(work)
    refused = alice.git("push", cwd=work, code=1)
    assert f"error: {alice.url()} is archived" in refused.err
    assert "hint: git knotless repo edit --no-archived" in refused.err
    alice.clone(alice.url())
    alice.git("knotless", "repo", "edit", alice.url(), "--no-archived")
    alice.git("push", cwd=work)


def test_protected(alice: Person) -> None:
    work = alice.published()
    alice.git("knotless", "repo", "edit", alice.url(), "--protect", "main")
    alice.machine.commit(work)
    alice.git("push", cwd=work)
    for spec, why in {
        "+main~1:main": "protected branch: it only moves forward",
        ":main": "protected branch: it is not deleted",
    }.items():
        assert why in alice.git("push", "origin", spec, cwd=work, code=1).err
    alice.git("checkout", "-q", "-b", "side", "HEAD~1", cwd=work)
    alice.machine.commit(work, "side")
    alice.git("checkout", "-q", "main", cwd=work)
    alice.git("merge", "-q", "--no-ff", "-m", "merge", "side", cwd=work)
    why = "protected branch: no merge commits; squash or rebase"
    assert why in alice.git("push", cwd=work, code=1).err
    alice.git("knotless", "repo", "edit", alice.url(), "--protect", "main", "--history", "merges")
    alice.git("push", cwd=work)
    alice.git("knotless", "repo", "edit", alice.url(), "--unprotect", "main")
    alice.git("push", "origin", "+main~1:main", cwd=work)


def test_by_another_account(alice: Person, person: Callable[..., Person]) -> None:
    alice.published()
    mallory = person("mallory")
    clone = mallory.clone(alice.url())
    mallory.machine.commit(clone)
    refused = mallory.git("push", cwd=clone, code=128)
    assert f"error: only {alice.handle} can push to {alice.url()}" in refused.err


def test_by_nobody(alice: Person, bob: GitEnv) -> None:
    alice.published()
    clone = bob.root / "clone"
    bob.git("clone", alice.url(), str(clone))
    bob.commit(clone)
    refused = bob.git("push", cwd=clone, code=128)
    assert f"hint: git knotless login {alice.handle}" in refused.err


def test_to_a_repository_that_is_not_there(alice: Person) -> None:
    work = alice.machine.repository()
    refused = alice.git("push", alice.url("none"), "main", cwd=work, code=128)
    assert f"error: {alice.url('none')}: no such repository" in refused.err
    assert "hint: git knotless create" in refused.err
    assert alice.account.records("dev.knotless.repo") == {}


@pytest.mark.parametrize("verb", [["ls-remote"], ["clone"], ["fetch"]])
def test_reading_what_is_not_there(alice: Person, verb: list[str]) -> None:
    where = alice.machine.repository() if verb == ["fetch"] else None
    refused = alice.git(*verb, alice.url("none"), cwd=where, code=128)
    assert f"error: {alice.url('none')}: no such repository" in refused.err
    assert "create" not in refused.err
