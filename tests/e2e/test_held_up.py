"""A push that a slow pre-push hook holds up: what it read is not what it goes by any more once
claims may be gone, which is half their grace."""

import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import CLAIM, REF, Person
from tests.gitenv import GitEnv
from tests.network import Account, Network
from tests.proxy import Proxy, proxy

GRACE = 2
READ, WRITE = "GET com.atproto.repo.getRecord", "POST com.atproto.repo.applyWrites"


@pytest.fixture
def host(account: Callable[..., Account], network: Network) -> Iterator[tuple[Account, Proxy]]:
    alice = account("alice")
    with proxy(network, alice) as between:
        yield alice, between


@pytest.fixture
def alice(host: tuple[Account, Proxy], machine: Callable[[], GitEnv]) -> Person:
    account, between = host
    person = Person(account, machine())
    person.machine.env |= between.environment() | {"KNOTLESS_CLAIM_GRACE_SECS": str(GRACE)}
    person.machine.log_in(account)
    return person


def hook(work: Path, *lines: str) -> None:
    """What git does between reading the refs and pushing."""
    script = work / ".git/hooks/pre-push"
    script.parent.mkdir(exist_ok=True)
    # What git tells a hook of its repository is not of those that it goes to.
    script.write_text("\n".join(["#!/bin/sh", "set -e", "unset GIT_DIR GIT_PREFIX", *lines, ""]))
    script.chmod(script.stat().st_mode | stat.S_IXUSR)


def asked(alice: Person, host: Proxy, work: Path) -> list[str]:
    """What one more push takes."""
    alice.machine.commit(work, "file", f"{len(host.seen)}\n")
    before = len(host.seen)
    alice.git("push", cwd=work)
    return host.seen[before:]


def test_it_reads_again_after_half_the_grace(alice: Person, host: tuple[Account, Proxy]) -> None:
    work, between = alice.published(), host[1]
    quick = asked(alice, between, work)
    hook(work, f"sleep {GRACE / 2 + 0.2}")
    slow = asked(alice, between, work)
    assert (quick.count(WRITE), slow.count(WRITE)) == (1, 1)
    assert slow.count(READ) == quick.count(READ) + 1
    assert alice.remote_refs(alice.url())["refs/heads/main"] == alice.machine.oid(work)


@pytest.mark.slow
def test_what_was_pruned_meanwhile_is_not_gone_by(alice: Person) -> None:
    """The ref is where it was again, and the claims that tell are gone: it is refused all the
    same, and what the others pushed stands."""
    work = alice.published()
    clone = alice.clone(alice.url())
    was = alice.machine.oid(work)
    alice.machine.commit(work)
    push = f"git -C {clone} push --quiet --force origin"
    hook(
        work,
        f"{push} HEAD~1:main",
        f"{push} HEAD:main",
        f"sleep {GRACE + 1.2}",
        f"git knotless repo compact {alice.url()} >&2",
    )
    pushed = alice.git("push", cwd=work, code=1)
    assert "(fetch first)" in pushed.err
    assert alice.account.records(CLAIM).keys() == {
        rkey for rkey in alice.account.records(CLAIM) if ".epoch." in rkey
    }
    (main,) = [ref for ref in alice.account.records(REF).values() if ref["name"].endswith("main")]
    assert (main["target"], main["generation"]) == (was, 3)
    hook(work)
    alice.git("pull", "--quiet", "--rebase", cwd=work)
    alice.git("push", cwd=work)
    alice.clone(alice.url(), "after")
