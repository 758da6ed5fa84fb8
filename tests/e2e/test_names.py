"""Repositories that are renamed, and that move: what whoever has the old address meets."""

import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import CLAIM, PACK, REF, REPO, Person
from tests.gitenv import GitEnv, Result

REDIRECT = "dev.knotless.redirect"
PAGE = Path(__file__).parents[2] / "docs/names.md"


def hints(ran: Result) -> list[str]:
    """The commands that it printed, without what git itself said."""
    lines = ran.err.splitlines()
    return [line.removeprefix("hint: ") for line in lines if line.startswith("hint: git ")]


def follow(machine: GitEnv, ran: Result, cwd: Path) -> None:
    """Type what was printed, as it was printed."""
    (command,) = hints(ran)
    machine.run("/bin/sh", "-c", command, cwd=cwd)


def news(old: str, new: str) -> str:
    return f"warning: {old} is now {new}\n"


@pytest.fixture
def renamed(alice: Person) -> Path:
    """alice's `work`, which is `field-notes` now; its remote has the old name."""
    work = alice.published()
    alice.git("knotless", "repo", "rename", "-R", f"{alice.handle}/work", "field-notes")
    return work


def test_rename_prints_the_new_url_and_leads_the_remote_there(alice: Person) -> None:
    work = alice.published()
    ran = alice.git("knotless", "repo", "rename", "field-notes", cwd=work)
    new = alice.url("field-notes")
    assert (ran.out, ran.err) == (f"{new}\n", f"origin is now {new}\n")
    assert alice.git("push", cwd=work).err == "Everything up-to-date\n"


def test_rename_says_how_to_lead_a_remote_there_that_has_more(alice: Person) -> None:
    work, new = alice.published(), alice.url("field-notes")
    alice.git("config", "remote.origin.pushurl", alice.url("elsewhere"), cwd=work)
    ran = alice.git("knotless", "repo", "rename", "field-notes", cwd=work)
    assert ran.err == f"hint: git remote set-url origin {new}\n"
    assert alice.git("remote", "get-url", "origin", cwd=work).out == f"{alice.url()}\n"
    follow(alice.machine, ran, work)
    assert alice.git("fetch", cwd=work).err == ""


def test_everything_works_by_the_old_name(alice: Person, renamed: Path, bob: GitEnv) -> None:
    old, new = alice.url(), alice.url("field-notes")
    told = news(old, new)
    tip = alice.machine.commit(renamed)
    pushed = alice.git("push", cwd=renamed)
    assert pushed.err.count(told) == 1
    assert hints(pushed) == [f"git remote set-url origin {new}"]

    cloned = bob.git("clone", "-o", "hers", old, "copy")
    assert cloned.err.count(told) == 1
    assert hints(cloned) == [f"git remote set-url hers {new}"]
    copy = bob.root / "copy"
    assert bob.oid(copy) == tip
    for command in (["fetch"], ["pull"], ["ls-remote"]):
        ran = bob.git(*command, cwd=copy)
        assert (ran.err.count(told), len(hints(ran))) == (1, 1), ran.err

    follow(bob, cloned, copy)
    quiet = bob.git("fetch", cwd=copy)
    assert quiet.err == ""
    follow(alice.machine, pushed, renamed)
    tip = alice.machine.commit(renamed, "more")
    assert "warning" not in alice.git("push", cwd=renamed).err
    bob.git("pull", "--quiet", cwd=copy)
    assert bob.oid(copy) == tip


def test_commands_by_the_old_name(alice: Person, renamed: Path) -> None:
    old, new = alice.url(), alice.url("field-notes")
    for words in (["show"], ["edit", "--archived"], ["edit", "--no-archived"], ["redirects"]):
        here = alice.git("knotless", "repo", *words, cwd=renamed)
        assert here.err == f"{news(old, new)}hint: git remote set-url origin {new}\n"
    shown = alice.git("knotless", "repo", "show", f"{alice.handle}/work")
    assert shown.out.splitlines()[0] == f"url             {new}"
    assert shown.err == f"{news(old, new)}hint: use {new}\n"
    assert (
        "--yes" in alice.git("knotless", "repo", "delete", old, "--yes", old, code=2).err
    )  # the name that it has is what has to be typed
    alice.git("knotless", "repo", "delete", old, "--yes", new)
    assert alice.account.records(REDIRECT) == {}
    gone = alice.git("ls-remote", old, code=128)
    assert f"error: {old}: no such repository\n" in gone.err


def test_a_typed_address(alice: Person, renamed: Path) -> None:
    old, new = alice.url(), alice.url("field-notes")
    assert alice.git("ls-remote", old).err == f"{news(old, new)}hint: use {new}\n"


def test_whoever_asked_by_the_did_goes_on_by_it(alice: Person, renamed: Path) -> None:
    old, new = (f"knotless://{alice.account.did}/{name}" for name in ("work", "field-notes"))
    alice.git("remote", "add", "other", old, cwd=renamed)
    ran = alice.git("fetch", "other", cwd=renamed)
    assert news(old, new) in ran.err
    follow(alice.machine, ran, renamed)
    assert alice.git("remote", "get-url", "other", cwd=renamed).out == f"{new}\n"


def test_only_the_push_url_is_the_old_one(alice: Person, renamed: Path) -> None:
    new = alice.url("field-notes")
    alice.git("remote", "set-url", "origin", new, cwd=renamed)
    alice.git("remote", "set-url", "--push", "origin", alice.url(), cwd=renamed)
    assert alice.git("fetch", cwd=renamed).err == ""
    ran = alice.git("push", cwd=renamed)
    assert hints(ran) == [f"git remote set-url --push origin {new}"]
    follow(alice.machine, ran, renamed)
    assert alice.git("push", cwd=renamed).err == "Everything up-to-date\n"


def test_one_of_several_urls_is_the_old_one(alice: Person, renamed: Path) -> None:
    other, new = alice.create("other"), alice.url("field-notes")
    alice.git("remote", "set-url", "origin", other, cwd=renamed)
    alice.git("remote", "set-url", "--add", "origin", alice.url(), cwd=renamed)
    ran = alice.git("push", "origin", "main", cwd=renamed)
    follow(alice.machine, ran, renamed)
    urls = alice.git("remote", "get-url", "--all", "origin", cwd=renamed).out
    assert urls.splitlines() == [other, new]


def test_a_remote_whose_name_a_shell_would_not_take_as_it_is(alice: Person, renamed: Path) -> None:
    alice.git("remote", "rename", "origin", "al's;#", cwd=renamed)
    ran = alice.git("fetch", "al's;#", cwd=renamed)
    follow(alice.machine, ran, renamed)
    assert alice.git("fetch", "al's;#", cwd=renamed).err == ""


def test_a_chain_of_names_is_left_clean(alice: Person) -> None:
    work = alice.published("a")
    key = alice.account.records(REPO)["a"]["key"]
    for old, new in (("a", "b"), ("b", "a"), ("a", "c")):
        alice.git("knotless", "repo", "rename", "-R", f"{alice.handle}/{old}", new)
        assert list(alice.account.records(REPO)) == [new]
    to = {"uri": f"at://{alice.account.did}/{REPO}/c", "key": key}
    redirects = alice.account.records(REDIRECT)
    assert {name: value["repo"] for name, value in redirects.items()} == {"a": to, "b": to}
    alice.machine.commit(work)
    assert news(alice.url("a"), alice.url("c")) in alice.git("push", cwd=work).err
    assert alice.remote_refs(alice.url("b"))["refs/heads/main"] == alice.machine.oid(work)


def test_a_new_repository_takes_the_old_name(alice: Person, renamed: Path) -> None:
    alice.create("work")
    assert alice.account.records(REDIRECT) == {}
    assert alice.remote_refs(alice.url()) == {}
    assert "refs/heads/main" in alice.remote_refs(alice.url("field-notes"))


def test_a_clone_of_the_renamed_one_is_none_of_the_newcomer(
    alice: Person, renamed: Path, bob: GitEnv
) -> None:
    copy = bob.root / "copy"
    bob.git("clone", "--quiet", alice.url("field-notes"), str(copy))
    bob.git("remote", "set-url", "origin", alice.url(), cwd=copy)
    bob.git("fetch", "--quiet", cwd=copy)
    alice.git("fetch", "--quiet", cwd=renamed)
    alice.create("work")
    before = alice.commits()
    alice.machine.commit(renamed)
    pushed = alice.git("push", cwd=renamed, code=128)
    assert alice.commits() == before
    fetched = bob.git("fetch", cwd=copy, code=128)
    command = f"git remote set-url origin {alice.url('field-notes')}"
    assert (hints(pushed), hints(fetched)) == ([command], [command])
    follow(alice.machine, pushed, renamed)
    follow(bob, fetched, copy)
    alice.git("push", cwd=renamed)
    bob.git("pull", "--quiet", cwd=copy)
    assert bob.oid(copy) == alice.machine.oid(renamed)
    assert alice.remote_refs(alice.url()) == {}


@pytest.mark.slow
def test_renames_that_race_pushes(alice: Person) -> None:
    """Each push that was said to have landed is there, whatever the name was in between."""
    work = alice.published("a")
    names = ["b", "c", "a", "d", "b"]

    def rename() -> None:
        for old, new in pairwise(["a", *names]):
            alice.git("knotless", "repo", "rename", "-R", f"{alice.handle}/{old}", new)

    with ThreadPoolExecutor() as pool:
        renaming = pool.submit(rename)
        for number in range(5):
            alice.machine.commit(work, f"file{number}")
            alice.git("push", cwd=work)
        renaming.result()
    assert alice.remote_refs(alice.url("a"))["refs/heads/main"] == alice.machine.oid(work)
    assert set(alice.account.records(REDIRECT)) == {"a", "c", "d"}
    assert list(alice.account.records(REPO)) == ["b"]
    alice.clone(alice.url("c"))


def test_redirects_are_listed_and_taken_back(alice: Person, renamed: Path) -> None:
    place = f"{alice.handle}/field-notes"
    alice.git("knotless", "repo", "rename", "-R", place, "third")
    third = f"{alice.handle}/third"
    listed = alice.git("knotless", "repo", "redirects", "-R", third).out
    assert [line.split("\t")[0] for line in listed.splitlines()] == ["field-notes", "work"]
    left = alice.git("knotless", "repo", "redirects", "-R", third, "--remove", "work")
    assert [line.split("\t")[0] for line in left.out.splitlines()] == ["field-notes"]
    alice.git("ls-remote", alice.url(), code=128)
    again = alice.git("knotless", "repo", "redirects", "-R", place, "--remove", "work", code=1)
    assert f"error: work is not an old name of {alice.url('third')}\n" in again.err


def test_for_programs(alice: Person) -> None:
    alice.create()
    place = f"{alice.handle}/work"
    renamed = json.loads(alice.git("knotless", "repo", "rename", "-R", place, "b", "--json").out)
    shown = json.loads(alice.git("knotless", "repo", "show", alice.url("b"), "--json").out)
    assert renamed == {name: shown[name] for name in renamed}
    assert (renamed["name"], renamed["url"]) == ("b", alice.url("b"))
    listed = alice.git("knotless", "repo", "redirects", "-R", place, "--json")
    (item,) = json.loads(listed.out)["items"]
    (documented,) = re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert list(item) == list(json.loads(documented))
    assert (item["name"], item["url"]) == ("work", alice.url())
    assert item["createdAt"] == renamed["updatedAt"]
    refused = alice.git("knotless", "repo", "rename", "-R", place, "b", "--json", code=1)
    assert json.loads(refused.err)["error"] == "SameName"


BAD_NAMES = ["a" * 101, "a/b", "né", ".", "..", "x.git", "x.lock", "x.", "a:b", "a~b", "", "a b"]


@pytest.mark.parametrize("name", [*BAD_NAMES, "-x"])
def test_names_that_no_repository_gets(alice: Person, name: str) -> None:
    alice.create()
    before = alice.commits()
    ran = alice.git("knotless", "repo", "rename", "-R", f"{alice.handle}/work", "--", name, code=1)
    assert "name of a repository" in ran.err
    assert alice.commits() == before


def test_names_that_are_taken(alice: Person) -> None:
    alice.create()
    alice.create("Work")  # case counts: another one
    before = alice.commits()
    place = f"{alice.handle}/work"
    ran = alice.git("knotless", "repo", "rename", "-R", place, "Work", code=1)
    assert ran.err == f"error: {alice.url('Work')} already exists\n"
    ran = alice.git("knotless", "repo", "rename", "-R", place, "work", code=1)
    assert ran.err == f"error: {alice.url()} is already named work\n"
    assert alice.commits() == before
    alice.git("knotless", "repo", "rename", "-R", place, "WORK")
    assert set(alice.account.records(REPO)) == {"Work", "WORK"}


def test_a_stranger_renames_nothing(alice: Person, person: Callable[..., Person]) -> None:
    alice.create()
    carol = person("carol")
    ran = carol.git("knotless", "repo", "rename", "-R", f"{alice.handle}/work", "x", code=1)
    assert f"only {alice.handle} can change {alice.url()}" in ran.err


# --- into another account: as records say it, whoever wrote them


def move(alice: Person, bob: Person, name: str = "work", *, to: str = "work") -> None:
    """Offered and accepted, with all that a small repository is made of."""
    source = alice.account.records(REPO)[name]
    for collection in (REF, PACK, CLAIM):
        for rkey, value in alice.account.records(collection).items():
            bob.account.put(collection, rkey, value)
    bob.account.put(REPO, to, source | {"transferredFrom": reference(alice, name)})
    alice.account.put(REPO, name, source | {"transfer": reference(bob, to, key=source["key"])})


def reference(person: Person, name: str, *, key: str | None = None) -> dict[str, Any]:
    key = key or person.account.records(REPO)[name]["key"]
    return {"uri": f"at://{person.account.did}/{REPO}/{name}", "key": key}


@pytest.fixture
def carol(person: Callable[..., Person]) -> Person:
    return person("carol", host=1)


def test_a_move_is_followed_across_accounts(alice: Person, carol: Person) -> None:
    work = alice.published()
    move(alice, carol)
    old, new = alice.url(), carol.url()
    clone = carol.machine.root / "clone"
    cloned = carol.git("clone", old, str(clone))
    assert cloned.err.count(news(old, new)) == 1
    tip = carol.machine.commit(clone)
    pushed = carol.git("push", cwd=clone)
    assert carol.remote_refs(new)["refs/heads/main"] == tip
    follow(carol.machine, pushed, clone)
    carol.machine.commit(clone, "more")
    assert "warning" not in carol.git("push", cwd=clone).err

    alice.machine.commit(work, "hers")
    before = alice.commits(), carol.commits()
    refused = alice.git("push", cwd=work, code=128)
    assert f"{old} is now {new}, and only {carol.handle} can push to it\n" in refused.err
    assert (alice.commits(), carol.commits()) == before
    shown = alice.git("knotless", "repo", "show", f"{alice.handle}/work")
    assert shown.out.splitlines()[0] == f"url             {new}"


def test_an_offer_that_stands_is_told_to_whoever_pushes(alice: Person, carol: Person) -> None:
    work = alice.published()
    source = alice.account.records(REPO)["work"]
    offer = reference(carol, "work", key=source["key"])
    alice.account.put(REPO, "work", source | {"transfer": offer})
    assert alice.git("fetch", cwd=work).err == ""
    alice.machine.commit(work)
    offered = f"note: {alice.url()} is offered to {carol.handle}: "
    told = f"{offered}what is pushed moves along once they accept\n"
    assert alice.git("push", cwd=work).err.count(told) == 1
    assert alice.remote_refs(alice.url())["refs/heads/main"] == alice.machine.oid(work)


def test_a_redirect_into_another_account_is_no_rename(alice: Person, carol: Person) -> None:
    carol.published()
    redirect = {"repo": reference(carol, "work"), "createdAt": "2026-01-02T03:04:05.678Z"}
    alice.account.put(REDIRECT, "work", redirect)
    ran = alice.git("ls-remote", alice.url(), code=128)
    assert f"error: {alice.url()}: no such repository\n" in ran.err
