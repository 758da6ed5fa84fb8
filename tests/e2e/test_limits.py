"""Pushes that a host's limits, or their size, keep from landing at once: what is said, what lands,
and that the next one goes on from there."""

import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.e2e.conftest import CLAIM, PACK, REF, Person
from tests.gitenv import DATE, GitEnv
from tests.marks import sandbox_only
from tests.network import Account, Network, run_sandbox, run_testnet, write
from tests.proxy import Answer, Exchange, Proxy, proxy

APPLY, UPLOAD, DESCRIBE = "repo.applyWrites", "repo.uploadBlob", "server.describeServer"
KIB = 1024


class Limited:
    """A host that takes blobs of 64 KiB, and says how many it will take yet."""

    def __init__(self, person: Person, host: Proxy) -> None:
        self.person, self.host = person, host
        self.uploads = 2  # that it says are left, always: each slice is as large as that
        self.batches = 0  # that have landed
        self.at_batch: Callable[[Exchange], bool] = lambda exchange: False
        host.act(self.act)

    def act(self, exchange: Exchange) -> None:
        if exchange.nsid.endswith(DESCRIBE):
            answer = exchange.passed_on()
            said = {**json.loads(answer.body), "blobUploadLimit": 64 * KIB}
            exchange.answer(Answer.json(200, said))
        elif exchange.nsid.endswith(UPLOAD):
            answer = exchange.passed_on()
            exchange.answer(Answer(answer.status, answer.body, {**answer.headers, **self.left()}))
        elif not (exchange.nsid.endswith(APPLY) and self.at_batch(exchange)):
            exchange.pass_on()

    def left(self) -> Mapping[str, str]:
        return {
            "RateLimit-Limit": "1000",
            "RateLimit-Remaining": str(self.uploads),
            "RateLimit-Reset": str(int(time.time()) + 3600),
            "RateLimit-Policy": "1000;w=86400",
        }

    def seen(self, nsid: str) -> int:
        return self.host.seen.count("POST com.atproto." + nsid)


@pytest.fixture
def limited(
    account: Callable[..., Account], network: Network, machine: Callable[[], GitEnv]
) -> Iterator[Limited]:
    alice = account("alice")
    with proxy(network, alice) as host:
        person = Person(alice, machine())
        person.machine.env |= host.environment()
        person.machine.log_in(alice)
        yield Limited(person, host)


def large(person: Person, name: str = "large", *, commits: int = 7, seed: int = 0) -> Path:
    """A repository that takes several slices: commits of 50 KiB, and some on merged branches."""
    path = person.machine.repository(name, commits=0)
    stream = b"".join(_commit(Random(1000 * seed + n), n) for n in range(commits))
    person.git("fast-import", "--quiet", cwd=path, stdin=stream)
    person.git("remote", "add", "origin", person.url(name), cwd=path)
    return path


def _commit(random: Random, number: int) -> bytes:
    """The fourth, the seventh and so on is merged with one beside the one before."""
    beside, parents = b"", f"from :{number}\n" if number else ""
    if number and number % 3 == 0:
        beside = _change(random, "refs/work/beside", f"from :{number - 1}\n", 20 * KIB)
        parents += "merge refs/work/beside\n"
    mark = f"mark :{number + 1}\n"
    return beside + _change(random, "refs/heads/main", parents, 50 * KIB, mark=mark)


def _change(random: Random, ref: str, parents: str, size: int, *, mark: str = "") -> bytes:
    who = f"committer A Person <person@example.com> {DATE}"
    head = f"commit {ref}\n{mark}{who}\ndata 1\nx\n{parents}"
    file = f"M 644 inline file{random.randrange(1 << 32)}\ndata {size}\n"
    return (head + file).encode() + random.randbytes(size) + b"\n"


def told(person: Person, name: str = "large") -> str:
    """A repository to which something was uploaded: the answer has told how much more may be."""
    url = person.create(name)
    probe = person.machine.repository("probe", commits=1)
    person.machine.commit(probe, "file", Random(99).randbytes(60 * KIB))
    person.git("push", "-q", url, "main:refs/heads/probe", cwd=probe)
    return url


def packs(person: Person) -> list[dict[str, Any]]:
    return list(person.account.records(PACK).values())


def own_refs(person: Person) -> list[str]:
    refs = person.account.records(REF).values()
    return [ref["name"] for ref in refs if ref["name"].startswith("refs/knotless/")]


def is_whole(person: Person, work: Path, *, name: str = "main") -> None:
    """A fresh clone shows what was pushed, and the host nothing of how it came."""
    clone = person.clone(person.url("large"), f"clone-{Random().random()}", f"--branch={name}")
    assert person.machine.oid(clone) == person.machine.oid(work)
    assert own_refs(person) == []
    claims = [
        (c["ref"], c["generation"]) for c in person.account.records(CLAIM).values() if "ref" in c
    ]
    assert len(set(claims)) == len(claims)


@pytest.mark.slow
def test_it_lands_in_slices(limited: Limited) -> None:
    person = limited.person
    told(person)
    work = large(person)
    said = person.git("push", "origin", "main", cwd=work).err
    assert re.search(r"note: about 0\.4 MiB in [3-7] slices, each of which stays\n", said)
    assert "note: slice 2 of " in said
    assert "uploads, and the host has 2 left until " in said
    assert len(packs(person)) > 3
    is_whole(person, work)


@pytest.mark.slow
@pytest.mark.parametrize(
    "after", [pytest.param(False, id="before it"), pytest.param(True, id="before its answer")]
)
def test_killed_at_each_batch_it_goes_on(limited: Limited, after: bool) -> None:
    """What has landed is not sent again, and what was only uploaded is not uploaded again."""
    person, machine = limited.person, limited.person.machine
    told(person)
    work = large(person)
    turn, code = 0, -1
    while code != 0:
        with machine.start("git", "push", "origin", "main", cwd=work) as process:
            limited.at_batch = _killing(process, 0 if after else min(turn, 1), after=after)
            code = process.wait(60)
        turn += 1
        if code:
            refs = person.remote_refs(person.url("large"))
            assert set(refs) == {"HEAD", "refs/heads/probe"} or "refs/heads/main" in refs
    assert turn > 3
    limited.at_batch = lambda exchange: False
    assert limited.seen(UPLOAD) == sum(len(pack["blobs"]) for pack in packs(person))
    assert "Everything up-to-date" in person.git("push", "origin", "main", cwd=work).err
    is_whole(person, work)


def _killing(process: Any, number: int, *, after: bool) -> Callable[[Exchange], bool]:
    """Ends the push at its batch of that number, before or after the host has taken it."""
    left = [number]

    def at_batch(exchange: Exchange) -> bool:
        left[0] -= 1
        if left[0] >= 0:
            return False
        if left[0] == -1:
            if after:
                exchange.passed_on()
            os.killpg(process.pid, signal.SIGKILL)
        exchange.cut()
        return True

    return at_batch


@pytest.mark.slow
@sandbox_only
def test_killed_in_an_upload_it_goes_on(limited: Limited) -> None:
    """The pack is found again, and what the host has of it is not sent twice."""
    person, machine = limited.person, limited.person.machine
    work = machine.repository("large", commits=1)
    machine.commit(work, "file", Random(1).randbytes(700 * KIB))
    machine.git("remote", "add", "origin", person.create("large"), cwd=work)
    left = [8]

    def kill(exchange: Exchange) -> None:
        if exchange.nsid.endswith(UPLOAD):
            left[0] -= 1
        if left[0] > 0:
            limited.act(exchange)
            return
        if left[0] == 0:
            os.killpg(process.pid, signal.SIGKILL)
        exchange.cut()

    limited.host.act(kill)
    with machine.start("git", "push", "origin", "main", cwd=work) as process:
        assert process.wait(60) == -signal.SIGKILL
    kept = sorted(path.suffix for path in (work / ".git/knotless/spool").iterdir())
    assert kept == [".log", ".pack"]
    limited.host.act(limited.act)
    before = limited.seen(UPLOAD)
    person.git("push", "origin", "main", cwd=work)
    (pack,) = packs(person)
    # Of seven that were answered, four may not have been noted yet.
    assert limited.seen(UPLOAD) - before <= len(pack["blobs"]) - 3
    assert not (work / ".git/knotless/spool").exists()
    is_whole(person, work)


@pytest.mark.slow
def test_ctrl_c_in_the_midst(limited: Limited) -> None:
    person = limited.person
    told(person)
    work = large(person)
    with person.machine.start("git", "push", "origin", "main", cwd=work) as process:

        def interrupt(exchange: Exchange) -> bool:
            if limited.batches == 2:
                os.killpg(process.pid, signal.SIGINT)
                process.wait(30)
                exchange.cut()
                return True
            limited.batches += 1
            return False

        limited.at_batch = interrupt
        _, err = process.communicate(timeout=60)
        assert process.returncode != 0
        assert b"Traceback" not in err
    limited.at_batch = lambda exchange: False
    said = person.git("push", "origin", "main", cwd=work).err
    assert "an earlier push was cut: this one leaves out what that has brought" in said
    is_whole(person, work)


@pytest.mark.slow
def test_two_pushers_of_large_histories_at_once(limited: Limited) -> None:
    """Two of the same, and one of another: each lands."""
    person = limited.person
    told(person)
    work = large(person)
    person.git("clone", "-q", str(work), "same", cwd=person.machine.root)
    person.git("remote", "set-url", "origin", person.url("large"), cwd=person.machine.root / "same")
    other = large(person, "other", seed=1)
    person.git("remote", "set-url", "origin", person.url("large"), cwd=other)
    places = {"main": work, "same": person.machine.root / "same", "other": other}
    with ThreadPoolExecutor(3) as pool:
        pushed = [
            pool.submit(person.git, "push", "origin", f"main:{name}", cwd=path)
            for name, path in places.items()
        ]
        for each in pushed:
            each.result()
    for name, path in places.items():
        is_whole(person, path, name=name)


def test_it_stops_where_the_host_takes_no_more(limited: Limited) -> None:
    """After two slices it has had enough for two hours; it says so, and the next push goes on."""
    person = limited.person
    told(person)
    work = large(person)
    refusal = {"error": "RateLimitExceeded", "message": "Rate Limit Exceeded"}

    def later(exchange: Exchange) -> bool:
        limited.batches += 1
        if limited.batches > 2:
            exchange.answer(Answer.json(429, refusal, **{"Retry-After": "7300"}))
        return limited.batches > 2

    limited.at_batch = later
    stopped = person.git("push", "origin", "main", cwd=work, code=1, env={"TZ": "Asia/Tokyo"})
    clock = "[0-2][0-9]:[0-5][0-9]"
    line = rf"error: localhost:[0-9]+ takes no more before {clock}, in 3 hours: slice 2 of"
    assert re.search(line, stopped.err), stopped.err
    assert "hint: run the same push again then\n" in stopped.err
    uploads = limited.seen(UPLOAD)
    meanwhile = person.clone(person.url("large"), "meanwhile")
    assert person.machine.refs(meanwhile).keys() == {
        "refs/heads/probe",
        "refs/remotes/origin/HEAD",
        "refs/remotes/origin/probe",
    }
    limited.at_batch = lambda exchange: False
    person.git("push", "origin", "main", cwd=work)
    person.git("fetch", cwd=meanwhile)
    assert "refs/remotes/origin/main" in person.machine.refs(meanwhile)
    assert uploads <= limited.seen(UPLOAD) == sum(len(pack["blobs"]) for pack in packs(person))
    is_whole(person, work)


@pytest.mark.slow
@sandbox_only
def test_it_waits_for_a_short_while(limited: Limited) -> None:
    person = limited.person
    work = person.published("large")
    person.machine.commit(work)
    refusal = Answer.json(429, {"error": "RateLimitExceeded"}, **{"Retry-After": "3"})
    limited.host.on(APPLY, lambda exchange: exchange.answer(refusal), times=1)
    assert "asks us to wait 3 seconds" in person.git("push", cwd=work).err
    is_whole(person, work)


@pytest.mark.slow
@pytest.mark.parametrize(
    "start",
    [
        pytest.param(partial(run_sandbox, "--rate-limit"), id="sandbox"),
        pytest.param(
            partial(run_testnet, "--rate-limits"), id="testnet", marks=pytest.mark.testnet
        ),
    ],
)
def test_as_many_refs_land_as_an_hour_allows(tmp_path: Path, start: Any) -> None:
    """A host that counts: what it has left is known from its answers, and used to the last."""
    with start(data=tmp_path / "network") as network:
        person = Person(network.account("alice"), GitEnv(tmp_path / "machine", network))
        person.machine.log_in(person.account)
        for turn in range(7):  # 600 points each
            notes = (write("create", "dev.example.note", f"{turn}-{n}", {}) for n in range(200))
            person.account.apply(*notes)
        work = person.published("large")
        oid = person.machine.oid(work)
        names = "".join(f"create refs/heads/b{n:04} {oid}\n" for n in range(300))
        person.git("update-ref", "--stdin", cwd=work, stdin=names)
        pushed = person.git("push", "--porcelain", "origin", "refs/heads/b*", cwd=work, code=1)
        assert "note: this push takes about 910 points of writing, and the host has " in pushed.err
        lines = pushed.out.splitlines()
        landed = {line.split(":")[1].split("\t")[0] for line in lines if line[:1] == "*"}
        refused = [line for line in lines if line[:1] == "!"]
        assert len(landed) + len(refused) == 300
        assert all("takes no more before " in line for line in refused)
        there = person.remote_refs(person.url("large"))
        assert landed == there.keys() - {"HEAD", "refs/heads/main"}
        left = re.search(r"the host has ([0-9]+) left until [0-9]{2}:[0-9]{2}", pushed.err)
        assert left is not None
        # Two batches: each updates the epoch's claim and makes one of its own.
        assert 0 <= int(left[1]) - 3 * len(landed) - 2 * 5 < 5
        again = person.git("push", "origin", "refs/heads/b*", cwd=work, code=1)
        assert "and the host has 0 left until " in again.err
        assert "takes no more before " in again.err
