"""Faults between git and the host, and of the host: what is said is what a fresh clone shows,
nothing stays locked, and the next push works."""

import json
import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import CLAIM, REF, Person
from tests.gitenv import GitEnv, Result
from tests.network import Account, Network, run_testnet
from tests.proxy import Answer, Exchange, Proxy, proxy

APPLY, UPLOAD = "repo.applyWrites", "repo.uploadBlob"
FAULT = Answer.json(500, {"error": "InternalServerError", "message": "Internal Server Error"})


class Between:
    """A person who reaches the host through a proxy alone, with a repository pushed there."""

    def __init__(self, person: Person, host: Proxy) -> None:
        person.machine.env |= host.environment()
        person.machine.log_in(person.account)
        self.person, self.host = person, host
        self.work = person.published()

    def commit(self, *, large: int = 0) -> str:
        content: str | bytes = random.randbytes(large) if large else f"{random.random()}\n"
        return self.person.machine.commit(self.work, "file", content)

    def push(self, *args: str, code: int | None = None) -> Result:
        return self.person.git("push", *(args or ("origin", "main")), cwd=self.work, code=code)

    def agree(self, result: Result, tip: str, before: str) -> None:
        """A fresh clone shows what was reported; then what is left is pushed, and shows too."""
        expected = tip if result.code == 0 else before
        self.host.well()
        assert self.shown("one") == expected, result.err
        assert "Traceback" not in result.err
        self.push(code=0)
        assert self.shown("two") == tip

    def target(self) -> Any:
        """Of the only ref, as the host has it."""
        (ref,) = self.person.account.records(REF).values()
        return ref["target"]

    def shown(self, name: str) -> str:
        clone = self.person.clone(self.person.url(), f"{name}-{random.random()}")
        return self.person.machine.oid(clone)


@pytest.fixture
def between(
    account: Callable[..., Account], network: Network, machine: Callable[[], GitEnv]
) -> Iterator[Between]:
    alice = account("alice")
    with proxy(network, alice) as host:
        yield Between(Person(alice, machine()), host)


def landed_and_500(exchange: Exchange) -> None:
    exchange.passed_on()
    exchange.answer(FAULT)


def not_landed_and_500(exchange: Exchange) -> None:
    exchange.answer(FAULT)


def landed_and_lost(exchange: Exchange) -> None:
    exchange.passed_on()
    exchange.cut()


def not_landed_and_lost(exchange: Exchange) -> None:
    exchange.read()
    exchange.cut()


def landed_and_already_exists(exchange: Exchange) -> None:
    exchange.passed_on()
    exchange.answer(Answer.json(400, {"error": "RecordAlreadyExists", "message": "exists"}))


def sent_twice(exchange: Exchange) -> None:
    body = exchange.read()
    answer = exchange.passed_on(body)
    exchange.passed_on(body)
    exchange.answer(answer)


def html(exchange: Exchange) -> None:
    exchange.passed_on()
    exchange.answer(Answer(200, b"<html></html>", {"Content-Type": "text/html"}))


ANSWERS = [
    landed_and_500,
    not_landed_and_500,
    landed_and_lost,
    not_landed_and_lost,
    landed_and_already_exists,
    sent_twice,
    html,
]


def test_a_batch_whose_answer_says_nothing(between: Between) -> None:
    """One push after the other, each meets another of them once, and lands."""
    person = between.person
    for act in ANSWERS:
        before, tip = person.machine.oid(between.work), between.commit()
        between.host.on(APPLY, act, times=1)
        result = between.push()
        assert result.code == 0, f"{act.__name__}: {result.err}"
        assert between.target() == tip, act.__name__
    between.agree(result, tip, before)


@pytest.mark.parametrize(
    "act", [not_landed_and_500, pytest.param(not_landed_and_lost, marks=pytest.mark.slow)]
)
def test_a_batch_that_never_lands(between: Between, act: Callable[[Exchange], None]) -> None:
    before, tip = between.person.machine.oid(between.work), between.commit()
    between.host.on(APPLY, act)
    result = between.push()
    assert result.code == 1
    between.agree(result, tip, before)


@pytest.mark.slow
def test_the_host_goes_silent_after_it_took_the_batch(between: Between) -> None:
    """The one case in which nobody here can know; the next push finds out."""
    tip = between.commit()
    gone = threading.Event()

    def act(exchange: Exchange) -> None:
        if exchange.nsid.endswith(APPLY):
            exchange.passed_on()
            gone.set()
        if gone.is_set():
            exchange.cut()
        else:
            exchange.pass_on()

    between.host.act(act)
    result = between.push()
    assert result.code == 1
    assert "not known whether" in result.err
    between.host.well()
    assert between.shown("one") == tip
    assert "Everything up-to-date" in between.push(code=0).err


def test_a_rate_limit_that_is_soon_over(between: Between) -> None:
    before, tip = between.person.machine.oid(between.work), between.commit(large=100_000)
    limited = Answer.json(429, {"error": "RateLimitExceeded"}, **{"Retry-After": "1"})
    between.host.on(UPLOAD, lambda exchange: exchange.answer(limited), times=1)
    result = between.push(code=0)
    between.agree(result, tip, before)


def test_a_rate_limit_that_lasts(between: Between) -> None:
    before, tip = between.person.machine.oid(between.work), between.commit()
    limited = Answer.json(429, {"error": "RateLimitExceeded"}, **{"Retry-After": "720"})
    between.host.on(APPLY, lambda exchange: exchange.answer(limited))
    result = between.push()
    assert result.code == 1
    assert "12 minutes" in result.err
    between.agree(result, tip, before)


@pytest.mark.parametrize("nsid", [pytest.param(UPLOAD, marks=pytest.mark.slow), APPLY])
def test_a_token_that_expires_meanwhile(between: Between, nsid: str) -> None:
    before, tip = between.person.machine.oid(between.work), between.commit(large=100_000)
    expired = Answer.json(400, {"error": "ExpiredToken", "message": "Token has expired"})
    between.host.on(nsid, lambda exchange: exchange.answer(expired), times=1)
    between.host.seen.clear()
    result = between.push(code=0)
    assert "POST com.atproto.server.refreshSession" in between.host.seen
    between.agree(result, tip, before)


def test_blobs_that_vanish_before_the_batch(between: Between) -> None:
    before, tip = between.person.machine.oid(between.work), between.commit(large=100_000)
    vanished = Answer.json(400, {"error": "BlobNotFound", "message": "Could not find blob"})
    between.host.on(APPLY, lambda exchange: exchange.answer(vanished), times=1)
    between.host.seen.clear()
    result = between.push(code=0)
    assert between.host.seen.count("POST com.atproto." + UPLOAD) == 2
    between.agree(result, tip, before)


def test_a_second_copy_that_comes_late(between: Between) -> None:
    """It comes after another push has landed, and changes nothing."""
    bodies: list[bytes] = []

    def keep(exchange: Exchange) -> None:
        bodies.append(exchange.read())
        exchange.answer(exchange.passed_on(bodies[-1]))

    between.commit()
    between.host.on(APPLY, keep)
    between.push(code=0)
    tip = between.commit()
    between.push(code=0)
    account = between.person.account
    for body in bodies:
        writes = json.loads(body)["writes"]
        with pytest.raises(Exception, match="500"):
            account.apply(*writes)
    assert between.shown("one") == tip


def test_a_host_whose_create_updates(between: Between) -> None:
    """Two racers must not both believe that they won: the type of the result tells."""
    clone = between.person.clone(between.person.url(), "other")
    tips = [between.commit(), between.person.machine.commit(clone, "theirs")]
    account, both = between.person.account, threading.Barrier(2, timeout=30)

    def overwrite(exchange: Exchange) -> None:
        body = json.loads(exchange.read())
        both.wait()
        with turn:
            updated = [write for write in body["writes"] if _taken(account, write)]
            for write in updated:
                write["$type"] = "com.atproto.repo.applyWrites#update"
            answer = exchange.passed_on(json.dumps(body).encode())
            exchange.answer(answer)

    turn = threading.Lock()
    between.host.on(APPLY, overwrite, times=2)
    with ThreadPoolExecutor(2) as pool:
        results = list(
            pool.map(
                lambda path: between.person.git("push", "origin", "main", cwd=path, code=None),
                (between.work, clone),
            )
        )
    assert sorted(result.code for result in results) == [0, 1]
    lost = next(result for result in results if result.code)
    assert "overwrote" in lost.err
    assert len(tips) == 2


def _taken(account: Any, write: dict[str, Any]) -> bool:
    created = write["$type"].endswith("#create")
    return created and account.record(write["collection"], write["rkey"]) is not None


def test_a_host_whose_cursors_do_not_seek(between: Between) -> None:
    account = between.person.account

    def paged(exchange: Exchange) -> None:
        """Cursors are numbers of records; keys go down, whatever is asked for."""
        exchange.read()
        values = account.records(exchange.query["collection"])
        keys = sorted(values, reverse=True)
        cursor = exchange.query.get("cursor", "")
        start = int(cursor) if cursor.isdigit() else 0
        page = keys[start : start + 5]
        place = f"at://{account.did}/{exchange.query['collection']}"
        cid = "bafyreidfayvfuwqa7qlnopdjiqrxzs6blmoeu4rujcjtnci5beludirz2a"
        records = [{"uri": f"{place}/{k}", "cid": cid, "value": values[k]} for k in page]
        more = {"cursor": str(start + 5)} if page else {}
        exchange.answer(Answer.json(200, {"records": records, **more}))

    other = between.person.published("other")
    branches = (f"main:refs/heads/b{n}" for n in range(12))
    between.person.git("push", "-q", "origin", *branches, cwd=other)
    before, tip = between.person.machine.oid(between.work), between.commit()
    between.host.on("repo.listRecords", paged)
    result = between.push(code=0)
    assert between.shown("meanwhile") == tip
    between.agree(result, tip, before)


def test_a_listing_that_mixes_two_commits(between: Between) -> None:
    """A ref moves and another goes between two pages: each is one that it was, or is."""
    names = [f"refs/heads/b{n:03}" for n in range(150)]
    between.person.git(
        "push", "-q", "origin", *(f"main:{name}" for name in names), cwd=between.work
    )
    before, tip = between.person.machine.oid(between.work), between.commit()
    moved = threading.Event()

    def act(exchange: Exchange) -> None:
        answer = exchange.passed_on()
        if exchange.nsid.endswith("listRecords") and not moved.is_set():
            moved.set()
            elsewhere = Person(between.person.account, between.person.machine)
            elsewhere.git("push", "-q", "origin", "+main:b000", ":b149", cwd=between.work)
        exchange.answer(answer)

    between.host.act(act)
    result = between.push("origin", "main")
    between.agree(result, tip, before)


@pytest.mark.slow
@pytest.mark.testnet
def test_the_connection_is_cut_in_a_large_upload(
    tmp_path: Path,
) -> None:
    size = 200_000_000
    with run_testnet("--blob-limit", str(size + (1 << 20)), data=tmp_path / "network") as large:
        account = large.account("alice")
        with proxy(large, account) as host:
            one = GitEnv(tmp_path / "large", large)
            one.git("config", "--global", "core.compression", "0")
            between = Between(Person(account, one), host)
            before, tip = one.oid(between.work), between.commit(large=size)

            def cut(exchange: Exchange) -> None:
                exchange.read(exchange.size * 6 // 10)
                exchange.cut()

            host.on(UPLOAD, cut, times=1)
            result = one.git("push", cwd=between.work, timeout=240)
            assert host.seen.count("POST com.atproto." + UPLOAD) == 2
            between.agree(result, tip, before)


@pytest.mark.parametrize("skew", [86400, pytest.param(-86400, marks=pytest.mark.slow)])
def test_a_host_that_dates_its_answers_a_day_off(between: Between, skew: int) -> None:
    between.host.set_clock(skew)
    tip = between.commit()
    assert "1440 minutes apart" in between.push(code=0).err
    assert between.shown("clone") == tip


@pytest.mark.testnet
@pytest.mark.parametrize("skew", ["86400", "-86400"])
def test_a_host_whose_clock_is_a_day_off(tmp_path: Path, skew: str) -> None:
    with run_testnet("--clock-skew", skew, data=tmp_path / "network") as skewed:
        alice = Person(skewed.account("alice"), GitEnv(tmp_path / "machine", skewed))
        alice.machine.log_in(alice.account)
        work = alice.published()
        alice.machine.commit(work)
        said = alice.git("push", cwd=work).err
        assert "1440 minutes apart" in said
        clone = alice.clone(alice.url())
        assert alice.machine.oid(clone) == alice.machine.oid(work)


@pytest.mark.slow
@pytest.mark.parametrize(
    "after",
    [
        pytest.param(False, id="before it", marks=pytest.mark.slow),
        pytest.param(True, id="before its answer"),
    ],
)
def test_killed_between_any_two_requests(between: Between, after: bool) -> None:
    """Before the host gets a request, or before its answer comes; then run again."""
    person, work = between.person, between.work
    before = person.machine.oid(work)
    number, done = 0, False
    while not done:
        tip = between.commit(large=60_000)
        done = _killed_at(between, number, after=after)
        number += 1
        assert between.target() in (before, tip)
        between.push(code=0)
        before = tip
        assert between.target() == tip
    assert number > 5
    assert between.shown("after") == before
    left = [path for path in (work / ".git").rglob("*") if "tmp_" in path.name]
    assert left == []
    generations = [claim.get("generation") for claim in person.account.records(CLAIM).values()]
    assert len(person.account.records(REF)) == 1
    assert len(generations) == len(set(generations))


def _killed_at(between: Between, number: int, *, after: bool) -> bool:
    """Push, and kill it all at that request; whether there were fewer, so that it went through."""
    left = [number]

    def act(exchange: Exchange) -> None:
        left[0] -= 1
        if left[0] >= 0:
            exchange.pass_on()
            return
        if left[0] == -1:
            if after:
                exchange.passed_on()
            os.killpg(process.pid, signal.SIGKILL)
        exchange.cut()

    between.host.act(act)
    machine = between.person.machine
    with machine.start("git", "push", "origin", "main", cwd=between.work) as process:
        code = process.wait(60)
    between.host.well()
    return code == 0
