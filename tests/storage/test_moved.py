"""What becomes of the old place, and of the chain that a repository leaves as it goes on."""

from collections.abc import Sequence
from itertools import count, pairwise
from pathlib import Path

import pytest

from git_knotless.storage import outcome
from git_knotless.storage.claims import epoch_rkey
from git_knotless.storage.creation import create
from git_knotless.storage.deletion import NotAllThere, delete
from git_knotless.storage.editing import edit
from git_knotless.storage.listing import Page
from git_knotless.storage.places.holds import CopyExists
from git_knotless.storage.places.lookup import look_up
from git_knotless.storage.places.offers import offer
from git_knotless.storage.places.references import RedirectRecord, RepoRef
from git_knotless.storage.places.renaming import rename
from git_knotless.storage.proofs.verified import NotSigned
from git_knotless.storage.records import CLAIM, PACK, REDIRECT, REF, REPO, RepoRecord
from git_knotless.storage.repositories import MovedAway, Repository, repositories
from git_knotless.storage.snapshot import NoSuchRepository
from git_knotless.storage.store import Write
from git_knotless.value import replace
from tests.storage.places import (
    ALICE,
    BOB,
    CAROL,
    TIME,
    Host,
    Killed,
    World,
    kill,
    place,
    push,
    put_ref,
    refs_of,
)

pytestmark = pytest.mark.usefixtures("in_no_time")


def delete_old(world: World, host: Host, name: str = "repo") -> None:
    delete(world.own(host, name), world)


def moves(world: World, *hosts: Host, delete_each: bool = True) -> str:
    """From the first to the last of `hosts`; its key."""
    key = next(iter(repositories(hosts[0]))).key
    for old, new in pairwise(hosts):
        offer(world.own(old), new.did)
        world.accept(old, new)
        if delete_each:
            delete_old(world, old)
    return key


def leads(world: World, host: Host, to: Host, key: str, name: str = "repo") -> None:
    found = look_up(world.url(host, name), world)
    assert (found.store, found.repo.key) == (to, key)


# --- the old place


def test_the_names_it_had_lead_into_the_new_account(world: World) -> None:
    world.published(world.alice, "first")
    rename(world.own(world.alice, "first"), "repo")
    key = world.own(world.alice).record().key
    offer(world.own(world.alice), BOB)
    world.accept(world.alice, world.bob, "other")
    delete_old(world, world.alice)
    there = {name: value["repo"] for name, value in world.alice.named(REDIRECT).items()}
    came_from = world.own(world.bob, "other").record().transferred_from
    assert came_from is not None
    assert came_from.offer
    leading = place(world.bob, "other", key) | {"offer": came_from.offer}
    assert there == dict.fromkeys(["first", "repo"], leading)
    assert not any(values for nsid, values in world.alice.records.items() if nsid != REDIRECT)
    for name in there:
        leads(world, world.alice, world.bob, key, name)


@pytest.mark.parametrize("generation", [1, 2])
def test_it_stays_while_the_new_place_lacks_something(world: World, generation: int) -> None:
    old = world.offered()
    world.accept(world.alice, world.bob)
    put_ref(world.alice, old, "refs/heads/b0", "d" * 40, generation=generation)
    put_ref(world.alice, old, "refs/heads/new", "e" * 40, generation=1)
    before = world.state()
    with pytest.raises(NotAllThere) as caught:
        delete_old(world, world.alice)
    names = "refs/heads/b0, refs/heads/new"
    assert caught.value.message == f"knotless://bob.test/repo has not what is here: {names}"
    assert world.state() == before
    put_ref(world.bob, old, "refs/heads/b0", "f" * 40, generation=generation + 1)
    put_ref(world.bob, old, "refs/heads/new", "e" * 40, generation=1)
    delete_old(world, world.alice)
    leads(world, world.alice, world.bob, old.key)


def test_what_was_deleted_there_is_not_lacking_elsewhere(world: World) -> None:
    old = world.offered()
    world.accept(world.alice, world.bob)
    put_ref(world.alice, old, "refs/heads/b1", None, generation=9)
    delete_old(world, world.alice)
    assert "refs/heads/b1" in refs_of(world.bob, old.key)


def pushed_at(world: World, repo: RepoRecord, at: int) -> list[bool]:
    """At that moment of what is done with alice's account; whether it came to that, and landed."""
    landed: list[bool] = []
    left = [at]

    def meet(_: str) -> None:
        left[0] -= 1
        if left[0] == -1:
            push(world.alice, repo, "refs/heads/late", "e" * 40)
            landed.append("refs/heads/late" in refs_of(world.alice, repo.key))

    world.alice.meet = meet
    return landed


def test_what_its_host_leaves_out_is_missed_all_the_same(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = world.offered()
    world.accept(world.alice, world.bob)
    put_ref(world.alice, old, "refs/heads/new", "e" * 40, generation=1)
    before, page = world.state(), Host._page

    def shown(host: Host, collection: str, cursor: str | None, ascending: bool) -> Page:
        listed = page(host, collection, cursor, ascending)
        kept = [each for each in listed.records if each.value.get("name") != "refs/heads/new"]
        return replace(listed, records=kept)

    monkeypatch.setattr(Host, "_page", shown)
    with pytest.raises(NotSigned, match="refs/heads/new is left out"):
        delete_old(world, world.alice)
    assert world.state() == before


def test_no_push_is_lost_between_the_look_and_the_delete(tmp_path: Path) -> None:
    """One that read the old place before it moved, at each moment of the delete."""
    for at in count():
        world = World(tmp_path)
        world.offered()
        repo = world.own(world.alice).record()
        world.accept(world.alice, world.bob)
        landed = pushed_at(world, repo, at)
        try:
            delete_old(world, world.alice)
        except NotAllThere:
            assert landed == [True]
            assert "refs/heads/late" in refs_of(world.alice, repo.key)
            leads(world, world.alice, world.bob, repo.key)
        else:
            assert landed != [True]
        if not landed:
            break
    assert at > 10


def test_a_push_that_reads_again_is_told_that_it_has_moved(world: World) -> None:
    world.offered()
    own = Repository(world.url(world.alice), world.alice, writable=True, accounts=world)
    own.record()
    world.accept(world.alice, world.bob)
    with pytest.raises(MovedAway):
        own.record()


@pytest.mark.parametrize("cut", range(40))
def test_a_delete_that_is_killed_leads_on_and_is_finished(world: World, cut: int) -> None:
    old = world.offered()
    world.accept(world.alice, world.bob)
    kill(world.alice, cut)
    try:
        delete_old(world, world.alice)
    except Killed:
        world.alice.meet = lambda moment: None
        leads(world, world.alice, world.bob, old.key)
        try:
            delete_old(world, world.alice)
        except NoSuchRepository:
            assert not world.alice.named(CLAIM)
    world.alice.meet = lambda moment: None
    assert not any(world.alice.named(nsid) for nsid in (REPO, REF, PACK, CLAIM))
    leads(world, world.alice, world.bob, old.key)


def test_an_offer_that_nobody_accepted_is_deleted_with_it(world: World) -> None:
    world.offered()
    delete_old(world, world.alice)
    assert not any(world.alice.records.values())


def test_a_copy_that_names_another_place_is_no_move(world: World) -> None:
    """Bob says that it came from Carol: what Alice has is gone without a trace."""
    old = world.offered()
    value = {"key": old.key, "epoch": 1, "transferredFrom": place(world.carol, "repo", old.key)}
    world.bob.records[REPO] = {"repo": value}
    delete_old(world, world.alice)
    assert not any(world.alice.records.values())


def test_more_old_names_than_one_write_repoints(world: World) -> None:
    old = world.offered()
    world.accept(world.alice, world.bob)
    here = RepoRef(ALICE, old.rkey, old.key)
    names = [f"n{n}" for n in range(500)]
    world.alice.records[REDIRECT] = {
        name: RedirectRecord.new(name, here, TIME).to_json() for name in names
    }
    delete_old(world, world.alice)
    assert not any(values for nsid, values in world.alice.records.items() if nsid != REDIRECT)
    for name in [*names, "repo"]:
        leads(world, world.alice, world.bob, old.key, name)


# --- from account to account


@pytest.mark.parametrize("delete_each", [True, False])
def test_a_chain_of_moves(world: World, delete_each: bool) -> None:
    world.published(world.alice)
    key = moves(world, world.alice, world.bob, world.carol, delete_each=delete_each)
    for host in (world.alice, world.bob, world.carol):
        leads(world, host, world.carol, key)


def test_an_old_copy_is_deleted_of_what_is_gone_by_now(world: World) -> None:
    """Bob, who had it in between, deleted his copy, and Carol what it had become."""
    world.offered()
    world.accept(world.alice, world.bob)
    offer(world.own(world.bob), CAROL)
    world.accept(world.bob, world.carol)
    for host in (world.bob, world.carol, world.alice):
        delete(world.own(host), world)
    assert world.alice.named(REPO) == world.alice.named(REDIRECT) == {}


@pytest.mark.parametrize("between", [0, 1])
def test_back_home(world: World, between: int) -> None:
    world.published(world.alice, "first")
    rename(world.own(world.alice, "first"), "repo")
    path = (world.alice, *(world.bob, world.carol)[: between + 1], world.alice)
    key = moves(world, *path)
    for host in path:
        leads(world, host, world.alice, key)
    leads(world, world.alice, world.alice, key, "first")
    assert "transferredFrom" not in world.alice.named(REDIRECT)["first"]


@pytest.mark.parametrize("between", [1, 2])
def test_round_and_round(world: World, between: int) -> None:
    """The redirects that each place leaves are no answer to the next offer."""
    world.published(world.alice)
    ring = (world.alice, world.bob, world.carol)[: between + 1]
    been: list[Host] = []
    for old, new in pairwise(ring * 3):
        key = next(iter(repositories(old))).key
        been.append(old)
        offer(world.own(old), new.did)
        for host in been:
            leads(world, host, old, key)
        world.accept(old, new)
        for host in been:
            leads(world, host, new, key)
        delete_old(world, old)


def test_home_where_the_old_copy_is_still(world: World) -> None:
    world.published(world.alice)
    moves(world, world.alice, world.bob, delete_each=False)
    offer(world.own(world.bob), ALICE)
    before = world.state()
    with pytest.raises(CopyExists) as caught:
        world.accept(world.bob, world.alice)
    assert "git knotless repo delete knotless://alice.test/repo" in str(caught.value.hint)
    assert world.state() == before
    delete_old(world, world.alice)
    world.accept(world.bob, world.alice)
    assert [repo.name for repo in repositories(world.alice)] == ["repo"]


def test_home_where_a_delete_was_cut(tmp_path: Path) -> None:
    """What is left of the old copy goes before anything comes."""
    for cut in count():
        world = World(tmp_path)
        world.published(world.alice)
        key = moves(world, world.alice, world.bob, delete_each=False)
        kill(world.alice, cut)
        try:
            delete_old(world, world.alice)
        except Killed:
            pass
        else:
            break
        world.alice.meet = lambda moment: None
        offer(world.own(world.bob), ALICE)
        try:
            world.accept(world.bob, world.alice)
        except CopyExists:
            continue
        assert refs_of(world.alice, key) == refs_of(world.bob, key)
        (repo,) = repositories(world.alice)
        assert list(world.alice.named(CLAIM)) == [epoch_rkey(key, repo.epoch)]
    assert cut > 10


def test_an_epoch_is_never_had_twice(world: World) -> None:
    """A push that was under way when it left finds nothing of its own when it is back."""
    world.published(world.alice)
    first = world.own(world.alice).record()
    key = moves(world, world.alice, world.bob, world.alice)
    again = world.own(world.alice).record()
    assert (again.key, again.epoch > first.epoch + 2) == (key, True)


# --- a name whose delete was cut


@pytest.mark.parametrize("moved", [True, False])
def test_what_is_made_under_the_name_finishes_the_delete(tmp_path: Path, moved: bool) -> None:
    for cut in count():
        world = World(tmp_path)
        old = world.offered()
        if moved:
            world.accept(world.alice, world.bob)
        kill(world.alice, cut)
        try:
            delete_old(world, world.alice)
        except Killed:
            pass
        else:
            break
        world.alice.meet = lambda moment: None
        if world.alice.named(REPO):
            continue
        create(world.alice, world.url(world.alice))
        (repo,) = repositories(world.alice)
        assert repo.key != old.key
        assert list(world.alice.named(CLAIM)) == [epoch_rkey(repo.key, 1)]
        assert not any(world.alice.named(nsid) for nsid in (REF, PACK, REDIRECT))
    assert cut > 10


def test_a_late_delete_takes_nothing_from_one_that_is_back(world: World) -> None:
    """It is held up, and another finishes it; the repository comes home before it goes on."""
    world.published(world.alice)
    key = moves(world, world.alice, world.bob, delete_each=False)
    late: list[Sequence[Write]] = []

    def stop(writes: Sequence[Write]) -> None:
        if any(write.action == "delete" and write.collection == REF for write in writes):
            late.append(writes)
            raise Killed

    world.alice.before = stop
    with pytest.raises(Killed):
        delete_old(world, world.alice)
    world.alice.before = lambda writes: None
    delete_old(world, world.alice)
    offer(world.own(world.bob), ALICE)
    world.accept(world.bob, world.alice)
    with pytest.raises(outcome.AtprotoError):
        world.alice.apply(late[0])
    assert refs_of(world.alice, key) == refs_of(world.bob, key)


def test_carol_is_never_asked_where_nothing_moved(world: World) -> None:
    world.published(world.alice)
    edit(world.own(world.alice), lambda repo: repo.changed(description="x"))
    look_up(world.url(world.alice), world)
    assert world.bob.requests == world.carol.requests == []
    assert CAROL in world.hosts
