"""Rounds of the races, each by a seed."""

import traceback
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis.errors import HypothesisException
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from tests.storage.racers import Races

_RUNS = 25  # in a round
_STEPS = 50  # in a run, at most


@dataclass(frozen=True, slots=True)
class Broken:
    """`steps` is the shortest way there that was found, and what each task was told on it."""

    seed: int
    error: str
    steps: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class Rounds:
    """Of `machine`, which finds in `stack` what its runs share; `ran` counts them."""

    def __init__(self, stack: ExitStack, machine: type[RuleBasedStateMachine] = Races) -> None:
        self.ran = 0
        self._stack = stack
        self._machine = machine

    def run(self, seed: int) -> Broken | None:
        def counted(machine: RuleBasedStateMachine) -> None:
            self.ran += 1
            self._machine.__init__(machine)

        own = {"stack": self._stack, "__init__": counted}
        machine = type(self._machine.__name__, (self._machine,), own)
        try:
            run_state_machine_as_test(hypothesis.seed(seed)(machine), settings=_settings())
        except (KeyboardInterrupt, SystemExit, HypothesisException):
            raise
        except BaseException as error:  # noqa: BLE001  whatever breaks is what is looked for
            return Broken(seed, _told(error), "\n".join(getattr(error, "__notes__", [])))
        return None


def _settings() -> settings:
    return settings(
        max_examples=_RUNS,
        stateful_step_count=_STEPS,
        deadline=None,
        database=None,  # a seed alone says what a round does
        phases=[Phase.generate, Phase.shrink],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )


def _told(error: BaseException) -> str:
    """What broke and where, without hypothesis's own way there."""
    frames = [
        f for f in traceback.extract_tb(error.__traceback__) if "hypothesis" not in f.filename
    ]
    return "".join([*traceback.format_list(frames), *traceback.format_exception_only(error)])
