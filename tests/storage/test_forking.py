"""A fork is a repository of its own from the start, and holds all that its origin did."""

from collections.abc import Sequence
from itertools import count
from pathlib import Path

import pytest

from git_knotless.atproto.syntax import Handle
from git_knotless.storage.claims import epoch_rkey
from git_knotless.storage.creation import AlreadyExists, create
from git_knotless.storage.places.forking import Forked, fork
from git_knotless.storage.places.references import RedirectRecord, RepoRef
from git_knotless.storage.records import CLAIM, PACK, REDIRECT, REF, REPO
from git_knotless.storage.repositories import repositories
from git_knotless.storage.snapshot import NoSuchRepository
from git_knotless.storage.store import Write
from git_knotless.storage.url import BadName
from tests.storage.packs import SILENT
from tests.storage.places import (
    ALICE,
    BOB,
    CAROL,
    NAMES,
    TIME,
    Host,
    Killed,
    World,
    kill,
    packs_of,
    put_ref,
    refs_of,
)

pytestmark = pytest.mark.usefixtures("in_no_time")


def forked(world: World, source: Host, to: Host, name: str | None = None) -> Forked:
    opened, owner = world.open(source), Handle(NAMES[to.did])
    return fork(opened, to, owner, name=name, directory=world.directory, progress=SILENT)


def whole(world: World, host: Host, source: str, name: str = "repo") -> None:
    """All that is live at the source, at its first generation, and nothing besides."""
    (repo,) = (repo for repo in repositories(host) if repo.name == name)
    live = {n: (oid, 1) for n, (oid, _) in refs_of(world.alice, source).items() if oid}
    assert refs_of(host, repo.key) == live
    assert packs_of(host, repo.key) == packs_of(world.alice, source)
    keys = {repo.key for repo in repositories(host)}
    assert {rkey.partition(".")[0] for rkey in host.named(PACK)} <= keys
    assert {rkey.partition(".")[0] for rkey in host.named(REF)} <= keys
    claims = [rkey for rkey in host.named(CLAIM) if rkey.startswith(repo.key)]
    assert claims == [epoch_rkey(repo.key, repo.epoch)]


def test_a_fork(world: World) -> None:
    origin = world.published(
        world.alice, collaborators=[CAROL], runners=[CAROL], rules=[{"branch": "main"}]
    )
    before = dict(world.alice.records)
    done = forked(world, world.alice, world.bob)
    assert world.alice.records == before
    whole(world, world.bob, origin.key)
    assert (done.url, done.repo.key != origin.key) == (world.url(world.bob), True)
    assert done.repo.fork_of == RepoRef(ALICE, origin.rkey, origin.key)
    assert (done.repo.description, done.repo.default_branch) == ("A thing", "main")
    left_out = {"collaborators", "runners", "rules", "transferredFrom", "transfer"}
    assert not done.repo.fields.keys() & left_out


def test_two_forks_of_one(world: World) -> None:
    origin = world.published(world.alice)
    one, other = (forked(world, world.alice, world.bob, name) for name in ("one", "other"))
    assert one.repo.key != other.repo.key
    for name in ("one", "other"):
        whole(world, world.bob, origin.key, name)


def test_a_fork_of_ones_own(world: World) -> None:
    origin = world.published(world.alice)
    forked(world, world.alice, world.alice, "other")
    whole(world, world.alice, origin.key, "other")


def test_a_fork_is_found_by_no_other_name(world: World) -> None:
    """It replaces a redirect; and a name that is taken is refused with nothing written."""
    world.published(world.alice)
    old = RedirectRecord.new("repo", RepoRef(BOB, "elsewhere", "3k2akcsyzdc2r"), TIME)
    world.bob.records[REDIRECT] = {"repo": old.to_json()}
    forked(world, world.alice, world.bob)
    assert world.bob.named(REDIRECT) == {}
    before = world.state()
    with pytest.raises(AlreadyExists, match="knotless://bob.test/repo already exists"):
        forked(world, world.alice, world.bob)
    assert world.state() == before


@pytest.mark.parametrize("name", ["-x", "x.git", "é", "a/b", "x" * 101])
def test_a_name_that_none_can_have(world: World, name: str) -> None:
    world.published(world.alice)
    before = world.state()
    with pytest.raises(BadName):
        forked(world, world.alice, world.bob, name)
    assert world.state() == before


def test_a_fork_of_nothing(world: World) -> None:
    with pytest.raises(NoSuchRepository):
        forked(world, world.alice, world.bob)
    assert world.state() == {"alice.test": {}, "bob.test": {}, "carol.test": {}}


def test_one_that_is_killed_at_any_moment_is_gone_on_with(tmp_path: Path) -> None:
    for at in count():
        world = World(tmp_path)
        origin = world.published(world.alice)
        kill(world.bob, at)
        try:
            forked(world, world.alice, world.bob)
        except Killed:
            pass
        else:
            break
        world.bob.meet = lambda moment: None
        if not list(repositories(world.bob)):
            put_ref(world.alice, origin, "refs/heads/b0", "d" * 40, generation=9)
            forked(world, world.alice, world.bob)
        whole(world, world.bob, origin.key)
    assert at > 10


def test_one_that_was_cut_goes_once_its_name_is_taken(world: World) -> None:
    world.published(world.alice)
    kill(world.bob, 3, "after apply")
    with pytest.raises(Killed):
        forked(world, world.alice, world.bob)
    world.bob.meet = lambda moment: None
    assert world.bob.named(PACK)
    create(world.bob, world.url(world.bob))
    with pytest.raises(AlreadyExists):
        forked(world, world.alice, world.bob)
    (repo,) = repositories(world.bob)
    assert repo.fork_of is None
    assert world.bob.named(PACK) == world.bob.named(REF) == {}
    assert list(world.bob.named(CLAIM)) == [epoch_rkey(repo.key, 1)]


def test_what_is_copied_is_in_no_list_before_it_is_whole(world: World) -> None:
    origin = world.published(world.alice)

    def look(_: Sequence[Write]) -> None:
        if world.bob.named(REPO):
            whole(world, world.bob, origin.key)

    world.bob.after = look
    forked(world, world.alice, world.bob)
