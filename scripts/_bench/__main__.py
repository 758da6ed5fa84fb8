"""scripts/bench: measures the installed wheel beside git over smart HTTP and git-remote-s3.

Everything runs on loopback: the reference PDS, git http-backend behind lighttpd, and a moto
server. Runs alternate and the first of each is not counted; what is shown is the median, with the
least and the most, and the ratio of the medians.
"""

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from scripts._bench import counts, embedded, folding, history, large, speed, startup, verified
from scripts._bench.lab import Lab, lab
from scripts._bench.machine import GIT, Failed, Machine
from scripts._bench.programs import Programs, installed
from scripts._bench.report import Figure, say, table
from scripts._bench.sizes import MIB, QUICK, Sizes

_SECTIONS: dict[str, Callable[[Lab], Iterator[Figure]]] = {
    **speed.SECTIONS,
    **counts.SECTIONS,
    **large.SECTIONS,
    **embedded.SECTIONS,
    **verified.SECTIONS,
    **folding.SECTIONS,
    **startup.SECTIONS,
}
_BLOB_LIMIT = {"memory": 100 * MIB}  # bytes; elsewhere the reference PDS's own, 5 MiB


def main() -> None:
    for signum in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, lambda got, _: sys.exit(128 + got))
    options = _parse(sys.argv[1:])
    if options.check:
        return
    sizes = QUICK if options.quick else Sizes()
    if options.runs:
        sizes = replace(sizes, runs=options.runs, starts=options.runs)
    given = {name: getattr(options, name) for name in ("pushes", "forced")}
    sizes = replace(sizes, **{name: count for name, count in given.items() if count})
    try:
        document = _measure(options, sizes)
    except (Failed, subprocess.CalledProcessError, OSError) as error:
        say(str(error))
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    if options.json:
        sys.stdout.write(f"{json.dumps(document)}\n")


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    add = parser.add_argument
    add("sections", nargs="*", metavar="SECTION", help=f"of {', '.join(_SECTIONS)} (all)")
    add("--repo", type=Path, metavar="PATH", help="a real repository instead of a synthetic one")
    add("--runs", type=_count, metavar="N", help="timed runs of each contestant (5; startup: 15)")
    add("--pushes", type=_count, metavar="N", help="small pushes in a row (1,000)")
    add("--forced", type=_count, metavar="N", help="pushes by force of one file (50)")
    add("--quick", action="store_true", help="everything small: only the counts say anything")
    add("--json", action="store_true", help="print one document with every run, and no table")
    # By scripts/bench: whether it is worth installing all this, and the folder it was called in.
    add("--check", action="store_true", help=argparse.SUPPRESS)
    add("--from", dest="caller", type=Path, default=Path(), help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    options.repo = options.repo and options.caller / options.repo
    for name in options.sections:
        if name not in _SECTIONS:
            parser.error(f"no section {name}: there are {', '.join(_SECTIONS)}")
    return options


def _count(text: str) -> int:
    if not (text.isdecimal() and text.isascii() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def _measure(options: argparse.Namespace, sizes: Sizes) -> dict[str, Any]:
    with installed() as programs, tempfile.TemporaryDirectory(prefix="knotless-bench-") as name:
        root = Path(name)
        maker = Machine(root / "maker", (), {})
        source = _source(maker, options.repo, sizes)
        about = {"machine": _machine(), "repository": _repository(maker, source)}
        about["quick"] = options.quick
        figures: list[Figure] = []
        for section in dict.fromkeys(options.sections or _SECTIONS):
            say(f"{section}, load {os.getloadavg()[0]:.2f}")
            found = _run(section, root / section, programs, sizes, source, maker)
            found = [_unjudged(figure) for figure in found] if options.quick else found
            figures += found
            if not options.json:
                sys.stdout.write(table(found))
                sys.stdout.flush()
        about["machine"]["loadAfter"] = os.getloadavg()
        return {**about, "figures": [figure.to_json() for figure in figures]}


def _run(
    section: str, root: Path, programs: Programs, sizes: Sizes, source: Path, maker: Machine
) -> list[Figure]:
    """In a folder that goes with it: sections are large."""
    head = maker.git("symbolic-ref", "HEAD", cwd=source).out.strip().removeprefix("refs/heads/")
    root.mkdir()
    with tempfile.TemporaryDirectory(dir=root) as folder:
        place = Path(folder)
        limit = _BLOB_LIMIT.get(section)
        with lab(place, programs, sizes, source, head, blob_limit=limit) as found:
            return [_told(figure) for figure in _SECTIONS[section](found)]


def _unjudged(figure: Figure) -> Figure:
    """What is measured of little says nothing of time."""
    is_of_time = figure.unit in ("s", "ms") or figure.unit.startswith("x ")
    return replace(figure, most=None) if is_of_time else figure


def _told(figure: Figure) -> Figure:
    """Sections are long, too: each figure is said as it comes."""
    say(f"{figure.name}: {figure.shown}")
    return figure


def _source(maker: Machine, repository: Path | None, sizes: Sizes) -> Path:
    if repository is not None:
        return history.copied(maker, "source", repository)
    return history.synthetic(maker, "source", sizes.commits)


def _machine() -> dict[str, Any]:
    git = subprocess.run([GIT, "--version"], check=True, capture_output=True, text=True)
    return {
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "git": git.stdout.split()[-1],
        "load": os.getloadavg(),
    }


def _repository(maker: Machine, source: Path) -> dict[str, Any]:
    counted = maker.git("count-objects", "-v", cwd=source).out
    objects = dict(line.split(": ") for line in counted.splitlines())
    return {
        "commits": int(maker.git("rev-list", "--count", "HEAD", cwd=source).out),
        "objects": int(objects["in-pack"]),
        "bytes": int(objects["size-pack"]) * 1024,
    }


if __name__ == "__main__":
    main()
