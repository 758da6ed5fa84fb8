"""Small files: whole or not there, and what killed writers leave."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from git_knotless.atproto.files import discard, replace_cache, replace_file

KILLED = """
import os, signal, sys
from pathlib import Path
from git_knotless.atproto import files
os.fchmod = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
files.replace_file(Path(sys.argv[1]), b"secret", durable=True)
"""


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.parametrize("durable", [True, False])
def test_a_file_is_replaced_and_nobody_elses(tmp_path: Path, durable: bool) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"a longer text than the new one")
    path.chmod(0o644)
    replace_file(path, b"new", durable=durable)
    assert path.read_bytes() == b"new"
    assert mode(path) == 0o600
    assert names(tmp_path) == ["a.json"]


def test_what_a_killed_writer_leaves_has_one_name_and_goes_with_the_next_write(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.json"
    replace_file(path, b"old", durable=True)
    for _ in range(2):
        killed = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
        assert killed.returncode == -9
        assert names(tmp_path) == [".a.json.new", "a.json"]
        assert mode(tmp_path / ".a.json.new") == 0o600
    assert path.read_bytes() == b"old"

    left = tmp_path / ".a.json.new"
    left.write_bytes(b"a longer text than the new one")
    left.chmod(0o644)
    replace_file(path, b"new", durable=True)
    assert (path.read_bytes(), mode(path)) == (b"new", 0o600)
    assert names(tmp_path) == ["a.json"]


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"mine")
    (tmp_path / ".a.json.new").symlink_to(tmp_path / "other")
    with pytest.raises(OSError):
        replace_file(tmp_path / "a.json", b"new", durable=False)
    assert (tmp_path / "other").read_bytes() == b"mine"


def test_a_write_that_fails_leaves_the_old(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.mkdir()
    for replace in (replace_cache, lambda *args: replace_file(*args, durable=True)):
        with pytest.raises(OSError):
            replace(path, b"new")
        assert names(tmp_path) == ["a.json"]


def test_discarding_removes_what_was_left_too(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    replace_file(path, b"old", durable=False)
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
