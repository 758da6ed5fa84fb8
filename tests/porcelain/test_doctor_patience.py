"""`git knotless doctor` and hosts that take their time, and a person who does not."""

import signal
import sysconfig
import time
from pathlib import Path

import pytest

from tests.gitenv import GitEnv
from tests.network import Account
from tests.porcelain.checkup import doctor, failed, records
from tests.proxy import Answer, Exchange, Proxy

PROGRAM = Path(sysconfig.get_path("scripts")) / "git-knotless"
MARKED = "2222222222abc"
CID = "bafyreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy"


# Of a proxy, which is the directory of accounts as well.
ALIVE = "_health", "getRepoStatus", "getSession", "resolveHandle"


def test_a_host_that_asks_to_wait_is_believed_and_left(
    one: GitEnv, alice: Account, between: Proxy
) -> None:
    asked: list[str] = []

    def limit(exchange: Exchange) -> None:
        if exchange.nsid.endswith(ALIVE):
            exchange.pass_on()
            return
        asked.append(exchange.nsid)
        exchange.answer(Answer.json(429, {}, **{"Retry-After": "9"}))

    between.act(limit)
    begun = time.monotonic()
    found = doctor(one, code=1)
    assert failed(found) == {"host"}
    assert "try again in 9 seconds" in found["host"]["detail"]
    assert len(asked) == 1
    assert time.monotonic() - begun < 9
    between.act(lambda exchange: exchange.answer(Answer.json(429, {}, **{"Retry-After": "9"})))
    found = doctor(one, code=1)
    assert failed(found) == {"directory"}, "and nothing of what is on it is said to be well"
    assert found["handle"]["status"] == "skipped"


@pytest.mark.slow
def test_a_host_that_hangs_is_waited_for_once(one: GitEnv, alice: Account, between: Proxy) -> None:
    """Thirty seconds; all that is left is skipped, and says why."""
    described: list[str] = []

    def hang(exchange: Exchange) -> None:
        if exchange.nsid.endswith(ALIVE):
            exchange.pass_on()
        elif exchange.nsid.endswith("describeServer") and not described:
            described.append(exchange.nsid)
            exchange.pass_on()
        else:
            exchange.leave_unanswered(100)

    between.act(hang)
    found = doctor(one, "--write", code=1)
    assert failed(found) == {"latency"}
    assert "does not answer" in found["latency"]["detail"]
    for name in ("blob limit", "logins", "cursors", "proofs", "spaces", "writing"):
        assert found[name]["status"] == "skipped", found[name]
    assert "is not asked again: it did not answer in time" in found["blob limit"]["detail"]


@pytest.mark.slow
def test_ended_as_it_removes_what_it_wrote(one: GitEnv, alice: Account, between: Proxy) -> None:
    """Before the host has removed anything: it is begun again on leaving."""
    before = records(alice)
    deletes: list[bytes] = []

    def end(exchange: Exchange) -> None:
        body = exchange.read()
        if body.count(b"applyWrites#delete") < 4:
            exchange.answer(exchange.passed_on(body))
            return
        deletes.append(body)
        if len(deletes) == 1:
            process.send_signal(signal.SIGINT)
            exchange.cut()
        else:
            exchange.answer(exchange.passed_on(body))

    between.on("repo.applyWrites", end)
    with one.start(str(PROGRAM), "doctor", "--write") as process:
        process.communicate(timeout=60)
    assert process.returncode == 130
    assert len(deletes) == 2
    assert records(alice) == before


def test_a_listing_without_an_end_is_left(one: GitEnv, alice: Account, between: Proxy) -> None:
    counts: dict[str, int] = {}

    def more(exchange: Exchange) -> None:
        collection = exchange.query["collection"]
        begin = counts.get(collection, 0)
        counts[collection] = begin + 100
        keys = [f"{MARKED}.{number:020d}" for number in range(begin, begin + 100)]
        listed = [
            {"uri": f"at://{alice.did}/{collection}/{key}", "cid": CID, "value": {}} for key in keys
        ]
        exchange.answer(Answer.json(200, {"records": listed, "cursor": keys[-1]}))

    between.on("repo.listRecords", more)
    found = doctor(one, "--write", code=1)
    assert "and no end" in found["writing"]["detail"]
    assert max(counts.values()) <= 2 * 10_100
