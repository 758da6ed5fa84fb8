"""Whatever is done with repositories in whatever order, and cut anywhere: a URL that was handed out
leads to the repository that it was of, or to a refusal, and what was pushed is there."""

import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from git_knotless.atproto.syntax import Did, Handle
from git_knotless.storage.claims import epoch_rkey
from git_knotless.storage.places.lookup import Accounts
from git_knotless.storage.records import CLAIM, RepoRecord
from git_knotless.storage.repositories import Repository, repositories
from git_knotless.storage.snapshot import NoSuchRepository
from git_knotless.storage.url import RepoUrl
from tests.storage.deeds import Watch, carry_out
from tests.storage.model import DONE, NAMES, PEOPLE, REFS, VERBS, Copy, Deed, Model, Place, Refs
from tests.storage.places import NAMES as HANDLES
from tests.storage.places import Host, Killed, World, kill, push, put_pack, refs_of

pytestmark = pytest.mark.usefixtures("in_no_time")

WHAT = [*VERBS, "withdraw"]
# At which of the requests to the account that is written to a deed ends, as by kill -9.
moments = st.none() | st.integers(0, 45)
# At which of those to the account that a repository is accepted from somebody pushes to it.
races = st.none() | st.integers(0, 8)


class Somebody:
    """Who has an account in a world in memory."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.directory = world.directory

    @property
    def accounts(self) -> Accounts:
        return self.world

    def store(self, who: str) -> Host:
        host: Host = getattr(self.world, who)
        return host

    def owner(self, who: str) -> Did | Handle:
        return Handle(HANDLES[self.store(who).did])

    def url(self, place: Place) -> RepoUrl:
        return self.world.url(self.store(place[0]), place[1])


class OtherRepository(Exception):
    """As a clone says whose remote's URL leads to another than it is a clone of."""


class Moves(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.world = World(Path(self.folder.name))
        self.ground = Somebody(self.world)
        self.model = Model()
        self.watch = Watch(self.ground, self.model)
        self.pushes = 0
        self.handed: set[tuple[Place, int]] = set()
        self.ended: int | None = None

    def teardown(self) -> None:
        self.folder.cleanup()

    @rule(data=st.data(), at=moments, tried=st.integers(0, 9))
    def done(self, data: st.DataObject, at: int | None, tried: int) -> None:
        """One in ten is refused, about."""
        listed = self.model.doable if tried else self.model.deeds
        verb = data.draw(st.sampled_from([verb for verb in WHAT if listed(verb)]))
        deed = data.draw(st.sampled_from(listed(verb)))
        if deed.verb == "push":
            self.pushed(deed.what, deed.ref)
        elif at is None or verb in ("offer", "withdraw"):
            word = carry_out(self.ground, deed, self.model)
            assert word == self.did(deed)
        else:
            self.cut(deed, at)

    @rule(data=st.data(), at=races, ref=st.sampled_from(REFS), name=st.sampled_from(NAMES))
    def accepted(self, data: st.DataObject, at: int | None, ref: str, name: str) -> None:
        """Offered and accepted at once, while somebody else, who read it before, pushes to it."""
        if not self.model.things:
            return
        what = data.draw(st.sampled_from(list(self.model.things)))
        old, here = self.model.things[what].place, self.model.things[what].refs
        others = {who for (who, _), held in self.model.held.items() if held == what}
        to = data.draw(st.sampled_from([who for who in PEOPLE if who not in others] or PEOPLE))
        if to == old[0]:
            return
        place = (to, name)
        self.did(offered := Deed("offer", what, place))
        assert carry_out(self.ground, offered, self.model) == DONE
        late = self.race(old, ref, at)
        word = carry_out(self.ground, Deed("accept", what, place), self.model)
        self.ground.store(old[0]).meet = lambda moment: None
        there = refs_of(self.ground.store(to), self.watch.keys[what]) if word == DONE else {}
        if late and (word != DONE or late[-1] == there.get(ref, ("", 0))[0]):
            self.model.do(Deed("push", what, ref=ref), late.pop())
        assert word == self.did(Deed("accept", what, place))
        if late:  # it is at the old place alone, which is not deleted then
            self.behind(what, here, ref, late[-1])
            word = carry_out(self.ground, gone := Deed("delete", place=old), self.model)
            assert word == self.did(gone) == "lacking"

    def race(self, place: Place, ref: str, at: int | None) -> list[str]:
        """What was pushed, if it comes to that."""
        host, late, left = self.ground.store(place[0]), list[str](), [at]
        repo = self.world.own(host, place[1]).record()

        def meet(_: str) -> None:
            if left[0] is None:
                return
            left[0] -= 1
            if left[0] < 0:
                left[0] = None
                late.append(self.target())
                put_pack(host, repo, late[-1].encode())
                push(host, repo, ref, late[-1])

        host.meet = meet
        return late

    def behind(self, what: int, here: Refs, ref: str, target: str) -> None:
        """The model's copy at the old place has what was pushed there after it was copied."""
        before = self.model.things[what].before
        copy = before[-1]
        assert copy is not None
        before[-1] = Copy(copy.place, dict(here), copy.offer)
        generation = here.get(ref, (None, 0))[1] + 1
        before[-1].refs[ref] = target, generation

    def cut(self, deed: Deed, at: int) -> None:
        """Whatever it came to is seen by the records of the account."""
        host = self.ground.store(deed.place[0])
        before = self.records(deed.place[0])
        kill(host, at)
        with suppress(Killed):
            carry_out(self.ground, deed, self.model)
        host.meet = lambda moment: None
        if self.records(deed.place[0]) != before:
            assert self.did(deed) == DONE

    def records(self, who: str) -> dict[str, str]:
        return {repo.name: repo.key for repo in repositories(self.ground.store(who))}

    def did(self, deed: Deed) -> str:
        """A delete ends what is there, unless that has gone elsewhere before."""
        if deed.verb == "delete":
            what = self.model.held.get(deed.place)
            thing = None if what is None else self.model.things.get(what)
            self.ended = what if thing is None or thing.place == deed.place else None
        return self.model.do(deed)

    def pushed(self, what: int, ref: str) -> None:
        target = self.target()
        who, name = self.model.things[what].place
        host = self.ground.store(who)
        repo = self.world.own(host, name).record()
        put_pack(host, repo, target.encode())
        push(host, repo, ref, target)
        self.model.do(Deed("push", what, ref=ref), target)

    def target(self) -> str:
        self.pushes += 1
        return f"{self.pushes:040}"

    @invariant()
    def each_name_leads_to_its_own_or_nowhere(self) -> None:
        self.watch.look(ended=self.ended)
        self.ended = None

    @invariant()
    def whoever_has_a_clone_meets_no_other_repository(self) -> None:
        self.handed |= set(self.watch.led.items())
        for place, what in self.handed:
            clone = self.clone_of(place, what)
            with suppress(OtherRepository, NoSuchRepository):
                assert clone.record().key == self.watch.keys[what]

    def clone_of(self, place: Place, what: int) -> Repository:
        def hold(_: Repository, repo: RepoRecord) -> None:
            if repo.key != self.watch.keys[what]:
                assert self.model.given[place] != what
                raise OtherRepository

        return Repository(
            self.ground.url(place),
            self.ground.store(place[0]),
            writable=False,
            accounts=self.world,
            hold=hold,
        )

    @invariant()
    def what_was_pushed_is_there(self) -> None:
        for what, thing in self.model.things.items():
            assert refs_of(self.ground.store(thing.place[0]), self.watch.keys[what]) == thing.refs

    @invariant()
    def nothing_is_there_twice(self) -> None:
        for host in self.world.hosts.values():
            repos = list(repositories(host))
            assert len({repo.key for repo in repos}) == len(repos)
            for repo in repos:
                mine = f"{repo.key}.epoch."
                claims = [rkey for rkey in host.named(CLAIM) if rkey.startswith(mine)]
                assert claims == [epoch_rkey(repo.key, repo.epoch)]


@pytest.mark.slow
def test_moves_at_random() -> None:
    run_state_machine_as_test(
        Moves,
        settings=settings(
            max_examples=40,
            stateful_step_count=30,
            deadline=None,
            derandomize=True,  # a run of the tests says the same each time
            phases=[Phase.reuse, Phase.generate],  # to shrink one took minutes
            suppress_health_check=list(HealthCheck),
        ),
    )
