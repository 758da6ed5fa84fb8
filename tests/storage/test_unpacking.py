"""Packs that would cost more to unpack than they may, and fetches that are too large for us."""

import re
from pathlib import Path

import pytest

from git_knotless import limits
from git_knotless.storage.child import NoSpace
from git_knotless.storage.git import Git
from git_knotless.storage.packs import room
from git_knotless.storage.packs.intake import TooManyPacks
from git_knotless.storage.packs.packfile import BadPack
from git_knotless.storage.packs.unpacking import most_unpacked, seconds_for
from tests.gitenv import GitEnv
from tests.hostile import BLOB, copy, deltas, entry, insert, pack, sharing, zeroes
from tests.storage.account import DID
from tests.storage.packs import noise, publish, publish_bytes
from tests.storage.reader import Host, Reader, push_each

MIB = 1 << 20


@pytest.mark.parametrize("further", [0, 2 * MIB])
@pytest.mark.parametrize(
    "bomb",
    [
        pytest.param(lambda: [zeroes(2 << 30)], id="zeroes"),
        pytest.param(lambda: deltas(b"x" * 99, [(1 << 40, copy(99))]), id="a delta"),
    ],
)
def test_an_object_that_is_too_large_is_refused_before_it_is_unpacked(
    gitenv: GitEnv, work: Path, git: Git, host: Host, reader: Reader, bomb: object, further: int
) -> None:
    """In a pack of its own, or among others; 2 GiB take git some ten seconds."""
    tip = gitenv.oid(work)
    good = publish(host, git, [tip])
    assert callable(bomb)
    rest = [entry(BLOB, noise(further))] if further else []
    bad = publish_bytes(host, pack([*bomb(), *rest]))
    with pytest.raises(BadPack) as caught:
        reader.take(tip)
    words = f"^{DID}: pack {bad.rkey}: an object in it unpacks to more than the 1 GiB that "
    assert re.search(words, caught.value.message)
    assert good.rkey not in caught.value.message
    assert reader.packs() == reader.leftovers() == []


@pytest.mark.slow
def test_objects_that_keep_the_processor_busy_are_given_up(
    gitenv: GitEnv,
    work: Path,
    git: Git,
    host: Host,
    reader: Reader,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """20,000 objects of 64 MiB in some hundred kilobytes: an hour's work."""
    monkeypatch.setattr(limits, "UNPACKING", 1)
    monkeypatch.setattr(limits, "UNPACKING_RATE", 1 << 40)
    tip = gitenv.oid(work)
    good = publish(host, git, [tip])
    bad = publish_bytes(host, pack(sharing(bytes(MIB), 20_000, 64 * MIB)))
    for clone in (False, True):
        with pytest.raises(BadPack) as caught:
            reader.take(tip, clone=clone)
        words = rf"pack {bad.rkey}: [0-9,]+ bytes are not unpacked in \d s of processor time$"
        joined = rf"pack {good.rkey} to {bad.rkey}: [0-9,]+ bytes are not unpacked in \d s"
        assert re.search(f"{words}|{joined}", caught.value.message)
        assert reader.packs() == reader.leftovers() == []


def test_deltas_on_deltas_are_git_s_daily_work(
    gitenv: GitEnv, work: Path, git: Git, host: Host, reader: Reader
) -> None:
    tip = gitenv.oid(work)
    publish(host, git, [tip])
    chain = ((99, copy(95) + insert(n.to_bytes(4, "big"))) for n in range(5_000))
    publish_bytes(host, pack(deltas(b"x" * 99, chain)))
    reader.take(tip)
    assert reader.has(tip)


@pytest.mark.parametrize(
    ("size", "most"),
    [(32, 1 << 30), (32 * MIB, 1 << 30), (64 * MIB, 2 << 30), (1 << 40, 4 << 30)],
)
def test_how_large_an_object_may_be(size: int, most: int) -> None:
    assert most_unpacked(size) == most


def test_a_larger_pack_may_take_longer() -> None:
    assert seconds_for(0) == limits.UNPACKING
    assert seconds_for(limits.UNPACKING_RATE) == limits.UNPACKING + 1


def test_a_fetch_for_which_there_is_no_room_sends_for_nothing(
    gitenv: GitEnv,
    work: Path,
    git: Git,
    host: Host,
    reader: Reader,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tip = gitenv.commit(work, "noise", noise(2 * MIB))
    publish(host, git, [tip])
    host.requests.clear()

    class Full:
        f_bavail, f_frsize = 1, 4096

    monkeypatch.setattr(room.os, "statvfs", lambda _: Full)
    with pytest.raises(NoSpace, match=rf"packs of {DID} take .* MB, and 4\.1 KB are free in /"):
        reader.take(tip)
    assert "download" not in host.requests


@pytest.mark.parametrize(("limit", "most"), [("PACKS", 3), ("BLOBS", 1)])
def test_more_than_a_reader_takes_on(
    gitenv: GitEnv,
    work: Path,
    git: Git,
    host: Host,
    reader: Reader,
    monkeypatch: pytest.MonkeyPatch,
    limit: str,
    most: int,
) -> None:
    push_each(gitenv, work, git, host)
    tip = gitenv.oid(work)
    for seed in (1, 2):
        tip = gitenv.commit(work, "noise", noise(100_000, seed))
        publish(host, git, [tip], [f"{tip}^"])
    reader.take(tip)
    monkeypatch.setattr(limits, limit, most)
    with pytest.raises(TooManyPacks, match=f"^{DID} is in more than ") as caught:
        Reader(gitenv, gitenv.repository("third", commits=0), host).take(tip)
    assert (caught.value.hint or "").endswith("git knotless repo compact")
