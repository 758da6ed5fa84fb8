"""Clones without all of history, or of its content, and what is fetched into them later."""

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import Person
from tests.gitenv import GIT, GitEnv
from tests.marks import sandbox_only
from tests.network import Network
from tests.proxy import Exchange, Proxy, proxy

COMMITS = 6
LARGE = 200_000  # bytes: a pack that is a blob of its own


@pytest.fixture
def work(alice: Person) -> Path:
    """Six commits in one push, and one more that is a pack of its own."""
    work = alice.published(commits=COMMITS)
    alice.git("tag", "-am", "the third", "v3", "HEAD~3", cwd=work)
    alice.machine.commit(work, "large", os.urandom(LARGE))
    alice.git("push", "-q", "origin", "main", "v3", cwd=work)
    return work


@pytest.fixture
def host(network: Network, alice: Person) -> Iterator[Proxy]:
    with proxy(network, alice.account) as host:
        yield host


@pytest.fixture
def far(machine: Callable[[], GitEnv], host: Proxy) -> GitEnv:
    """A machine that knows the account's host as the proxy only."""
    far = machine()
    far.env |= host.environment()
    return far


def asked(host: Proxy) -> list[str]:
    """The methods since the last time."""
    seen, host.seen[:] = list(host.seen), []
    return [each.rpartition(".")[2] for each in seen]


def count(machine: GitEnv, path: Path, revision: str = "HEAD") -> int:
    return int(machine.git("rev-list", "--count", revision, cwd=path).out)


def clean(machine: GitEnv, path: Path) -> None:
    machine.git("gc", "-q", "--prune=now", cwd=path)
    machine.git("fsck", "--strict", cwd=path)
    assert not list((path / ".git").rglob("*.keep"))


def missing(machine: GitEnv, path: Path) -> int:
    """How many objects are promised, and not here."""
    listed = machine.git("rev-list", "--objects", "--all", "--missing=print", cwd=path).out
    return sum(line.startswith("?") for line in listed.splitlines())


def test_history_is_cut_off_deepened_and_made_whole(
    alice: Person, work: Path, host: Proxy, far: GitEnv
) -> None:
    far.git("clone", "-q", "--depth=1", alice.url(), "clone")
    clone = far.root / "clone"
    assert (count(far, clone), far.oid(clone)) == (1, alice.machine.oid(work))
    assert "getBlob" in asked(host)

    far.git("clone", "-q", "--depth=2", alice.url(), "again")
    assert (count(far, far.root / "again"), "getBlob" in asked(host)) == (2, False)
    far.git("fetch", cwd=clone)
    assert len(asked(host)) <= 4

    new = alice.machine.commit(work, "new")
    alice.git("push", "-q", "origin", "main", cwd=work)
    far.git("fetch", "-q", cwd=clone)
    assert (count(far, clone, "origin/main"), far.oid(clone, "origin/main")) == (2, new)
    clean(far, clone)
    far.git("fetch", "-q", "--deepen=2", cwd=clone)
    assert count(far, clone, "origin/main") == 4
    clean(far, clone)
    far.git("fetch", "-q", "--unshallow", cwd=clone)
    assert count(far, clone, "origin/main") == COMMITS + 2
    assert not (clone / ".git/shallow").exists()
    assert "refs/tags/v3" in far.refs(clone)
    clean(far, clone)
    far.git("fetch", "-q", cwd=clone)


def test_content_comes_as_it_is_needed(alice: Person, work: Path, host: Proxy, far: GitEnv) -> None:
    far.git("clone", "-q", "--filter=blob:none", "--no-checkout", alice.url(), "clone")
    clone = far.root / "clone"
    assert missing(far, clone) == COMMITS + 1
    asked(host)
    far.git("checkout", "-q", "main~3", cwd=clone)
    far.git("blame", "file5", "main~1", cwd=clone)
    far.git("log", "-p", "main", cwd=clone)
    assert missing(far, clone) == 0
    assert asked(host) == [], "the mirror holds what was missing"
    clean(far, clone)

    alice.machine.commit(work, "new", "new\n")
    alice.git("push", "-q", "origin", "main", cwd=work)
    shutil.rmtree(far.home / "knotless-cache" / "mirrors")
    far.git("pull", "-q", "--ff-only", "origin", "main", cwd=clone)
    assert (clone / "new").read_text() == "new\n"
    assert far.oid(clone) == alice.machine.oid(work)
    clean(far, clone)


@pytest.mark.slow
@sandbox_only
def test_a_push_from_a_partial_clone_leaves_no_hole(alice: Person, work: Path, bob: GitEnv) -> None:
    """Nor from one whose new commit has a file again that is only in older ones: it is fetched."""
    mine, url = alice.machine, alice.url()
    (blob,) = mine.git("rev-parse", "main~1:file1", cwd=work).out.split()
    mine.git("rm", "-q", "file1", cwd=work)
    mine.git("commit", "-qm", "Away with it", cwd=work)
    mine.git("push", "-q", "origin", "main", cwd=work)
    clone = mine.root / "clone"
    mine.git("clone", "-q", "--filter=blob:none", "--no-checkout", url, str(clone))
    mine.git("update-index", "--add", "--cacheinfo", f"100644,{blob},file1", cwd=clone)
    tree = mine.git("write-tree", "--missing-ok", cwd=clone).out.strip()
    new = mine.git("commit-tree", "-p", "main", "-m", "Here it is", tree, cwd=clone).out.strip()
    mine.git("push", "-q", "origin", f"{new}:refs/heads/back", cwd=clone)
    mine.create(alice.url("other"))
    mine.git("push", "-q", alice.url("other"), f"{new}:refs/heads/main", cwd=clone)
    for name in ("work", "other"):
        bob.git("clone", "-q", "--no-local", alice.url(name), name)
        bob.git("fsck", "--strict", cwd=bob.root / name)
    assert (bob.root / "other/file1").read_text() == (work / "file2").read_text().replace("2", "1")


@pytest.mark.slow
@sandbox_only
def test_a_push_that_lacks_what_the_remote_has_is_refused(
    alice: Person, work: Path, machine: Callable[[], GitEnv]
) -> None:
    """A branch of the remote is at what is cut off here: promised, and not here."""
    mine, clone = alice.machine, alice.machine.root / "clone"
    mine.git("push", "-q", "origin", "main~1:refs/heads/older", cwd=work)
    mine.git("clone", "-q", "--depth=1", "--filter=blob:none", alice.url(), str(clone))
    mine.commit(work, "theirs")
    mine.git("push", "-q", "origin", "main", cwd=work)
    mine.commit(clone, "ours")
    refused = mine.git("push", "origin", "main", cwd=clone, code=1).err
    assert "[rejected]        main -> main (" in refused
    mine.git("pull", "-q", "--rebase", "origin", "main", cwd=clone)
    mine.git("push", "-q", "origin", "main", cwd=clone)
    clean(mine, clone)
    other = machine()
    other.git("clone", "-q", alice.url(), "whole")
    assert count(other, other.root / "whole") == COMMITS + 3
    other.git("fsck", "--strict", cwd=other.root / "whole")


@pytest.mark.slow
@sandbox_only
def test_an_empty_repository_and_one_without_its_default_branch(alice: Person) -> None:
    url, mine = alice.create("empty", default_branch="trunk"), alice.machine
    for number, option in enumerate(("--depth=1", "--filter=blob:none")):
        clone = mine.root / f"empty{number}"
        assert "cloned an empty repository" in mine.git("clone", option, url, str(clone)).err
        assert mine.git("symbolic-ref", "HEAD", cwd=clone).out == "refs/heads/trunk\n"
    mine.commit(clone)
    mine.git("push", "-q", "origin", "HEAD:refs/heads/a", "HEAD:refs/heads/b", cwd=clone)
    mine.git("knotless", "repo", "edit", url, "--default-branch", "b")
    mine.git("push", "-q", "origin", ":refs/heads/b", cwd=clone)
    for option in ("--depth=1", "--no-tags"):
        path = mine.root / f"headless{option}"
        mine.git("clone", "-q", "--no-single-branch", option, url, str(path))
        assert mine.refs(path) == {"refs/remotes/origin/a": mine.oid(clone)}
        mine.git("fsck", cwd=path)


@pytest.mark.slow
@sandbox_only
def test_a_host_that_is_down_is_one_line(
    alice: Person, work: Path, machine: Callable[[], GitEnv], network: Network
) -> None:
    far = machine()
    with proxy(network, alice.account) as host:
        far.env |= host.environment()
        far.git("clone", "-q", "--filter=blob:none", "--no-checkout", alice.url(), "clone")
        far.git("clone", "-q", "--depth=1", alice.url(), "shallow")
    clone = far.root / "clone"
    down = (
        "error: localhost:PORT cannot be reached: connection refused\nhint: git knotless doctor\n"
    )
    down = down.replace("PORT", host.url.rpartition(":")[2])
    for path in (clone, far.root / "shallow"):
        assert far.git("fetch", cwd=path, code=128).err == down
    far.git("checkout", "-q", "main", cwd=clone)  # the mirror holds it


OPTIONS = [
    (["--depth=2"], 2, 0),
    (["--shallow-since=2020-01-01"], COMMITS + 1, 0),
    (["--shallow-exclude=v3"], 4, 0),
    (["--depth=3", "--branch=v3", "--filter=blob:limit=1k"], 3, 0),
    (["--depth=1", "--filter=tree:0"], 1, 1),
    (["--filter=sparse:oid=refs/heads/main:file1"], COMMITS + 1, COMMITS + 1),
    (["--mirror", "--filter=blob:none"], COMMITS + 1, COMMITS + 1),
]


@pytest.mark.slow
@sandbox_only
@pytest.mark.parametrize(("options", "commits", "lacks"), OPTIONS)
def test_git_gets_what_it_asks_for(
    alice: Person, work: Path, bob: GitEnv, options: list[str], commits: int, lacks: int
) -> None:
    clone = bob.root / "clone"
    checkout = ["--no-checkout"] if "--mirror" not in options else []
    bob.git("clone", "-q", *checkout, *options, alice.url(), str(clone))
    assert count(bob, clone) == commits
    assert missing(bob, clone) == lacks
    bob.git("fsck", "--strict", cwd=clone)
    bob.git("fetch", "-q", cwd=clone)
    bob.git("log", "-p", cwd=clone)
    bob.git("gc", "-q", cwd=clone)
    bob.git("fsck", "--strict", cwd=clone)


@pytest.mark.slow
@sandbox_only
def test_sparse_checkouts_and_submodules(alice: Person, work: Path, bob: GitEnv) -> None:
    alice.machine.commit(work, "folder/inside", "inside\n")
    alice.git("push", "-q", "origin", "main", cwd=work)
    bob.git("clone", "-q", "--filter=blob:none", "--sparse", alice.url(), "sparse")
    sparse = bob.root / "sparse"
    assert not (sparse / "folder").exists()
    bob.git("sparse-checkout", "set", "folder", cwd=sparse)
    assert (sparse / "folder/inside").read_text() == "inside\n"

    allowed = ("-c", "protocol.knotless.allow=always")
    outer = alice.machine.repository("outer", commits=1)
    alice.git("remote", "add", "origin", alice.create("outer"), cwd=outer)
    alice.git(*allowed, "submodule", "add", "-q", alice.url(), "inner", cwd=outer)
    alice.git("commit", "-qm", "With another in it", cwd=outer)
    alice.git("push", "-q", "origin", "main", cwd=outer)
    alice.machine.commit(work, "later")
    alice.git("push", "-q", "origin", "main", cwd=work)
    cloned = ("clone", "-q", "--recurse-submodules", "--shallow-submodules", "--depth=1")
    bob.git(*allowed, *cloned, alice.url("outer"), "outer")
    inner = bob.root / "outer/inner"
    assert (inner / "folder/inside").read_text() == "inside\n"
    assert count(bob, inner) <= 2  # the tip as well, where the one recorded is not it
    bob.git("fsck", cwd=inner)


@pytest.mark.slow
@sandbox_only
def test_many_refs_and_their_names(alice: Person, work: Path, bob: GitEnv) -> None:
    names = [f"refs/heads/\u00fcn\u00ef/{number}" for number in range(300)]
    names += [
        "refs/heads/\u65e5\u672c",
        "refs/heads/a=b,c;d'e\"f",
        "refs/heads/--x",
        "refs/some/{0}",
    ]
    lines = "".join(f"create {name} {alice.machine.oid(work)}\n" for name in names)
    alice.git("update-ref", "--stdin", cwd=work, stdin=lines)
    theirs = alice.machine.refs(work)
    del theirs["refs/remotes/origin/main"]
    specs = (f"refs/{kind}/*:refs/{kind}/*" for kind in ("heads", "tags", "some"))
    alice.git("push", "-q", "origin", *specs, cwd=work)
    bob.git("clone", "-q", "--mirror", "--filter=tree:0", alice.url(), "mirror")
    assert bob.refs(bob.root / "mirror") == theirs
    bob.git("init", "-q", "some")
    refspec = "refs/heads/\u00fcn\u00ef/29*:refs/x/29*"
    bob.git("fetch", "-q", "--depth=1", alice.url(), refspec, cwd=bob.root / "some")
    assert len(bob.refs(bob.root / "some")) == 11


@pytest.mark.slow
@sandbox_only
@pytest.mark.parametrize(("version", "option"), [("0", "--depth=1"), ("1", "--filter=blob:none")])
def test_an_old_protocol_fetches_everything(
    alice: Person, work: Path, bob: GitEnv, version: str, option: str
) -> None:
    old, clone = ("-c", f"protocol.version={version}"), bob.root / "clone"
    said = bob.git(*old, "clone", "-q", option, alice.url(), str(clone)).err
    assert said.count("is not honoured without protocol version 2") == 1
    assert (count(bob, clone), missing(bob, clone)) == (COMMITS + 1, 0)
    bob.git("fsck", "--strict", cwd=clone)
    partial = bob.root / "partial"
    bob.git("clone", "-q", "--filter=blob:none", "--no-checkout", alice.url(), str(partial))
    bob.git(*old, "checkout", "-q", "main", cwd=partial)
    assert (partial / "large").stat().st_size == LARGE
    alice.machine.commit(work, "new")
    alice.git("push", "-q", "origin", "main", cwd=work)
    bob.git(*old, "pull", "-q", cwd=partial)
    clean(bob, partial)


@pytest.mark.slow
@sandbox_only
def test_clones_at_once_and_one_that_is_killed(
    alice: Person, work: Path, host: Proxy, far: GitEnv
) -> None:
    """Both are whole, and the account was asked for its packs once."""
    come, go = threading.Event(), threading.Event()

    def slow(exchange: Exchange) -> None:
        come.set()
        go.wait(30)
        exchange.pass_on()

    host.on("sync.getBlob", slow)
    clone = ("clone", "--depth=1", alice.url())
    with far.start(str(GIT), *clone, "killed") as killed:
        assert come.wait(30)
        killed.kill()
        killed.wait()
    assert not list((far.home / "knotless-cache/mirrors").glob("*/*/objects/pack/*"))
    come.clear()
    with far.start(str(GIT), *clone, "first") as one:
        assert come.wait(30)
        second = ("clone", "--progress", "--depth=2", alice.url(), "second")
        with far.start(str(GIT), *second) as other:
            assert other.stderr is not None
            said = next((line for line in other.stderr if b"another git" in line), b"")
            go.set()
            other.communicate(timeout=60)
            assert one.wait(60) == other.returncode == 0
    assert said == b"note: another git is fetching the same repository: waiting for it\n"
    assert count(far, far.root / "second") == 2
    assert asked(host).count("getBlob") == 2


@pytest.mark.slow
@sandbox_only
def test_a_mirror_that_goes_while_it_serves(alice: Person, work: Path, bob: GitEnv) -> None:
    """git gets all, or an error; and what comes next is whole."""
    mirrors = bob.home / "knotless-cache/mirrors"
    for number in range(2):
        clone = bob.root / f"clone{number}"
        command = ("clone", "-q", "--depth=1", alice.url(), str(clone))
        with bob.start(str(GIT), *command) as process:
            while process.poll() is None:
                shutil.rmtree(mirrors, ignore_errors=True)
            err = process.communicate()[1].decode()
        if process.returncode == 0:
            bob.git("fsck", cwd=clone)
            assert bob.oid(clone) == alice.machine.oid(work)
        else:
            assert "error: " in err
        assert "Traceback" not in err
    shutil.rmtree(bob.root / "clone0", ignore_errors=True)
    bob.git("clone", "-q", "--depth=1", alice.url(), "clone0")
    assert bob.oid(bob.root / "clone0") == alice.machine.oid(work)


@pytest.mark.slow
@sandbox_only
def test_a_mirror_that_lies_is_no_danger(alice: Person, work: Path, bob: GitEnv) -> None:
    """One that was damaged by somebody who set its times back: git checks what it gets."""
    bob.git("clone", "-q", "--depth=1", alice.url(), "first")
    mirrors = bob.home / "knotless-cache/mirrors"
    (pack,) = mirrors.glob("*/*/objects/pack/*.pack")
    status, data = pack.stat(), bytearray(pack.read_bytes())
    data[len(data) // 2] ^= 0xFF
    pack.chmod(0o600)
    pack.write_bytes(data)
    os.utime(pack, ns=(status.st_atime_ns, status.st_mtime_ns))
    bob.git("clone", "-q", "--depth=1", alice.url(), "second", code=128)
    assert not (bob.root / "second").exists()
    pack.touch()
    bob.git("clone", "-q", "--depth=1", alice.url(), "third")
    assert bob.oid(bob.root / "third") == alice.machine.oid(work)
