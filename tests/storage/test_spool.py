"""Temporary files: what is in them, what their blobs are called, and that they go."""

import errno
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path

import pytest

from git_knotless.storage.child import NoSpace
from git_knotless.storage.packs.spool import CHUNK, Slice, Spool, SpoolError, blob_cid
from tests.storage.account import cid_of
from tests.storage.packs import noise


def ignored(size: int) -> None:
    """Nobody counts."""


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    spool = Spool(tmp_path / "knotless")
    yield spool
    spool.close()


def test_what_is_appended_is_read_anywhere(spool: Spool) -> None:
    data = noise(3 * CHUNK + 5)
    for at in range(0, len(data), 100_000):
        spool.append(data[at : at + 100_000])
    assert spool.size == len(data)
    assert spool.read(7, 10) == data[7:17]
    assert b"".join(spool.chunks(5, 2 * CHUNK)) == data[5 : 5 + 2 * CHUNK]
    assert max(map(len, spool.chunks(0, spool.size))) == CHUNK


def test_it_has_no_name(spool: Spool, tmp_path: Path) -> None:
    spool.append(b"secret")
    assert list((tmp_path / "knotless").iterdir()) == []


def test_more_than_there_is_cannot_be_read(spool: Spool) -> None:
    spool.append(b"abc")
    with pytest.raises(SpoolError, match="cut short"):
        list(spool.chunks(0, 4))


def test_a_slice_begins_anew_each_time(spool: Spool) -> None:
    data, counted = noise(CHUNK + 100), list[int]()
    spool.append(data)
    body = Slice(spool, 50, CHUNK, counted.append)
    next(body.chunks())
    assert b"".join(body.chunks()) == data[50 : 50 + CHUNK]
    assert body.cid == cid_of(data[50 : 50 + CHUNK])
    assert counted == [CHUNK, CHUNK]


def test_a_slice_sent_in_part_has_no_cid(spool: Spool) -> None:
    spool.append(noise(CHUNK + 1))
    body = Slice(spool, 0, CHUNK + 1, ignored)
    next(body.chunks())
    assert body.cid is None


def test_the_cid_is_that_of_raw_bytes() -> None:
    empty = bytes.fromhex("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
    assert blob_cid(empty) == "bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku"


def test_closing_it_calls_off_who_still_reads_or_writes(spool: Spool) -> None:
    spool.append(noise(2 * CHUNK))
    chunks = Slice(spool, 0, 2 * CHUNK, ignored).chunks()
    next(chunks)
    spool.close()
    with pytest.raises(CancelledError):
        next(chunks)
    with pytest.raises(CancelledError):
        spool.append(b"more")
    spool.close()  # once more does nothing


def test_a_full_disk_is_told(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, data: bytes, offset: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.pwrite", full)
    with pytest.raises(NoSpace, match=r"^no space left for temporary files in .*/knotless$"):
        spool.append(b"data")


def test_a_limit_on_file_sizes_is_told(tmp_path: Path) -> None:
    program = (
        "import sys, resource; from pathlib import Path\n"
        "from git_knotless.storage.packs.spool import Spool, NoSpace\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "spool = Spool(Path(sys.argv[1]))\n"
        "try: spool.append(bytes(2000))\n"
        "except NoSpace as error: print(error.message, spool.size)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        capture_output=True,
        check=True,
    )
    assert done.stdout.decode() == f"no space left for temporary files in {tmp_path} 1000\n"


def test_where_none_can_be_made_that_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SpoolError, match=r"^no temporary file in .*: Not a directory$"):
        Spool(tmp_path / "file" / "knotless")


def test_nothing_is_left_by_who_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path\n"
        "from git_knotless.storage.packs.spool import Spool\n"
        "spool = Spool(Path(sys.argv[1])); spool.append(bytes(100000))\n"
        "print('written', flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"written\n"
        process.send_signal(signal.SIGKILL)
    assert list(tmp_path.iterdir()) == []
