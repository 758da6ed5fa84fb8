"""Pushing to a repository that is offered to another account, while that may accept it."""

import io
from itertools import count
from pathlib import Path

import pytest

from git_knotless.errors import KnotlessError
from git_knotless.storage.creation import create
from git_knotless.storage.git import Git
from git_knotless.storage.places.lookup import OfferUnsure
from git_knotless.storage.places.offers import offer
from git_knotless.storage.progress import TextProgress
from git_knotless.storage.pushing.push import push
from git_knotless.storage.pushing.updates import Update
from git_knotless.storage.repositories import MovedAway, Repository
from git_knotless.storage.snapshot import Snapshot
from tests.gitenv import GitEnv
from tests.storage.places import BOB, World

pytestmark = pytest.mark.usefixtures("in_no_time")

MAIN = "refs/heads/main"


class Pushing:
    """Alice's clone of a repository that she has offered to Bob."""

    def __init__(self, gitenv: GitEnv, world: World) -> None:
        self.gitenv, self.world = gitenv, world
        self.path = world.directory / "clone"
        gitenv.git("init", "-q", str(self.path))
        self.git = Git(self.path / ".git", env=gitenv.env)
        self.commit()
        create(world.alice, world.url(world.alice))
        self.push({MAIN: "HEAD"})
        offer(world.own(world.alice), BOB)
        self.key = world.own(world.alice).record().key

    def commit(self) -> str:
        self.gitenv.git("commit", "--allow-empty", "-qm", "more", cwd=self.path)
        return self.gitenv.oid(self.path)

    def read(self) -> tuple[Repository, Snapshot]:
        repository = Repository(
            self.world.url(self.world.alice),
            self.world.alice,
            writable=True,
            sure=True,
            accounts=self.world,
        )
        return repository, repository.snapshot()

    def push(self, refs: dict[str, str | None], *, atomic: bool = False) -> dict[str, str | None]:
        repository, snapshot = self.read()
        outcomes = push(
            repository,
            self.git,
            snapshot,
            [
                Update(name, source and self.gitenv.oid(self.path, source), force=True)
                for name, source in refs.items()
            ],
            atomic=atomic,
            progress=TextProgress(io.StringIO(), enabled=False),
            notify=lambda _: None,
        )
        return {outcome.name: outcome.error for outcome in outcomes}

    def live(self, at: str) -> dict[str, str]:
        host = self.world.alice if at == "alice" else self.world.bob
        return self.world.own(host).snapshot().live


@pytest.fixture
def pushing(gitenv: GitEnv, tmp_path: Path) -> Pushing:
    return Pushing(gitenv, World(tmp_path))


def test_before_they_accept_it_lands_and_comes_along(pushing: Pushing) -> None:
    tip = pushing.commit()
    assert pushing.push({MAIN: "HEAD"}) == {MAIN: None}
    pushing.world.accept(pushing.world.alice, pushing.world.bob)
    assert pushing.live("bob") == {MAIN: tip}


@pytest.mark.parametrize("atomic", [False, True])
def test_what_lands_at_the_old_place_after_the_copy_is_taken_back(
    pushing: Pushing, *, atomic: bool
) -> None:
    """Accepted between the reading of a push and its write, wherever."""
    world, old = pushing.world, pushing.gitenv.oid(pushing.path)
    pushing.commit()

    def accept(moment: str) -> None:
        if moment == "before apply":
            world.alice.meet = lambda _: None
            world.accept(world.alice, world.bob)

    world.alice.meet = accept
    refs = {MAIN: "HEAD", "refs/heads/new": "HEAD~1"}
    words = "it is knotless://bob.test/repo now: push it there"
    assert pushing.push(refs, atomic=atomic) == dict.fromkeys(refs, words)
    assert pushing.live("alice") == pushing.live("bob") == {MAIN: old}
    with pytest.raises(MovedAway):
        pushing.push(refs)


def test_wherever_it_is_accepted_what_was_reported_is_there(pushing: Pushing) -> None:
    world, taken_back = pushing.world, 0
    before = {did: dict(host.records) for did, host in world.hosts.items()}
    tip = pushing.commit()
    for moment in count():
        for did, host in world.hosts.items():
            host.records = {nsid: dict(values) for nsid, values in before[did].items()}
        left, met = [moment], list[bool]()

        def accept(_: str, left: list[int] = left, met: list[bool] = met) -> None:
            left[0] -= 1
            if left[0] == -1:
                world.alice.meet = lambda _: None
                met.append(not world.accept(world.alice, world.bob).late)

        world.alice.meet = accept
        try:
            error = pushing.push({MAIN: "HEAD"})[MAIN]
        except KnotlessError as refusal:
            error = refusal.message
        world.alice.meet = lambda _: None
        if not met:
            break
        there = pushing.live("bob")[MAIN] == tip
        taken_back += error is not None and "push it there" in error
        assert there is (error is None)
        assert met == [True]
    assert taken_back


def test_a_host_that_cannot_be_asked(pushing: Pushing) -> None:
    """Before the push nothing is sent; after it nobody knows whether it stands."""
    tip = pushing.commit()
    world = pushing.world
    world.bob.down = True
    with pytest.raises(OfferUnsure):
        pushing.push({MAIN: "HEAD"})
    assert pushing.live("alice")[MAIN] != tip
    world.bob.down = False

    def down(moment: str) -> None:
        world.bob.down |= moment == "after apply"

    world.alice.meet = down
    doubt = "pushed, but not known to stand: git ls-remote shows whether it does"
    assert doubt in (pushing.push({MAIN: "HEAD"})[MAIN] or "")
