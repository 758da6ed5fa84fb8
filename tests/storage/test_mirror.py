"""Mirrors: filled, brought up, found damaged, shared by several, and kept within bounds."""

import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from git_knotless.storage.git import Git
from git_knotless.storage.mirrors.mirror import BadMirror, Mirror
from git_knotless.storage.mirrors.mirrors import Mirrors
from git_knotless.storage.records import RefRecord, RepoRecord
from git_knotless.storage.snapshot import Snapshot, hidden_among
from git_knotless.storage.store import Record
from tests.gitenv import GitEnv
from tests.storage.account import DID
from tests.storage.packs import KEY, SILENT, noise, publish
from tests.storage.reader import Host

LARGE = 60_000  # bytes: a pack that is a blob of its own


class Made:
    """What an account has, what is to be seen of it, and the mirrors of one machine."""

    def __init__(self, gitenv: GitEnv, work: Path, host: Host) -> None:
        self.gitenv, self.work, self.host = gitenv, work, host
        self.git = Git(work / ".git", env=gitenv.env)
        self.refs: dict[str, str] = {}
        self.head = "main"
        self.mirrors = Mirrors(gitenv.root / "mirrors", 1 << 30, gitenv.env)
        self.path = gitenv.root / "mirrors" / DID / f"{KEY}.git"

    def push(self, name: str, content: bytes = b"small") -> str:
        """One commit more on a branch, as a pack of its own."""
        before = [self.refs[name]] if name in self.refs else []
        oid = self.gitenv.commit(self.work, f"file-{len(self.host.batches)}", content)
        publish(self.host, self.git, [oid], before or list(self.refs.values()))
        self.refs[name] = oid
        return oid

    def snapshot(self) -> Snapshot:
        records = {name: RefRecord(KEY, name, oid, 1, "") for name, oid in self.refs.items()}
        fields = {"key": KEY, "epoch": 1, "defaultBranch": self.head}
        return Snapshot(RepoRecord("hello", fields), records, hidden_among(records), 0.0)

    def sync(self, waiting: Callable[[], None] = lambda: None) -> Sequence[str] | None:
        with self.mirrors.of(DID, KEY) as mirror:
            snapshot = self.snapshot()
            return mirror.sync(
                self.host, snapshot, progress=SILENT, source="hello", waiting=waiting
            )

    def asked(self) -> list[str]:
        """Since the last time."""
        asked, self.host.requests[:] = list(self.host.requests), []
        return [request for request in asked if request.startswith(("list", "download"))]

    def check(self) -> None:
        """It is what the account has, and nothing else is in it."""
        assert self.gitenv.refs(self.path) == self.refs
        head = self.gitenv.git("symbolic-ref", "HEAD", cwd=self.path).out
        assert head == f"refs/heads/{self.head}\n"
        self.gitenv.git("fsck", "--full", "--strict", cwd=self.path)
        left = [path.name for path in self.path.rglob("*") if "tmp" in path.name]
        assert left + list(self.path.rglob("*.keep")) == []
        assert {path.name for path in self.path.parent.iterdir()} == {
            f"{KEY}.git",
            f"{KEY}.lock",
            f"{KEY}.use",
        }


@pytest.fixture
def made(gitenv: GitEnv, work: Path, host: Host) -> Made:
    made = Made(gitenv, work, host)
    made.push("refs/heads/main", noise(LARGE))
    made.push("refs/heads/dev")
    return made


def test_it_is_what_the_account_shows_and_nobody_elses(made: Made) -> None:
    assert made.sync() == ()
    made.check()
    folders = [made.path.parent.parent, made.path.parent, made.path]
    assert [folder.stat().st_mode & 0o777 for folder in folders] == [0o700] * 3


def test_what_it_has_is_not_asked_for_again(made: Made) -> None:
    made.sync()
    assert made.asked().count("download") == 1
    assert made.sync() is None
    assert made.asked() == []
    made.push("refs/heads/main")
    assert made.sync() == ()
    assert made.asked() == ["list dev.knotless.pack"]
    made.check()


def test_refs_that_are_gone_go_and_head_moves(made: Made) -> None:
    made.sync()
    del made.refs["refs/heads/main"]
    made.head = "trunk"
    made.refs["refs/heads/n\xe4pel \u65e5".replace(" ", "/")] = made.refs["refs/heads/dev"]
    made.sync()
    made.check()


def test_it_knows_what_it_holds(made: Made) -> None:
    oids = list(made.refs.values())
    with made.mirrors.of(DID, KEY) as mirror:
        assert not mirror.has(oids)
        made.sync()
        assert mirror.has(oids * 6_000)  # asked in parts
        assert not mirror.has([*oids * 6_000, "1" * 40])
        mirror.doubt()
        assert not mirror.has(oids)


def test_many_packs_become_few(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("git_knotless.storage.mirrors.mirror._MANY_PACKS", 4)
    for _ in range(7):
        made.push("refs/heads/main")
        made.sync()
    made.check()
    assert len(list(made.path.glob("objects/pack/*.pack"))) <= 4
    made.asked()
    assert made.sync() is None
    assert made.asked() == []


# --- damage


def pack_of(mirror: Path, suffix: str = ".pack") -> Path:
    return max(mirror.glob(f"objects/pack/*{suffix}"), key=lambda path: path.stat().st_size)


def rewrite(path: Path, data: bytes) -> None:
    path.chmod(0o600)
    path.write_bytes(data)


def cut(mirror: Path) -> None:
    rewrite(pack_of(mirror), pack_of(mirror).read_bytes()[:-100])


def flip(mirror: Path) -> None:
    data = bytearray(pack_of(mirror).read_bytes())
    data[len(data) // 2] ^= 0xFF
    rewrite(pack_of(mirror), data)


def cut_index(mirror: Path) -> None:
    rewrite(pack_of(mirror, ".idx"), b"not an index")


def add_bad_pack(mirror: Path) -> None:
    place = mirror / "objects/pack" / f"pack-{'1' * 40}"
    shutil.copy(pack_of(mirror, ".idx"), place.with_suffix(".idx"))
    place.with_suffix(".pack").write_bytes(b"PACK but not one")


def as_a_file(folder: str) -> Callable[[Path], None]:
    def damage(mirror: Path) -> None:
        shutil.rmtree(mirror / folder)
        (mirror / folder).write_bytes(b"")

    return damage


def garbage(name: str, data: bytes = b"\x00garbage\n") -> Callable[[Path], None]:
    def damage(mirror: Path) -> None:
        rewrite(mirror / name, data)

    return damage


def lose(name: str) -> Callable[[Path], None]:
    def damage(mirror: Path) -> None:
        path = mirror / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return damage


def lose_pack(mirror: Path) -> None:
    pack_of(mirror).unlink()


def strew(mirror: Path) -> None:
    """What processes leave that are killed."""
    for name in ("tmp_pack_x", ".tmp-1-pack-x.pack", f"pack-{'2' * 40}.pack", "pack-x.keep"):
        (mirror / "objects/pack" / name).write_bytes(b"PACK")


def folder(name: str) -> Callable[[Path], None]:
    return lambda mirror: (mirror / "objects/pack" / name).mkdir()


MENDED = [
    garbage("HEAD"),
    garbage("packed-refs"),
    garbage("packed-refs", b"# pack-refs with: sorted \n" + b"1" * 40 + b" refs/heads/main\n"),
    garbage("config"),
    garbage("good"),
    garbage("good", b"[" * 100_000),
    garbage("good", b'{"version": 1, "packs": {"x": 1}, "refs": []}'),
    garbage("good", b'{"version": 2}'),
    lose("good"),
    lose("HEAD"),
    lose("packed-refs"),
    lose("refs"),
    strew,
    folder("pack-folder"),
]
MADE_ANEW = [
    cut,
    flip,
    cut_index,
    add_bad_pack,
    lose_pack,
    folder("folder"),
    as_a_file(""),
    as_a_file("objects"),
    as_a_file("objects/pack"),
    lose("objects"),
    lose(""),
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """One that is there, of which each test takes a copy: to fill it takes longer."""
    gitenv = GitEnv(tmp_path_factory.mktemp("whole") / "machine")
    made = Made(gitenv, gitenv.repository(commits=3), Host())
    made.push("refs/heads/main", noise(LARGE))
    made.push("refs/heads/dev")
    made.sync()
    shutil.copytree(made.path.parent, made.gitenv.root / "kept")
    return made


@pytest.fixture
def copied(whole: Made) -> Made:
    shutil.rmtree(whole.path.parent)
    # Times too, by which it is known to be as it was.
    shutil.copytree(whole.gitenv.root / "kept", whole.path.parent)
    whole.asked()
    return whole


@pytest.mark.parametrize("damage", MENDED)
def test_what_a_mirror_lacks_is_mended(copied: Made, damage: Callable[[Path], None]) -> None:
    """The packs of it are good: none is downloaded again."""
    damage(copied.path)
    with copied.mirrors.of(DID, KEY) as mirror:
        mirror.has(copied.refs.values())  # or not: that is no error
    copied.sync()
    copied.check()
    assert "download" not in copied.asked()
    assert copied.sync() is None


@pytest.mark.parametrize("damage", MADE_ANEW)
def test_a_mirror_that_is_damaged_is_made_anew(
    copied: Made, damage: Callable[[Path], None]
) -> None:
    damage(copied.path)
    with copied.mirrors.of(DID, KEY) as mirror:
        assert not mirror.has(copied.refs.values())
    assert copied.sync() == ()
    copied.check()
    assert copied.asked().count("download") == 1
    assert copied.sync() is None


def test_one_that_was_doubted_is_looked_at_closely(copied: Made) -> None:
    """As when git says that it could not read it: its times tell nothing."""
    pack = pack_of(copied.path)
    status = pack.stat()
    flip(copied.path)
    os.utime(pack, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert copied.sync() is None
    with copied.mirrors.of(DID, KEY) as mirror:
        mirror.doubt()
    copied.sync()
    copied.check()
    assert copied.asked().count("download") == 1


def killed_at(made: Made, moment: int) -> bool:
    """Whether a process that brings the mirror up gets that far: it is killed there."""
    pid = os.fork()
    if not pid:
        seen = 0

        def count(event: str, arguments: object) -> None:
            nonlocal seen
            if event in ("os.rename", "os.remove", "os.mkdir", "subprocess.Popen", "shutil.rmtree"):
                seen += 1
                if seen == moment:
                    os.kill(os.getpid(), signal.SIGKILL)

        try:
            sys.addaudithook(count)
            made.sync()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])


def sweep(made: Made, step: int) -> None:
    kept = shutil.copytree(made.path.parent, made.gitenv.root / f"before-{len(made.refs)}")
    moment = 1
    while killed_at(made, moment):
        made.sync()
        made.check()
        shutil.rmtree(made.path.parent)
        shutil.copytree(kept, made.path.parent)
        moment += step
    assert moment > 10


@pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.slow)])
def test_whoever_is_killed_at_any_moment_leaves_what_can_be_mended(made: Made, step: int) -> None:
    with made.mirrors.of(DID, KEY):
        pass
    sweep(made, step)  # it is made
    made.sync()
    made.push("refs/heads/main", noise(LARGE, seed=2))
    del made.refs["refs/heads/dev"]
    sweep(made, step)  # it is brought up


# --- several at once


class Slow(Host):
    """Lists packs once it is told to."""

    def __init__(self, host: Host) -> None:
        super().__init__(**vars(host))
        self.asked, self.go = threading.Event(), threading.Event()

    def list(
        self, collection: str, prefix: str, *, newest_first: bool = False
    ) -> Iterator[Sequence[Record]]:
        self.asked.set()
        assert self.go.wait(20)
        return super().list(collection, prefix, newest_first=newest_first)


def test_of_two_at_once_one_waits_and_finds_all_done(made: Made) -> None:
    slow = Slow(made.host)
    made.host, waits = slow, threading.Event()
    first = threading.Thread(target=made.sync)
    first.start()
    assert slow.asked.wait(20)
    results: list[Sequence[str] | None] = []
    second = threading.Thread(target=lambda: results.append(made.sync(waits.set)))
    second.start()
    assert waits.wait(20)
    slow.go.set()
    first.join(20)
    second.join(20)
    assert results == [None]
    assert made.asked().count("download") == 1
    made.check()


def test_what_is_good_is_read_while_somebody_brings_it_up(copied: Made) -> None:
    new = copied.push("refs/heads/main")
    host = copied.host
    copied.host = slow = Slow(host)
    thread = threading.Thread(target=copied.sync)
    try:
        thread.start()
        assert slow.asked.wait(20)
        old = copied.refs["refs/heads/dev"]
        with copied.mirrors.of(DID, KEY) as mirror:
            assert mirror.has([old])
            assert not mirror.has([new])
    finally:
        slow.go.set()
        thread.join(20)
        copied.host = host


# --- how much there is of them


@pytest.fixture
def three(gitenv: GitEnv) -> list[str]:
    """Mirrors of ten thousand bytes each, the least recently used first."""
    keys = [f"3kaaaaaaaaaa{letter}" for letter in "cab"]
    mirrors = Mirrors(gitenv.root / "mirrors", 0, gitenv.env)
    for age, key in zip((300, 200, 100), keys, strict=True):
        with mirrors.of(DID, key) as mirror:
            packs = mirror.objects / "pack"
            packs.mkdir(parents=True)
            (packs / "pack-x.pack").write_bytes(bytes(10_000))
        os.utime(mirror.path.with_suffix(".use"), (1e9 - age, 1e9 - age))
    return keys


def left(gitenv: GitEnv) -> set[str]:
    return {path.name for path in (gitenv.root / "mirrors" / DID).iterdir()}


@pytest.mark.parametrize(("size", "stay"), [(30_000, 3), (29_999, 2), (10_000, 1), (0, 0)])
def test_the_least_recently_used_go_first(
    gitenv: GitEnv, three: list[str], size: int, stay: int
) -> None:
    Mirrors(gitenv.root / "mirrors", size, gitenv.env).trim()
    kept = three[len(three) - stay :]
    assert {name for name in left(gitenv) if name.endswith(".git")} == {f"{k}.git" for k in kept}
    assert {name.partition(".")[0] for name in left(gitenv)} == set(kept)


def test_one_in_use_stays(gitenv: GitEnv, three: list[str]) -> None:
    mirrors = Mirrors(gitenv.root / "mirrors", 10_000, gitenv.env)
    oldest, _, newest = three
    with mirrors.of(DID, oldest):
        os.utime(gitenv.root / "mirrors" / DID / f"{oldest}.use", (1, 1))
        mirrors.trim()
        assert {name for name in left(gitenv) if name.endswith(".git")} == {f"{oldest}.git"}
    with mirrors.of(DID, newest) as mirror:  # there is nothing of it any more
        assert not mirror.path.exists()


def test_what_a_killed_one_was_removing_goes(gitenv: GitEnv, three: list[str]) -> None:
    folder = gitenv.root / "mirrors" / DID
    (folder / f"{three[0]}.git").rename(folder / f"{three[0]}.git.dropped-0123")
    Mirrors(gitenv.root / "mirrors", 1 << 20, gitenv.env).trim()
    assert f"{three[0]}.git.dropped-0123" not in left(gitenv)


def test_a_mirror_that_cannot_be_is_an_error_in_one_line(gitenv: GitEnv) -> None:
    (gitenv.root / "mirrors").write_bytes(b"")
    with (
        pytest.raises(BadMirror, match=r"mirrors.* cannot be used: ") as raised,
        Mirrors(gitenv.root / "mirrors", 0, gitenv.env).of(DID, KEY),
    ):
        pass
    assert raised.value.hint == "to use another folder: export KNOTLESS_CACHE_DIR=<folder>"


def test_it_is_nobodys_git(made: Made) -> None:
    """Neither hooks nor settings of the user's have a say in it."""
    made.mirrors = Mirrors(
        made.gitenv.root / "mirrors",
        1 << 30,
        made.gitenv.env | {"GIT_DIR": str(made.work / ".git"), "GIT_OBJECT_DIRECTORY": "/nowhere"},
    )
    config = made.gitenv.home / ".gitconfig"
    config.write_text(
        f"{config.read_text()}[fetch]\n\tfsckObjects = nonsense\n[core]\n\tbare = no\n"
    )
    made.sync()
    config.write_text("")
    made.check()
    assert isinstance(Mirror(made.path, made.gitenv.env).size(), int)
