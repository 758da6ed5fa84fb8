"""scripts/soak: what tests/storage/test_races_at_random.py does, at random and for long.

Each round has a seed of its own, one more than the round before. A round that breaks is made as
short as it gets; its seed, what broke and what it takes to get there are printed, and the same
seed finds it again.
"""

import argparse
import json
import secrets
import signal
import sys
import time
from contextlib import ExitStack
from typing import Any

from scripts._soak.rounds import Broken, Rounds

_MOST_SEEDS = 1_000_000


def main() -> None:
    for signum in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, lambda got, _: sys.exit(128 + got))
    options = parse(sys.argv[1:])
    try:
        document = _soak(options)
    except KeyboardInterrupt:
        sys.exit(130)
    if options.json:
        sys.stdout.write(f"{json.dumps(document)}\n")
    sys.exit(0 if document["broken"] is None else 1)


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    add = parser.add_argument
    add("--minutes", type=_minutes, metavar="N", default=10, help="begin no round after that (10)")
    add("--seed", type=_seed, metavar="S", help="of the first round (any)")
    add("--rounds", type=_seed, metavar="N", help="end after so many")
    add("--json", action="store_true", help="print one document, and no more on standard output")
    options = parser.parse_args(argv)
    options.seed = secrets.randbelow(_MOST_SEEDS) if options.seed is None else options.seed
    return options


def _minutes(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1_000_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of minutes")
    return number


def _seed(text: str) -> int:
    if not (text.isdecimal() and text.isascii()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def _soak(options: argparse.Namespace) -> dict[str, Any]:
    begun, seed, done = time.monotonic(), options.seed, 0
    broken: Broken | None = None
    with ExitStack() as stack:
        rounds = Rounds(stack)
        while broken is None and time.monotonic() - begun < options.minutes * 60:
            if done == options.rounds:
                break
            broken = rounds.run(seed + done)
            done += 1
            seconds = round(time.monotonic() - begun)
            _say(f"seed {seed + done - 1}: {rounds.ran} runs so far, {seconds} s")
    if broken is not None:
        _tell(broken)
    elif not options.json:
        sys.stdout.write(f"nothing broke in {rounds.ran} runs from seed {seed} on\n")
    return {
        "seed": seed,
        "rounds": done,
        "runs": rounds.ran,
        "seconds": round(time.monotonic() - begun, 1),
        "broken": broken and broken.to_json(),
    }


def _tell(broken: Broken) -> None:
    _say(f"\n{broken.error}\n\n{broken.steps}\n")
    _say(f"it is found again by: scripts/soak --seed {broken.seed} --rounds 1")


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    main()
