"""The sections that time: ours and what it stands beside, in turn."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from scripts._bench.lab import HTTP, S3, Contest, Lab, Remote
from scripts._bench.machine import Failed, Machine, Ran
from scripts._bench.report import OURS, Figure, ratio

_LONG_HISTORY = 5_000  # commits, from which on a clone may take less beside git's own
_FIRST_PUSH, _CLONE_SHORT, _CLONE_LONG, _SMALL_PUSH, _ASKING = 1.0, 1.5, 1.2, 2.0, 0.5


def push(lab: Lab) -> Iterator[Figure]:
    """The first push of a whole history, each into a new and empty repository."""

    def deed(remote: Remote, machine: Machine, stem: str) -> Callable[[int], Ran]:
        urls = (remote.new(f"{stem}{n}") for n in range(lab.sizes.runs + 1))
        made = list(urls)  # before anything is timed
        return lambda n: machine.git("push", "--quiet", made[n], lab.ref, cwd=lab.source)

    runs = _contest(lab, deed)
    note = f"{lab.branch}: {_commits(lab)} commits"
    name = "first push of a history"
    yield ratio("push", name, runs, beside=HTTP, most=_FIRST_PUSH, note=note)


def clone(lab: Lab) -> Iterator[Figure]:
    """A clone, with its files checked out."""

    def deed(remote: Remote, machine: Machine, stem: str) -> Callable[[int], Ran]:
        url = _pushed(lab, remote, machine, stem)

        def once(number: int) -> Ran:
            name = f"{stem}{number}"
            ran = machine.git("clone", "--quiet", "--branch", lab.branch, url, name)
            _check_same(machine, machine.root / name, lab)
            return ran

        return once

    runs = _contest(lab, deed)
    commits = _commits(lab)
    most = _CLONE_LONG if commits >= _LONG_HISTORY else _CLONE_SHORT
    yield ratio("clone", "clone", runs, beside=HTTP, most=most, note=f"{commits} commits")


def small(lab: Lab) -> Iterator[Figure]:
    """The same commit pushed to each, onto the whole history."""
    work = _work_tree(lab)
    commits = [work.commit(f"Change {number}") for number in range(lab.sizes.runs + 1)]

    def deed(remote: Remote, machine: Machine, stem: str) -> Callable[[int], Ran]:
        url = _pushed(lab, remote, machine, stem)
        refspecs = [f"{commit}:{lab.ref}" for commit in commits]
        return lambda n: machine.git("push", "--quiet", url, refspecs[n], cwd=work.place)

    runs = _contest(lab, deed, s3=False)  # which sends all of it each time
    yield ratio("small", "push of one commit", runs, beside=HTTP, most=_SMALL_PUSH)


def listing(lab: Lab) -> Iterator[Figure]:
    """What asks and moves nothing."""

    def listed(remote: Remote, machine: Machine, stem: str) -> Callable[[int], Ran]:
        url = _pushed(lab, remote, machine, stem)
        return lambda _: machine.git("ls-remote", url)

    runs = _contest(lab, listed)
    yield ratio("list", "ls-remote", runs, beside=S3, most=_ASKING)

    def fetched(remote: Remote, machine: Machine, stem: str) -> Callable[[int], Ran]:
        url = _pushed(lab, remote, machine, f"{stem}f")
        machine.git("clone", "--quiet", "--branch", lab.branch, url, "fetching")
        return lambda _: machine.git("fetch", "--quiet", cwd=machine.root / "fetching")

    runs = _contest(lab, fetched)
    yield ratio("list", "fetch of nothing new", runs, beside=S3, most=_ASKING)


_Deed = Callable[[Remote, Machine, str], Callable[[int], Ran]]


def _contest(lab: Lab, deed: _Deed, *, s3: bool = True) -> dict[str, list[float]]:
    ours, http = lab.knotless(), lab.http()
    deeds = {OURS: deed(ours, ours.machine, OURS), HTTP: deed(http, http.machine, HTTP)}
    if s3:
        bucket = lab.s3()
        deeds[S3] = deed(bucket, bucket.machine, S3)
    return Contest(deeds).run(lab.sizes.runs)


def _pushed(lab: Lab, remote: Remote, machine: Machine, name: str) -> str:
    url = remote.new(name)
    machine.git("push", "--quiet", url, lab.ref, cwd=lab.source)
    return url


def _commits(lab: Lab) -> int:
    machine = lab.machine({})
    return int(machine.git("rev-list", "--count", lab.ref, cwd=lab.source).out)


def _check_same(machine: Machine, copy: Path, lab: Lab) -> None:
    if machine.oid(copy) != machine.oid(lab.source, lab.ref):
        raise Failed(f"{copy} is not what was pushed")


class _WorkTree:
    def __init__(self, machine: Machine, place: Path) -> None:
        self._machine = machine
        self.place = place

    def commit(self, text: str) -> str:
        (self.place / "changed.txt").write_text(f"{text}\n")
        self._machine.git("add", "changed.txt", cwd=self.place)
        self._machine.git("commit", "--quiet", "-m", text, cwd=self.place)
        return self._machine.oid(self.place)


def _work_tree(lab: Lab) -> _WorkTree:
    machine = lab.machine({})
    place = machine.root / "work"
    machine.git("clone", "--quiet", "--branch", lab.branch, str(lab.source), str(place))
    return _WorkTree(machine, place)


SECTIONS: Mapping[str, Callable[[Lab], Iterator[Figure]]] = {
    "push": push,
    "clone": clone,
    "small": small,
    "list": listing,
}
