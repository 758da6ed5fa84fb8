"""LFS objects on their way to a host and back, and in a copy of their repository."""

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pytest

from git_knotless.atproto.errors import HostTimeout, PayloadTooLarge, RateLimited, ServerFault
from git_knotless.atproto.syntax import Handle, Rkey
from git_knotless.storage.deletion import delete
from git_knotless.storage.editing import edit
from git_knotless.storage.fields import BadRecord
from git_knotless.storage.lfs import landing as lfs_landing
from git_knotless.storage.lfs.download import BadObject, LfsDownloads, NoSuchObject
from git_knotless.storage.lfs.record import LfsRecord
from git_knotless.storage.lfs.source import ObjectDamaged
from git_knotless.storage.lfs.upload import LfsUploads
from git_knotless.storage.outcome import HostOverwrites, HostRefused
from git_knotless.storage.packs.uploads import BlobsLost
from git_knotless.storage.places.copying import BlobsMissing
from git_knotless.storage.places.forking import fork
from git_knotless.storage.places.offers import offer
from git_knotless.storage.pushing.push import PushRefused
from git_knotless.storage.records import LFS, REPO
from git_knotless.storage.snapshot import NoSuchRepository
from git_knotless.storage.store import BlobBody, BlobRef, Record, Write
from tests.storage.account import cid_of, refusal
from tests.storage.packs import SILENT
from tests.storage.places import BOB, NAMES, Host, Killed, World, kill

LIMIT = 64 * 1024  # the least that a host can take
LARGE = Random(1).randbytes(2 * LIMIT + 1000)
BOBS = Handle(NAMES[BOB])
SMALL = b"\x89PNG\r\n\x1a\n and what follows"


@pytest.fixture(autouse=True)
def no_pause(in_no_time: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lfs_landing, "_PAUSE", 0.001)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Clone:
    """What one program of git-lfs's does in a clone of alice's repository."""

    def __init__(self, world: World, host: Host | None = None) -> None:
        self.world = world
        self.host = host or world.alice
        self.counted: list[int] = []

    @property
    def scratch(self) -> Path:
        return self.world.directory / "clone"

    def uploads(self) -> LfsUploads:
        return LfsUploads(self.world.own(self.host), self.scratch)

    def upload(self, data: bytes, *, oid: str = "", size: int | None = None) -> None:
        self.send(self.uploads(), data, oid=oid, size=size)

    def send(
        self, uploads: LfsUploads, data: bytes, *, oid: str = "", size: int | None = None
    ) -> None:
        path = self.world.directory / f"object {sha256(data)[:8]}"
        path.write_bytes(data)
        uploads.send(
            oid or sha256(data), len(data) if size is None else size, path, self.counted.append
        )

    def download(self, data: bytes, *, oid: str = "", size: int | None = None) -> bytes:
        downloads = LfsDownloads(self.world.own(self.host), "pds.test", self.scratch)
        wanted = len(data) if size is None else size
        return downloads.fetch(oid or sha256(data), wanted, self.counted.append).read_bytes()


@pytest.fixture
def clone(world: World) -> Clone:
    world.published(world.alice)
    world.alice.blob_limit = LIMIT
    return Clone(world)


def record(world: World, data: bytes) -> LfsRecord:
    (found,) = (each for each in world.alice.named(LFS).items() if each[0].endswith(sha256(data)))
    return LfsRecord.from_record(Record(Rkey(found[0]), found[1]))


@pytest.mark.parametrize(
    ("data", "parts"),
    [(SMALL, 1), (b"", 0), (LARGE[:LIMIT], 1), (LARGE[: LIMIT + 1], 2), (LARGE, 3)],
    ids=["small", "empty", "one whole blob", "and a byte", "three"],
)
def test_there_and_back(clone: Clone, world: World, data: bytes, parts: int) -> None:
    clone.upload(data)
    assert sum(clone.counted) == len(data)
    assert [blob.size for blob in record(world, data).blobs] == [
        len(data[at : at + LIMIT]) for at in range(0, len(data), LIMIT)
    ]
    assert len(record(world, data).blobs) == parts
    clone.counted.clear()
    assert clone.download(data) == data
    assert sum(clone.counted) == len(data)


def test_what_is_whole_in_a_blob_is_called_by_it(clone: Clone, world: World) -> None:
    clone.upload(SMALL)
    (blob,) = record(world, SMALL).blobs
    assert world.alice.blobs[blob.cid] == SMALL
    assert blob.mime == "application/octet-stream"


def test_what_is_there_is_not_sent(clone: Clone, world: World) -> None:
    clone.upload(LARGE)
    before = len(world.alice.batches)
    world.alice.requests.clear()
    clone.upload(LARGE)
    assert "upload" not in world.alice.requests
    assert len(world.alice.batches) == before


def test_a_record_that_is_not_what_its_key_says_is_replaced(clone: Clone, world: World) -> None:
    clone.upload(LARGE)
    rkey = record(world, LARGE).rkey
    world.alice.records[LFS][rkey] = world.alice.records[LFS][rkey] | {"size": 5}
    with pytest.raises(NoSuchObject):
        clone.download(LARGE)
    clone.upload(LARGE)
    assert clone.download(LARGE) == LARGE


@pytest.mark.parametrize(
    "change",
    [
        {"repo": "3k2akcsyzdc2r"},
        {"size": -1},
        {"size": len(SMALL) + 1},
        {"blobs": []},
        {"blobs": "none"},
        {"createdAt": 7},
    ],
    ids=str,
)
def test_a_record_has_to_match_its_key(clone: Clone, world: World, change: dict[str, Any]) -> None:
    clone.upload(SMALL)
    good = record(world, SMALL)
    with pytest.raises(BadRecord):
        LfsRecord.from_record(Record(good.rkey, good.to_json() | change))
    with pytest.raises(BadRecord):
        LfsRecord.from_record(Record(Rkey(good.rkey[:-1] + "g"), good.to_json()))
    other = Rkey(f"{good.repo}.{sha256(b'other')}")
    with pytest.raises(BadRecord, match="its blob is not what its key says"):
        LfsRecord.from_record(Record(other, good.to_json()))


# --- going on after an interruption


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that it is plain what was sent when another was not."""
    monkeypatch.setattr("git_knotless.storage.packs.transfers.SIDE_BY_SIDE", 1)


@pytest.mark.usefixtures("one_by_one")
def test_parts_that_are_there_are_not_sent_again(clone: Clone, world: World) -> None:
    kill(world.alice, 2, "after upload")
    with pytest.raises(Killed):
        clone.upload(LARGE)
    world.alice.meet = lambda moment: None
    world.alice.requests.clear()
    clone.upload(LARGE)
    assert world.alice.requests.count("upload") == 1
    assert clone.download(LARGE) == LARGE
    assert list(clone.scratch.glob("*/*.parts")) == []


@pytest.mark.usefixtures("one_by_one")
def test_parts_are_forgotten_after_a_day(clone: Clone, world: World) -> None:
    kill(world.alice, 2, "after upload")
    with pytest.raises(Killed):
        clone.upload(LARGE)
    world.alice.meet = lambda moment: None
    (kept,) = clone.scratch.glob("*/*.parts")
    os.utime(kept, (time.time() - 90_000,) * 2)
    world.alice.requests.clear()
    clone.upload(LARGE)
    assert world.alice.requests.count("upload") == 3


@pytest.mark.usefixtures("one_by_one")
@pytest.mark.parametrize("spoilt", [b"", b"[]", b"{}", b'[["a", "b", 1], 7, [1]]', b"\xff" * 99])
def test_a_memory_that_is_spoilt_is_none(clone: Clone, world: World, spoilt: bytes) -> None:
    kill(world.alice, 2, "after upload")
    with pytest.raises(Killed):
        clone.upload(LARGE)
    world.alice.meet = lambda moment: None
    (kept,) = clone.scratch.glob("*/*.parts")
    kept.write_bytes(spoilt)
    clone.upload(LARGE)
    assert clone.download(LARGE) == LARGE


@pytest.mark.usefixtures("one_by_one")
def test_what_the_host_has_lost_is_sent_again(clone: Clone, world: World) -> None:
    kill(world.alice, 2, "after upload")
    with pytest.raises(Killed):
        clone.upload(LARGE)
    world.alice.meet = lambda moment: None
    world.alice.blobs.clear()
    clone.upload(LARGE)
    assert clone.download(LARGE) == LARGE
    assert sum(clone.counted[-1:]) <= len(LARGE)


def test_a_host_that_keeps_nothing_is_given_up(clone: Clone, world: World) -> None:
    world.alice.before = lambda writes: world.alice.blobs.clear()
    with pytest.raises(BlobsLost):
        clone.upload(SMALL)


def test_a_download_goes_on_where_it_was(clone: Clone, world: World) -> None:
    clone.upload(LARGE)
    kill(world.alice, 2, "before download")
    with pytest.raises(Killed):
        clone.download(LARGE)
    world.alice.meet = lambda moment: None
    (part,) = clone.scratch.glob("*.knotless")
    assert part.read_bytes() == LARGE[: 2 * LIMIT]
    world.alice.requests.clear()
    assert clone.download(LARGE) == LARGE
    assert world.alice.requests.count("download") == 1


@pytest.mark.parametrize("left", [b"x", LARGE[:1000], b"y" * len(LARGE), LARGE + b"more"])
def test_what_was_left_is_looked_at(clone: Clone, left: bytes) -> None:
    clone.upload(LARGE)
    clone.scratch.mkdir(exist_ok=True)
    (clone.scratch / f"{sha256(LARGE)}.knotless").write_bytes(left)
    assert clone.download(LARGE) == LARGE


def test_nothing_is_written_where_a_link_leads(clone: Clone, tmp_path: Path) -> None:
    clone.upload(LARGE)
    mine = tmp_path / "mine"
    mine.write_bytes(b"mine")
    clone.scratch.mkdir(parents=True, exist_ok=True)
    (clone.scratch / f"{sha256(LARGE)}.knotless").symlink_to(mine)
    assert clone.download(LARGE) == LARGE
    assert mine.read_bytes() == b"mine"


def test_two_at_one_object_are_in_nobodys_way(clone: Clone, world: World) -> None:
    clone.upload(LARGE)
    seen: list[bytes] = []

    def meet(moment: str) -> None:
        if moment == "before download" and not seen:
            seen.append(b"")
            seen.append(clone.download(LARGE))

    world.alice.meet = meet
    assert clone.download(LARGE) == seen[1] == LARGE


def test_many_are_looked_up_together(clone: Clone, world: World) -> None:
    wanted = [b"object %d" % number for number in range(130)]
    uploads = clone.uploads()
    for data in wanted[:-1]:
        clone.send(uploads, data)
    downloads = LfsDownloads(world.own(world.alice), "pds.test", clone.scratch)
    clone.send(uploads, wanted[-1])
    world.alice.requests.clear()
    for data in wanted:
        path = downloads.fetch(sha256(data), len(data), clone.counted.append)
        assert path.read_bytes() == data
    assert world.alice.requests.count(f"get {LFS}") < 15
    assert world.alice.requests.count(f"list {LFS}") <= 3
    clone.send(uploads, SMALL)  # by somebody else, since
    assert downloads.fetch(sha256(SMALL), len(SMALL), clone.counted.append).read_bytes() == SMALL


# --- files and hosts that are not what they say


def test_a_file_that_has_changed_is_not_taken(clone: Clone, world: World) -> None:
    for data in (SMALL, LARGE, b""):
        with pytest.raises(ObjectDamaged, match="is not the object"):
            clone.upload(data, oid="a" * 64)
        with pytest.raises(ObjectDamaged, match=f"has {len(data)} bytes"):
            clone.upload(data, size=7)
    assert world.alice.named(LFS) == {}


def test_a_file_that_changes_as_it_is_sent(clone: Clone, world: World) -> None:
    path = world.directory / f"object {sha256(LARGE)[:8]}"

    def meet(moment: str) -> None:
        if moment == "before upload":
            with path.open("r+b") as file:
                file.write(b"z" * len(LARGE))

    world.alice.meet = meet
    with pytest.raises(ObjectDamaged, match="has changed while it was sent"):
        clone.upload(LARGE)
    assert world.alice.named(LFS) == {}


def test_a_host_that_says_no_limit_is_found_out(clone: Clone, world: World) -> None:
    take, learned = world.alice.upload, list[int]()

    def upload(body: BlobBody, **options: Any) -> BlobRef:
        if body.size > LIMIT + 1:
            raise refusal(PayloadTooLarge, 413, "PayloadTooLarge")
        return take(body, **options)

    world.alice.blob_limit = None
    world.alice.upload = upload  # type: ignore[method-assign] # a host that does not say its limit
    world.alice.learn_blob_limit = learned.append  # type: ignore[method-assign] # and is not told
    clone.upload(LARGE)
    assert sum(clone.counted) == len(LARGE)
    assert clone.download(LARGE) == LARGE
    assert max(blob.size for blob in record(world, LARGE).blobs) <= LIMIT + 1
    assert learned
    with pytest.raises(ObjectDamaged, match="is not the object"):
        clone.upload(LARGE + b"x", oid="a" * 64)


def test_a_host_that_lies_is_named(clone: Clone, world: World) -> None:
    for data in (SMALL, LARGE):
        clone.upload(data)
        cid = record(world, data).blobs[-1].cid
        real, world.alice.blobs[cid] = (
            world.alice.blobs[cid],
            b"z" * record(world, data).blobs[-1].size,
        )
        with pytest.raises(BadObject, match=r"pds\.test: other bytes than those"):
            clone.download(data)
        for lie in (real + b"z", real[:-1]):
            world.alice.blobs[cid] = lie
            with pytest.raises(BadObject, match=r"pds\.test: other bytes"):
                clone.download(data)
        world.alice.blobs[cid] = real
        assert clone.download(data) == data


def test_parts_in_another_order_are_noticed(clone: Clone, world: World) -> None:
    clone.upload(LARGE)
    value = world.alice.records[LFS][record(world, LARGE).rkey]
    value["blobs"] = value["blobs"][::-1]
    with pytest.raises(BadObject, match="is of another"):
        clone.download(LARGE)


def test_a_pointer_and_a_record_that_differ(clone: Clone) -> None:
    clone.upload(SMALL)
    with pytest.raises(BadObject, match="bytes there, and not 9"):
        clone.download(SMALL, size=9)
    with pytest.raises(NoSuchObject, match="no LFS object"):
        clone.download(b"another")


def test_a_part_that_is_gone(clone: Clone, world: World) -> None:
    clone.upload(LARGE)
    world.alice.blobs.clear()
    with pytest.raises(BadObject, match="a part of LFS object"):
        clone.download(LARGE)


# --- the record


def answering(world: World, error: Exception, *, carried_out: bool, times: int = 1) -> None:
    """The next batches are answered by an error."""
    left = [times]

    def fail(writes: Sequence[Write]) -> None:
        if left[0] and any(write.collection == LFS for write in writes):
            left[0] -= 1
            raise error

    if carried_out:
        world.alice.after = fail
    else:
        world.alice.before = fail


@pytest.mark.parametrize("carried_out", [True, False])
@pytest.mark.parametrize("error", [refusal(ServerFault), HostTimeout("no answer")], ids=repr)
def test_an_answer_that_says_nothing(
    clone: Clone, world: World, error: Exception, carried_out: bool
) -> None:
    before = len(world.alice.batches)
    answering(world, error, carried_out=carried_out)
    clone.upload(SMALL)
    assert len(world.alice.batches) == before + 1
    assert clone.download(SMALL) == SMALL


def test_a_host_that_takes_nothing(clone: Clone, world: World) -> None:
    answering(world, refusal(ServerFault), carried_out=False, times=9)
    with pytest.raises(HostRefused):
        clone.upload(SMALL)


def test_a_refusal_that_names_itself_is_not_tried_again(clone: Clone, world: World) -> None:
    answering(world, refusal(RateLimited, 429, "RateLimitExceeded"), carried_out=False)
    uploads = clone.uploads()
    world.alice.requests.clear()
    with pytest.raises(RateLimited):
        clone.send(uploads, SMALL)
    assert world.alice.requests.count("apply") == 1
    world.alice.requests.clear()
    with pytest.raises(RateLimited):
        clone.send(uploads, LARGE)
    assert world.alice.requests == [], "the host has said when to come back"


def test_an_epoch_that_moves_is_read_again(clone: Clone, world: World) -> None:
    uploads = clone.uploads()
    edit(world.own(world.alice), lambda repo: repo.changed(description="new"))
    clone.send(uploads, SMALL)
    assert clone.download(SMALL) == SMALL


def test_nothing_is_left_in_a_repository_that_is_gone(clone: Clone, world: World) -> None:
    clone.upload(LARGE)
    uploads = clone.uploads()
    delete(world.own(world.alice))
    with pytest.raises(NoSuchRepository):
        clone.send(uploads, SMALL)
    assert world.alice.named(LFS) == {}


def test_a_host_that_brings_an_epoch_back_is_told_of(clone: Clone, world: World) -> None:
    uploads = clone.uploads()
    delete(world.own(world.alice))
    world.alice.updates_create = True
    with pytest.raises(HostOverwrites):
        clone.send(uploads, SMALL)


def test_an_archived_repository_takes_none(clone: Clone, world: World) -> None:
    edit(world.own(world.alice), lambda repo: repo.changed(archived=True))
    with pytest.raises(PushRefused, match="is archived"):
        clone.upload(SMALL)


def test_others_are_not_asked_about_for_ever(clone: Clone, world: World) -> None:
    """Of many that are new; and one that was there after all is found out in the end."""
    clone.upload(SMALL)
    uploads = clone.uploads()
    for number in range(30):
        clone.send(uploads, b"%d" % number)
    asked = world.alice.requests.count(f"get {LFS}")
    assert asked < 15
    clone.send(uploads, SMALL)
    assert clone.download(SMALL) == SMALL


# --- several programs at once


def at_once(clone: Clone, number: int, each: int) -> list[bytes]:
    """Objects that as many programs upload side by side, `each` one after another."""

    def run(program: int) -> list[bytes]:
        uploads = clone.uploads()
        wanted = [b"object %d of %d" % (one, program) for one in range(each)]
        for data in wanted:
            clone.send(uploads, data)
        return wanted

    with ThreadPoolExecutor(number) as pool:
        return [data for wanted in pool.map(run, range(number)) for data in wanted]


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thread is a process of its own, as far as names go."""
    import threading

    monkeypatch.setattr("git_knotless.storage.lfs.landing.os.getpid", threading.get_native_id)


def waiting(clone: Clone, records: Sequence[LfsRecord]) -> list[Path]:
    """As left by programs that wait for their turn, or were killed as they did."""
    paths = []
    for number, each in enumerate(records):
        waits = lfs_landing._Waiting(next(clone.scratch.iterdir()), each)
        waits._path = waits._path.with_suffix(f".{1000 + number}")
        waits.__enter__()
        paths.append(waits._path)
    return paths


@pytest.mark.usefixtures("processes")
def test_each_of_several_lands(clone: Clone, world: World) -> None:
    refused = world.alice.requests.count("apply") - len(world.alice.batches)
    for data in at_once(clone, 8, 12):
        assert clone.download(data) == data
    assert world.alice.requests.count("apply") - len(world.alice.batches) == refused
    left = [path.name for path in clone.scratch.glob("*/*") if path.name != "turn"]
    assert left == []


def test_whoever_has_its_turn_lands_what_waits(clone: Clone, world: World) -> None:
    clone.upload(SMALL)
    key = record(world, SMALL).repo
    blobs = {data: world.alice.upload(_Body(data)) for data in (b"one", b"two")}
    others = [LfsRecord(key, sha256(d), 3, (blob,), "now") for d, blob in blobs.items()]
    paths = waiting(clone, others)
    before = len(world.alice.batches)
    clone.upload(b"three")
    assert len(world.alice.batches) == before + 1
    assert [path.with_name(path.name + ".landed").exists() for path in paths] == [True, True]
    assert clone.download(b"two") == b"two"


def test_one_that_cannot_land_keeps_no_other_from_it(clone: Clone, world: World) -> None:
    clone.upload(SMALL)
    good = record(world, SMALL)
    gone = LfsRecord(good.repo, sha256(b"gone"), 4, (_ref(b"gone"),), "now")
    other = LfsRecord("3k2akcsyzdc2r", good.oid, good.size, good.blobs, "now")
    path, _ = waiting(clone, [gone, other])
    clone.upload(b"three")
    assert clone.download(b"three") == b"three"
    assert path.with_name(path.name + ".alone").exists()
    assert {key.partition(".")[0] for key in world.alice.named(LFS)} == {good.repo}
    refused = world.alice.requests.count("apply") - len(world.alice.batches)
    clone.upload(b"four")
    assert world.alice.requests.count("apply") - len(world.alice.batches) == refused


def test_what_nobody_waits_for_any_more_goes(clone: Clone, world: World) -> None:
    clone.upload(SMALL)
    good = record(world, SMALL)
    (path,) = waiting(clone, [good])
    os.utime(path, (time.time() - 90_000,) * 2)
    (path.parent / "notes").write_text("not ours")
    clone.upload(b"three")
    assert sorted(each.name for each in path.parent.iterdir()) == ["notes", "turn"]


# --- copies


def test_a_fork_has_the_objects_too(clone: Clone, world: World) -> None:
    for data in (SMALL, LARGE, b""):
        clone.upload(data)
    source, key = world.open(world.alice), world.own(world.alice).record().key
    made = fork(source, world.bob, BOBS, directory=world.directory / "new", progress=SILENT)
    assert made.repo.key != key
    theirs = Clone(world, world.bob)
    for data in (SMALL, LARGE, b""):
        assert theirs.download(data) == data
    assert list((world.directory / "new").iterdir()) == []


def test_a_repository_that_moves_takes_its_objects_along(clone: Clone, world: World) -> None:
    """Cut anew where the other host takes less, and whole where it can be."""
    world.alice.blob_limit = 4 * LIMIT
    for data in (SMALL, LARGE):
        clone.upload(data)
    assert len(record(world, LARGE).blobs) == 1
    offer(world.own(world.alice), BOB)
    world.bob.blob_limit = LIMIT
    world.accept(world.alice, world.bob)
    theirs = Clone(world, world.bob)
    for data in (SMALL, LARGE):
        assert theirs.download(data) == data
    delete(world.own(world.bob))
    assert world.bob.named(LFS) == {}


def test_a_copy_that_was_cut_sends_no_object_again(clone: Clone, world: World) -> None:
    for number in range(5):
        clone.upload(b"object %d" % number)
    offer(world.own(world.alice), BOB)
    world.bob.meet = _killed_at_refs(world.bob)
    with pytest.raises(Killed):
        world.accept(world.alice, world.bob)
    world.bob.meet = lambda moment: None
    world.bob.requests.clear()
    world.accept(world.alice, world.bob)
    assert "upload" not in world.bob.requests
    assert len(world.bob.named(LFS)) == 5


def test_many_objects_are_copied_in_few_batches(clone: Clone, world: World) -> None:
    uploads = clone.uploads()
    for number in range(230):
        clone.send(uploads, b"object %d" % number)
    offer(world.own(world.alice), BOB)
    world.accept(world.alice, world.bob)
    assert len(world.bob.named(LFS)) == 230
    assert len([b for b in world.bob.batches if any(w.collection == LFS for w in b)]) == 2


def test_a_copy_from_a_host_that_lies_is_refused(clone: Clone, world: World) -> None:
    clone.upload(SMALL)
    world.alice.blobs[record(world, SMALL).blobs[0].cid] = b"z" * len(SMALL)
    offer(world.own(world.alice), BOB)
    with pytest.raises(BadObject):
        world.accept(world.alice, world.bob)
    assert world.bob.named(REPO) == world.bob.named(LFS) == {}


def test_a_blob_that_is_not_on_its_host(clone: Clone, world: World) -> None:
    clone.upload(SMALL)
    cid = record(world, SMALL).blobs[0].cid
    lost = world.alice.blobs.pop(cid)
    offer(world.own(world.alice), BOB)
    with pytest.raises(BlobsMissing, match=rf"LFS object {sha256(SMALL)}: a blob of it"):
        world.accept(world.alice, world.bob)
    world.alice.blobs[cid] = lost
    world.accept(world.alice, world.bob)
    assert Clone(world, world.bob).download(SMALL) == SMALL


def _killed_at_refs(host: Host) -> Callable[[str], None]:
    """Once the objects are there."""

    def meet(moment: str) -> None:
        if moment == "before apply" and host.named(LFS):
            raise Killed

    return meet


class _Body:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)

    def chunks(self) -> Any:
        yield self.data


def _ref(data: bytes) -> BlobRef:
    return BlobRef(cid_of(data), "application/octet-stream", len(data))
