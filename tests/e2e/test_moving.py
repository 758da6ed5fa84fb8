"""An account moves to another host, as a person moves one: what its clones make of it."""

import io
import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from threading import Thread
from urllib.parse import parse_qs, urlsplit

import pytest

from git_knotless.errors import LoginNeeded
from git_knotless.storage.git import Git
from git_knotless.storage.progress import TextProgress
from git_knotless.storage.pushing.push import push
from git_knotless.storage.pushing.updates import Update
from tests.e2e.conftest import PACK, Person
from tests.gitenv import GitEnv, Result
from tests.network import Moving, Network

LARGE = Random(6).randbytes(70_000)  # too much for a record: it takes a blob


class Names(ThreadingHTTPServer):
    """Stands for the DNS: whom handles name that are of no host's."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Asked)
        self.dids: dict[str, str] = {}

    @property
    def url(self) -> str:
        return f"http://localhost:{self.server_port}"


class Asked(BaseHTTPRequestHandler):
    server: Names

    def do_GET(self) -> None:
        (handle,) = parse_qs(urlsplit(self.path).query)["handle"]
        did = self.server.dids.get(handle)
        said = {"did": did} if did else {"error": "HandleNotFound", "message": "nobody"}
        body = json.dumps(said).encode()
        self.send_response(200 if did else 400)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Not to stderr, which is the test's."""


@pytest.fixture(scope="module")
def names() -> Iterator[Names]:
    with Names() as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def at_home(names: Names, network: Network) -> Callable[..., None]:
    """Machines that ask the DNS first."""

    def set_up(person: Person, *machines: GitEnv) -> None:
        names.dids[person.handle] = person.account.did
        asked = " ".join([names.url, *(host.url for host in network.hosts)])
        for machine in (person.machine, *machines):
            machine.env["KNOTLESS_HANDLE_RESOLVER"] = asked

    return set_up


def name_of(url: str) -> str:
    return url.removeprefix("http://")


def hint(ran: Result) -> str:
    (found,) = (line for line in ran.err.splitlines() if line.startswith("hint: git "))
    return found.removeprefix("hint: ")


def follow(machine: GitEnv, ran: Result, cwd: Path) -> Result:
    """Type what was printed, as it was printed."""
    return machine.run("/bin/sh", "-c", hint(ran), cwd=cwd)


def known_host(machine: GitEnv, did: str) -> str | None:
    """Where the cache says that the account is."""
    cache = json.loads((machine.home / "knotless-cache/identity.json").read_text())
    return cache["dids"].get(did, {}).get("pds")


@pytest.fixture
def both(alice: Person, bob: GitEnv, at_home: Callable[..., None]) -> tuple[Path, Path]:
    """alice's work tree, and bob's clone."""
    at_home(alice, bob)
    work = alice.published()
    bob.git("clone", "--quiet", alice.url(), "copy")
    return work, bob.root / "copy"


def test_everything_goes_on_at_the_new_host(
    network: Network, alice: Person, bob: GitEnv, both: tuple[Path, Path]
) -> None:
    work, copy = both
    moving = Moving(network, alice.account)
    moving.bring_records()
    new = moving.finish()
    where = name_of(new.host.url)
    assert bob.git("fetch", cwd=copy).err == ""
    assert known_host(bob, new.did) == new.host.url

    tip = alice.machine.commit(work)
    refused = alice.git("push", cwd=work, code=128)
    assert f"error: {alice.handle} moved to {where}\n" in refused.err
    assert hint(refused) == f"git knotless login {alice.handle}"
    alice.machine.login(new)
    assert "warning" not in alice.git("push", cwd=work).err
    bob.git("pull", "--quiet", cwd=copy)
    assert bob.oid(copy) == tip
    key = alice.git("config", "remote.origin.knotlessdid", cwd=work).out
    assert key == f"{new.did}\n"


def test_commands_go_on_too_and_a_password_logs_in_again(
    network: Network, alice: Person, both: tuple[Path, Path]
) -> None:
    work, _ = both
    moving = Moving(network, alice.account)
    moving.bring_records()
    moving.finish()
    assert alice.git("knotless", "repo", "show", cwd=work).err == ""
    edited = alice.git("knotless", "repo", "edit", "--archived", cwd=work, code=4)
    assert f"{alice.handle} moved to" in edited.err
    password = {"KNOTLESS_ACCOUNT": alice.handle, "KNOTLESS_PASSWORD": moving.new.password}
    tip = alice.machine.commit(work)
    alice.git("push", "--quiet", cwd=work, env=password)
    assert alice.remote_refs(alice.url())["refs/heads/main"] == tip
    assert alice.git("push", cwd=work).err == "Everything up-to-date\n"


def test_a_handle_that_was_left_behind(
    network: Network, alice: Person, bob: GitEnv, names: Names, both: tuple[Path, Path]
) -> None:
    """The host that gave it out keeps it; the remote knows whom it named."""
    _, copy = both
    handle = alice.handle.replace(".test", ".pds1.test")
    moving = Moving(network, alice.account, handle=handle)
    moving.bring_records()
    moving.finish()
    del names.dids[alice.handle]
    names.dids[handle] = alice.account.did
    new = f"knotless://{handle}/work"
    (bob.home / "knotless-cache/identity.json").unlink()
    fetched = bob.git("fetch", cwd=copy)
    assert f"warning: {alice.url()} is now {new}\n" in fetched.err
    assert hint(fetched) == f"git remote set-url origin {new}"
    follow(bob, fetched, copy)
    assert bob.git("fetch", cwd=copy).err == ""
    unknown = bob.git("ls-remote", alice.url(), code=128)
    assert f"error: {alice.handle}: no such handle\n" in unknown.err


def test_an_account_on_its_way_is_not_taken_for_a_broken_one(
    network: Network, alice: Person, bob: GitEnv, both: tuple[Path, Path]
) -> None:
    work, copy = both
    alice.machine.commit(work, "large", LARGE)
    alice.git("push", "--quiet", cwd=work)
    moving = Moving(network, alice.account)
    moving.bring_records()
    moving.point()
    moving.leave()
    where = name_of(moving.new.host.url)
    for machine, command in ((bob, ["fetch"]), (alice.machine, ["push"])):
        waits = machine.git(*command, cwd=copy if machine is bob else work, code=128)
        assert f"error: {alice.handle} is still being moved to {where}: " in waits.err
    assert known_host(bob, alice.account.did) is None, "the next asks again"
    fresh = bob.git("clone", alice.url(), "fresh", code=128)
    assert f"not active at {where}: it is deactivated, or still being moved there" in fresh.err

    moving.activate()
    for machine, command in ((bob, ["clone", alice.url(), "fresh"]), (bob, ["fetch"])):
        waits = machine.git(*command, cwd=copy if command == ["fetch"] else bob.root, code=None)
        assert waits.code != 0
        assert "still being moved" in waits.err
        (pack,) = [key for key, value in moving.new.records(PACK).items() if "blobs" in value]
        assert f"pack {pack}" in waits.err
    assert moving.bring_blobs() == 1
    bob.git("pull", "--quiet", cwd=copy)
    assert bob.oid(copy) == alice.machine.oid(work)
    bob.git("clone", "--quiet", alice.url(), "fresh")


def test_a_push_that_the_old_host_still_took(
    network: Network, alice: Person, bob: GitEnv, both: tuple[Path, Path]
) -> None:
    work, copy = both
    before = alice.machine.oid(work)
    moving = Moving(network, alice.account)
    moving.bring_records()
    tip = alice.machine.commit(work)
    alice.git("push", "--quiet", "origin", "main", "main:late", cwd=work)
    bob.git("fetch", "--quiet", cwd=copy)
    new = moving.finish()
    old_host, new_host = (name_of(account.host.url) for account in (alice.account, new))
    lost = (
        f"error: {alice.url()} has lost what was pushed to it: "
        f"refs/heads/late went back from generation 1 ({tip}) at {old_host} "
        f"to generation 0 (not there) at {new_host}; "
        f"refs/heads/main went back from generation 2 ({tip}) at {old_host} "
        f"to generation 1 ({before}) at {new_host}\n"
    )
    for machine, place in ((bob, copy), (alice.machine, work)):
        for _ in range(2):
            assert lost in machine.git("fetch", cwd=place, code=128).err
    assert bob.oid(copy, "origin/main") == tip

    alice.machine.login(new)
    noticed = alice.git("fetch", cwd=work, code=128)
    again = f"git push origin {tip}:refs/heads/late {tip}:refs/heads/main"
    assert hint(noticed) == again
    pushed = alice.git("push", "origin", "main", cwd=work)
    assert "lost" not in pushed.err
    left = alice.git("fetch", cwd=work, code=128)
    assert "refs/heads/late went back" in left.err
    assert "refs/heads/main" not in left.err
    follow(alice.machine, left, work)
    for machine, place in ((bob, copy), (alice.machine, work)):
        assert machine.git("fetch", cwd=place).err == ""
    assert alice.remote_refs(alice.url())["refs/heads/late"] == tip


def test_whoever_cannot_push_it_again_can_do_without(
    network: Network, alice: Person, bob: GitEnv, both: tuple[Path, Path]
) -> None:
    work, copy = both
    before = alice.machine.oid(work)
    moving = Moving(network, alice.account)
    moving.bring_records()
    alice.machine.commit(work)
    alice.git("push", "--quiet", cwd=work)
    bob.git("fetch", "--quiet", cwd=copy)
    moving.finish()
    noticed = bob.git("fetch", cwd=copy, code=128)
    (command,) = (line for line in noticed.err.splitlines() if line.startswith("hint: rm "))
    bob.run("/bin/sh", "-c", command.removeprefix("hint: "), cwd=copy)
    bob.git("fetch", "--quiet", cwd=copy)
    assert bob.oid(copy, "origin/main") == before


@pytest.mark.parametrize("password", [False, True])
def test_a_push_that_is_under_way(
    network: Network, alice: Person, bob: GitEnv, both: tuple[Path, Path], *, password: bool
) -> None:
    """It was told of a commit that the new host knows nothing of: that has to come along."""
    work, _ = both
    moving = Moving(network, alice.account)
    moving.bring_records()
    alice.machine.commit(work, "large", LARGE)
    alice.git("push", "--quiet", cwd=work)
    tip = alice.machine.commit(work, "larger", LARGE[::-1])
    if password:
        account = {"KNOTLESS_ACCOUNT": alice.handle, "KNOTLESS_PASSWORD": moving.new.password}
        alice.machine.env.update(account)
    git = Git(work / ".git", env=alice.machine.env)
    updates = [Update("refs/heads/topic", tip), Update("refs/heads/main", tip)]
    with alice.machine.knotless() as context:
        repository = context.open(alice.url(), to="push to")
        snapshot = repository.snapshot()
        new = moving.finish()

        def go_on() -> dict[str, str | None]:
            silent = TextProgress(io.StringIO(), enabled=False)
            outcomes = push(repository, git, snapshot, updates, progress=silent, notify=print)
            return {outcome.name: outcome.error for outcome in outcomes}

        if password:
            assert go_on() == {"refs/heads/topic": None, "refs/heads/main": "fetch first"}
        else:
            with pytest.raises(LoginNeeded, match=rf"{alice.handle} moved to localhost:\d+$"):
                go_on()
    if password:
        bob.git("clone", "--quiet", "--branch=topic", alice.url(), "whole")
        bob.git("fsck", "--strict", cwd=bob.root / "whole")
        assert bob.oid(bob.root / "whole") == tip
    else:
        assert "refs/heads/topic" not in alice.remote_refs(alice.url())
    assert known_host(alice.machine, new.did) == new.host.url
