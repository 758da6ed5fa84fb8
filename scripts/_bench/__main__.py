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

from scripts._bench import counts, embedded, history, large, speed, startup
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
    **startup.SECTIONS,
}
_BLOB_LIMIT = {"memory": 100 * MIB}  # bytes; elsewhere the reference PDS's own, 5 MiB


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options = _parse(sys.argv[1:])
    sizes = QUICK if options.quick else Sizes()
    if options.runs:
        sizes = replace(sizes, runs=options.runs, starts=options.runs)
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
    add("--quick", action="store_true", help="everything small: only the counts say anything")
    add("--json", action="store_true", help="print one document with every run, and no table")
    options = parser.parse_args(argv)
    for name in options.sections:
        if name not in _SECTIONS:
            parser.error(f"no section {name}: there are {', '.join(_SECTIONS)}")
    return options


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError
    return value


def _measure(options: argparse.Namespace, sizes: Sizes) -> dict[str, Any]:
    with installed() as programs, tempfile.TemporaryDirectory(prefix="knotless-bench-") as name:
        root = Path(name)
        maker = Machine(root / "maker", (), {})
        source = _source(maker, options.repo, sizes)
        about = {"machine": _machine(), "repository": _repository(maker, source)}
        figures: list[Figure] = []
        for section in options.sections or _SECTIONS:
            say(f"{section}, load {os.getloadavg()[0]:.2f}")
            found = _run(section, root / section, programs, sizes, source, maker)
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
    head = maker.git("symbolic-ref", "--short", "HEAD", cwd=source).out.strip()
    root.mkdir()
    with tempfile.TemporaryDirectory(dir=root) as folder:
        place = Path(folder)
        limit = _BLOB_LIMIT.get(section)
        with lab(place, programs, sizes, source, head, blob_limit=limit) as found:
            return [_told(figure) for figure in _SECTIONS[section](found)]


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
