"""The section that times starts: what passes before a command has done anything."""

from collections.abc import Callable, Iterator, Mapping

from scripts._bench.lab import Contest, Lab
from scripts._bench.machine import Machine, Ran
from scripts._bench.report import OURS, Figure, ratio

_PASS = "pass"
# 150 and 200 ms, where the interpreter alone takes 11.
_HELP, _NO_REQUEST = 150 / 11, 200 / 11
_COMMANDS = {
    "knotless --help": _HELP,
    "git knotless -h": _HELP,
    "knotless repo --help": _HELP,
    "knotless whoami": _HELP,
    "knotless account list": _NO_REQUEST,
    "knotless --version": _NO_REQUEST,
}


def startup(lab: Lab) -> Iterator[Figure]:
    """Commands that make no request, beside the interpreter's own start."""
    machine = lab.knotless().machine
    alone = _deed(machine, str(lab.programs.python), "-c", "pass")
    for command, most in _COMMANDS.items():
        deeds = {OURS: _deed(machine, *command.split()), _PASS: alone}
        runs = Contest(deeds).run(lab.sizes.starts)
        yield ratio("startup", command, runs, beside=_PASS, most=round(most, 1))


def _deed(machine: Machine, *words: str) -> Callable[[int], Ran]:
    return lambda _: machine.run(*words)


SECTIONS: Mapping[str, Callable[[Lab], Iterator[Figure]]] = {"startup": startup}
