"""A repository goes from one account to another, on another host, and is forked."""

import json
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.e2e.conftest import CLAIM, PACK, REF, REPO, Person
from tests.gitenv import Result
from tests.network import Account

REDIRECT = "dev.knotless.redirect"
LARGE = 300_000  # bytes: a pack of them is no record but a blob


@pytest.fixture
def bob(person: Callable[..., Person]) -> Person:
    """On another host than alice."""
    return person("bob", host=1)


@pytest.fixture
def carol(person: Callable[..., Person]) -> Person:
    return person("carol")


@pytest.fixture
def work(alice: Person) -> Path:
    """alice's clone of her `work`, which has small packs and a large one."""
    path = alice.published()
    alice.machine.commit(path, "large", Random(1).randbytes(LARGE))
    alice.git("tag", "-a", "-m", "one", "v1", cwd=path)
    alice.git("push", "origin", "main", "v1", "main~1:refs/heads/side", cwd=path)
    alice.git("push", "origin", ":side", cwd=path)
    return path


def knotless(who: Person, *args: str, **options: Any) -> Result:
    return who.git("knotless", *args, **options)


def transfer(old: Person, new: Person, name: str = "work", to: str = "") -> None:
    knotless(old, "repo", "transfer", "-R", old.url(name), to or new.handle)
    knotless(new, "repo", "accept", old.url(name))


def state(*people: Person) -> dict[str, Any]:
    """Every record of ours that they have."""
    nsids = (REPO, REF, CLAIM, PACK, REDIRECT)
    return {each.handle: {nsid: each.account.records(nsid) for nsid in nsids} for each in people}


def refs_of(account: Account) -> dict[str, tuple[str | None, int]]:
    values = account.records(REF).values()
    return {value["name"]: (value.get("target"), value["generation"]) for value in values}


def refused(who: Person, message: str, *args: str, everybody: tuple[Person, ...]) -> Result:
    before = state(*everybody)
    ran = knotless(who, *args, code=1)
    assert f"error: {message}\n" in ran.err
    assert state(*everybody) == before
    return ran


def test_offered_accepted_and_deleted(alice: Person, bob: Person, work: Path) -> None:
    old, new = alice.url(), bob.url()
    key = alice.account.record(REPO, "work")["key"]
    offered = knotless(alice, "repo", "transfer", bob.handle, cwd=work)
    assert offered.out == f"offered {old} to {bob.handle}\n"
    assert offered.err == f"hint: they accept it: git knotless repo accept {old}\n"

    accepted = knotless(bob, "repo", "accept", old)
    assert accepted.out == f"{new}\n"
    assert bob.account.record(REPO, "work")["key"] == key
    assert refs_of(bob.account) == refs_of(alice.account)
    assert len(bob.account.records(CLAIM)) == 1

    clone = bob.clone(old)
    assert bob.machine.oid(clone) == alice.machine.oid(work)
    fetched = alice.git("fetch", cwd=work)
    assert f"warning: {old} is now {new}\n" in fetched.err
    assert f"hint: git remote set-url origin {new}\n" in fetched.err
    tip = alice.machine.commit(work)
    pushed = alice.git("push", cwd=work, code=None)
    assert pushed.code != 0
    assert f"is now {new}, and only {bob.handle} can push to it" in pushed.err
    assert tip not in str(refs_of(alice.account))

    # His push goes to where it is now, by the old URL or the new one.
    tip = bob.machine.commit(clone, "his")
    assert f"hint: git remote set-url origin {new}\n" in bob.git("push", cwd=clone).err
    assert refs_of(bob.account)["refs/heads/main"][0] == tip

    deleted = knotless(alice, "repo", "delete", old, "--yes", f"{alice.handle}/work")
    assert deleted.out == f"deleted {old}\n"
    left = state(alice)[alice.handle]
    assert [nsid for nsid, values in left.items() if values] == [REDIRECT]
    assert alice.remote_refs(old) == bob.remote_refs(new)
    assert knotless(alice, "repo", "list").out == ""
    again = knotless(alice, "repo", "delete", old, "--yes", f"{alice.handle}/work", code=1)
    assert f"error: {old}: no such repository\n" in again.err
    assert bob.machine.oid(bob.clone(old, "again")) == tip


def test_what_is_shown_of_it(alice: Person, bob: Person, work: Path) -> None:
    key = alice.account.record(REPO, "work")["key"]
    knotless(alice, "repo", "transfer", f"{bob.handle}/other", cwd=work)
    assert f"offered to      {bob.url('other')}\n" in knotless(alice, "repo", "show", cwd=work).out
    shown = json.loads(knotless(alice, "repo", "show", "--json", cwd=work).out)
    uri = f"at://{bob.account.did}/{REPO}/other"
    offer = alice.account.record(REPO, "work")["transfer"]["offer"]
    offered = {"uri": uri, "key": key, "offer": offer}
    assert (shown["transfer"], shown["transferredFrom"]) == (offered, None)
    accepted = json.loads(knotless(bob, "repo", "accept", alice.url(), "--json").out)
    assert (accepted["url"], accepted["uri"]) == (bob.url("other"), uri)
    from_ = {"uri": f"at://{alice.account.did}/{REPO}/work", "key": key, "offer": offer}
    assert accepted["transferredFrom"] == from_
    assert f"came from       {alice.url()}\n" in knotless(bob, "repo", "show", bob.url("other")).out


def test_under_another_name_it_is_found_by_its_key(alice: Person, bob: Person, work: Path) -> None:
    knotless(alice, "repo", "transfer", bob.handle, cwd=work)
    bob.create("work")
    everybody = (alice, bob)
    words = f"{bob.url()} already exists"
    refused(bob, words, "repo", "accept", alice.url(), everybody=everybody)
    knotless(bob, "repo", "accept", alice.url(), "--name", "other")
    assert bob.machine.oid(bob.clone(alice.url())) == alice.machine.oid(work)
    found = alice.git("fetch", cwd=work)
    assert f"warning: {alice.url()} is now {bob.url('other')}\n" in found.err


def test_what_is_refused(alice: Person, bob: Person, carol: Person, work: Path) -> None:
    everybody, old = (alice, bob, carol), alice.url()
    nobody = f"{old} has not been offered to anyone"
    refused(bob, nobody, "repo", "accept", old, everybody=everybody)
    refused(alice, nobody, "repo", "transfer", "-R", old, "--withdraw", everybody=everybody)
    own = f"{old} is already in that account: rename it instead"
    refused(alice, own, "repo", "transfer", "-R", old, alice.handle, everybody=everybody)
    before = state(*everybody)
    ran = knotless(alice, "repo", "transfer", "-R", old, f"nobody{alice.handle}", code=1)
    assert "error: " in ran.err
    knotless(alice, "repo", "transfer", "-R", old, code=2)
    knotless(alice, "repo", "transfer", "-R", old, "--withdraw", bob.handle, code=2)
    assert state(*everybody) == before

    knotless(alice, "repo", "transfer", "-R", old, bob.handle)
    other = f"{old} is offered to {bob.account.did}, not to you"
    refused(carol, other, "repo", "accept", old, everybody=everybody)
    ran = knotless(bob, "repo", "accept", old, "--name=x.git", code=1)
    assert "the name of a repository" in ran.err
    knotless(alice, "repo", "transfer", "-R", old, "--withdraw")
    refused(bob, nobody, "repo", "accept", old, everybody=everybody)


def test_an_offer_does_not_stand_in_the_way(alice: Person, bob: Person, work: Path) -> None:
    """Until it is accepted a push goes where it always did, and comes along."""
    knotless(alice, "repo", "transfer", bob.handle, cwd=work)
    tip = alice.machine.commit(work)
    assert "offered to" in alice.git("push", cwd=work).err
    knotless(bob, "repo", "accept", alice.url())
    assert refs_of(bob.account)["refs/heads/main"][0] == tip


def test_the_old_place_stays_while_the_new_one_lacks_something(
    alice: Person, bob: Person, work: Path
) -> None:
    key = alice.account.record(REPO, "work")["key"]
    transfer(alice, bob)
    (rkey,) = (k for k, v in alice.account.records(REF).items() if v["name"] == "refs/heads/main")
    late = alice.account.record(REF, rkey)
    value = {**late, "target": alice.machine.oid(work, "main~1"), "generation": 9}
    alice.account.put(REF, rkey, value)
    delete = ("repo", "delete", alice.url(), "--yes", f"{alice.handle}/work")
    words = f"{bob.url()} has not what is here: refs/heads/main"
    refused(alice, words, *delete, everybody=(alice, bob))
    assert rkey.startswith(key)
    alice.account.put(REF, rkey, late)
    knotless(alice, *delete)


@pytest.mark.slow
def test_a_chain_and_back_home(alice: Person, bob: Person, carol: Person, work: Path) -> None:
    tip = alice.machine.oid(work)
    transfer(alice, bob)
    transfer(bob, carol)
    for each in (alice, bob):
        assert carol.remote_refs(each.url())["refs/heads/main"] == tip
        knotless(each, "repo", "delete", each.url(), "--yes", f"{each.handle}/work")
    assert carol.remote_refs(alice.url())["refs/heads/main"] == tip
    transfer(carol, alice)
    tip = alice.machine.commit(work)
    quiet = alice.git("push", cwd=work)
    assert "warning" not in quiet.err
    knotless(carol, "repo", "delete", carol.url(), "--yes", f"{carol.handle}/work")
    for each in (alice, bob, carol):
        assert bob.remote_refs(each.url())["refs/heads/main"] == tip
    assert alice.account.records(REDIRECT) == {}


def test_a_copy_that_is_there_already(alice: Person, bob: Person, work: Path) -> None:
    transfer(alice, bob)
    knotless(bob, "repo", "transfer", "-R", bob.url(), alice.handle)
    words = f"your account has a copy of that repository already: {alice.url()}"
    ran = refused(alice, words, "repo", "accept", bob.url(), everybody=(alice, bob))
    assert f"git knotless repo delete {alice.url()}\n" in ran.err
    knotless(alice, "repo", "delete", alice.url(), "--yes", f"{alice.handle}/work")
    assert knotless(alice, "repo", "accept", bob.url()).out == f"{alice.url()}\n"
    done = f"{bob.url()} is in your account already: it is {alice.url()}"
    refused(alice, done, "repo", "accept", bob.url(), everybody=(alice, bob))
    assert alice.machine.oid(alice.clone(bob.url())) == alice.machine.oid(work)


@pytest.mark.slow
def test_two_accepts_at_once(alice: Person, bob: Person, work: Path) -> None:
    knotless(alice, "repo", "transfer", bob.handle, cwd=work)
    accept = ("git", "knotless", "repo", "accept", alice.url())
    with bob.machine.start(*accept) as one, bob.machine.start(*accept) as other:
        said = [process.communicate(timeout=60) for process in (one, other)]
        codes = sorted((one.returncode, other.returncode))
    assert codes == [0, 1], said
    (repo,) = bob.account.records(REPO).values()
    assert refs_of(bob.account) == refs_of(alice.account)
    assert list(bob.account.records(CLAIM)) == [f"{repo['key']}.epoch.{repo['epoch']}"]
    assert bob.machine.oid(bob.clone(bob.url())) == alice.machine.oid(work)


@pytest.mark.slow
def test_one_that_is_interrupted_is_gone_on_with(alice: Person, bob: Person, work: Path) -> None:
    knotless(alice, "repo", "transfer", bob.handle, cwd=work)
    accept = ("git", "knotless", "repo", "accept", alice.url())
    for tenths in range(4, 14, 2):
        with bob.machine.start(*accept) as process, suppress(subprocess.TimeoutExpired):
            process.wait(tenths / 10)  # then it is killed
    knotless(bob, "repo", "accept", alice.url(), code=None)
    assert refs_of(bob.account) == refs_of(alice.account)
    assert len(bob.account.records(REPO)) == 1
    assert bob.machine.oid(bob.clone(bob.url())) == alice.machine.oid(work)


def test_a_fork(alice: Person, bob: Person, work: Path) -> None:
    ran = knotless(bob, "fork", alice.url())
    assert ran.out == f"{bob.url()}\n"
    origin, fork = alice.account.record(REPO, "work"), bob.account.record(REPO, "work")
    assert fork["key"] != origin["key"]
    assert fork["forkOf"] == {"uri": f"at://{alice.account.did}/{REPO}/work", "key": origin["key"]}
    assert set(refs_of(bob.account)) == {"refs/heads/main", "refs/tags/v1"}
    assert {generation for _, generation in refs_of(bob.account).values()} == {1}
    clone = bob.clone(bob.url())
    assert bob.machine.oid(clone) == alice.machine.oid(work)
    assert f"fork of         {alice.url()}\n" in knotless(bob, "repo", "show", cwd=clone).out

    tip = bob.machine.commit(clone)
    bob.git("push", cwd=clone)
    assert alice.remote_refs(alice.url())["refs/heads/main"] != tip
    refused(bob, f"{bob.url()} already exists", "fork", alice.url(), everybody=(alice, bob))
    again = knotless(bob, "repo", "fork", alice.url(), "--name", "other", "--json")
    assert json.loads(again.out)["forkOf"] == fork["forkOf"]


def hint(ran: Result) -> list[str]:
    (line,) = [line for line in ran.err.splitlines() if line.startswith("hint: git knotless ")]
    return line.removeprefix("hint: git knotless ").split()


def test_an_offer_to_another_account_that_is_logged_in_here(
    alice: Person, bob: Person, carol: Person, work: Path
) -> None:
    knotless(alice, "repo", "transfer", bob.handle, cwd=work)
    carol.machine.log_in(bob.account)
    accept = ("repo", "accept", alice.url(), "--name", "other")
    words = f"{alice.url()} is offered to {bob.account.did}, not to you"
    ran = refused(carol, words, *accept, "--account", carol.handle, everybody=(alice, bob, carol))
    assert hint(ran) == [*accept, "--account", bob.handle]
    assert knotless(carol, *hint(ran)).out == f"{bob.url('other')}\n"


def test_nobody_is_told_to_act_as_somebody_else(
    alice: Person, bob: Person, carol: Person, work: Path
) -> None:
    knotless(alice, "repo", "transfer", bob.handle, cwd=work)
    assert "hint: " not in knotless(carol, "repo", "accept", alice.url(), code=1).err


@pytest.mark.parametrize("command", [("repo", "accept"), ("fork",)], ids=" ".join)
def test_a_name_that_is_taken(
    alice: Person, bob: Person, work: Path, command: tuple[str, ...]
) -> None:
    knotless(alice, "repo", "transfer", bob.handle, cwd=work)
    bob.create()
    words = f"{bob.url()} already exists"
    acting = ("--account", bob.handle)
    ran = refused(bob, words, *command, alice.url(), *acting, everybody=(alice, bob))
    assert hint(ran) == [*command, alice.url(), *acting, "--name", "NEW"]
    again = knotless(bob, *command, alice.url(), "--name=work", code=1)
    assert hint(again) == [*command, alice.url(), "--name=NEW"]
    assert knotless(bob, *hint(ran)).out == f"{bob.url('NEW')}\n"


@pytest.mark.parametrize("deleted", [False, True], ids=["kept", "deleted"])
def test_an_offer_that_was_accepted_is_not_taken_back(
    alice: Person, bob: Person, work: Path, *, deleted: bool
) -> None:
    """Whoever is logged in beside its owner."""
    transfer(alice, bob, to=f"{bob.handle}/other")
    alice.machine.log_in(bob.account)
    if deleted:
        knotless(alice, "repo", "delete", alice.url(), "--yes", alice.url())
    words = f"{alice.url()} has been accepted, and is {bob.url('other')} now"
    withdraw = ("repo", "transfer", "-R", alice.url(), "--withdraw")
    refused(alice, words, *withdraw, everybody=(alice, bob))
    assert alice.remote_refs(alice.url()) == bob.remote_refs(bob.url("other"))


@pytest.mark.slow
def test_the_names_that_are_left_of_it(alice: Person, bob: Person, work: Path) -> None:
    """Who looks for them says whose: by the address that it had."""
    knotless(alice, "repo", "rename", "-R", alice.url(), "later")
    transfer(alice, bob, "later")
    knotless(alice, "repo", "delete", alice.url("later"), "--yes", alice.url("later"))
    listing = ("repo", "redirects", "-R", alice.url("later"))
    rows = [line.split("\t") for line in knotless(bob, *listing).out.splitlines()]
    assert [(name, to) for name, _, to in rows] == [
        ("later", bob.url("later")),
        ("work", bob.url("later")),
    ]
    (first, _) = json.loads(knotless(alice, *listing, "--json").out)["items"]
    assert (first["url"], first["repo"]["uri"]) == (
        alice.url("later"),
        f"at://{bob.account.did}/{REPO}/later",
    )
    assert knotless(bob, "repo", "redirects", "-R", bob.url("later")).out == ""
    refused = knotless(bob, *listing, "--remove", "work", code=1)
    assert f"only {alice.handle} can change {alice.url('later')}\n" in refused.err
    left = knotless(alice, *listing, "--remove", "work").out.splitlines()
    assert [line.split("\t")[0] for line in left] == ["later"]
    alice.git("ls-remote", alice.url(), code=128)
    assert alice.remote_refs(alice.url("later")) == bob.remote_refs(bob.url("later"))
    assert knotless(alice, *listing, "--remove", "later").out == ""
    assert alice.account.records(REDIRECT) == {}
    gone = knotless(alice, *listing, code=1)
    assert f"error: {alice.url('later')}: no such repository\n" in gone.err


@pytest.mark.slow
def test_it_is_offered_again_to_who_has_an_old_copy(alice: Person, bob: Person, work: Path) -> None:
    """To nobody else is it lost meanwhile, and it goes there again once that is deleted."""
    old, his = alice.url(), bob.url()
    transfer(alice, bob)
    knotless(alice, "repo", "delete", old, "--yes", old)
    transfer(bob, alice)
    knotless(alice, "repo", "transfer", bob.handle, "-R", old)
    copy = f"your account has a copy of that repository already: {his}"
    refused(bob, copy, "repo", "accept", old, everybody=(alice, bob))
    tip = alice.machine.commit(work)
    alice.git("push", cwd=work)
    for url in (old, his):
        assert alice.remote_refs(url)["refs/heads/main"] == tip
    knotless(bob, "repo", "delete", his, "--yes", his)
    knotless(bob, "repo", "accept", old)
    for url in (old, his):
        assert alice.remote_refs(url)["refs/heads/main"] == tip
    knotless(alice, "repo", "delete", old, "--yes", old)
    assert alice.remote_refs(old)["refs/heads/main"] == tip


def test_an_offer_to_whom_nobody_can_ask(
    alice: Person, bob: Person, carol: Person, work: Path
) -> None:
    """It is read where it is, and not pushed to; and its owner can take the offer back."""
    old = alice.url()
    knotless(alice, "repo", "transfer", bob.handle, cwd=work)
    bob.account.post("com.atproto.server.deactivateAccount")
    unsure = "whose host does not say whether they accepted it: "
    for read in (("fetch",), ("knotless", "repo", "show")):
        (line,) = alice.git(*read, cwd=work).err.splitlines()
        assert line.startswith(f"warning: {old} is offered to ")
        assert unsure in line
    assert carol.machine.oid(carol.clone(old)) == alice.machine.oid(work)
    tip = alice.machine.commit(work)
    pushed = alice.git("push", cwd=work, code=None)
    assert pushed.code != 0
    assert unsure in pushed.err
    assert tip not in str(refs_of(alice.account))
    command = f"git knotless repo transfer -R {old} --withdraw"
    assert f"hint: to take the offer back: {command}\n" in pushed.err
    deleted = knotless(alice, "repo", "delete", old, "--yes", old, code=1)
    assert command in deleted.err
    knotless(alice, "repo", "edit", "--description", "mine", cwd=work)
    alice.git(*command.split()[1:])
    alice.git("push", cwd=work)
    assert alice.remote_refs(old)["refs/heads/main"] == tip


def test_by_an_old_name_and_by_the_did(alice: Person, bob: Person, work: Path) -> None:
    knotless(alice, "repo", "rename", "new", cwd=work)
    told = knotless(bob, "fork", alice.url(), "--name", "forked").err
    assert f"warning: {alice.url()} is now {alice.url('new')}\n" in told
    by_did = f"knotless://{alice.account.did}/new"
    clone = bob.clone(by_did)
    knotless(alice, "repo", "transfer", bob.handle, cwd=work)
    accepted = knotless(bob, "repo", "accept", by_did, cwd=clone).err
    new = f"knotless://{bob.account.did}/new"
    assert f"hint: git remote set-url origin {new}\n" in accepted


def test_the_rest_of_a_delete(alice: Person, work: Path) -> None:
    """Of one that was cut; another repository that has the name by then stays."""
    key = alice.account.record(REPO, "work")["key"]
    nobody = f"{alice.url()}: no delete has left anything of that name"
    refused(alice, nobody, "repo", "delete", "--rest", alice.url(), everybody=(alice,))
    knotless(alice, "create", alice.url("other"))
    epoch = alice.account.record(REPO, "work")["epoch"]
    claim = alice.account.record(CLAIM, f"{key}.epoch.{epoch}")
    alice.account.put(CLAIM, f"{key}.epoch.{epoch + 1}", claim | {"deleted": "work"})
    alice.account.delete(CLAIM, f"{key}.epoch.{epoch}")
    alice.account.delete(REPO, "work")
    knotless(alice, "repo", "rename", "-R", alice.url("other"), "work")
    assert key in str(state(alice))  # it was not found by its name, which had no redirect
    other = alice.account.record(REPO, "work")["key"]
    left = knotless(alice, "repo", "delete", alice.url(), "--yes", alice.url(), code=1)
    assert f"what an earlier {alice.url()} had left is gone now" in left.err
    assert key not in str(state(alice))
    assert alice.account.record(REPO, "work")["key"] == other
