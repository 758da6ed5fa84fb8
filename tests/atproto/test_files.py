"""Small files: whole or not there, and what killed writers leave."""

import os
import resource
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from git_knotless.atproto.files import discard, read_file, replace_cache, replace_file, room_for

KILLED = """
import os, signal, sys
from pathlib import Path
from git_knotless.atproto import files
os.fchmod = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
files.replace_file(Path(sys.argv[1]), b"secret")
"""


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_file_is_replaced_and_nobody_elses(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"a longer text than the new one")
    path.chmod(0o644)
    replace_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert mode(path) == 0o600
    assert names(tmp_path) == ["a.json"]


def test_what_a_killed_writer_leaves_has_one_name_and_goes_with_the_next_write(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.json"
    replace_file(path, b"old")
    for _ in range(2):
        killed = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
        assert killed.returncode == -9
        assert names(tmp_path) == [".a.json.new", "a.json"]
        assert mode(tmp_path / ".a.json.new") == 0o600
    assert path.read_bytes() == b"old"

    left = tmp_path / ".a.json.new"
    left.write_bytes(b"a longer text than the new one")
    left.chmod(0o644)
    replace_file(path, b"new")
    assert (path.read_bytes(), mode(path)) == (b"new", 0o600)
    assert names(tmp_path) == ["a.json"]


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"mine")
    (tmp_path / ".a.json.new").symlink_to(tmp_path / "other")
    with pytest.raises(OSError):
        replace_file(tmp_path / "a.json", b"new")
    assert (tmp_path / "other").read_bytes() == b"mine"


def test_a_write_that_fails_leaves_the_old(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.mkdir()
    for replace in (replace_cache, replace_file):
        with pytest.raises(OSError):
            replace(path, b"new")
        assert names(tmp_path) == ["a.json"]


def test_room_is_taken_before_what_fills_it_is_there(tmp_path: Path) -> None:
    path, left = tmp_path / "a.json", tmp_path / ".a.json.new"
    replace_file(path, b"old")
    with room_for(path, 10_000) as put:
        assert left.stat().st_size == 10_000
        assert left.stat().st_blocks * 512 >= 10_000, "no hole"
        assert path.read_bytes() == b"old"
        put(b"new")
        assert path.read_bytes() == b"new"
    assert (names(tmp_path), mode(path)) == (["a.json"], 0o600)
    with room_for(path, 10) as put:
        put(b"longer than the room was")
    assert path.read_bytes() == b"longer than the room was"


def test_room_that_is_not_filled_is_given_back(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    replace_file(path, b"old")
    with room_for(path, 100):
        pass
    with pytest.raises(KeyboardInterrupt), room_for(path, 100):
        raise KeyboardInterrupt
    assert names(tmp_path) == ["a.json"]
    assert path.read_bytes() == b"old"


def test_a_disk_that_is_full_is_found_out_before(tmp_path: Path) -> None:
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, limit[1]))
    try:
        with pytest.raises(OSError), room_for(tmp_path / "a.json", 10_000):
            raise AssertionError("there is no room")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, before)
    assert names(tmp_path) == []


def test_a_file_is_read_to_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"1234")
    assert read_file(path, 4) == b"1234"
    with pytest.raises(OSError, match="File too large"):
        read_file(path, 3)
    link = tmp_path / "link"
    link.symlink_to(path)
    assert read_file(link, 4) == b"1234"
    with pytest.raises(OSError, match="symbolic link"):
        read_file(link, 4, links=False)


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    for name in ("pipe", "zero"):
        with pytest.raises(OSError, match="Not a regular file"):
            read_file(tmp_path / name, 10)
    with pytest.raises(IsADirectoryError):
        read_file(tmp_path, 10)
    with pytest.raises(FileNotFoundError):
        read_file(tmp_path / "none", 10)


def test_discarding_removes_what_was_left_too(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    replace_file(path, b"old")
    (tmp_path / ".a.json.new").write_bytes(b"secret")
    discard(path)
    assert names(tmp_path) == []
    discard(path)


def test_writers_of_a_cache_need_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    texts = [bytes([65 + number]) * 100_000 for number in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: replace_cache(path, texts[number % 4]), range(200)))
    assert path.read_bytes() in texts
    assert names(tmp_path) == ["a.json"]


def test_what_was_left_of_a_cache_goes_when_it_is_old(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    for name, age in ((".a.json.old", 3700), (".a.json.now", 10), (".b.json.old", 3700)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    replace_cache(path, b"new")
    assert names(tmp_path) == [".a.json.now", ".b.json.old", "a.json"]
