"""git, the helper and a real host: what the helper itself adds to what storage does."""

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.gitenv import GIT, GitEnv
from tests.network import Account, Network
from tests.proxy import Exchange, proxy

Accounts = Callable[..., Account]
Machines = Callable[[], GitEnv]
LARGE = 1_500_000  # bytes: a pack that is indexed alone


@pytest.fixture
def alice(account: Accounts) -> Account:
    return account("alice")


@pytest.fixture
def mine(machine: Machines, alice: Account) -> GitEnv:
    """Alice's machine, logged in, with the repository `hello` whose default branch is trunk."""
    mine = machine()
    mine.log_in(alice)
    mine.create(url_of(alice), default_branch="trunk")
    return mine


def url_of(account: Account, name: str = "hello") -> str:
    return f"knotless://{account.handle}/{name}"


def test_a_missing_repository_says_how_it_is_made(mine: GitEnv, alice: Account) -> None:
    work, url = mine.repository(), url_of(alice, "missing")
    pushed = mine.git("push", url, "main", cwd=work, code=128)
    hint = f"git knotless create {alice.handle}/missing"
    assert pushed.err == f"error: {url}: no such repository\nhint: {hint}\n"
    assert mine.git("ls-remote", url, code=128).err == f"error: {url}: no such repository\n"
    assert not alice.record("dev.knotless.repo", "missing")


def test_a_push_needs_a_login_and_a_clone_none(
    mine: GitEnv, alice: Account, machine: Machines
) -> None:
    work = mine.repository(commits=3)
    mine.git("push", url_of(alice), "main:trunk", "main", cwd=work)
    other = machine()
    other.git("clone", "--quiet", url_of(alice), "clone")
    clone = other.root / "clone"
    assert other.git("symbolic-ref", "HEAD", cwd=clone).out == "refs/heads/trunk\n"
    assert other.oid(clone) == mine.oid(work)
    refused = other.git("push", "origin", "trunk:new", cwd=clone, code=128)
    assert refused.err.startswith(f"error: not logged in as {alice.handle}\nhint: git knotless ")
    assert len(alice.records("dev.knotless.ref")) == 2


def test_a_clone_of_nothing_is_ready_for_the_first_push(mine: GitEnv, alice: Account) -> None:
    done = mine.git("clone", url_of(alice), "clone")
    assert "You appear to have cloned an empty repository" in done.err
    clone = mine.root / "clone"
    assert mine.git("symbolic-ref", "HEAD", cwd=clone).out == "refs/heads/trunk\n"
    mine.commit(clone)
    mine.git("push", cwd=clone)
    (ref,) = alice.records("dev.knotless.ref").values()
    assert (ref["name"], ref["target"]) == ("refs/heads/trunk", mine.oid(clone))


def test_a_fetch_keeps_nothing_once_refs_are_moved(mine: GitEnv, alice: Account) -> None:
    work = mine.repository()
    mine.git("clone", "--quiet", url_of(alice), "clone")
    for number in range(3):
        mine.commit(work, f"large{number}", os.urandom(LARGE))
        mine.git("push", "--quiet", url_of(alice), "main:trunk", cwd=work)
    clone = mine.root / "clone"
    fetched = mine.git("fetch", cwd=clone)
    assert "warning" not in fetched.err
    packs = clone / ".git/objects/pack"
    assert len(list(packs.glob("*.pack"))) > 1
    assert not list(packs.glob("*.keep"))
    mine.git("fsck", "--strict", cwd=clone)
    assert mine.oid(clone, "origin/trunk") == mine.oid(work)


def keeps(repository: Path) -> list[Path]:
    return [path for path in repository.rglob("*") if path.suffix == ".keep"]


def test_a_path_that_is_no_single_line(mine: GitEnv, alice: Account) -> None:
    """git would read the rest of it as an answer: we keep and release the pack ourselves."""
    work = mine.repository()
    mine.git("push", "--quiet", url_of(alice), "main:trunk", cwd=work)
    done = mine.git("clone", url_of(alice), "two\nconnectivity-ok")
    clone = mine.root / "two\nconnectivity-ok"
    assert "warning" not in done.err
    assert "unexpectedly" not in done.err
    assert mine.oid(clone) == mine.oid(work)
    assert keeps(clone) == []


def test_git_that_is_killed_takes_us_along(
    mine: GitEnv, alice: Account, machine: Machines, network: Network
) -> None:
    """However long the host takes; and nothing is left of what was coming in."""
    work, other = mine.repository(), machine()
    mine.commit(work, "large", os.urandom(2 * LARGE))
    mine.git("push", "--quiet", url_of(alice), "main:trunk", cwd=work)
    clone = other.repository(commits=0)
    asked, over = threading.Event(), threading.Event()

    def silent(exchange: Exchange) -> None:
        asked.set()
        over.wait(60)
        exchange.cut()

    with proxy(network, alice) as host:
        host.on("sync.getBlob", silent)
        env = host.environment()
        with other.start(str(GIT), "fetch", url_of(alice), "trunk", cwd=clone, env=env) as process:
            assert asked.wait(30)
            process.kill()
            # Whoever holds an end of these has ended.
            out, err = process.communicate(timeout=10)
        over.set()
    assert (out, err) == (b"", b"error: git-remote-knotless died of signal 15\n")  # git's words
    assert keeps(clone) == []
    assert list((clone / ".git/objects/pack").iterdir()) == []


@pytest.mark.parametrize("version", ["2", pytest.param("0", marks=pytest.mark.slow)])
def test_a_shallow_repository_is_made_whole(mine: GitEnv, alice: Account, version: str) -> None:
    """One that was made elsewhere; and with an old protocol, said where it cannot be done."""
    work = mine.repository(commits=5)
    mine.git("push", "--quiet", url_of(alice), "main:trunk", cwd=work)
    mine.git("clone", "--quiet", "--depth=2", work.as_uri(), "clone")
    clone = mine.root / "clone"
    mine.git("remote", "set-url", "origin", url_of(alice), cwd=clone)
    mine.git("config", "protocol.version", version, cwd=clone)
    counts = []
    for option in ("--deepen=1", "--depth=2"):
        fetched = mine.git("fetch", option, "origin", "trunk", cwd=clone)
        assert fetched.err.count("history stays cut off where it is") == (version == "0")
        assert "everything is fetched" not in fetched.err
        counts.append(int(mine.git("rev-list", "--count", "FETCH_HEAD", cwd=clone).out))
    assert counts == ([3, 2] if version == "2" else [2, 2])
    fetched = mine.git("fetch", "--unshallow", "origin", "trunk", cwd=clone)
    assert "warning" not in fetched.err
    assert not list((clone / ".git").glob("shallow*"))
    assert mine.git("rev-list", "--count", "FETCH_HEAD", cwd=clone).out == "5\n"
    mine.git("fsck", "--strict", cwd=clone)
    assert keeps(clone) == []


def test_a_ref_to_what_is_not_there_is_named(mine: GitEnv, alice: Account) -> None:
    work = mine.repository(commits=2)
    mine.git("push", "--quiet", url_of(alice), "main:trunk", "main~1:refs/heads/older", cwd=work)
    for rkey in alice.records("dev.knotless.pack"):
        pack = {"repo": alice.did, "collection": "dev.knotless.pack", "rkey": rkey}
        alice.post("com.atproto.repo.deleteRecord", pack)
    refused = mine.git("clone", url_of(alice), "clone", code=128).err
    assert f"{mine.oid(work)} (refs/heads/trunk) is in no pack" in refused
    assert f"{mine.oid(work, 'main~1')} (refs/heads/older) is in no pack" in refused


def test_object_formats_are_not_mixed(mine: GitEnv, alice: Account) -> None:
    mine.git("push", "--quiet", url_of(alice), "main:trunk", cwd=mine.repository())
    mine.git("init", "--quiet", "--object-format=sha256", "other")
    other, words = mine.root / "other", "names its objects by sha1, and this repository by sha256"
    assert words in mine.git("fetch", url_of(alice), cwd=other, code=128).err
    mine.git("commit", "--quiet", "--allow-empty", "--message=one", cwd=other)
    assert words in mine.git("push", url_of(alice), "main", cwd=other, code=1).err
    by_default = {"GIT_DEFAULT_HASH": "sha256"}
    mine.git("clone", "--quiet", url_of(alice), "clone", env=by_default)
    shown = mine.git("rev-parse", "--show-object-format", cwd=mine.root / "clone")
    assert shown.out == "sha1\n"


def test_a_remote_stays_with_the_account_that_it_led_to(
    mine: GitEnv, alice: Account, account: Accounts
) -> None:
    work, bob = mine.repository(), account("bob")
    mine.git("remote", "add", "origin", url_of(alice), cwd=work)
    mine.git("push", "--quiet", "origin", "main", cwd=work)
    assert mine.git("config", "remote.origin.knotlessdid", cwd=work).out == f"{alice.did}\n"

    update, now = "com.atproto.identity.updateHandle", {"KNOTLESS_IDENTITY_TTL_SECS": "0"}
    alice.post(update, {"handle": f"old-{alice.handle}"})
    bob.post(update, {"handle": alice.handle})
    fetched = mine.git("fetch", cwd=work, code=128, env=now)
    assert f"leads to {bob.did} now, and origin is a remote of {alice.did}\n" in fetched.err
    old = f"knotless://old-{alice.handle}/hello"
    assert fetched.err.splitlines()[-1] == f"hint: git remote set-url origin {old}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "signum", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_a_push_that_is_interrupted_leaves_nothing(
    mine: GitEnv, alice: Account, signum: signal.Signals
) -> None:
    work = mine.repository()
    mine.commit(work, "large", os.urandom(20 * LARGE))
    with mine.start(str(GIT), "push", url_of(alice), "main", cwd=work) as process:
        _wait_for(work / ".git/knotless")
        os.killpg(process.pid, signum)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (-signum, b"")
    assert b"Traceback" not in err
    assert list((work / ".git/knotless").iterdir()) == []
    assert alice.records("dev.knotless.ref") == {}
    mine.git("push", "--quiet", url_of(alice), "main", cwd=work)


def _wait_for(directory: Path) -> None:
    """Until the helper is at work on the pack, which it spools there."""
    deadline = time.monotonic() + 30
    while not directory.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)  # nothing tells when it appears
