"""A repository is folded and pruned while others read and write it, whatever happens in between."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from git_knotless.storage.git import Git
from tests.e2e.conftest import CLAIM, PACK, Person
from tests.e2e.test_faults import Between, landed_and_500, landed_and_lost
from tests.gitenv import GIT, GitEnv
from tests.marks import sandbox_only
from tests.network import Account, Network
from tests.proxy import Exchange, proxy
from tests.storage.pushing import commits_of, push_each

AT_ONCE = {"KNOTLESS_CLAIM_GRACE_SECS": "0"}
LARGE = 60_000  # bytes: a pack that is a blob
APPLY = "repo.applyWrites"


@pytest.fixture
def between(
    account: Callable[..., Account], network: Network, machine: Callable[[], GitEnv]
) -> Iterator[Between]:
    alice = account("alice")
    with proxy(network, alice) as host:
        yield Between(Person(alice, machine()), host)


def compacted(person: Person, *options: str, **env: str) -> dict[str, Any]:
    command = ("knotless", "repo", "compact", person.url(), "--json", *options)
    told: dict[str, Any] = json.loads(person.git(*command, env=AT_ONCE | env).out)
    return told


def sized(machine: GitEnv, url: str, **env: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(
        machine.git("knotless", "repo", "size", url, "--json", env=env).out
    )
    return told


def replaced(person: Person, work: Path, times: int, *, size: int = LARGE) -> None:
    """The last commit, by another each time, in a pack each."""
    for number in range(times):
        person.machine.commit(work, "large", os.urandom(size), message=f"{number}")
        person.git("push", "-q", "--force", "origin", "main", cwd=work)
        if number < times - 1:
            person.git("reset", "-q", "--hard", "HEAD~1", cwd=work)


def settle() -> None:
    """Until what was replaced is older than the host's clock is known to."""
    time.sleep(1.1)  # which is to a second


def agrees(person: Person, work: Path, name: str) -> None:
    """A fresh clone by real git is what was pushed."""
    assert person.machine.oid(person.clone(person.url(), name)) == person.machine.oid(work)


def test_what_a_repository_takes(alice: Person, bob: GitEnv) -> None:
    work = alice.published()
    replaced(alice, work, 3)
    settle()
    before = sized(bob, alice.url(), **AT_ONCE)
    assert before["readers"] == "anyone"
    parts = {part["collection"].rpartition(".")[2]: part for part in before["records"]}
    assert parts["ref"]["count"] == parts["repo"]["count"] == 1
    assert parts["pack"]["count"] == len(alice.account.records(PACK)) == 4
    assert parts["pack"]["blobs"] == 3
    assert 3 * LARGE < parts["pack"]["blobBytes"] < before["bytes"] < 4 * LARGE
    assert parts["claim"]["count"] == len(alice.account.records(CLAIM))
    assert 2 * LARGE < before["prunable"]["bytes"] < 3 * LARGE
    assert sized(bob, alice.url())["prunable"]["bytes"] == 0  # a day has to go by

    told = compacted(alice, "--dry-run")
    assert (told["dryRun"], told["freed"]) == (True, before["prunable"]["bytes"])
    assert sized(bob, alice.url(), **AT_ONCE) == before
    done = compacted(alice)
    assert abs(done["freed"] - told["freed"]) < 100
    after = sized(bob, alice.url(), **AT_ONCE)
    assert after["bytes"] < before["bytes"] - 2 * LARGE
    assert after["prunable"] == {"packs": 0, "bytes": 0, "claims": 0, "held": []}
    agrees(alice, work, "after")


@pytest.mark.slow
def test_folded_while_it_is_cloned(between: Between) -> None:
    """The clone has listed the packs, and is about to fetch one of them."""
    person, done = between.person, list[Any]()
    replaced(person, between.work, 3)
    settle()

    def fold(exchange: Exchange) -> None:
        between.host.well()
        done.append(compacted(person))
        exchange.pass_on()

    between.host.on("sync.getBlob", fold, times=1)
    agrees(person, between.work, "meanwhile")
    assert [each["packs"] > 0 for each in done] == [True]
    agrees(person, between.work, "afterwards")


@pytest.mark.slow
def test_pushed_to_while_it_is_pruned(between: Between) -> None:
    """Before each write of the prune, and after it."""
    person, work = between.person, between.work
    replaced(person, work, 2)
    for number in (1, 2):  # the epoch moves, and what goes goes
        for pushes_first in (True, False):
            _prune_and_push(between, number, pushes_first=pushes_first)
            agrees(person, work, f"clone{number}{pushes_first}")


def _push_another(between: Between) -> None:
    between.person.git("reset", "-q", "--hard", "HEAD~1", cwd=between.work)
    replaced(between.person, between.work, 1, size=1_000)


def _prune_and_push(between: Between, number: int, *, pushes_first: bool) -> None:
    writes = [number]

    def act(exchange: Exchange) -> None:
        if not exchange.nsid.endswith(APPLY):
            exchange.pass_on()
            return
        writes[0] -= 1
        if writes[0] != -1:
            exchange.pass_on()
            return
        if pushes_first:
            _push_another(between)
            exchange.pass_on()
        else:
            answer = exchange.passed_on()
            _push_another(between)
            exchange.answer(answer)

    between.host.act(act)
    compacted(between.person)
    between.host.well()


@pytest.mark.slow
@pytest.mark.parametrize(("act", "first"), [(landed_and_500, 0), (landed_and_lost, 1)])
def test_answers_that_say_nothing(
    between: Between, act: Callable[[Exchange], None], first: int
) -> None:
    """Of every other write, as what was lost is sent again."""
    person, writes = between.person, count(first)
    replaced(person, between.work, 3)
    settle()

    def every_other(exchange: Exchange) -> None:
        acts = exchange.nsid.endswith(APPLY) and next(writes) % 2
        (act if acts else Exchange.pass_on)(exchange)

    between.host.act(every_other)
    done = compacted(person)
    between.host.well()
    assert done["packs"] >= 2
    assert next(writes) >= 3
    agrees(person, between.work, "after")


@pytest.mark.slow
def test_killed_at_each_write(between: Between) -> None:
    """Once before the host sees it, and once after it has done it; then it is run again."""
    person, work = between.person, between.work
    replaced(person, work, 2)
    number = 0
    while _killed(between, number // 2, landed=number % 2 == 1):
        agrees(person, work, f"killed{number}")
        _push_another(between)
        number += 1
    assert number >= 6
    settle()
    compacted(person)
    assert compacted(person)["freed"] == 0
    agrees(person, work, "finished")


def _killed(between: Between, number: int, *, landed: bool) -> bool:
    """Whether it was, at that write, rather than done with fewer."""
    writes, killed = count(), list[bool]()
    machine = between.person.machine
    command = (str(GIT), "knotless", "repo", "compact", between.person.url())
    with machine.start(*command, env=AT_ONCE) as process:

        def act(exchange: Exchange) -> None:
            if killed or not exchange.nsid.endswith(APPLY) or next(writes) != number:
                exchange.pass_on()
                return
            if landed:
                exchange.passed_on()
            killed.append(True)
            os.killpg(process.pid, signal.SIGKILL)
            exchange.cut()

        between.host.act(act)
        process.communicate(timeout=120)
    between.host.well()
    return bool(killed)


@sandbox_only
@pytest.mark.slow
def test_many_pushes_are_folded_and_cloned(alice: Person) -> None:
    """By real git, in the foreground, with the memory of what was pushed from here."""
    work = alice.machine.repository("work", commits=52)
    url = alice.create()
    alice.git("remote", "add", "origin", url, cwd=work)
    git = Git(work / ".git", env=alice.machine.env)
    with alice.machine.knotless() as context:
        push_each(context.open(url, to="push to"), git, commits_of(git)[:-1])
    assert len(alice.account.records(PACK)) == 51
    alice.git("push", "-q", "origin", "main", cwd=work, env={"KNOTLESS_AUTO_DETACH": "false"})
    assert len(alice.account.records(PACK)) == 1
    agrees(alice, work, "clone")


def test_only_the_owner_compacts(alice: Person, person: Callable[..., Person]) -> None:
    alice.published()
    mallory = person("mallory")
    refused = mallory.git("knotless", "repo", "compact", alice.url(), code=1)
    assert refused.err.startswith(f"error: only {alice.handle} can change {alice.url()}\n")
    assert mallory.git("knotless", "repo", "compact", alice.url(), "--dry-run").err == ""
