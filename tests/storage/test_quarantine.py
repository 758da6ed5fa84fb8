"""How packs become the repository's: all at once or not at all, whoever is killed meanwhile."""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from git_knotless.atproto.errors import HostUnreachable
from git_knotless.errors import KnotlessError
from git_knotless.storage.git import Git
from git_knotless.storage.packs.intake import MissingObjects, Taken, take
from git_knotless.storage.packs.quarantine import Quarantine, QuarantineLost, release
from git_knotless.storage.store import BlobRef
from tests.gitenv import GitEnv
from tests.storage.packs import KEY, SILENT, noise, publish
from tests.storage.reader import KIB, LIMIT, ROOT, Host, Reader, push_each


@pytest.mark.parametrize("error", [HostUnreachable("host is down"), KeyboardInterrupt()])
def test_a_fetch_that_breaks_off(
    gitenv: GitEnv,
    work: Path,
    git: Git,
    host: Host,
    reader: Reader,
    error: BaseException,
) -> None:
    """Transfers that wait for a host are not waited for; the others end at their next chunk."""
    tip = gitenv.commit(work, "noise", noise(8 * LIMIT))
    publish(host, git, [tip])
    calls, released, ended = 0, threading.Event(), threading.Semaphore(0)

    def breaks(blob: BlobRef) -> Iterator[bytes]:
        nonlocal calls
        calls += 1
        if calls == 1:
            time.sleep(0.05)  # the other three have begun
            raise error
        try:
            yield b"x"
            released.wait(10)
            yield b"x"
        finally:
            ended.release()

    host.serve = breaks
    began = time.monotonic()
    with pytest.raises(type(error)):
        reader.take(tip)
    assert time.monotonic() - began < 3
    released.set()
    for _ in range(calls - 1):
        assert ended.acquire(timeout=5)
    assert reader.packs() == []


def test_into_a_bare_repository_a_worktree_and_one_with_alternates(
    gitenv: GitEnv, work: Path, git: Git, host: Host
) -> None:
    before = gitenv.oid(work)
    tip = gitenv.commit(work, "noise", noise(60 * KIB))
    publish(host, git, [before])
    publish(host, git, [tip], [before])
    bare = Reader(gitenv, gitenv.repository("bare", commits=0, bare=True), host)
    assert bare.take(tip, clone=True).connected
    assert bare.has(tip)
    gitenv.git("worktree", "add", "-q", "--detach", "../tree", before, cwd=work)
    tree = Git(work / ".git/worktrees/tree", env=gitenv.env)
    assert take(tree, host, KEY, {tip: ()}, progress=SILENT, clone=False).connected
    assert (work / ".git/knotless" / f"{KEY}.taken").exists()
    odd = gitenv.root / 'a "b":c\\d'
    gitenv.git("clone", "-q", "-s", "--no-checkout", str(bare.path), str(odd))
    assert Reader(gitenv, odd, host).take(tip).connected


def test_an_alternate_proves_nothing_for_a_clone(
    gitenv: GitEnv, work: Path, git: Git, host: Host, reader: Reader
) -> None:
    """A tip that an alternate holds is not in the pack: it is looked at like any other."""
    tip = gitenv.oid(work)
    publish(host, git, [gitenv.oid(work, "main~1")])
    info = reader.git_dir / "objects/info"
    info.mkdir(exist_ok=True)
    (info / "alternates").write_text(f"{work}/.git/objects\n")
    assert reader.take(tip, clone=True).connected
    blob = gitenv.oid(work, "main:file3")
    (work / ".git/objects" / blob[:2] / blob[2:]).unlink()
    gitenv.git("update-ref", "-d", "refs/heads/main", cwd=work)
    with pytest.raises(MissingObjects):
        reader.take(tip, clone=True)


@pytest.mark.parametrize("size", [60 * KIB, 6 * LIMIT])
@pytest.mark.parametrize("clone", [True, False])
def test_gc_that_removes_what_comes_in(
    gitenv: GitEnv, work: Path, git: Git, host: Host, reader: Reader, size: int, clone: bool
) -> None:
    """`git gc --prune=now` takes it for a leftover: no pack is to blame."""
    push_each(gitenv, work, git, host)
    tip = gitenv.commit(work, "noise", noise(size))
    publish(host, git, [tip], [gitenv.oid(work, "main~1")])

    def pruned(blob: BlobRef) -> Iterator[bytes]:
        gitenv.git("prune", "--expire=now", cwd=reader.path)
        return host.kept(blob)

    host.serve = pruned
    with pytest.raises(QuarantineLost, match="tmp_objdir-.* was removed while packs came in$"):
        reader.take(tip, clone=clone)
    assert reader.packs() == []
    host.serve = None
    assert reader.take(tip, clone=clone).connected


def test_packs_that_vanish_before_they_are_handed_over(
    gitenv: GitEnv, work: Path, git: Git, host: Host, reader: Reader
) -> None:
    publish(host, git, [gitenv.oid(work)])
    with pytest.raises(QuarantineLost), Quarantine(git) as quarantine:
        quarantine.hand_over([quarantine.packs / "pack-1.idx"], keeps := [])
    assert [keep.name for keep in keeps] == ["pack-1.keep"]
    release(keeps)


def test_nothing_is_kept_by_a_fetch_that_breaks_off_as_it_ends(
    gitenv: GitEnv, work: Path, git: Git, host: Host, reader: Reader
) -> None:
    """The shallow file cannot be written: the packs are there by then."""
    publish(host, git, [tip := gitenv.oid(work)])
    gitenv.git("fetch", "-q", "--depth=1", work.as_uri(), "main", cwd=reader.path)
    lock = reader.git_dir / "shallow.lock"
    lock.touch()
    with pytest.raises(KnotlessError, match=r"/shallow\.lock exists: "):
        reader.take(tip, unshallow=True)
    assert lock.exists()
    assert not [name for name in reader.packs() if name.endswith(".keep")]


def test_somebody_elses_keep_is_not_ours(
    gitenv: GitEnv, work: Path, git: Git, host: Host, reader: Reader
) -> None:
    publish(host, git, [tip := gitenv.oid(work)])
    keep = reader.take(tip).keeps[0]
    keep.write_text("mine\n")
    for path in (reader.git_dir / "knotless").iterdir():
        path.unlink()
    assert reader.take(tip).keeps == ()
    assert keep.read_text() == "mine\n"


def test_keeps_of_killed_fetches_go_in_the_end(
    gitenv: GitEnv, work: Path, git: Git, host: Host, reader: Reader
) -> None:
    publish(host, git, [before := gitenv.oid(work)])
    left = reader.take(before).keeps[0]
    theirs = left.with_name("pack-1.keep")
    theirs.write_text("theirs\n")
    for keep in (left, theirs):
        os.utime(keep, (time.time() - 2 * 86400,) * 2)
    tip = gitenv.commit(work)
    publish(host, git, [tip], [before])
    reader.update("main", before)
    reader.take(tip)
    assert not left.exists()
    assert theirs.exists()
    theirs.unlink()


def test_where_nothing_can_be_added(
    gitenv: GitEnv, work: Path, git: Git, host: Host, reader: Reader
) -> None:
    publish(host, git, [tip := gitenv.oid(work)])
    objects = reader.git_dir / "objects"
    objects.rename(reader.git_dir / "away")
    objects.symlink_to("/proc/self/fdinfo")
    try:
        with pytest.raises(KnotlessError, match=r"^cannot add to .*/objects: "):
            reader.take(tip)
    finally:
        objects.unlink()
        (reader.git_dir / "away").rename(objects)


def test_two_fetches_at_once(
    gitenv: GitEnv, work: Path, git: Git, host: Host, reader: Reader
) -> None:
    """The same objects, twice: neither takes away what the other has."""
    tip = gitenv.commit(work, "noise", noise(8 * LIMIT))
    push_each(gitenv, work, git, host)
    results: list[Taken] = []
    threads = [
        threading.Thread(target=lambda: results.append(reader.take(tip, clone=True)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 3
    keeps: Sequence[Path] = [keep for taken in results for keep in taken.keeps]
    assert len(keeps) == len(set(keeps)) == 2
    assert reader.has(tip)


PROGRAM = """
import pickle, resource, sys, time
from pathlib import Path
from git_knotless.storage.git import Git, NoSpace
from git_knotless.storage.packs.intake import take
from tests.storage.packs import KEY, SILENT
from tests.storage.reader import Host

records, blobs, env, tip = pickle.load(sys.stdin.buffer)
host = Host(records=records, blobs=blobs)
git = Git(Path(sys.argv[1]), env=env)
"""


class Elsewhere:
    """A fetch in a process of its own."""

    def __init__(self, gitenv: GitEnv, host: Host, reader: Reader, tip: str) -> None:
        self._gitenv, self._reader = gitenv, reader
        self._given = pickle.dumps((host.records, host.blobs, gitenv.env, tip))

    @contextmanager
    def running(self, program: str) -> Iterator[subprocess.Popen[bytes]]:
        command = [sys.executable, "-c", PROGRAM + program, str(self._reader.git_dir)]
        with self._gitenv.start(*command, cwd=ROOT) as process:
            assert process.stdin is not None
            process.stdin.write(self._given)
            process.stdin.close()
            yield process


def test_nothing_is_left_by_a_fetch_that_is_killed(
    gitenv: GitEnv, work: Path, git: Git, host: Host, reader: Reader
) -> None:
    tip = gitenv.commit(work, "noise", noise(3 * LIMIT))
    publish(host, git, [gitenv.oid(work, "main~1")])
    publish(host, git, [tip], [gitenv.oid(work, "main~1")])
    program = """
def stuck(blob, download=host.download, blobs=[]):
    blobs.append(blob)
    if len(blobs) > 3:
        print("stuck", flush=True)
        time.sleep(60)  # until it is killed
    yield from download(blob)

host.serve = stuck
take(git, host, KEY, {tip: ()}, progress=SILENT, clone=False)
"""
    with Elsewhere(gitenv, host, reader, tip).running(program) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"stuck\n"
        # A pack is being written, but not among those that git sees.
        assert len(reader.leftovers()) == 1
        assert reader.packs() == []
        os.killpg(process.pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while reader.leftovers() and time.monotonic() < deadline:
        time.sleep(0.01)  # whoever removes it has only now seen that nobody is left
    assert reader.leftovers() == []
    assert reader.packs() == []


@pytest.mark.parametrize("limit", [LIMIT - 1, 2 * LIMIT])
def test_a_file_that_may_not_grow(
    gitenv: GitEnv, work: Path, git: Git, host: Host, reader: Reader, limit: int
) -> None:
    """Ours, which holds one part, or git's, which holds the pack."""
    tip = gitenv.commit(work, "noise", noise(5 * LIMIT))
    publish(host, git, [tip])
    program = f"""
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
try:
    take(git, host, KEY, {{tip: ()}}, progress=SILENT, clone=True)
except NoSpace as error:
    print(error.message)
"""
    with Elsewhere(gitenv, host, reader, tip).running(program) as process:
        assert process.stdout is not None
        said = process.stdout.read().decode()
    assert said.startswith("no space left")
    assert said.count("\n") == 1
    assert reader.packs() == []
