"""Refs beside what the account has signed, with real git, real hosts and real trees."""

import json
from collections.abc import Callable, Iterator

import pytest

from tests.e2e.conftest import REF, Person
from tests.gitenv import GitEnv
from tests.network import Network
from tests.proxy import Answer, Exchange, Proxy, proxy

ALWAYS = {"KNOTLESS_VERIFY": "always"}
LISTING, PROOF = "com.atproto.repo.listRecords", "com.atproto.sync.getRecord"


@pytest.fixture
def between(network: Network, alice: Person, bob: GitEnv) -> Iterator[Proxy]:
    """What bob asks goes through a host that does as it is told."""
    with proxy(network, alice.account) as host:
        bob.env |= host.environment() | ALWAYS
        yield host


def asked(host: Proxy) -> list[str]:
    found = [each.rpartition(".")[2] for each in host.seen]
    host.seen.clear()
    return found


def test_what_is_signed_is_cloned_and_fetched(alice: Person, bob: GitEnv, between: Proxy) -> None:
    work = alice.published(commits=3)
    bob.git("clone", "--quiet", alice.url(), "copy")
    copy = bob.root / "copy"
    assert bob.oid(copy) == alice.machine.oid(work)
    alice.machine.commit(work)
    alice.git("push", "--quiet", "origin", "main", "main:topic", cwd=work)
    between.seen.clear()
    bob.git("fetch", "--quiet", cwd=copy)
    assert bob.oid(copy, "origin/topic") == alice.machine.oid(work)
    assert set(asked(between)) >= {"getRecord", "listRecords"}
    revs = json.loads((bob.home / "knotless/revs.json").read_text())["revs"]
    assert len(revs) == 1
    bob.git("-c", "knotless.verify=never", "fetch", "--quiet", cwd=copy)


@pytest.mark.slow
def test_a_setting_of_the_repository_s_own_does_not_count(
    alice: Person, bob: GitEnv, between: Proxy
) -> None:
    alice.published(commits=1)
    bob.git("clone", "--quiet", alice.url(), "copy")
    copy = bob.root / "copy"
    del bob.env["KNOTLESS_VERIFY"]
    for scope, proven in (("--local", False), ("--global", True)):
        bob.git("config", scope, "knotless.verify", "always", cwd=copy)
        between.seen.clear()
        bob.git("fetch", "--quiet", cwd=copy)
        assert (f"GET {PROOF}" in between.seen) is proven
        if not proven:
            assert len(between.seen) <= 4
    bob.git("config", "--global", "knotless.verify", "perhaps")
    refused = bob.git("fetch", cwd=copy, code=128)
    assert "knotless.verify: 'perhaps' is none of auto, always, never" in refused.err


def test_a_lie_is_told_and_nothing_comes_of_it(alice: Person, bob: GitEnv, between: Proxy) -> None:
    work = alice.published(commits=2)
    first, second = alice.machine.oid(work, "main~1"), alice.machine.oid(work)

    def lies(exchange: Exchange) -> None:
        answer = exchange.passed_on()
        if exchange.nsid == LISTING and exchange.query["collection"] == REF:
            answer = Answer(200, answer.body.replace(second.encode(), first.encode()))
        exchange.answer(answer)

    between.act(lies)
    refused = bob.git("clone", alice.url(), "copy", code=128)
    assert (
        f"lists refs otherwise than the account has signed them: refs/heads/main is listed at "
        f"{first} (generation 1), and is signed at {second} (generation 1)\n"
        f"hint: git knotless repo verify {alice.url()}\n"
    ) in refused.err
    assert not (bob.root / "copy").exists()
    verified = bob.git("knotless", "repo", "verify", alice.url(), code=1)
    assert f"wrong: refs/heads/main: is listed at {first} (generation 1), and " in verified.out


class Replay:
    """A host that remembers what it said, and says it again."""

    def __init__(self) -> None:
        self.said: dict[str, Answer] = {}
        self.is_old = False

    def __call__(self, exchange: Exchange) -> None:
        name = f"{exchange.nsid} {sorted(exchange.query.items())}"
        if self.is_old and name in self.said:
            exchange.answer(self.said[name])
            return
        answer = exchange.passed_on()
        if not self.is_old:
            self.said[name] = answer
        exchange.answer(answer)


def test_an_older_state_is_refused_until_it_is_accepted(
    alice: Person, bob: GitEnv, between: Proxy
) -> None:
    work = alice.published(commits=2)
    old = alice.machine.oid(work)
    replay = Replay()
    between.act(replay)
    bob.git("clone", "--quiet", alice.url(), "copy")
    bob.git("knotless", "repo", "verify", alice.url())
    between.act(Exchange.pass_on)
    alice.machine.commit(work)
    alice.git("push", "--quiet", "origin", "main", cwd=work)
    copy = bob.root / "copy"
    bob.git("fetch", "--quiet", cwd=copy)

    replay.is_old = True
    between.act(replay)
    refused = bob.git("fetch", cwd=copy, code=128)
    accepting = f"git knotless repo verify --accept-rollback {alice.url()}"
    assert f"{alice.url()}: the host shows an older state than before: localhost:" in refused.err
    assert refused.err.endswith(f"hint: {accepting}\n")
    assert bob.oid(copy, "origin/main") == alice.machine.oid(work)
    assert bob.git("knotless", "repo", "verify", alice.url(), code=1).out == ""
    accepted = bob.git(*accepting.split()[1:])
    assert "was seen before\n" in accepted.out
    assert bob.git("ls-remote", alice.url()).out.startswith(old)
    # What a clone has seen of the refs themselves is another matter, and its own.
    assert "has lost what was pushed to it" in bob.git("fetch", cwd=copy, code=128).err


@pytest.mark.slow
def test_a_thousand_refs(
    alice: Person, bob: GitEnv, between: Proxy, machine: Callable[[], GitEnv]
) -> None:
    """No more than 15 requests more; kept above a thousand, and brought up by one."""
    work = alice.published(commits=2)
    oid = alice.machine.oid(work)

    def branch(first: int, last: int) -> None:
        orders = (f"create refs/heads/t/{n} {oid}\n" for n in range(first, last))
        alice.git("update-ref", "--stdin", cwd=work, stdin="".join(orders))
        alice.git("push", "--quiet", "origin", "refs/heads/t/*:refs/heads/t/*", cwd=work)

    def clone(name: str, **env: str) -> int:
        between.seen.clear()
        bob.git("clone", "--quiet", "--mirror", alice.url(), name, env=env)
        branches = [each for each in alice.machine.refs(work) if each.startswith("refs/heads/")]
        assert sorted(bob.refs(bob.root / name)) == branches
        return len(between.seen)

    branch(0, 999)
    plain, proven = clone("plain", KNOTLESS_VERIFY="never"), clone("proven")
    assert proven - plain <= 15
    snapshots = bob.home / "knotless-cache/snapshots"
    assert not snapshots.exists()
    branch(999, 1100)
    clone("large", KNOTLESS_VERIFY="auto")
    assert len(list(snapshots.iterdir())) == 1
    alice.machine.commit(work)
    alice.git("push", "--quiet", "origin", "main", cwd=work)
    for env in ({"KNOTLESS_VERIFY": "auto"}, ALWAYS):
        between.seen.clear()
        bob.git("fetch", "--quiet", cwd=bob.root / "large", env=env)
        assert len(between.seen) <= 10
        assert asked(between)[:2] != ["getRecord", "listRecords"]
    assert bob.oid(bob.root / "large", "main") == alice.machine.oid(work)
