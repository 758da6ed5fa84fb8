"""The newest revision that was seen, kept for each account and repository; and large snapshots."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from git_knotless.atproto.dag_cbor import cid_of
from git_knotless.atproto.syntax import Did, tid
from git_knotless.storage.proofs import large, revs
from git_knotless.storage.proofs.large import LargeSnapshots
from git_knotless.storage.proofs.revs import Revs

ALICE, BOB = Did("did:plc:" + "a" * 24), Did("did:web:localhost%3A1234")
KEY, OTHER = "3k2akcsyzdc2r", "3k2akcsyzdc2s"
OLD, NEW = tid(1_000_000, 0), tid(2_000_000, 0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config/revs.json"


def test_the_newest_counts(path: Path) -> None:
    kept = Revs(path)
    assert kept.newest(ALICE, KEY) is None
    for rev in (OLD, NEW, OLD):
        Revs(path).saw(ALICE, KEY, rev)
    assert kept.newest(ALICE, KEY) == NEW
    assert kept.newest(ALICE, OTHER) is kept.newest(BOB, KEY) is None
    kept.accept(ALICE, KEY, OLD)
    assert Revs(path).newest(ALICE, KEY) == OLD
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_what_is_known_is_not_written_again(path: Path) -> None:
    Revs(path).saw(ALICE, KEY, NEW)
    before = path.stat().st_ino
    Revs(path).saw(ALICE, KEY, OLD)
    Revs(path).saw(ALICE, KEY, NEW)
    assert path.stat().st_ino == before


@pytest.mark.parametrize(
    "held",
    [
        b"",
        b"{",
        b"[]",
        b"[" * 100_000,
        b'{"version": 2, "revs": {}}',
        b'{"version": 1, "revs": []}',
        json.dumps({"version": 1, "revs": {f"{ALICE} {KEY}": "~"}}).encode(),
        json.dumps({"version": 1, "revs": {f"{ALICE} {KEY}": 7}}).encode(),
    ],
)
def test_garbage_is_as_nothing(path: Path, held: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(held)
    assert Revs(path).newest(ALICE, KEY) is None
    Revs(path).saw(ALICE, KEY, OLD)
    assert Revs(path).newest(ALICE, KEY) == OLD


def test_what_cannot_be_written_is_not_remembered(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    kept = Revs(tmp_path / "file/revs.json")
    kept.saw(ALICE, KEY, OLD)
    assert kept.newest(ALICE, KEY) is None


def test_many_at_once_lose_nothing(path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: Revs(path).saw(ALICE, tid(n, 0), NEW), range(40)))
    assert all(Revs(path).newest(ALICE, tid(n, 0)) == NEW for n in range(40))


def test_those_seen_last_are_kept(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revs, "_MOST", 3)
    for key in ("a", "b", "c", "d"):
        Revs(path).saw(ALICE, key, OLD)
    Revs(path).saw(ALICE, "b", NEW)
    Revs(path).saw(ALICE, "e", OLD)
    assert [key for key in "abcde" if Revs(path).newest(ALICE, key)] == ["b", "d", "e"]


# --- large snapshots

COMMIT = cid_of(b"commit")
BLOCKS = {cid_of(block): block for block in (b"\x01", b"\x02", b"\x03")}


def test_a_snapshot_comes_back_as_it_was(tmp_path: Path) -> None:
    kept = LargeSnapshots(tmp_path / "snapshots")
    for did in (ALICE, BOB):
        assert not kept.has(did, KEY)
        assert kept.load(did, KEY) is None
        kept.keep(did, KEY, COMMIT, BLOCKS)
        assert kept.has(did, KEY)
        assert kept.load(did, KEY) == (COMMIT, BLOCKS)
    kept.drop(ALICE, KEY)
    assert not kept.has(ALICE, KEY)
    assert kept.has(BOB, KEY)


def test_snapshots_take_so_much_room_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that were used longest ago go first."""
    kept = LargeSnapshots(tmp_path)
    kept.keep(ALICE, "k1", COMMIT, BLOCKS)
    (first,) = tmp_path.iterdir()
    monkeypatch.setattr(large, "_MOST", 2 * first.stat().st_size)
    for at, key in enumerate(("k2", "k3", "k4")):
        for age, path in enumerate(sorted(tmp_path.iterdir())):
            os.utime(path, (at * 10 + age, at * 10 + age))
        kept.load(ALICE, "k1")
        kept.keep(ALICE, key, COMMIT, BLOCKS)
    assert [key for key in ("k1", "k2", "k3", "k4") if kept.has(ALICE, key)] == ["k1", "k4"]
    monkeypatch.setattr(large, "_LARGEST", first.stat().st_size - 1)
    kept.keep(ALICE, "k5", COMMIT, BLOCKS)
    assert not kept.has(ALICE, "k5")
    assert kept.load(ALICE, "k1") is None, "too large to be one of ours"
