"""The section that measures what checking refs against the account's signature adds."""

import json
import subprocess
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from scripts._bench.counts import told
from scripts._bench.history import FEW_FILES, Synthetic, imported
from scripts._bench.lab import Contest, Knotless, Lab
from scripts._bench.machine import Failed, Machine, Ran
from scripts._bench.report import OURS, Figure, ratio
from scripts._bench.servers import DIRECT, Network, ask, first_line, serving

_SLOWER = 1.2  # a clone, beside one that is not verified
_MORE = 15  # requests
_PROOF = 3.0  # milliseconds
_BROUGHT_UP = 10  # requests
_UNVERIFIED = "unverified"


def verified(lab: Lab) -> Iterator[Figure]:
    for count in (1, lab.sizes.verified):
        yield from _clones(lab, count)
    yield _one_proof(lab)
    with _sandbox(lab) as large:
        yield from _large(large)


def _clones(lab: Lab, count: int) -> Iterator[Figure]:
    counted = lab.counted()
    machine = counted.knotless.machine
    url = counted.knotless.new(f"refs{count}")
    name = "clone of one ref" if count == 1 else f"clone of {count:,} refs"
    _push_branches(machine, url, count)
    seen = {}
    for setting in ("never", "always"):
        machine.env["KNOTLESS_VERIFY"] = setting
        counted.seen()
        machine.git("clone", "--quiet", "--mirror", url, f"{setting}{count}")
        seen[setting] = counted.seen()
    more = len(seen["always"]) - len(seen["never"])
    note = told(seen["always"])
    yield Figure("verified", f"more for a {name}", more, "requests", _MORE, note=note)

    def deed(setting: str) -> Callable[[int], Ran]:
        reader = lab.reader()
        reader.env["KNOTLESS_VERIFY"] = setting
        return lambda number: reader.git("clone", "--quiet", "--mirror", url, f"{count}-{number}")

    runs = Contest({OURS: deed("always"), _UNVERIFIED: deed("never")}).run(lab.sizes.starts)
    yield ratio("verified", name, runs, beside=_UNVERIFIED, most=_SLOWER)


def _push_branches(machine: Machine, url: str, count: int) -> None:
    source = imported(machine, f"source{count}", Synthetic(FEW_FILES).stream(5))
    commits = machine.git("rev-list", "main", cwd=source).out.split()
    orders = (f"create refs/heads/t/{n} {commits[n % len(commits)]}\n" for n in range(1, count))
    machine.git("update-ref", "--stdin", cwd=source, given="".join(orders).encode())
    machine.git("push", "--quiet", url, "refs/heads/*:refs/heads/*", cwd=source)


def _one_proof(lab: Lab) -> Figure:
    """By the library, of a record among those that a push and its refs leave."""
    ours = lab.knotless()
    url = ours.new("proof")
    _push_branches(ours.machine, url, 20)
    taken: list[float] = json.loads(ours.drive("proof", url, str(lab.sizes.proofs)).out)
    taken.sort()
    middle = 1000 * taken[len(taken) // 2]
    return Figure("verified", "one proof", middle, "ms", _PROOF, {OURS: taken})


@contextmanager
def _sandbox(lab: Lab) -> Iterator[Lab]:
    """The same on a sandbox: it takes in a repo of any size at once."""
    command = [str(lab.programs.python), "-P", "-m", "git_knotless.sandbox", "--json"]
    env = lab.machine({}).env
    place = ["--dir", str(lab.root / "large")]
    with serving([*command, *place], env=env, cwd=lab.root, stdout=subprocess.PIPE) as process:
        yield replace(lab, network=Network(json.loads(first_line(process))))


def _large(lab: Lab) -> Iterator[Figure]:
    """More refs than a reader lists twice."""
    counted = lab.counted()
    ours, count = counted.knotless, lab.sizes.large
    machine = ours.machine
    url = ours.new("large")
    source = imported(machine, "large", Synthetic(FEW_FILES).stream(12))
    machine.git("push", "--quiet", url, "main~1:refs/heads/main", cwd=source)
    _plant_refs(lab, ours, count)
    machine.git("clone", "--quiet", "--mirror", url, "large.git")
    machine.git("push", "--quiet", url, "main", cwd=source)
    counted.seen()
    copy = machine.root / "large.git"
    ran = machine.git("fetch", "--quiet", cwd=copy)
    seen = counted.seen()
    if machine.oid(copy, "main") != machine.oid(source, "main"):
        raise Failed("a fetch did not bring what was pushed")
    if len(machine.refs(copy)) != count:
        raise Failed(f"there should be {count:,} refs")
    name = f"fetch of one push among {count:,} refs"
    yield Figure("verified", name, len(seen), "requests", _BROUGHT_UP, note=told(seen))
    yield Figure("verified", name, ran.seconds, "s")


def _plant_refs(lab: Lab, ours: Knotless, count: int) -> None:
    """As if so many had been pushed, each by itself: but for their claims."""
    before, after = lab.root / "before.car", lab.root / "after.car"
    pds, account = lab.network.pds, ours.account
    body = {"identifier": account.handle, "password": account.password}
    session = ask(f"{pds}/xrpc/com.atproto.server.createSession", body)
    with DIRECT.open(f"{pds}/xrpc/com.atproto.sync.getRepo?did={session['did']}") as response:
        before.write_bytes(response.read())
    program = Path(__file__).with_name("planted_refs.py")
    ours.machine.run(
        str(lab.programs.python), "-P", str(program), str(before), str(after), str(count)
    )
    headers: Mapping[str, str] = {
        "Authorization": f"Bearer {session['accessJwt']}",
        "Content-Type": "application/vnd.ipld.car",
    }
    request = urllib.request.Request(
        f"{pds}/xrpc/com.atproto.repo.importRepo", after.read_bytes(), dict(headers)
    )
    with DIRECT.open(request, timeout=300):
        pass


SECTIONS = {"verified": verified}
