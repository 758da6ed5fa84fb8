"""Git LFS with a program of ours: what is large is in the account too, and nobody else is asked."""

import hashlib
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from tests.approval import Page
from tests.e2e.conftest import Person
from tests.gitenv import GitEnv
from tests.marks import sandbox_only
from tests.network import Network, run_testnet
from tests.proxy import Answer, Exchange, Proxy, proxy

LFS = "dev.knotless.lfs"
MIB = 1 << 20
PART = 5 * MIB  # what both networks take
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489"
    "0000000a49444154789c63000100000500010d0a2db40000000049454e44ae426082"
)
LARGE = Random(1).randbytes(2 * PART + MIB)


def set_up(machine: GitEnv, transfers: int = 1) -> None:
    """As a person does once; but with fewer programs side by side than git-lfs starts."""
    machine.git("config", "--global", "lfs.concurrenttransfers", str(transfers))
    machine.git("lfs", "install", "--skip-repo")
    machine.git("knotless", "lfs", "install")


def tracking(person: Person, transfers: int = 1) -> Path:
    """A pushed repository whose `.bin` files are LFS objects, with git-lfs's hooks."""
    set_up(person.machine, transfers)
    path = person.published(commits=1)
    person.git("lfs", "install", "--local", cwd=path)
    (path / ".gitattributes").write_text("*.bin filter=lfs diff=lfs merge=lfs -text\n")
    person.git("add", ".gitattributes", cwd=path)
    return path


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def pull(machine: GitEnv, url: str, name: str = "copy") -> Path:
    machine.git("clone", "--quiet", url, name)
    return machine.root / name


@pytest.fixture
def between(network: Network, alice: Person) -> Iterator[Proxy]:
    """A host that alice is on, and that does as it is told."""
    with proxy(network, alice.account) as host:
        alice.machine.env |= host.environment()
        alice.machine.log_in(alice.account)
        yield host


@pytest.mark.slow
def test_an_object_in_three_parts_goes_there_and_back(alice: Person, bob: GitEnv) -> None:
    """Beside one of a few bytes; and nobody is asked for either but alice's host."""
    work = tracking(alice)
    (work / "a film.bin").write_bytes(LARGE)
    (work / "ö.bin").write_bytes(b"small")
    alice.git("add", ".", cwd=work)
    alice.git("commit", "--quiet", "-m", "Two objects", cwd=work)
    pushed = alice.git("push", "origin", "main", cwd=work, env={"GIT_TRACE": "1"})
    assert "HTTP: " not in pushed.err, "git-lfs asks no server"
    assert "pure SSH" not in pushed.err, "and no host of that name"
    records = {key.partition(".")[2]: value for key, value in alice.account.records(LFS).items()}
    assert records.keys() == {sha256(LARGE), sha256(b"small")}
    sizes = [blob["size"] for blob in records[sha256(LARGE)]["blobs"]]
    assert sizes == [PART, PART, MIB]
    set_up(bob)
    copy = pull(bob, alice.url())
    assert (copy / "a film.bin").read_bytes() == LARGE
    assert (copy / "ö.bin").read_bytes() == b"small"
    bob.git("lfs", "fsck", cwd=copy)
    assert bob.git("status", "--porcelain", cwd=copy).out == ""


@pytest.mark.slow
def test_old_versions_and_what_was_not_checked_out(alice: Person, bob: GitEnv) -> None:
    """By a DID, which is no address that git-lfs can read."""
    work = tracking(alice)
    for number in range(3):
        alice.machine.commit(work, "x.bin", f"version {number}")
    alice.git("push", "--quiet", "origin", "main", cwd=work)
    set_up(bob)
    url = f"knotless://{alice.account.did}/work"
    bob.git("clone", "--quiet", url, "copy", env={"GIT_LFS_SKIP_SMUDGE": "1"})
    copy = bob.root / "copy"
    assert (copy / "x.bin").read_text().startswith("version https://git-lfs")
    bob.git("lfs", "pull", cwd=copy)
    assert (copy / "x.bin").read_text() == "version 2"
    bob.git("lfs", "fetch", "--all", cwd=copy)
    bob.git("checkout", "--quiet", "HEAD~2", cwd=copy)
    assert (copy / "x.bin").read_text() == "version 0"


@pytest.mark.slow
@sandbox_only
def test_what_was_migrated_is_pushed(alice: Person, bob: GitEnv) -> None:
    work = tracking(alice)
    alice.git("rm", "-q", "--cached", ".gitattributes", cwd=work)
    (work / ".gitattributes").unlink()
    alice.machine.commit(work, "old.dat", LARGE[:10_000])
    alice.git("push", "--quiet", "origin", "main", cwd=work)
    alice.git("lfs", "migrate", "import", "--yes", "--include=*.dat", "--everything", cwd=work)
    alice.git("push", "--quiet", "--force", "origin", "main", cwd=work)
    assert len(alice.account.records(LFS)) == 1
    set_up(bob)
    assert (pull(bob, alice.url()) / "old.dat").read_bytes() == LARGE[:10_000]


@pytest.mark.slow
@sandbox_only
def test_another_remote_has_its_own_server(alice: Person) -> None:
    work = tracking(alice)
    alice.git("remote", "add", "web", "http://127.0.0.1:9/x.git", cwd=work)
    alice.machine.commit(work, "x.bin", "content")
    alice.git("push", "--quiet", "origin", "main", cwd=work)
    refused = alice.git("lfs", "push", "web", "main", cwd=work, code=None)
    assert refused.code != 0
    assert "127.0.0.1:9/x.git/info/lfs/objects/batch" in refused.err
    config = alice.git("config", "--local", "--get-regexp", r"^(lfs|remote)\..*lfs", cwd=work).out
    assert config.split("\n")[:-1] == ["remote.origin.lfsurl knotless::"]


@pytest.mark.slow
@sandbox_only
@pytest.mark.parametrize("url", ["{}/", "knotless://did%3Aplc%3A{did}/work"])
def test_however_it_is_written(alice: Person, bob: GitEnv, url: str) -> None:
    work = tracking(alice)
    alice.machine.commit(work, "x.bin", "content")
    alice.git("push", "--quiet", "origin", "main", cwd=work)
    set_up(bob)
    text = url.format(alice.url(), did=alice.account.did.removeprefix("did:plc:"))
    assert (pull(bob, text) / "x.bin").read_text() == "content"


@pytest.mark.slow
@sandbox_only
@pytest.mark.parametrize("option", ["--no-tags", "--depth=1"])
def test_who_has_told_git_lfs_nothing_hears_what_to_do(
    alice: Person, bob: GitEnv, option: str
) -> None:
    """Once; and then that is enough, wherever it is typed."""
    work = tracking(alice)
    alice.machine.commit(work, "x.bin", "content")
    alice.git("push", "--quiet", "origin", "main", cwd=work)
    bob.git("lfs", "install", "--skip-repo")
    cut = bob.git("clone", option, alice.url(), "copy", code=None)
    assert "hint: git knotless lfs install\n" in cut.err
    copy = bob.root / "copy"
    alice.machine.commit(work, "more", "text")
    alice.git("push", "--quiet", "origin", "main", cwd=work)
    assert "hint: " not in bob.git("fetch", cwd=copy).err
    bob.git("knotless", "lfs", "install")
    bob.git("reset", "--quiet", "--hard", cwd=copy)
    assert (copy / "x.bin").read_text() == "content"
    assert bob.git("status", "--porcelain", cwd=copy).out == ""


@pytest.mark.slow
@sandbox_only
def test_who_needs_to_tell_git_lfs_nothing_hears_nothing(alice: Person, bob: GitEnv) -> None:
    """Nobody keeps a file with it there, or the repository names a server."""
    bob.git("lfs", "install", "--skip-repo")
    work = alice.published(commits=1)
    alice.machine.commit(work, ".gitattributes", "# x filter=lfs\n*.txt text\n")
    alice.git("push", "--quiet", "origin", "main", cwd=work)
    assert "lfs" not in bob.git("clone", alice.url(), "plain").err
    alice.machine.commit(work, ".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n")
    alice.machine.commit(work, ".lfsconfig", "[lfs]\n\turl = https://lfs.example/x\n")
    alice.git("push", "--quiet", "origin", "main", cwd=work)
    assert "lfs" not in bob.git("clone", alice.url(), "elsewhere").err
    assert not bob.git("config", "remote.origin.lfsurl", cwd=bob.root / "elsewhere", code=1).out


@sandbox_only
def test_who_is_not_logged_in(alice: Person, bob: GitEnv) -> None:
    work = tracking(alice)
    alice.machine.commit(work, "x.bin", "content")
    alice.git("knotless", "logout", cwd=work)
    refused = alice.git("lfs", "push", "origin", "main", cwd=work, code=None)
    assert refused.code != 0
    assert (
        f"not logged in as {alice.handle}\nhint: git knotless login {alice.handle}" in refused.err
    )
    assert alice.account.records(LFS) == {}


@pytest.mark.slow
@sandbox_only
def test_an_object_that_nobody_has_brought(alice: Person, bob: GitEnv) -> None:
    work = tracking(alice)
    oid = sha256(b"content")
    alice.machine.commit(work, "x.bin", "content")
    alice.git("push", "--quiet", "--no-verify", "origin", "main", cwd=work)
    set_up(bob)
    refused = bob.git("clone", alice.url(), "copy", code=None)
    assert refused.code != 0
    assert f"{alice.url()} has no LFS object {oid}" in refused.err
    alice.git("lfs", "push", "--all", "origin", cwd=work)
    bob.git("lfs", "pull", cwd=bob.root / "copy")


@pytest.mark.slow
@sandbox_only
def test_wherever_git_keeps_its_things(alice: Person, bob: GitEnv) -> None:
    """Of a clone that is not deep, a submodule, a worktree, and a storage of one's own."""
    work = tracking(alice)
    for number in range(2):
        alice.machine.commit(work, "x.bin", f"version {number}")
    alice.git("push", "--quiet", "origin", "main", cwd=work)
    app = alice.published("app", commits=1)
    allow = ("-c", "protocol.knotless.allow=always")
    alice.git(*allow, "submodule", "--quiet", "add", "../work", "sub", cwd=app)
    alice.git("commit", "--quiet", "-m", "A submodule", cwd=app)
    alice.git("push", "--quiet", "origin", "main", cwd=app)
    set_up(bob)
    bob.git("clone", "--quiet", "--depth=1", "--origin=up", alice.url(), "shallow")
    assert (bob.root / "shallow/x.bin").read_text() == "version 1"
    bob.git("knotless", "clone", "--recurse-submodules", alice.url("app"), "app")
    assert (bob.root / "app/sub/x.bin").read_text() == "version 1"
    storage = bob.root / "a storage"
    bob.git("config", "--global", "lfs.storage", str(storage))
    copy = pull(bob, alice.url())
    bob.git("worktree", "add", "--quiet", "../tree", "HEAD~", cwd=copy)
    assert (bob.root / "tree/x.bin").read_text() == "version 0"
    kept = [path.name for path in storage.rglob("*") if path.is_file()]
    assert sorted(kept) == sorted(sha256(f"version {number}".encode()) for number in range(2))
    assert not (copy / ".git/lfs").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "network", [pytest.param(run_testnet, id="testnet", marks=pytest.mark.testnet)], indirect=True
)
def test_a_login_in_a_browser_is_for_files_of_any_kind(alice: Person) -> None:
    """A host may ask what kind of file it is, and see for itself."""
    machine = alice.machine
    alice.git("knotless", "logout")
    words = ("git", "knotless", "login", alice.handle, "--no-browser")
    with machine.start(*words) as process:
        assert process.stderr
        said = iter(process.stderr.readline, b"")
        address = next(found[0] for line in said if (found := re.search(rb"http://\S+", line)))
        approved = Page(address.decode()).approve(alice.handle, alice.account.password)
        process.communicate(approved.encode() + b"\n", timeout=60)
    work = tracking(alice)
    machine.commit(work, "x.bin", PNG)
    alice.git("push", "--quiet", "origin", "main", cwd=work)
    ((_, record),) = alice.account.records(LFS).items()
    assert record["blobs"][0]["mimeType"] == "image/png"
    (file,) = (machine.home / "knotless/sessions").glob("did_*.json")
    file.write_text(file.read_text().replace("blob:*/*", "blob:application/x-git-pack"))
    machine.commit(work, "y.bin", PNG + b"more")
    refused = alice.git("lfs", "push", "origin", "main", cwd=work, code=None)
    assert f"the login of {alice.handle} does not cover blob:*/*" in refused.err


# --- what happens on the way


@pytest.mark.slow
def test_killed_in_the_middle_and_started_again(alice: Person, between: Proxy) -> None:
    """The parts that were on the host by then are not sent again."""
    work = tracking(alice)
    alice.machine.commit(work, "film.bin", LARGE)

    def stall(exchange: Exchange) -> None:
        if exchange.size == MIB:
            exchange.leave_unanswered(30)
        else:
            exchange.pass_on()

    between.on("uploadBlob", stall)
    with alice.machine.start("git", "lfs", "push", "origin", "main", cwd=work) as process:
        kept = work / ".git/knotless/lfs"
        _until(lambda: any(len(path.read_bytes()) > 200 for path in kept.glob("*/*.parts")))
        os.killpg(process.pid, signal.SIGKILL)
    between.well()
    between.seen.clear()
    alice.git("push", "origin", "main", cwd=work)
    assert between.seen.count("POST com.atproto.repo.uploadBlob") == 1
    ((_, record),) = alice.account.records(LFS).items()
    assert [blob["size"] for blob in record["blobs"]] == [PART, PART, MIB]
    assert [path.name for path in kept.glob("*/*")] == ["turn"]


@pytest.mark.slow
@sandbox_only
def test_a_host_that_lies_is_named_and_gone_on_with(
    alice: Person, between: Proxy, bob: GitEnv
) -> None:
    work = tracking(alice)
    alice.machine.commit(work, "film.bin", LARGE)
    alice.git("push", "--quiet", "origin", "main", cwd=work)
    bob.env |= between.environment()
    set_up(bob)

    def lie(exchange: Exchange) -> None:
        answer = exchange.passed_on()
        wrong = answer.body if len(answer.body) != MIB else b"z" * MIB
        exchange.answer(Answer(answer.status, wrong, answer.headers))

    between.on("getBlob", lie)
    refused = bob.git("clone", alice.url(), "copy", code=None)
    assert refused.code != 0
    host = between.url.removeprefix("http://")
    assert f"{host}: other bytes than those of LFS object {sha256(LARGE)}" in refused.err
    objects = (bob.root / "copy/.git/lfs/objects").rglob("*")
    assert [path for path in objects if path.is_file()] == []
    between.well()
    bob.git("lfs", "pull", cwd=bob.root / "copy")
    assert (bob.root / "copy/film.bin").read_bytes() == LARGE


@pytest.mark.slow
def test_two_push_at_once(alice: Person, bob: GitEnv) -> None:
    """Objects of their own, and one that both have, each from a clone of its own."""
    work = tracking(alice, transfers=2)
    alice.git("commit", "--quiet", "-m", "LFS", cwd=work)
    alice.git("push", "--quiet", "origin", "main", cwd=work)
    other = alice.machine.root / "other"
    alice.git("clone", "--quiet", alice.url(), str(other))
    for path, name in ((work, "one"), (other, "two")):
        alice.git("switch", "--quiet", "--create", name, cwd=path)
        for number in range(4):
            (path / f"{number}.bin").write_text(f"{name} {number}")
        alice.machine.commit(path, "both.bin", "of both")
        alice.git("add", ".", cwd=path)
        alice.git("commit", "--quiet", "-m", "More", cwd=path)
    push = ("git", "push", "--quiet", "origin", "HEAD")
    with (
        alice.machine.start(*push, cwd=work) as first,
        alice.machine.start(*push, cwd=other) as second,
    ):
        said = [first.communicate(timeout=60), second.communicate(timeout=60)]
    assert [first.returncode, second.returncode] == [0, 0], said
    assert len(alice.account.records(LFS)) == 9
    set_up(bob)
    for name in ("one", "two"):
        bob.git("clone", "--quiet", "--branch", name, alice.url(), name)
        assert (bob.root / name / "3.bin").read_text() == f"{name} 3"


@pytest.mark.slow
@sandbox_only
def test_many_small_objects_land_together(alice: Person, between: Proxy, bob: GitEnv) -> None:
    """What several programs have waiting goes in one batch, and is asked about only at first."""
    work = tracking(alice, transfers=4)
    for number in range(60):
        (work / f"file {number}.bin").write_text(f"content {number}")
    alice.git("add", ".", cwd=work)
    alice.git("commit", "--quiet", "-m", "Many", cwd=work)
    between.seen.clear()
    alice.git("lfs", "push", "origin", "main", cwd=work)
    calls = {
        name: between.seen.count(f"POST com.atproto.repo.{name}")
        for name in ("uploadBlob", "applyWrites")
    }
    assert calls["uploadBlob"] == 60
    assert calls["applyWrites"] < 60
    assert between.seen.count("GET com.atproto.repo.getRecord") < 60
    assert len(alice.account.records(LFS)) == 60


@pytest.mark.slow
@sandbox_only
def test_a_fork_and_what_is_given_away_have_them(
    alice: Person, person: Callable[..., Person], bob: GitEnv
) -> None:
    carol = person("carol", host=1)
    work = tracking(alice)
    alice.machine.commit(work, "x.bin", LARGE[: MIB // 4])
    alice.git("push", "--quiet", "origin", "main", cwd=work)
    carol.git("knotless", "fork", alice.url(), "--name", "fork")
    alice.git("knotless", "repo", "transfer", "-R", alice.url(), carol.handle)
    carol.git("knotless", "repo", "accept", alice.url())
    alice.git("knotless", "repo", "delete", alice.url(), "--yes", f"{alice.handle}/work")
    assert alice.account.records(LFS) == {}
    set_up(bob)
    for number, url in enumerate([carol.url("fork"), carol.url("work"), alice.url("work")]):
        copy = pull(bob, url, f"copy{number}")
        assert (copy / "x.bin").read_bytes() == LARGE[: MIB // 4]


# --- what is set, and what is not


@sandbox_only
def test_what_is_set_is_taken_back(alice: Person) -> None:
    machine = alice.machine
    path = alice.published(commits=1)
    before = machine.git("config", "--list", "--show-scope", cwd=path).out
    said = machine.git("knotless", "lfs", "install", cwd=path).out
    assert said.splitlines() == [
        "set lfs.customtransfer.knotless.path (global)",
        "set lfs.knotless::.standalonetransferagent (global)",
        "set remote.origin.lfsurl (local)",
    ]
    again = machine.git("knotless", "lfs", "install", "--json", cwd=path).out
    assert again == '{\n  "scope": "global",\n  "settings": [],\n  "remotes": []\n}\n'
    machine.git("knotless", "lfs", "uninstall", cwd=path)
    assert machine.git("config", "--list", "--show-scope", cwd=path).out == before
    machine.git("knotless", "lfs", "install", "--local", cwd=path)
    assert machine.git("config", "--global", "--get-regexp", r"^lfs\.", code=1, cwd=path).out == ""
    machine.git("knotless", "lfs", "uninstall", "--local", cwd=path)
    assert machine.git("config", "--list", "--show-scope", cwd=path).out == before


def _until(holds: Callable[[], bool]) -> None:
    import time

    for _ in range(600):
        if holds():
            return
        time.sleep(0.05)  # for another process
    raise AssertionError("it never came to that")
