"""Pushes, and all that rewrites or deletes a repository, at once: see racers.py. And by name what
takes more luck to be drawn."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from git_knotless.storage.records import CLAIM
from tests.storage.clocks import our_clock
from tests.storage.racers import Races, ground
from tests.storage.racing import GRACE, Deed, World
from tests.storage.steps import Task

MAIN, A, B = "refs/heads/main", "refs/heads/a", "refs/heads/b"


@pytest.fixture(scope="module")
def shared() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def races(shared: ExitStack) -> type[Races]:
    return type("Races", (Races,), {"stack": shared})


@pytest.mark.parametrize(
    ("examples", "steps"), [(2, 20), pytest.param(15, 40, marks=pytest.mark.slow)]
)
def test_races_at_random(races: type[Races], examples: int, steps: int) -> None:
    run_state_machine_as_test(
        races,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=True,  # a run of the tests says the same each time
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.fixture
def world(shared: ExitStack) -> Iterator[World]:
    with ExitStack() as stack:
        there = ground(shared)
        made = World(there, stack.enter_context(there.town.home()))
        stack.enter_context(our_clock(made.clocks))
        made.do(Deed("create"))
        made.do(Deed("push", specs=((MAIN, "one", False), (A, "mine0", False))))
        yield made


def held_up(world: World, deed: Deed) -> Task:
    """As far as its first write, which is yet to come."""
    task = world.begin(deed)
    while task.at != "applyWrites":
        task.step()
    return task


@pytest.mark.parametrize("verb", ["prune", "edit"])
def test_what_a_pack_rests_on_goes_before_it_lands(world: World, verb: str) -> None:
    """The branch that has it is deleted, its claim grows old, and what it alone had is pruned."""
    task = held_up(world, Deed("push", specs=((B, "more0", False),)))
    world.do(Deed("push", pusher=1, specs=((A, None, False),)))
    world.set_host_clock(2 * GRACE)
    for name in dict.fromkeys((verb, "prune")):
        assert world.do(Deed(name)).error is None
    task.finish()
    assert task.result == {B: None}
    world.check(thorough=False)


def test_a_ref_that_is_where_it_was_and_its_claims_gone(world: World) -> None:
    """Whoever read it before is refused, though nothing that is there tells it from then."""
    task = held_up(world, Deed("push", specs=((MAIN, "two", False),)))
    for commit in ("side", "one"):
        assert world.do(Deed("push", pusher=1, specs=((MAIN, commit, True),))).result == {
            MAIN: None
        }
    world.set_host_clock(2 * GRACE)
    world.do(Deed("prune"))
    assert all(".epoch." in rkey for rkey in world.ledger.of(CLAIM))
    task.finish()
    assert task.result == {MAIN: "fetch first"}
    world.check(thorough=False)


def test_two_fold_the_same(world: World) -> None:
    """One of them does, the other finds it done: and what was in the packs is in one."""
    for name in ("two", "side", "more0"):
        world.do(Deed("push", specs=((f"refs/heads/{name}", name, False),)))
    first, second = (held_up(world, Deed("fold")) for _ in range(2))
    first.finish()
    second.finish()
    assert len(first.result.packs) > 1
    assert (second.error, second.result.packs) == (None, ())
    world.check(thorough=False)
