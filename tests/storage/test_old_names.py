"""The names that an account has for a repository that moved to another, and for its own."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from git_knotless.atproto.errors import HostUnreachable, ServerFault
from git_knotless.storage.creation import create
from git_knotless.storage.deletion import delete
from git_knotless.storage.places.offers import offer
from git_knotless.storage.places.old_names import key_of, old_names, take_back
from git_knotless.storage.places.renaming import NoSuchRedirect, rename
from git_knotless.storage.records import REDIRECT, REPO
from git_knotless.storage.snapshot import NoSuchRepository
from git_knotless.storage.store import Write
from tests.storage.account import refusal
from tests.storage.places import BOB, Host, World


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Alice's repository was `first`, then `repo`, and is Bob's, as `repo`; her copy is gone."""
    world = World(tmp_path)
    world.published(world.alice, "first")
    rename(world.own(world.alice, "first"), "repo")
    offer(world.own(world.alice), BOB)
    world.accept(world.alice, world.bob)
    delete(world.own(world.alice), world)
    return world


def key(world: World) -> str:
    return str(world.bob.named(REPO)["repo"]["key"])


def names(host: Host, key: str) -> list[tuple[str, str, str]]:
    return [(each.name, each.repo.did, each.repo.name) for each in old_names(host, key)]


def test_what_leads_out_of_the_account(world: World) -> None:
    for name in ("first", "repo"):
        assert key_of(world.own(world.alice, name)) == key(world)
    assert names(world.alice, key(world)) == [("first", BOB, "repo"), ("repo", BOB, "repo")]
    assert names(world.bob, key(world)) == []
    with pytest.raises(NoSuchRepository):
        key_of(world.own(world.alice, "other"))


def test_taken_back(world: World) -> None:
    before = world.state()["bob.test"]
    take_back(world.own(world.alice), key(world), "first")
    assert names(world.alice, key(world)) == [("repo", BOB, "repo")]
    take_back(world.own(world.alice), key(world), "repo")
    assert world.alice.named(REDIRECT) == {}
    assert world.state()["bob.test"] == before
    with pytest.raises(NoSuchRepository):
        world.open(world.alice).record()


@pytest.mark.parametrize("name", ["other", "a/b", "", "third"])
def test_what_is_no_name_of_it(world: World, name: str) -> None:
    world.published(world.alice, "third")
    rename(world.own(world.alice, "third"), "fourth")
    before = world.state()
    with pytest.raises(NoSuchRedirect) as raised:
        take_back(world.own(world.alice), key(world), name)
    assert raised.value.message == f"{name} is not an old name of knotless://alice.test/repo"
    assert world.state() == before


def test_a_name_that_was_given_to_another_meanwhile(world: World) -> None:
    """By way of a repository that has been renamed away from it by now."""
    wanted = key(world)

    def give_it(writes: Sequence[Write]) -> None:
        world.alice.before = lambda writes: None
        create(world.alice, world.url(world.alice, "first"))
        rename(world.own(world.alice, "first"), "second")
        raise refusal(ServerFault)

    world.alice.before = give_it
    take_back(world.own(world.alice), wanted, "first")
    assert world.open(world.alice, "first").record().name == "second"


def test_an_answer_that_was_lost(world: World) -> None:
    def lose(writes: Sequence[Write]) -> None:
        raise HostUnreachable("gone")

    world.alice.after = lose
    take_back(world.own(world.alice), key(world), "first")
    assert names(world.alice, key(world)) == [("repo", BOB, "repo")]


def test_a_host_that_does_not_answer(world: World) -> None:
    def refuse(writes: Sequence[Write]) -> None:
        raise refusal(ServerFault)

    world.alice.before = refuse
    before: Any = dict(world.alice.named(REDIRECT))
    with pytest.raises(ServerFault):
        take_back(world.own(world.alice), key(world), "first")
    assert world.alice.named(REDIRECT) == before


def test_within_the_account_the_epoch_moves(world: World) -> None:
    rename(world.own(world.bob), "now")
    old = world.own(world.bob, "now").record()
    assert names(world.bob, old.key) == [("repo", BOB, "now")]
    take_back(world.own(world.bob, "now"), old.key, "repo")
    assert names(world.bob, old.key) == []
    assert world.own(world.bob, "now").record().epoch == old.epoch + 1
