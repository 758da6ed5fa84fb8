"""A remote belongs to the repository that it first led to, whoever has its handle or name now."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import REPO, Person
from tests.gitenv import GitEnv, Result

SECTION = "remote.origin.knotless"


def pins(machine: GitEnv, work: Path) -> list[str]:
    keys = (SECTION + name for name in ("did", "key", "url"))
    return [machine.git("config", key, cwd=work, code=None).out.strip() for key in keys]


def hint(ran: Result) -> str:
    (line,) = [line for line in ran.err.splitlines() if line.startswith("hint: ")]
    return line.removeprefix("hint: ")


def follow(who: Person, ran: Result, cwd: Path) -> None:
    """Type what was printed, as it was printed."""
    who.machine.run("/bin/sh", "-c", hint(ran), cwd=cwd)


@pytest.fixture
def taken(alice: Person) -> Path:
    """A clone of what is `notes` now; its remote has the name that another took."""
    work = alice.published()
    alice.git("knotless", "repo", "rename", "-R", alice.url(), "notes")
    alice.create("work")
    return work


def test_commands_are_held_to_it_too(alice: Person, taken: Path) -> None:
    before = alice.commits()
    hint = f"hint: git remote set-url origin {alice.url('notes')}\n"
    for words in (["show"], ["edit", "--archived"], ["rename", "x"], ["transfer", "bob.test"]):
        refused = alice.git("knotless", "repo", *words, cwd=taken, code=1)
        told = f"error: {alice.url()} is another repository now than origin is a remote of\n"
        assert refused.err.endswith(told + hint)
    assert alice.commits() == before
    assert "url" in alice.git("knotless", "repo", "show", alice.url(), cwd=taken).out
    alice.git("remote", "set-url", "origin", alice.url("notes"), cwd=taken)
    alice.git("knotless", "repo", "edit", "--archived", cwd=taken)


def test_commands_remember_it_too(alice: Person) -> None:
    alice.create()
    work = alice.machine.repository()
    alice.git("remote", "add", "origin", alice.url(), cwd=work)
    alice.git("knotless", "repo", "show", cwd=work)
    (record,) = alice.account.records("dev.knotless.repo").values()
    assert pins(alice.machine, work) == [alice.account.did, record["key"], alice.url()]


def test_whoever_changes_the_url_is_told_what_counts(alice: Person) -> None:
    work = alice.published()
    alice.create("other")
    alice.git("remote", "set-url", "origin", alice.url("other"), cwd=work)
    note = f"origin was a remote of {alice.url()}, and is kept to {alice.url('other')} from now on"
    assert alice.git("push", "--quiet", cwd=work).err == f"note: {note}\n"
    assert alice.git("fetch", cwd=work).err == ""


def test_one_whose_old_name_was_taken_back_is_found_by_its_key(alice: Person) -> None:
    work = alice.published()
    place = f"{alice.handle}/new"
    alice.git("knotless", "repo", "rename", "-R", alice.url(), "new")
    alice.git("knotless", "repo", "redirects", "-R", place, "--remove", "work")
    alice.machine.commit(work)
    command = f"git remote set-url origin {alice.url('new')}"
    for words in (["push"], ["fetch"], ["knotless", "repo", "show"]):
        refused = alice.git(*words, cwd=work, code=None)
        assert (refused.code != 0, hint(refused)) == (True, command)
        assert f"error: {alice.url()}: no such repository\n" in refused.err
    follow(alice, refused, work)
    alice.git("push", cwd=work)
    assert list(alice.account.records(REPO)) == ["new"]
    assert alice.remote_refs(alice.url("new"))["refs/heads/main"] == alice.machine.oid(work)


def test_what_a_push_needs_where_the_repository_is_gone(alice: Person) -> None:
    work = alice.published()
    alice.git("knotless", "repo", "delete", alice.url(), "--yes", alice.url())
    assert "hint: " not in alice.git("fetch", cwd=work, code=128).err
    refused = alice.git("push", cwd=work, code=128)
    create = f"git knotless create {alice.handle}/work"
    assert hint(refused) == f"{create} && git config --unset {SECTION}key"
    follow(alice, refused, work)
    alice.git("push", cwd=work)
    alice.git("fetch", cwd=work)
    assert alice.remote_refs(alice.url())["refs/heads/main"] == alice.machine.oid(work)
    (record,) = alice.account.records(REPO).values()
    assert pins(alice.machine, work)[1] == record["key"]


@pytest.mark.parametrize("anew", [True, False], ids=["taken", "gone"])
def test_one_that_moved_is_found_where_it_was_last(
    alice: Person, person: Callable[..., Person], bob: GitEnv, *, anew: bool
) -> None:
    """By its old place nothing leads there any more."""
    alice.published()
    carol = person("carol")
    copy = bob.root / "copy"
    bob.git("clone", "--quiet", alice.url(), str(copy))
    alice.git("knotless", "repo", "transfer", "-R", alice.url(), carol.handle)
    carol.git("knotless", "repo", "accept", alice.url())
    bob.git("fetch", "--quiet", cwd=copy)
    alice.git("knotless", "repo", "delete", alice.url(), "--yes", alice.url())
    if anew:
        alice.create()
    else:
        alice.account.delete("dev.knotless.redirect", "work")
    refused = bob.git("fetch", cwd=copy, code=128)
    assert hint(refused) == f"git remote set-url origin {carol.url()}"
    bob.run("/bin/sh", "-c", hint(refused), cwd=copy)
    assert bob.git("fetch", cwd=copy).err == ""


def test_no_push_follows_a_handle_to_another_account(alice: Person, bob: GitEnv) -> None:
    """Not even where both are logged in on the machine, and both have a repository of the name."""
    work, machine, host = alice.published(), alice.machine, alice.account.host
    password, server = "correct horse", "com.atproto.server"
    mail = f"heir@{alice.handle}.example"
    made = host.post(
        f"{server}.createAccount",
        {"handle": f"heir-{alice.handle}", "email": mail, "password": password},
    )
    heir, auth = made["did"], f"Bearer {made['accessJwt']}"
    rename = "com.atproto.identity.updateHandle"
    alice.account.post(rename, {"handle": f"old-{alice.handle}"})
    host.post(rename, {"handle": alice.handle}, auth=auth)
    (machine.home / "knotless-cache/identity.json").unlink()
    machine.git("knotless", "login", heir, "--password-stdin", stdin=f"{password}\n")
    machine.git("knotless", "create", f"{alice.handle}/work")
    machine.commit(work)
    before = host.get("com.atproto.sync.getLatestCommit", did=heir)
    for command in (["push"], ["fetch"], ["knotless", "repo", "edit", "--archived"]):
        refused = machine.git(*command, cwd=work, code=None)
        told = f"{alice.url()} leads to {heir} now, and origin is a remote of {alice.account.did}"
        assert f"error: {told}\n" in refused.err
        assert hint(refused).startswith("git remote set-url origin knotless://")
        assert refused.code != 0
    assert host.get("com.atproto.sync.getLatestCommit", did=heir) == before
    follow(alice, refused, work)
    machine.git("push", "origin", "main", cwd=work)
    assert alice.remote_refs(f"knotless://{alice.account.did}/work") == {
        name: machine.oid(work) for name in ("HEAD", "refs/heads/main")
    }
    assert host.get("com.atproto.sync.getLatestCommit", did=heir) == before
