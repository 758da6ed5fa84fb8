"""scripts/soak: what it makes of a round that breaks, and what it prints."""

import json
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from scripts._soak.__main__ import parse
from scripts._soak.rounds import Rounds
from tests.gitenv import GitEnv

ROOT = Path(__file__).parents[1]


class Breaks(RuleBasedStateMachine):
    @rule(number=st.integers(0, 1000))
    def add(self, number: int) -> None:
        assert number < 50, f"{number} is too much"


class Holds(RuleBasedStateMachine):
    @rule()
    def go_on(self) -> None:
        pass


def test_a_round_that_breaks_is_made_short() -> None:
    with ExitStack() as stack:
        rounds = Rounds(stack, Breaks)
        broken = rounds.run(7)
    assert broken is not None
    assert broken.seed == 7
    assert "AssertionError: 50 is too much" in broken.error
    assert broken.steps.count("state.add(") == 1
    assert "state.add(number=50)" in broken.steps


def test_a_round_that_holds() -> None:
    with ExitStack() as stack:
        rounds = Rounds(stack, Holds)
        assert rounds.run(7) is None
    assert rounds.ran >= 25


def test_one_document(gitenv: GitEnv) -> None:
    options = ("--rounds", "0", "--seed", "3", "--json")
    done = gitenv.run(sys.executable, "-m", "scripts._soak", *options, cwd=ROOT)
    told = json.loads(done.out)
    assert told.pop("seconds") < 60
    assert told == {"seed": 3, "rounds": 0, "runs": 0, "broken": None}


@pytest.mark.parametrize("args", [("--minutes", "nan"), ("--minutes", "0"), ("--seed", "-1")])
def test_wrong_usage(args: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        parse(list(args))
    assert "usage: soak" in capsys.readouterr().err
