"""What has a name goes, and what comes in its place is what the name leads to."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count

import pytest

from git_knotless.atproto.syntax import Handle
from git_knotless.storage.creation import AlreadyExists, create
from git_knotless.storage.deletion import delete
from git_knotless.storage.places.forking import fork
from git_knotless.storage.places.holds import Overtaken
from git_knotless.storage.places.lookup import look_up
from git_knotless.storage.places.offers import offer
from git_knotless.storage.places.renaming import NoSuchRedirect, remove_redirect, rename
from git_knotless.storage.records import CLAIM, PACK, REF
from git_knotless.storage.repositories import repositories
from tests.storage.packs import SILENT
from tests.storage.places import ALICE, BOB, Host, Killed, World, kill

pytestmark = pytest.mark.usefixtures("in_no_time")

_TELLING = {"accepting", "deleted"}


def leads(world: World, host: Host, to: Host, key: str, name: str = "repo") -> None:
    found = look_up(world.url(host, name), world)
    assert (found.store, found.repo.key) == (to, key)


def cut(host: Host, deed: Callable[[], object], at: int) -> bool:
    """Before the batch of that number; whether it came to that."""
    kill(host, at, "before apply")
    try:
        deed()
    except Killed:
        return True
    finally:
        host.meet = lambda now: None
    return False


def at(host: Host, moment: int, deed: Callable[[], object]) -> list[bool]:
    """Do it before the batch of that number; whether it came to that."""
    left, met = [moment], list[bool]()

    def meet(now: str) -> None:
        left[0] -= now == "before apply"
        if left[0] == -1:
            host.meet = lambda _: None
            met.append(True)
            deed()

    host.meet = meet
    return met


def takers(world: World) -> dict[str, Callable[[], str]]:
    """What gives the name `a`, Alice's, to another repository, and that another name: its key."""

    def created() -> str:
        create(world.alice, world.url(world.alice, "a"))
        return rename(world.own(world.alice, "a"), "d").key

    def renamed() -> str:
        rename(world.own(world.alice, "other"), "a")
        return rename(world.own(world.alice, "a"), "d").key

    def forked() -> str:
        source = world.open(world.carol, "theirs")
        fork(
            source,
            world.alice,
            Handle("alice.test"),
            name="a",
            directory=world.directory,
            progress=SILENT,
        )
        return rename(world.own(world.alice, "a"), "d").key

    def accepted() -> str:
        world.accept(world.carol, world.alice, "a", at="theirs")
        return rename(world.own(world.alice, "a"), "d").key

    return {"create": created, "rename": renamed, "fork": forked, "accept": accepted}


def taken_as(world: World, taker: str, keys: list[str]) -> None:
    keys.append(takers(world)[taker]())


def deeds(world: World) -> dict[str, Callable[[], object]]:
    """What writes to the redirect `a`, which leads to Alice's `x`."""
    return {
        "rename": lambda: rename(world.own(world.alice, "x"), "x2"),
        "remove": lambda: remove_redirect(world.own(world.alice, "x"), "a"),
        "delete": lambda: delete(world.own(world.alice, "x"), world),
    }


@pytest.mark.parametrize("taker", ["create", "rename", "fork", "accept"])
@pytest.mark.parametrize("deed", ["rename", "remove", "delete"])
def test_an_old_name_that_another_takes_and_leaves_leads_to_that(
    world: World, deed: str, taker: str
) -> None:
    """Whatever is done with what it led to at the same time."""
    for moment in count():
        for host in world.hosts.values():
            host.records, host.blobs = {}, {}
        world.published(world.alice, "a")
        rename(world.own(world.alice, "a"), "x")
        create(world.alice, world.url(world.alice, "other"))
        world.published(world.carol, "theirs")
        offer(world.own(world.carol, "theirs"), ALICE)
        keys = list[str]()
        met = at(world.alice, moment, partial(taken_as, world, taker, keys))
        with suppress(NoSuchRedirect):
            deeds(world)[deed]()
        world.alice.meet = lambda _: None
        if not met:
            return
        leads(world, world.alice, world.alice, keys[0], "a")
        leads(world, world.alice, world.alice, keys[0], "d")


@pytest.mark.parametrize("taker", ["create", "rename", "fork", "accept"])
def test_an_old_name_that_another_takes_while_it_comes_back(world: World, taker: str) -> None:
    """To the account that it had left, where `a` leads to where it went."""
    for moment in count():
        for host in world.hosts.values():
            host.records, host.blobs = {}, {}
        world.published(world.alice, "a")
        rename(world.own(world.alice, "a"), "x")
        offer(world.own(world.alice, "x"), BOB)
        world.accept(world.alice, world.bob, at="x")
        delete(world.own(world.alice, "x"), world)
        offer(world.own(world.bob, "x"), ALICE)
        create(world.alice, world.url(world.alice, "other"))
        world.published(world.carol, "theirs")
        offer(world.own(world.carol, "theirs"), ALICE)
        keys = list[str]()
        met = at(world.alice, moment, partial(taken_as, world, taker, keys))
        with suppress(Overtaken):
            world.accept(world.bob, world.alice, "back", at="x")
        world.alice.meet = lambda _: None
        if not met:
            return
        leads(world, world.alice, world.alice, keys[0], "a")
        leads(world, world.alice, world.alice, keys[0], "d")


@pytest.mark.parametrize("taker", ["create", "rename", "fork", "accept"])
@pytest.mark.parametrize("left_by", ["delete", "fork"])
def test_who_takes_a_name_takes_away_what_was_left_under_it(
    world: World, left_by: str, taker: str
) -> None:
    """Of a delete that was cut, or of a copy whose source is gone: wherever that ended."""
    for moment in count(1):
        for host in world.hosts.values():
            host.records, host.blobs = {}, {}
        create(world.alice, world.url(world.alice, "other"))
        world.published(world.carol, "theirs")
        offer(world.own(world.carol, "theirs"), ALICE)
        begun = whats_left(world, left_by)
        if not cut(world.alice, begun, moment):
            break
        delete(world.own(world.bob, "gone"), world)
        taken = takers(world)[taker]()
        keys = {repo.key for repo in repositories(world.alice)}
        assert taken in keys
        assert {rkey.partition(".")[0] for rkey in left(world.alice)} <= keys
    assert moment > 3


def left(host: Host) -> list[str]:
    """What is of some repository; not what only proved that the host is sound."""
    claims = [rkey for rkey, value in host.named(CLAIM).items() if value.keys() & _TELLING]
    return [*host.named(REF), *host.named(PACK), *claims]


def whats_left(world: World, by: str) -> Callable[[], object]:
    world.published(world.bob, "gone")
    if by == "delete":
        world.published(world.alice, "a")
        return lambda: delete(world.own(world.alice, "a"), world)
    return lambda: fork(
        world.open(world.bob, "gone"),
        world.alice,
        Handle("alice.test"),
        name="a",
        directory=world.directory,
        progress=SILENT,
    )


@pytest.mark.parametrize("deed", ["remove", "delete"])
def test_what_waits_for_an_old_name_is_found_once_that_is_gone(world: World, deed: str) -> None:
    world.published(world.alice, "a")
    rename(world.own(world.alice, "a"), "x")
    begun = whats_left(world, "fork")
    assert cut(world.alice, begun, 6)
    deeds(world)[deed]()
    assert left(world.alice)
    keys = {create(world.alice, world.url(world.alice, "a")).repo.key}
    keys |= {repo.key for repo in repositories(world.alice)}
    assert {rkey.partition(".")[0] for rkey in left(world.alice)} <= keys


@pytest.mark.parametrize("taker", ["create", "rename", "fork"])
def test_a_name_that_is_taken_from_what_waits_for_it(world: World, taker: str) -> None:
    """Whoever was first: the one that comes too late leaves nothing."""
    for moment in count():
        for host in world.hosts.values():
            host.records, host.blobs = {}, {}
        create(world.alice, world.url(world.alice, "other"))
        world.published(world.carol, "theirs")
        make, keys = whats_left(world, "fork"), list[str]()
        met = at(world.alice, moment, partial(taken_as, world, taker, keys))
        with suppress(AlreadyExists, Overtaken):
            make()
        world.alice.meet = lambda _: None
        if not met:
            return
        assert {rkey.partition(".")[0] for rkey in left(world.alice)} <= {
            repo.key for repo in repositories(world.alice)
        }
