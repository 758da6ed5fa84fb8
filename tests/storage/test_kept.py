"""What was uploaded for a batch that did not land is found again, and used as far as it holds."""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from git_knotless.atproto.errors import BlobNotFound, HostUnreachable, RateLimited
from git_knotless.errors import KnotlessError
from git_knotless.storage.creation import create
from git_knotless.storage.packs import kept
from git_knotless.storage.pushing.economy import PushStopped
from git_knotless.storage.store import BlobBody, BlobRef, Write
from tests.gitenv import GitEnv
from tests.storage.account import Account, refusal
from tests.storage.packs import noise
from tests.storage.pusher import MAIN, URL, Pusher

pytestmark = pytest.mark.usefixtures("in_no_time")

KIB = 1024
LIMIT = 64 * KIB
LATER = RateLimited(
    429, "RateLimitExceeded", "", nsid="applyWrites", host="pds.test", retry_after=7200
)


@pytest.fixture
def host() -> Account:
    account = Account(blob_limit=LIMIT)
    create(account, URL)
    account.requests.clear()
    return account


@pytest.fixture
def alice(gitenv: GitEnv, host: Account) -> Pusher:
    path = gitenv.repository(commits=2)
    gitenv.commit(path, "large", noise(5 * LIMIT + 100))
    return Pusher(gitenv, path, host)


def refuse(host: Account, error: Exception = LATER) -> None:
    def before(_: Sequence[Write]) -> None:
        raise error

    host.before = before


def take(host: Account) -> None:
    host.before = lambda writes: None
    host.requests.clear()


def again(pusher: Pusher) -> Pusher:
    """Another run of git there."""
    return Pusher(pusher.gitenv, pusher.path, pusher.host)


def spool(pusher: Pusher) -> list[Path]:
    return sorted((pusher.path / ".git/knotless/spool").glob("*"))


def noted(pusher: Pusher) -> int:
    """The blobs that the host is known to have."""
    logs = (path for path in spool(pusher) if path.suffix == ".log")
    return sum(len(log.read_text().splitlines()) - 1 for log in logs)


@pytest.fixture
def stopped(alice: Pusher, host: Account) -> Pusher:
    """A push that was refused once all was uploaded; the next will be taken."""
    refuse(host)
    with pytest.raises(PushStopped):
        alice.push(f"main:{MAIN}")
    assert host.requests.count("upload") == 6
    take(host)
    return again(alice)


def lands(pusher: Pusher, *, uploads: int) -> None:
    assert pusher.push(f"main:{MAIN}") == {MAIN: None}
    assert pusher.host.requests.count("upload") == uploads
    assert pusher.objects() == pusher.reached("main")
    assert spool(pusher) == []


def test_a_refused_batch_is_sent_again_without_an_upload(stopped: Pusher) -> None:
    assert [path.suffix for path in spool(stopped)] == [".log", ".pack"]
    assert {path.stat().st_mode & 0o077 for path in spool(stopped) if path.suffix == ".pack"} == {0}
    lands(stopped, uploads=0)


def test_what_has_gone_meanwhile_is_uploaded(stopped: Pusher, host: Account) -> None:
    host.blobs.clear()
    lands(stopped, uploads=6)


def test_a_host_that_says_so_of_a_blob_that_it_has(stopped: Pusher, host: Account) -> None:
    lost = [refusal(BlobNotFound, 400, "BlobNotFound")]

    def once(_: Sequence[Write]) -> None:
        if lost:
            raise lost.pop()

    host.before = once
    lands(stopped, uploads=6)


def test_an_upload_that_was_cut_goes_on(
    alice: Pusher, host: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload, turns = host.upload, iter([1, 2, 3])  # of several threads

    def some(body: BlobBody) -> BlobRef:
        if next(turns, None) is None:
            while noted(alice) < 3:
                time.sleep(0.001)  # what is under way when one fails is called off
            raise HostUnreachable("down")
        return upload(body)

    monkeypatch.setattr(host, "upload", some)
    with pytest.raises(HostUnreachable):
        alice.push(f"main:{MAIN}")
    monkeypatch.undo()
    assert len(host.blobs) == 3
    take(host)
    pusher = again(alice)
    assert pusher.push(f"main:{MAIN}") == {MAIN: None}
    assert len(host.blobs) == 6
    assert host.requests.count("upload") == 3


def test_ctrl_c_keeps_it(alice: Pusher, host: Account) -> None:
    refuse(host, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        alice.push(f"main:{MAIN}")
    take(host)
    lands(again(alice), uploads=0)


def test_a_push_that_another_has_overtaken_leaves_nothing(
    alice: Pusher, host: Account, gitenv: GitEnv
) -> None:
    alice.push(f"main~1:{MAIN}")
    read = alice.repository.snapshot()
    gitenv.git("clone", "-q", str(alice.path), "other")
    other = Pusher(gitenv, gitenv.root / "other", host)
    gitenv.git("reset", "-q", "--hard", "main~1", cwd=other.path)
    gitenv.commit(other.path, "theirs")
    assert other.push(f"main:{MAIN}") == {MAIN: None}
    assert alice.push(f"main:{MAIN}", read=read) == {MAIN: "fetch first"}
    assert spool(alice) == []


def test_it_serves_what_needs_less(stopped: Pusher, host: Account, gitenv: GitEnv) -> None:
    """Somebody else has pushed meanwhile: all that it was built on is still there."""
    gitenv.git("clone", "-q", str(stopped.path), "other")
    other = Pusher(gitenv, gitenv.root / "other", host)
    other.push("main~1:refs/heads/other")
    host.requests.clear()
    assert stopped.push(f"main:{MAIN}") == {MAIN: None}
    assert host.requests.count("upload") == 0


def test_another_push_is_packed_anew(stopped: Pusher, gitenv: GitEnv) -> None:
    gitenv.commit(stopped.path, "more")
    assert stopped.push(f"main:{MAIN}") == {MAIN: None}
    assert stopped.host.requests.count("upload") == 6
    assert len(spool(stopped)) == 2  # for who pushes the other yet; the day ends it


def test_a_branch_that_is_left_out_the_second_time_stays_here(
    alice: Pusher, host: Account, gitenv: GitEnv
) -> None:
    gitenv.git("branch", "public", cwd=alice.path)
    gitenv.commit(alice.path, "not for everyone", noise(LIMIT, seed=7))
    refuse(host)
    with pytest.raises(PushStopped):
        alice.push("public:refs/heads/public", f"main:{MAIN}")
    take(host)
    public = again(alice)
    assert public.push("public:refs/heads/public") == {"refs/heads/public": None}
    assert public.objects() == public.reached("public")


def test_one_that_was_built_on_what_is_gone_is_no_use(
    alice: Pusher, host: Account, gitenv: GitEnv
) -> None:
    alice.push("main~1:refs/heads/base")
    refuse(host)
    with pytest.raises(PushStopped):
        alice.push(f"main:{MAIN}")
    take(host)
    alice.push(":refs/heads/base")
    take(host)
    assert again(alice).push(f"main:{MAIN}") == {MAIN: None}
    assert host.requests.count("upload") == 6


def test_a_day_later_it_is_gone(stopped: Pusher) -> None:
    then = time.time() - 86_401
    for path in spool(stopped):
        os.utime(path, (then, then))
    lands(stopped, uploads=6)


def cut_pack(log: Path, pack: Path) -> None:
    os.truncate(pack, pack.stat().st_size - 1)


def flip_pack(log: Path, pack: Path) -> None:
    data = bytearray(pack.read_bytes())
    data[len(data) // 2] ^= 1
    pack.write_bytes(data)


def lose_pack(log: Path, pack: Path) -> None:
    pack.unlink()


def link_pack(log: Path, pack: Path) -> None:
    pack.rename(pack.with_name("elsewhere"))
    pack.symlink_to("elsewhere")


def no_header(log: Path, pack: Path) -> None:
    log.write_bytes(b"\xff{}\n" + log.read_bytes())


def odd_header(log: Path, pack: Path) -> None:
    log.write_text('{"account": 1, "tips": {}, "bases": null}\n')


@pytest.mark.parametrize(
    "damage", [cut_pack, flip_pack, lose_pack, link_pack, no_header, odd_header]
)
def test_what_is_damaged_is_not_used(stopped: Pusher, damage: Callable[[Path, Path], None]) -> None:
    log, pack = spool(stopped)
    damage(log, pack)
    assert stopped.push(f"main:{MAIN}") == {MAIN: None}
    assert stopped.host.requests.count("upload") == 6
    assert stopped.objects() == stopped.reached("main")


def gone_meanwhile(folder: Path) -> None:
    """What a listing still shows of a file that somebody else has removed."""
    (folder / "0.log").symlink_to("gone")
    (folder / "0.pack").symlink_to("gone")


def not_to_be_removed(folder: Path) -> None:
    for name in ("0.log", "0.pack"):
        (folder / name).mkdir()
        os.utime(folder / name, (0, 0))


def endless_log(folder: Path) -> None:
    os.mkfifo(folder / "0.log")


def endless_pack(folder: Path) -> None:
    (pack,) = folder.glob("*.pack")
    pack.unlink()
    os.mkfifo(pack)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("clutter", [gone_meanwhile, not_to_be_removed, endless_log, endless_pack])
def test_what_else_is_in_the_folder_is_in_nobodys_way(
    stopped: Pusher, clutter: Callable[[Path], None], gitenv: GitEnv
) -> None:
    clutter(stopped.path / ".git/knotless/spool")
    assert stopped.push(f"main:{MAIN}") == {MAIN: None}
    gitenv.commit(stopped.path, "more", noise(2 * LIMIT))
    assert stopped.push(f"main:{MAIN}") == {MAIN: None}


def swap_places(lines: list[str]) -> list[str]:
    first, second = lines[0].replace('"at": 0', '"at": 65536'), lines[1].replace("65536", "0", 1)
    return [first, second, *lines[2:]]


def say_others(lines: list[str]) -> list[str]:
    return [line.replace("bafkrei", "bafkreh") for line in lines]


def cut_line(lines: list[str]) -> list[str]:
    return [*lines[:-1], lines[-1][:-20]]


def overlap(lines: list[str]) -> list[str]:
    return [*lines, lines[0].replace('"at": 0', '"at": 7'), lines[0]]


def far_off(lines: list[str]) -> list[str]:
    return [lines[0].replace('"at": 0', '"at": 999999999'), "[]", "{}", "nonsense", *lines[1:]]


@pytest.mark.parametrize(
    ("damage", "uploads"),
    [(swap_places, 2), (say_others, 6), (cut_line, 1), (overlap, 0), (far_off, 1)],
)
def test_what_is_noted_is_checked(
    stopped: Pusher, damage: Callable[[list[str]], list[str]], uploads: int
) -> None:
    log, _ = spool(stopped)
    header, *lines = log.read_text().splitlines()
    lines.sort(key=lambda line: int(line.split()[1].strip(",")))
    assert len(lines) == 6
    log.write_text("\n".join([header, *damage(lines)]))
    lands(stopped, uploads=uploads)


def test_another_accounts_blobs_are_not_this_ones(stopped: Pusher) -> None:
    log, _ = spool(stopped)
    log.write_text(log.read_text().replace("a" * 24, "b" * 24))
    lands(stopped, uploads=6)


def test_there_is_room_for_so_much(
    alice: Pusher, host: Account, gitenv: GitEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest goes; what is larger than all of it is not kept."""
    monkeypatch.setattr(kept, "_MOST_BYTES", 7 * LIMIT)
    refuse(host)
    for number in range(3):
        gitenv.commit(alice.path, "more", noise(number + 1))
        with pytest.raises(KnotlessError):
            again(alice).push(f"main:{MAIN}")
    assert len(spool(alice)) == 2
    monkeypatch.setattr(kept, "_MOST_BYTES", 4 * LIMIT)
    gitenv.commit(alice.path, "more", noise(9))
    with pytest.raises(KnotlessError):
        again(alice).push(f"main:{MAIN}")
    assert spool(alice) == []


def test_a_system_that_names_no_unnamed_file(
    alice: Pusher, host: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_ = os.open

    def no_unnamed(path: object, flags: int, *args: object, **options: object) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise IsADirectoryError
        return open_(path, flags, *args, **options)  # type: ignore[arg-type]  # as it came

    monkeypatch.setattr(os, "open", no_unnamed)
    refuse(host)
    with pytest.raises(PushStopped):
        alice.push(f"main:{MAIN}")
    take(host)
    lands(again(alice), uploads=0)
