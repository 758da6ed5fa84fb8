"""Whatever is done at once with an account's repositories, in whatever order the requests of it
come, lost, late or cut: as a machine for hypothesis, which chooses."""

import tempfile
from contextlib import ExitStack
from functools import cache
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.storage.clocks import our_clock
from tests.storage.histories import PUSHERS, commits
from tests.storage.inprocess import in_process
from tests.storage.racing import (
    BRANCHES,
    DAY,
    GRACE,
    NAMES,
    Deed,
    Ground,
    World,
)
from tests.storage.steps import Fate, Task

_MOST = 4  # tasks at once
_OTHERS = ["fold", "prune"] * 3 + ["edit"] * 2 + ["clone", "fetch", "create", "delete"]
_REFS = [*BRANCHES[:3] * 2, *BRANCHES]  # the last can stand beside all but one

names = st.sampled_from([NAMES[0]] * 6 + list(NAMES))
fates = st.sampled_from([Fate.WELL] * 12 + list(Fate))
# An hour is the grace of claims here; clocks are set by a day.
jumps = st.sampled_from([-DAY, -GRACE / 2, GRACE / 3, 2 * GRACE, 2 * GRACE, DAY])


@st.composite
def pushes(draw: st.DrawFn) -> Deed:
    pusher = draw(st.integers(0, PUSHERS - 1))
    there = st.sampled_from([*commits(pusher), None])
    forced = st.sampled_from([True, True, False])
    spec = st.tuples(st.sampled_from(_REFS), there, forced)
    specs = draw(st.lists(spec, min_size=1, max_size=3, unique_by=lambda each: each[0]))
    return Deed("push", draw(names), pusher=pusher, specs=tuple(specs), atomic=draw(st.booleans()))


others = st.builds(Deed, st.sampled_from(_OTHERS), names) | st.sampled_from(
    [Deed("rename", "repo", "other"), Deed("rename", "other", "repo"), *map(Deed, _OTHERS)]
)


@cache
def ground(stack: ExitStack) -> Ground:
    """One for all that one process does."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    town = stack.enter_context(in_process(folder / "sandbox"))
    return Ground(folder / "ground", town)


class Races(RuleBasedStateMachine):
    """`stack` holds what all its runs share, and whoever runs it ends that."""

    stack: ExitStack

    def __init__(self) -> None:
        super().__init__()
        self.own = ExitStack()
        there = ground(self.stack)
        home = self.own.enter_context(there.town.home())
        self.world = World(there, home)
        self.own.enter_context(our_clock(self.world.clocks))
        self.own.callback(self.world.close)

    def teardown(self) -> None:
        with self.own:
            try:
                self.world.check()
            except BaseException as error:
                error.add_note(self.world.story())
                raise

    @initialize(first=pushes(), verify=st.sampled_from(["never", "always"]))
    def begin_with_one(self, first: Deed, verify: str) -> None:
        self.world.verify(verify)
        self.world.do(Deed("create"))
        self.world.do(first)

    # No rule depends on what is under way: a seed does the same each time, whatever comes of it.

    @rule(deed=pushes(), first=st.integers(0, _MOST - 1))
    def push(self, deed: Deed, first: int) -> None:
        self.begin(deed, first)

    @rule(deed=others, first=st.integers(0, _MOST - 1))
    def other(self, deed: Deed, first: int) -> None:
        self.begin(deed, first)

    def begin(self, deed: Deed, first: int) -> None:
        """Where too many are under way, `first` ends before."""
        if len(self.world.running) == _MOST:
            self.world.running[first].finish()
        self.start(deed)

    def start(self, deed: Deed) -> Task:
        """Where there is no repository, one is made before."""
        if not self.world.ledger.repos():
            self.world.do(Deed("create"))
        return self.world.begin(deed)

    @rule(
        deeds=st.lists(pushes() | pushes() | pushes() | others, min_size=2, max_size=3),
        turns=st.lists(st.integers(0, 2), min_size=6, max_size=24),
        fate=fates,
        at=st.integers(0, 23),
    )
    def race(self, deeds: list[Deed], turns: list[int], fate: Fate, at: int) -> None:
        """All of them begin at once; one of the requests may meet with something."""
        while len(self.world.running) > _MOST - len(deeds):
            self.world.running[0].finish()
        tasks = [self.start(deed) for deed in deeds]
        for number, turn in enumerate(turns):
            if running := [task for task in tasks if not task.over]:
                running[turn % len(running)].step(fate if number == at else Fate.WELL)

    @rule(number=st.integers(0, _MOST - 1), steps=st.integers(1, 6))
    def go_on(self, number: int, steps: int) -> None:
        if running := self.world.running:
            task = running[number % len(running)]
            for _ in range(steps):
                if not task.over:
                    task.step()

    @rule(numbers=st.lists(st.integers(0, _MOST - 1), min_size=2, max_size=8))
    def by_turns(self, numbers: list[int]) -> None:
        for number in numbers:
            if running := self.world.running:
                running[number % len(running)].step()

    @rule(number=st.integers(0, _MOST - 1), fate=fates)
    def meet(self, number: int, fate: Fate) -> None:
        if running := self.world.running:
            running[number % len(running)].step(fate)

    @rule(number=st.integers(0, 3))
    def late(self, number: int) -> None:
        if late := self.world.network.late:
            self.world.network.bring(number % len(late))

    @rule(jump=jumps, what=st.sampled_from(["host's clock"] * 3 + ["our clock", "uploads"]))
    def disturb(self, jump: float, what: str) -> None:
        """A clock is set, or the host sweeps out what no record names."""
        match what:
            case "host's clock":
                self.world.set_host_clock(jump)
            case "our clock":
                self.world.clocks.ours += jump
            case _:
                self.world.home.forget_uploads()
