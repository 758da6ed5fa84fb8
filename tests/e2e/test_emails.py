"""The first push from a machine claims the address that git authors commits as there, once."""

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Person
from tests.gitenv import GitEnv
from tests.network import Account, Network
from tests.proxy import Answer, Exchange, Proxy, proxy

EMAILS = "dev.knotless.emails"
LOOK_UP, CREATE = "repo.getRecord", "repo.putRecord"
ADDRESS = "alice@example.com"
HUNG = 20.0  # seconds that a host says nothing
SOON = 10.0  # that a push takes at most on a machine that is busy: it did not wait for the host


def hash_of(account: Account, address: str) -> str:
    return hashlib.sha256(f"{account.did}\n{address}".encode()).hexdigest()


def claimed(person: Person) -> list[str] | None:
    """The hashes in the account's record; None where there is no record."""
    record = person.account.record(EMAILS, "self")
    return None if record is None else record["hashes"]


def authored_as(machine: GitEnv, address: str) -> None:
    machine.git("config", "--global", "user.email", address)


def remembers(machine: GitEnv, person: Person) -> bool:
    path = machine.home / "knotless-cache" / "emails.json"
    return path.exists() and person.account.did in path.read_text()


def push(person: Person, work: Path, **options: Any) -> str:
    """Another commit; what is said of it."""
    person.machine.commit(work, f"file-{time.monotonic_ns()}")
    return person.git("push", "origin", "main", cwd=work, **options).err


def push_until_remembered(person: Person, work: Path) -> str:
    """What the push says that is not over before the look-up is answered: on a loopback network
    it is a close race, which the next push takes up again."""
    for _ in range(10):
        said = push(person, work)
        if remembers(person.machine, person):
            return said
        assert "note:" not in said
    raise AssertionError("ten pushes were over before a look-up was answered")


def troubles(said: str) -> list[str]:
    """What of it is for a person to mind."""
    words = ("note:", "hint:", "warning:", "error:")
    return [line for line in said.splitlines() if line.startswith(words)]


@pytest.fixture
def alice(alice: Person) -> Person:
    authored_as(alice.machine, ADDRESS)
    return alice


@pytest.fixture
def work(alice: Person) -> Path:
    """A repository with its remote, to which nothing was pushed."""
    path = alice.machine.repository()
    alice.git("remote", "add", "origin", alice.create(), cwd=path)
    return path


@pytest.fixture
def host(alice: Person, work: Path, network: Network) -> Iterator[Proxy]:
    """What alice's machine talks to from now on."""
    with proxy(network, alice.account) as between:
        alice.machine.env |= between.environment()
        # What named the account's own host.
        (alice.machine.home / "knotless-cache" / "identity.json").unlink()
        alice.machine.log_in(alice.account)
        yield between


def is_look_up(exchange: Exchange) -> bool:
    return exchange.nsid.endswith(LOOK_UP) and exchange.query["collection"] == EMAILS


def test_the_first_push_claims_and_says_so_and_the_next_does_not(alice: Person, work: Path) -> None:
    said = push_until_remembered(alice, work)
    assert claimed(alice) == [hash_of(alice.account, ADDRESS)]
    assert f"note: {alice.handle} claims {ADDRESS} now, which git authors commits as" in said
    assert f"hint: git knotless account email remove {ADDRESS}" in said
    assert "note:" not in push(alice, work)


def test_what_the_push_says_takes_it_back_for_good(alice: Person, work: Path) -> None:
    push_until_remembered(alice, work)
    alice.git("knotless", "account", "email", "remove", ADDRESS)
    assert claimed(alice) == []
    (alice.machine.home / "knotless-cache" / "emails.json").unlink()
    assert "note:" not in push_until_remembered(alice, work)
    assert claimed(alice) == []


def test_a_second_machine_finds_the_record_and_claims_nothing(
    alice: Person, work: Path, machine: Callable[[], GitEnv]
) -> None:
    push_until_remembered(alice, work)
    two = Person(alice.account, machine())
    two.machine.log_in(alice.account)
    authored_as(two.machine, "second@example.com")
    clone = two.clone(alice.url())
    assert "note:" not in push_until_remembered(two, clone)
    assert claimed(alice) == [hash_of(alice.account, ADDRESS)]


def test_the_repository_says_who_commits_there(alice: Person, work: Path) -> None:
    alice.git("config", "user.email", " Work@Example.COM ", cwd=work)
    push_until_remembered(alice, work)
    assert claimed(alice) == [hash_of(alice.account, "work@example.com")]


@pytest.mark.parametrize(
    "address",
    [
        "noreply@example.com",
        pytest.param("alice@machine.invalid", marks=pytest.mark.slow),
        pytest.param("nobody", marks=pytest.mark.slow),
    ],
)
def test_an_address_that_tells_of_nobody_is_not_claimed(
    alice: Person, work: Path, address: str
) -> None:
    authored_as(alice.machine, address)
    assert "note:" not in push(alice, work)
    assert claimed(alice) is None


def test_an_address_that_git_guesses_is_not_claimed_and_one_it_is_given_is(
    alice: Person, work: Path
) -> None:
    alice.git("config", "--global", "--unset", "user.email")
    assert "note:" not in alice.git("push", "origin", "main", cwd=work).err
    assert claimed(alice) is None
    alice.machine.env["EMAIL"] = "mail@example.com"
    push_until_remembered(alice, work)
    assert claimed(alice) == [hash_of(alice.account, "mail@example.com")]


def test_a_push_that_lands_nothing_claims_nothing(alice: Person, work: Path) -> None:
    alice.git("push", "--dry-run", "origin", "main", cwd=work)
    assert claimed(alice) is None
    push_until_remembered(alice, work)
    alice.account.delete(EMAILS, "self")
    (alice.machine.home / "knotless-cache" / "emails.json").unlink()
    alice.git("commit", "--quiet", "--amend", "--message=other", cwd=work)
    alice.git("push", "origin", "main", cwd=work, code=1)
    alice.git("push", "--force", "--dry-run", "origin", "main", cwd=work)
    assert claimed(alice) is None
    assert not remembers(alice.machine, alice)


def test_of_several_accounts_the_one_that_pushes_is_named(
    alice: Person, work: Path, account: Callable[..., Account]
) -> None:
    other = account("other")
    alice.machine.log_in(other)
    said = push_until_remembered(alice, work)
    command = f"git knotless account email remove {ADDRESS} --account {alice.handle}"
    assert f"hint: {command}" in said
    assert other.record(EMAILS, "self") is None
    alice.git(*command.split()[1:])
    assert claimed(alice) == []


def test_a_host_that_hangs_on_the_look_up_does_not_delay_the_push(
    alice: Person, work: Path, host: Proxy
) -> None:
    """The next push looks it up again."""
    hanging: list[Exchange] = []

    def act(exchange: Exchange) -> None:
        if is_look_up(exchange):
            hanging.append(exchange)
            exchange.leave_unanswered(HUNG)
        else:
            exchange.pass_on()

    host.act(act)
    begun = time.monotonic()
    said = push(alice, work)
    assert time.monotonic() - begun < SOON
    assert hanging
    assert "note:" not in said
    assert not remembers(alice.machine, alice)
    assert alice.remote_refs(alice.url())["refs/heads/main"] == alice.machine.oid(work)
    host.well()
    assert "note:" in push_until_remembered(alice, work)


@pytest.mark.parametrize(
    ("status", "name"),
    [
        (400, "InvalidRequest"),
        pytest.param(400, "RecordNotAllowed", marks=pytest.mark.slow),
        pytest.param(403, "Forbidden", marks=pytest.mark.slow),
    ],
)
def test_a_create_that_is_refused_is_silent_and_not_tried_again(
    alice: Person, work: Path, host: Proxy, status: int, name: str
) -> None:
    refused = Answer.json(status, {"error": name, "message": "no"})
    host.on(CREATE, lambda exchange: exchange.answer(refused))
    assert troubles(push_until_remembered(alice, work)) == []
    host.well()
    before = len(host.seen)
    assert "note:" not in push(alice, work)
    assert f"POST com.atproto.{CREATE}" not in host.seen[before:]
    assert claimed(alice) is None


def test_a_login_that_the_host_finds_is_not_for_that_is_silent(
    alice: Person, work: Path, host: Proxy
) -> None:
    refused = Answer.json(403, {"error": "ScopeMissingError", "message": "no"})
    host.on(CREATE, lambda exchange: exchange.answer(refused))
    assert troubles(push(alice, work)) == []
    assert claimed(alice) is None


def test_a_login_for_other_records_alone_asks_nothing(
    alice: Person, work: Path, host: Proxy
) -> None:
    (path,) = alice.machine.home.rglob("did_*.json")
    session = json.loads(path.read_text())
    records = ("repo", "ref", "claim", "pack")
    repository = " ".join(f"repo:dev.knotless.{each}" for each in records)
    session["scope"] = f"atproto {repository} blob:*/*"
    path.write_text(json.dumps(session))
    asked: list[str] = []

    def act(exchange: Exchange) -> None:
        asked.extend([exchange.nsid] if is_look_up(exchange) else [])
        exchange.pass_on()

    host.act(act)
    assert troubles(push(alice, work)) == []
    assert asked == []
    assert not remembers(alice.machine, alice)


@pytest.mark.parametrize("what", [pytest.param(LOOK_UP, marks=pytest.mark.slow), CREATE])
def test_a_host_that_fails_is_silent_and_asked_again(
    alice: Person, work: Path, host: Proxy, what: str
) -> None:
    def act(exchange: Exchange) -> None:
        if exchange.nsid.endswith(what) and (what == CREATE or is_look_up(exchange)):
            exchange.answer(Answer.json(500, {"error": "InternalServerError"}))
        else:
            exchange.pass_on()

    host.act(act)
    assert troubles(push(alice, work)) == []
    assert not remembers(alice.machine, alice)
    host.well()
    assert "note:" in push_until_remembered(alice, work)


def test_a_create_that_is_not_answered_holds_git_up_for_a_moment_only(
    alice: Person, work: Path, host: Proxy
) -> None:
    host.on(CREATE, lambda exchange: exchange.leave_unanswered(HUNG))
    begun = time.monotonic()
    assert "note:" not in push(alice, work)
    assert time.monotonic() - begun < SOON
    assert not remembers(alice.machine, alice)


def test_two_machines_that_add_and_take_back_at_once(alice: Person) -> None:
    """Whoever was second read again: each has its own way."""

    def email(*words: str) -> None:
        alice.git("knotless", "account", "email", *words, timeout=120)

    email("add", "gone@example.com")
    words = [("remove", "gone@example.com"), *(("add", f"{n}@example.com") for n in range(3))]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda each: email(*each), words))
    expected = {hash_of(alice.account, f"{n}@example.com") for n in range(3)}
    assert set(claimed(alice) or []) == expected
