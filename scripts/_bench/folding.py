"""The section of small packs and of what nothing needs: folding, and pruning."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from scripts._bench.history import FEW_FILES, Synthetic, imported, orphans
from scripts._bench.lab import Contest, Knotless, Lab
from scripts._bench.machine import Failed, Ran
from scripts._bench.report import OURS, Figure, ratio
from scripts._bench.sizes import MIB

_MOST_CLONE = 2.0
_MOST_FETCHED = 1.05  # of what the packs there are: git may pack what came in anew
_MOST_LEFT = 2.0
_ONCE = "at once"
_CLOCK = 1.1  # seconds: a host's clock is known to one
_PACK = "dev.knotless.pack"


def folding(lab: Lab) -> Iterator[Figure]:
    yield from _clones(lab)
    yield from _forced(lab)


def _clones(lab: Lab) -> Iterator[Figure]:
    """Of one history, pushed commit by commit with folding on, and pushed as a whole."""
    count = lab.sizes.pushes
    ours = lab.knotless()
    source = imported(ours.machine, "pushed", Synthetic(FEW_FILES).stream(count + 1))
    folded, whole = ours.new("folded"), ours.new("once")
    ours.drive("folded", folded, str(source), str(count))
    ours.machine.git("push", "--quiet", whole, "main~1:refs/heads/main", cwd=source)
    deeds = {OURS: _clone(ours, folded, source), _ONCE: _clone(ours, whole, source)}
    runs = Contest(deeds).run(lab.sizes.runs)
    packs = {url: _packs(ours, url) for url in (folded, whole)}
    note = f"{packs[folded]['count']} packs of {_bytes(packs[folded]):,} bytes"
    name = f"clone after {count:,} pushes"
    yield ratio("folding", name, runs, beside=_ONCE, most=_MOST_CLONE, note=note)
    held = _bytes(packs[folded]) / _bytes(packs[whole])
    yield Figure("folding", f"{name}: bytes of packs", held, f"x {_ONCE}")
    yield from _fetched(ours, folded, source)


def _clone(ours: Knotless, url: str, source: Path) -> Callable[[int], Ran]:
    machine, stem = ours.machine, url.rpartition("/")[2]

    def once(number: int) -> Ran:
        ran = machine.git("clone", "--quiet", url, f"{stem}{number}")
        if machine.oid(machine.root / f"{stem}{number}") != machine.oid(source, "main~1"):
            raise Failed("a clone is not what was pushed")
        return ran

    return once


def _fetched(ours: Knotless, url: str, source: Path) -> Iterator[Figure]:
    """By a clone that lacks one push, after that and all before it were folded into one pack."""
    machine = ours.machine
    machine.git("clone", "--quiet", "--bare", url, "late.git")
    late = machine.root / "late.git"
    ours.drive("folded", url, str(source), "1")
    machine.git("knotless", "repo", "compact", url)
    before = _local(late)
    machine.git("fetch", "--quiet", url, "refs/heads/main", cwd=late)
    came = _local(late) - before
    value = came / _bytes(_packs(ours, url))
    name = "fetched by a clone that lacked one push"
    yield Figure("folding", name, value, "x the packs there", _MOST_FETCHED, note=f"{came:,} bytes")


def _forced(lab: Lab) -> Iterator[Figure]:
    """One file, replaced by force again and again; then pruned, once the grace is over."""
    count, size = lab.sizes.forced, lab.sizes.forced_file
    ours = lab.knotless()
    machine, url = ours.machine, ours.new("forced")
    source = imported(machine, "forced", orphans(count, size))
    ours.drive("forced", url, str(source), str(count))
    before = _total(ours, url)
    time.sleep(_CLOCK)
    machine.env["KNOTLESS_CLAIM_GRACE_SECS"] = "0"  # a push would rest on refs read too long ago
    ran = machine.git("knotless", "repo", "compact", url)
    machine.git("clone", "--quiet", url, "forced-copy")
    if machine.oid(machine.root / "forced-copy") != machine.oid(source, f"f{count}"):
        raise Failed("a clone is not what was pushed")
    name = f"{count} force-pushes of {size // MIB} MiB: left after a prune"
    note = f"of {before / size:.1f} x, in {ran.seconds:.1f} s"
    yield Figure("folding", name, _total(ours, url) / size, "x the file", _MOST_LEFT, note=note)


def _measured(ours: Knotless, url: str) -> dict[str, Any]:
    told = ours.machine.git("knotless", "repo", "size", "--quick", "--json", url).out
    measured: dict[str, Any] = json.loads(told)
    return measured


def _total(ours: Knotless, url: str) -> int:
    return int(_measured(ours, url)["bytes"])


def _packs(ours: Knotless, url: str) -> dict[str, Any]:
    records: list[dict[str, Any]] = _measured(ours, url)["records"]
    return next(each for each in records if each["collection"] == _PACK)


def _bytes(part: dict[str, Any]) -> int:
    return int(part["bytes"]) + int(part["blobBytes"])


def _local(repository: Path) -> int:
    return sum(pack.stat().st_size for pack in repository.glob("objects/pack/*.pack"))


SECTIONS = {"folding": folding}
