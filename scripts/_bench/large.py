"""The sections that measure with much: of bytes, refs, packs."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts._bench.history import FEW_FILES, Synthetic, imported, noise
from scripts._bench.lab import HTTP, Knotless, Lab, Remote
from scripts._bench.machine import Failed, Machine, Ran
from scripts._bench.report import OURS, Figure
from scripts._bench.sizes import MIB
from scripts._bench.watch import Watch

_MOST_MEMORY = 150  # MiB
# Beside the history: the pusher's slices, the host's blobs, the reader's parts and its clone.
_COPIES = 6


def memory(lab: Lab) -> Iterator[Figure]:
    """The memory of every Python process, and what is left behind."""
    size = lab.sizes.memory
    _need_room(lab.root, _COPIES * size)
    ours = lab.knotless()
    machine = ours.machine
    source = imported(machine, "noise", noise(size))
    url = ours.new("noise")
    before = _files(source)
    with _watched(ours) as (git, watch):
        ran = git("push", "--quiet", url, "main", at=source)
    yield from _held("push", size, watch, ran)
    yield _left("push", [*(_files(source) - before), *_files(machine.temporary)])

    with _watched(ours) as (git, watch):
        ran = git("clone", "--quiet", "--no-checkout", url, "copy")
    copy = machine.root / "copy"
    if machine.oid(copy) != machine.oid(source, "main"):
        raise Failed("a clone is not what was pushed")
    yield from _held("clone", size, watch, ran)
    yield _left("clone", [*_files(machine.temporary), *filter(_is_left, _files(copy))])


def scale(lab: Lab) -> Iterator[Figure]:
    yield from _many_refs(lab)
    yield from _many_packs(lab)
    yield from _large_file(lab)


def _many_refs(lab: Lab) -> Iterator[Figure]:
    count = lab.sizes.refs
    ours, http = lab.knotless(), lab.http()
    machine = ours.machine
    source = imported(machine, "refs", Synthetic().stream(min(count, 500)))
    commits = machine.git("rev-list", "main", cwd=source).out.split()
    orders = (
        f"create refs/heads/topic/{n % 50}/{n} {commits[n % len(commits)]}\n" for n in range(count)
    )
    given = "".join(orders).encode()
    machine.git("update-ref", "--stdin", cwd=source, given=given)
    wanted = machine.refs(source)
    pushed, listed, fetched = {}, {}, {}
    contestants: dict[str, tuple[Remote, Machine]] = {
        OURS: (ours, machine),
        HTTP: (http, http.machine),
    }
    for name, (remote, where) in contestants.items():
        url = remote.new("refs")
        refspecs = ("refs/heads/*:refs/heads/*", "refs/tags/*:refs/tags/*")
        pushed[name] = [where.git("push", "--quiet", url, *refspecs, cwd=source).seconds]
        ran = where.git("ls-remote", "--refs", url)
        lines = (line.split("\t") for line in ran.out.splitlines())
        found = {ref: oid for oid, ref in lines}
        listed[name] = [ran.seconds]
        fetched[name] = [where.git("clone", "--quiet", "--mirror", url, "copy.git").seconds]
        if not found == where.refs(where.root / "copy.git") == wanted:
            raise Failed(f"{name}: the refs are not those that were pushed")
    for verb, runs in (("pushed", pushed), ("listed", listed), ("fetched", fetched)):
        yield Figure("scale", f"{len(wanted):,} refs {verb}", runs[OURS][0], "s", runs=runs)


def _many_packs(lab: Lab) -> Iterator[Figure]:
    count = lab.sizes.packs
    counted = lab.counted()
    ours = counted.knotless
    source = imported(ours.machine, "packs", Synthetic(FEW_FILES).stream(count))
    url = ours.new("packs")
    ours.drive("packs", url, str(source), str(count))
    counted.seen()
    with _watched(ours) as (git, watch):
        ran = git("clone", "--quiet", "--no-checkout", url, "packs-copy")
    seen = len(counted.seen())
    copy = ours.machine.root / "packs-copy"
    if ours.machine.oid(copy) != ours.machine.oid(source, "main"):
        raise Failed("a clone is not what was pushed")
    name = f"clone of {count:,} packs"
    yield Figure("scale", name, ran.seconds, "s", note=f"{seen} requests")
    yield Figure("scale", f"{name}: memory", watch.most / MIB, "MiB", _MOST_MEMORY)


def _large_file(lab: Lab) -> Iterator[Figure]:
    size = lab.sizes.file
    counted = lab.counted()
    ours = counted.knotless
    source = imported(ours.machine, "file", noise(size, each=size))
    url = ours.new("file")
    counted.seen()
    with _watched(ours) as (git, pushing):
        pushed = git("push", "--quiet", url, "main", at=source)
    sent = counted.seen()
    with _watched(ours) as (git, cloning):
        cloned = git("clone", "--quiet", url, "file-copy")
    copy = ours.machine.root / "file-copy"
    if ours.machine.oid(copy) != ours.machine.oid(source, "main"):
        raise Failed("a clone is not what was pushed")
    name = f"a file of {size // MIB} MiB"
    uploads = sum(call.endswith(".uploadBlob") for call in sent)
    yield Figure("scale", f"{name}, pushed", pushed.seconds, "s", note=f"{uploads} uploads")
    yield Figure("scale", f"{name}, cloned", cloned.seconds, "s")
    most = max(pushing.most, cloning.most) / MIB
    yield Figure("scale", f"{name}: memory", most, "MiB", _MOST_MEMORY)


_Git = Callable[..., Ran]


@contextmanager
def _watched(ours: Knotless) -> Iterator[tuple[_Git, Watch]]:
    with Watch() as watch:

        def git(*args: str, at: Path | None = None) -> Ran:
            return ours.machine.run("git", *args, cwd=at, watch=watch)

        yield git, watch


def _held(verb: str, size: int, watch: Watch, ran: Ran) -> Iterator[Figure]:
    if not watch.samples:
        raise Failed(f"no Python process was seen at a {verb}")
    note = f"{ran.seconds:.1f} s, {len(watch.highest)} processes, {watch.samples:,} samples"
    name = f"{verb} of {size // MIB:,} MiB: memory"
    yield Figure("memory", name, watch.most / MIB, "MiB", _MOST_MEMORY, note=note)


def _left(verb: str, files: list[str]) -> Figure:
    name = f"{verb}: files left behind"
    return Figure("memory", name, len(files), "files", 0, note=", ".join(sorted(files)[:5]))


def _files(folder: Path) -> set[str]:
    """All below, but what is to stay: which packs were taken, how large those are that were pushed,
    and which generations were seen."""
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {str(path) for path in found if path.suffix not in (".taken", ".packs", ".seen")}


def _is_left(name: str) -> bool:
    """In a clone: whatever is no part of a repository."""
    parts = Path(name).parts
    temporary = any(part.startswith(("tmp_", "incoming-", ".tmp")) for part in parts)
    return temporary or "knotless" in parts or name.endswith((".keep", ".lock"))


def _need_room(folder: Path, size: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < size:
        raise Failed(f"{size // MIB:,} MiB are needed in {folder}, and {free // MIB:,} are free")


SECTIONS = {"memory": memory, "scale": scale}
