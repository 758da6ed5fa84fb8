"""Packs and refs on their way between two accounts, as many and as large as they come."""

import json
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import pytest

from git_knotless.atproto.errors import BlobNotFound, HostUnreachable, PayloadTooLarge
from git_knotless.storage.packs.packfile import BadPack
from git_knotless.storage.packs.packrecord import PackRecord
from git_knotless.storage.packs.spool import Spool
from git_knotless.storage.packs.uploads import BlobsLost
from git_knotless.storage.places.copying import BlobsMissing, KeepsChanging
from git_knotless.storage.records import PACK, REF, REPO
from git_knotless.storage.repositories import repositories
from git_knotless.storage.snapshot import UnreadableRepository
from git_knotless.storage.store import BlobBody, BlobRef, Record, Write
from git_knotless.value import replace
from tests.storage.account import refusal
from tests.storage.places import Killed, World, packs_of, push, put_pack, put_ref, refs_of

pytestmark = pytest.mark.usefixtures("in_no_time")

MIB = 1 << 20


def copied(world: World) -> None:
    (repo,) = repositories(world.alice)
    world.accept(world.alice, world.bob)
    assert refs_of(world.bob, repo.key) == refs_of(world.alice, repo.key)
    assert packs_of(world.bob, repo.key) == packs_of(world.alice, repo.key)


def packs(world: World) -> list[PackRecord]:
    values = world.bob.named(PACK).items()
    return [PackRecord.from_record(Record(rkey, value)) for rkey, value in values]


@pytest.mark.parametrize("seeks", [True, False])
def test_more_of_each_than_a_batch_takes(world: World, seeks: bool) -> None:
    repo = world.offered()
    world.alice.seeks = world.bob.seeks = seeks
    for n in range(450):
        put_ref(world.alice, repo, f"refs/heads/many/{n}", f"{n:040}", generation=1)
        put_pack(world.alice, repo, f"{n:032}".encode())
    copied(world)


def test_packs_in_records_fill_a_batch_and_no_more(world: World) -> None:
    repo = world.offered()
    for n in range(30):
        put_pack(world.alice, repo, Random(n).randbytes(48 * 1024))
    copied(world)
    data = [
        sum(len(write.value["data"]["$bytes"]) for write in batch if "data" in (write.value or {}))
        for batch in world.bob.batches
    ]
    assert max(data) <= 512 * 1024 * 4 // 3 + 30
    assert len([size for size in data if size]) <= 4


def test_the_longest_names_fit_into_a_batch(world: World) -> None:
    repo = world.offered()
    for n in range(300):
        name = f"refs/heads/{'/'.join(['é' * 90] * 5)}/{n}"
        put_ref(world.alice, repo, name, "a" * 40, generation=1)
    copied(world)
    sizes = [len(json.dumps([w.value for w in batch]).encode()) for batch in world.bob.batches]
    assert 500_000 < max(sizes) < 900_000


@pytest.mark.parametrize(("limit", "said"), [(70_000, True), (70_000, False), (5 * MIB, True)])
def test_blobs_are_cut_as_the_host_takes_them(world: World, limit: int, said: bool) -> None:
    """One that does not say what it takes is found out, and remembered."""
    world.offered()
    world.bob.blob_limit = limit if said else None
    learned: list[int] = []
    take = world.bob.upload

    def upload(body: BlobBody) -> BlobRef:
        if body.size > limit:
            raise refusal(PayloadTooLarge, 413, "PayloadTooLarge")
        return take(body)

    world.bob.upload = upload  # type: ignore[method-assign] # a host that does not say its limit
    world.bob.learn_blob_limit = learned.append  # type: ignore[method-assign] # and is not told
    copied(world)
    assert all(blob.size <= limit for pack in packs(world) for blob in pack.blobs)
    assert bool(learned) is not said


def test_what_a_host_takes_for_another_file_is_cut_again(world: World) -> None:
    repo = world.offered()
    put_pack(world.alice, repo, b"\x1f\x8b" + b"z" * 60_000, b"PK\x03\x04" + b"y" * 60_000)
    copied(world)
    assert {blob.mime for pack in packs(world) for blob in pack.blobs} == {"application/x-git-pack"}


def test_a_pack_goes_by_what_it_is_and_not_by_its_key(world: World) -> None:
    """What was left under its key by something else is replaced."""
    repo = world.offered()
    (large,) = (rkey for rkey, value in world.alice.named(PACK).items() if "blobs" in value)
    other = {**world.alice.named(PACK)[large], "checksum": "0" * 40, "blobs": []}
    world.bob.records[PACK] = {large: other}
    copied(world)
    assert repo.key in large


def test_hints_beyond_what_a_record_takes_are_left_out(world: World) -> None:
    world.offered()
    for value in world.alice.named(PACK).values():
        value["tips"] = ["a" * 40] * 65
        value["bases"] = ["b" * 40] * 64
    copied(world)
    assert [(len(pack.tips), len(pack.bases)) for pack in packs(world)] == [(64, 64)] * 2


# --- bounds


def test_no_more_than_four_blobs_are_on_disk(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = world.offered()
    put_pack(world.alice, repo, *(bytes([n]) * 50_000 for n in range(30)))
    lock, now, most = threading.Lock(), [0], [0]

    class Counted(Spool):
        def __init__(self, directory: Path) -> None:
            super().__init__(directory)
            with lock:
                now[0] += 1
                most[0] = max(now[0], most[0])

        def close(self) -> None:
            super().close()
            with lock:
                now[0] -= 1

    monkeypatch.setattr("git_knotless.storage.packs.parts.Spool", Counted)
    copied(world)
    assert 1 <= most[0] <= 4
    assert now[0] == 0
    assert list(world.directory.iterdir()) == []


def test_packs_are_listed_as_they_are_taken(world: World) -> None:
    """Not all first: their data would fill the memory."""
    repo = world.offered()
    for n in range(400):
        put_pack(world.alice, repo, f"{n:08}".encode() * 5_000)
    seen: list[int] = []

    def look(_: Sequence[Write]) -> None:
        seen.append(world.alice.requests.count(f"list {PACK}"))

    world.bob.after = look
    copied(world)
    assert len(set(seen)) > 4


@pytest.mark.parametrize("moment", ["before upload", "before download"])
def test_what_is_called_off_is_not_waited_for(world: World, moment: str) -> None:
    repo = world.offered()
    put_pack(world.alice, repo, *(bytes([n]) * 50_000 for n in range(30)))
    host = world.bob if "upload" in moment else world.alice
    met = [0]

    def meet(now: str) -> None:
        met[0] += now == moment
        if met[0] == 3 and now == moment:
            raise Killed

    host.meet = meet
    with pytest.raises(Killed):
        world.accept(world.alice, world.bob)
    host.meet = lambda moment: None
    assert met[0] < 12
    copied(world)


# --- what cannot be had


def test_a_blob_that_is_not_on_its_host(world: World) -> None:
    """Nothing is made of the rest, which stays until the next attempt."""
    world.offered()
    lost = dict(world.alice.blobs)
    world.alice.blobs.clear()
    with pytest.raises(
        BlobsMissing,
        match=r"knotless://alice.test/repo is still being moved .*: pack \S+: a blob of it",
    ):
        world.accept(world.alice, world.bob)
    assert world.bob.named(REPO) == world.bob.named(REF) == {}
    world.alice.blobs |= lost
    copied(world)


@pytest.mark.parametrize("served", [b"short", b"x" * 90_000, b"y" * 500_000])
def test_a_blob_that_is_another(world: World, served: bytes) -> None:
    world.offered()
    before = world.state()

    def serve(_: BlobRef) -> Iterator[bytes]:
        yield from (served[at : at + 65536] for at in range(0, len(served), 65536))

    world.alice.download = serve  # type: ignore[method-assign] # a host that serves something else
    with pytest.raises(BadPack):
        world.accept(world.alice, world.bob)
    assert world.state() == before
    assert world.bob.blobs == {}


@pytest.mark.parametrize(
    "value", [{}, {"size": 10**18}, {"blobs": "none"}, {"checksum": "é" * 40}, {"repo": "other"}]
)
def test_a_pack_that_no_version_reads(world: World, value: dict[str, object]) -> None:
    repo = world.offered()
    good = next(iter(world.alice.named(PACK).values()))
    world.alice.records[PACK][f"{repo.key}.zzz"] = {**good, **value} if value else {}
    before = world.state()
    with pytest.raises(UnreadableRepository):
        world.accept(world.alice, world.bob)
    assert world.state() == before


def test_a_host_that_keeps_no_blob(world: World) -> None:
    world.offered()

    def lose(writes: Sequence[Write]) -> None:
        if any("blobs" in (write.value or {}) for write in writes):
            raise refusal(BlobNotFound, 400, "BlobNotFound")

    world.bob.before = lose
    with pytest.raises(BlobsLost):
        world.accept(world.alice, world.bob)
    assert world.bob.named(REPO) == {}


def test_a_source_that_is_pushed_to_all_the_time(world: World) -> None:
    world.offered()
    repo = world.own(world.alice).record()
    numbers = iter(range(1000))

    def pushed(_: Sequence[Write]) -> None:
        push(world.alice, repo, f"refs/heads/n{next(numbers)}", "a" * 40)

    world.bob.before = pushed
    with pytest.raises(KeepsChanging, match="others keep pushing to knotless://alice.test/repo"):
        world.accept(world.alice, world.bob)
    assert world.bob.named(REPO) == {}
    world.bob.before = lambda writes: None
    copied(world)


def test_a_source_that_is_down(world: World) -> None:
    world.offered()
    before = world.state()
    world.alice.down = True
    with pytest.raises(HostUnreachable):
        world.accept(world.alice, world.bob)
    assert world.state() == before


def test_hints_count_for_what_a_batch_takes(world: World) -> None:
    """Of many small packs there is more to say than they hold."""
    repo = world.offered()
    for n in range(200):
        pack = replace(put_pack(world.alice, repo, f"{n:40}".encode()), bases=("b" * 40,) * 64)
        pack = replace(pack, tips=("a" * 40,) * 64)
        world.alice.named(PACK)[pack.rkey] = pack.to_json()
    copied(world)
    sizes = [len(json.dumps([w.value for w in batch]).encode()) for batch in world.bob.batches]
    assert 500_000 < max(sizes) < 950_000
