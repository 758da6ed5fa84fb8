"""The sections that count requests, each seen by a proxy between the client and its host."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from scripts._bench.history import FEW_FILES, Synthetic, imported, noise
from scripts._bench.lab import Contest, Counted, Lab
from scripts._bench.machine import Failed, Machine, Ran
from scripts._bench.report import OURS, Figure, ratio
from scripts._bench.servers import ask
from scripts._bench.sizes import MIB

_FETCH, _READS, _CLONE = 4, 4, 20  # requests
_SLOWER = 3.0  # a clone of many pushes, beside one of a single push
_STALE = 120  # seconds: twice what a push lets an identity be
_LARGE = 12 * MIB
_LARGE_FILE = 4 * MIB

_APPLY = "POST com.atproto.repo.applyWrites"
_UPLOAD = "POST com.atproto.repo.uploadBlob"
_DESCRIBE = "GET com.atproto.server.describeServer"


def requests(lab: Lab) -> Iterator[Figure]:
    """With a warm cache and a live session; then again in a fuller account and repository."""
    counted = lab.counted()
    machine = counted.knotless.machine
    url = counted.knotless.new("counted")
    history = Synthetic(FEW_FILES).stream(lab.sizes.packs_between + 8)
    source = imported(machine, "small", history)
    commits = _first_parents(machine, source)
    first = f"{commits[0]}:refs/heads/main"
    opened = _seen(counted, "push", "--quiet", url, first, at=source)
    machine.git("clone", "--quiet", url, "copy")

    def push(number: int) -> list[str]:
        refspec = f"{commits[number]}:refs/heads/main"
        return _seen(counted, "push", "--quiet", url, refspec, at=source)

    def fetch() -> list[str]:
        _seen(counted, "fetch", "--quiet", at=machine.root / "copy")
        return _seen(counted, "fetch", "--quiet", at=machine.root / "copy")

    fetched, pushed = fetch(), push(1)
    yield _figure("fetch of nothing new", len(fetched), _FETCH, fetched)
    yield from _small_push("small push", pushed)
    _age_identities(machine)
    yield from _small_push("… its identity over a minute old", push(2))
    yield from _large_pushes(lab, lab.counted())

    account, others = counted.knotless.account.handle, str(lab.sizes.repositories)
    counted.knotless.drive("repositories", account, str(source), others)
    new = counted.knotless.new("new")
    new_opened = _seen(counted, "push", "--quiet", new, first, at=source)
    again = push(3)
    more = len(again) - len(pushed), len(fetch()) - len(fetched)
    beside = f"beside {others} other repositories"
    yield _figure(f"more for a push {beside}", more[0], 0, again)
    yield _figure(f"more for a fetch {beside}", more[1], 0)
    # The listing of a repository without refs ends a page later where others have a few: it does
    # not grow with their number.
    name = f"more for a first push {beside}"
    yield _figure(name, len(new_opened) - len(opened), 1, new_opened)

    counted.knotless.drive("pushes", url, str(source), str(lab.sizes.packs_between))
    again = push(4 + lab.sizes.packs_between)
    name = f"more for a push onto {lab.sizes.packs_between} packs"
    yield _figure(name, len(again) - len(pushed), 0, again)


def pushes(lab: Lab) -> Iterator[Figure]:
    """A clone of what came in many small pushes, and of the same pushed at once."""
    counted = lab.counted()
    count = lab.sizes.pushes
    machine = counted.knotless.machine
    source = imported(machine, "pushed", Synthetic().stream(count))
    slow, quick = counted.knotless.new("bit-by-bit"), counted.knotless.new("at-once")
    machine.git("push", "--quiet", quick, "main", cwd=source)
    counted.knotless.drive("pushes", slow, str(source), str(count))

    seen = _seen(counted, "clone", "--quiet", slow, "counted")
    if machine.oid(machine.root / "counted") != machine.oid(source, "main"):
        raise Failed("a clone is not what was pushed")
    machine.git("fsck", "--strict", cwd=machine.root / "counted")
    name = f"clone of {count:,} small pushes"
    yield Figure("pushes", name, len(seen), "requests", _CLONE, note=told(seen))

    reader = lab.reader()

    def clone(url: str, stem: str) -> Callable[[int], Ran]:
        return lambda n: reader.git("clone", "--quiet", url, f"{stem}{n}")

    deeds = {OURS: clone(slow, "bits"), "at once": clone(quick, "one")}
    runs = Contest(deeds).run(lab.sizes.runs)
    yield ratio("pushes", name, runs, beside="at once", most=_SLOWER)


def _large_pushes(lab: Lab, counted: Counted) -> Iterator[Figure]:
    """Two that need blobs: what the host takes is asked for once, and remembered."""
    url = counted.knotless.new("large")
    machine = counted.knotless.machine
    source = imported(machine, "noise", noise(2 * _LARGE, each=_LARGE_FILE))
    commits = _first_parents(machine, source)
    half = len(commits) // 2
    first, second = (
        _seen(counted, "push", "--quiet", url, f"{commit}:refs/heads/main", at=source)
        for commit in (commits[half - 1], commits[-1])
    )
    limit = ask(f"{lab.network.pds}/xrpc/com.atproto.server.describeServer")["blobUploadLimit"]
    # A pack is a little more than what is in it.
    fewest = _LARGE // limit + 1
    yield _figure("uploads of a large push", Counter(first)[_UPLOAD], fewest, first)
    yield _figure("… and of the next", Counter(second)[_UPLOAD], fewest, second)
    asked = Counter(first)[_DESCRIBE], Counter(second)[_DESCRIBE]
    yield _figure("describeServer, first push", asked[0], 1)
    yield _figure("describeServer, next push", asked[1], 0)


def _small_push(name: str, seen: Sequence[str]) -> Iterator[Figure]:
    writes = Counter(seen)[_APPLY]
    reads = sum(call.startswith("GET ") for call in seen)
    yield _figure(f"{name}: reads", reads, _READS, seen)
    yield _figure(f"{name}: all else", len(seen) - reads, writes and 1)


def _figure(name: str, count: int, most: int, seen: Sequence[str] = ()) -> Figure:
    return Figure("requests", name, count, "requests", most, note=told(seen))


def told(seen: Sequence[str]) -> str:
    short = Counter("PLC" if "did:" in call else call.rpartition(".")[2] for call in seen)
    return ", ".join(f"{count} {call}" for call, count in short.items())


def _seen(counted: Counted, *command: str, at: Path | None = None) -> list[str]:
    counted.seen()
    counted.knotless.machine.git(*command, cwd=at)
    return counted.seen()


def _first_parents(machine: Machine, repository: Path) -> list[str]:
    listed = machine.git("rev-list", "--first-parent", "--reverse", "main", cwd=repository)
    return listed.out.split()


def _age_identities(machine: Machine) -> None:
    """As if each had been looked up a while ago: a write looks again at one older than a minute."""
    place = machine.cache / "identity.json"
    cached = json.loads(place.read_text())
    for section in cached.values():
        for entry in section.values() if isinstance(section, dict) else ():
            entry["checked"] -= _STALE
    place.write_text(json.dumps(cached))


SECTIONS = {"requests": requests, "pushes": pushes}
