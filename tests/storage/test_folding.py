"""Folding: many small packs become one, and nothing of them is lost whatever happens meanwhile."""

import base64
import hashlib
from collections.abc import Callable, Iterator, Sequence

import pytest

from git_knotless.atproto.errors import BlobNotFound, HostTimeout, ServerFault
from git_knotless.errors import KnotlessError
from git_knotless.storage.editing import edit
from git_knotless.storage.outcome import HostRefused
from git_knotless.storage.packs.folding import fold
from git_knotless.storage.packs.uploads import BlobsLost
from git_knotless.storage.records import PACK, REPO
from git_knotless.storage.repositories import Repository
from git_knotless.storage.store import Record, Write
from tests.gitenv import GitEnv
from tests.storage.account import refusal
from tests.storage.packs import replacing
from tests.storage.pushing import SILENT, commits_of
from tests.storage.yard import URL, Met, Yard

pytestmark = pytest.mark.usefixtures("in_no_time")
FEW = 6  # packs, where it does not matter how many


@pytest.fixture
def host() -> Met:
    return Met()


@pytest.fixture
def yard(gitenv: GitEnv, host: Met) -> Yard:
    return Yard(gitenv, host, gitenv.repository(commits=FEW))


@pytest.fixture
def pushed(yard: Yard) -> Yard:
    """A pack for each commit."""
    yard.push(*commits_of(yard.git))
    yard.host.batches.clear()
    yard.host.requests.clear()
    return yard


def kinds(batch: Sequence[Write]) -> list[str]:
    return [f"{write.action} {write.collection.rpartition('.')[2]}" for write in batch]


def once(do: Callable[[], object], host: Met) -> Callable[[Sequence[Write]], None]:
    def first(_: Sequence[Write]) -> None:
        host.before = host.after = lambda writes: None
        do()

    return first


def raises(error: KnotlessError) -> Callable[[], object]:
    def do() -> object:
        raise error

    return do


def test_many_packs_become_one(pushed: Yard) -> None:
    before, objects = pushed.records(), pushed.objects()
    folded = pushed.fold(at_least=FEW)
    (record,) = pushed.records()
    assert set(folded.packs) == {each.rkey for each in before}
    assert (folded.into, folded.size) == ((record.rkey,), record.size)
    assert dict(folded.sizes) == {record.rkey: record.size}
    assert record.rkey > before[-1].rkey
    assert pushed.objects() == objects
    assert record.size < sum(each.size for each in before)
    (batch,) = pushed.host.batches
    assert kinds(batch) == ["update claim", "create pack", *["delete pack"] * FEW]
    pushed.clone()


def test_it_takes_a_reading_and_a_write(pushed: Yard) -> None:
    pushed.fold(at_least=FEW)
    assert pushed.host.requests == [f"get {REPO}", f"list {PACK}", f"list {PACK}", "apply"]


def test_what_it_says_of_itself(pushed: Yard) -> None:
    """Readers that have the history before it can tell that it closes."""
    pushed.fold(at_least=FEW)
    (record,) = pushed.records()
    tips = commits_of(pushed.git)
    assert record.tips == (tips[-1], tips[-2])
    assert record.bases == ()
    pushed.commit()
    pushed.push("main")
    pushed.commit()
    pushed.push("main")
    pushed.fold(at_least=2)
    assert pushed.records()[-1].bases in ((), (tips[-1],))


def test_few_are_let_be(pushed: Yard) -> None:
    folded = pushed.fold(at_least=FEW + 1)
    assert (folded.packs, folded.into) == ((), ())
    assert len(folded.sizes) == FEW
    assert pushed.host.batches == []


def test_a_large_one_is_let_be(pushed: Yard) -> None:
    pushed.commit(200_000)
    pushed.push("main")
    large = pushed.records()[-1]
    folded = pushed.fold(at_least=FEW)
    assert large in pushed.records()
    assert len(pushed.records()) == 2
    assert dict(folded.sizes)[large.rkey] == large.size
    pushed.clone()


def test_what_nothing_reaches_is_kept(pushed: Yard) -> None:
    pushed.push("main~3")
    pushed.push("main", None, name="refs/heads/gone")
    objects = pushed.objects()
    pushed.fold(at_least=2)
    assert pushed.objects() == objects
    assert len(pushed.records()) == 1


def test_what_is_twice_there_is_kept_once(gitenv: GitEnv, host: Met) -> None:
    path = gitenv.repository(commits=0)
    gitenv.git("fast-import", "--quiet", cwd=path, stdin=replacing(FEW))
    yard = Yard(gitenv, host, path)
    yard.push(*commits_of(yard.git))
    objects = yard.objects()
    assert yard.held() > len(objects)
    yard.fold(at_least=FEW)
    assert yard.held() == len(objects)
    assert yard.objects() == objects


def test_it_is_cut_as_the_host_wants_it(pushed: Yard) -> None:
    """And the limit that a host does not say is found, and remembered."""
    for _ in range(4):
        pushed.commit(60_000)
        pushed.push("main")
    pushed.host.blob_limit = 100_000
    objects = pushed.objects()
    pushed.fold(at_least=FEW)
    (record,) = pushed.records()
    assert [blob.size for blob in record.blobs][:-1] == [100_000, 100_000]
    assert pushed.objects() == objects
    pushed.clone()


def test_a_pack_of_nothing_goes_too(pushed: Yard) -> None:
    (first, *_), objects = pushed.records(), pushed.objects()
    data = b"PACK" + (2).to_bytes(4, "big") + bytes(4)
    data += hashlib.sha1(data).digest()
    taken = pushed.host.records[PACK]
    for letter in [each for each in "2345" if f"{first.rkey[:-1]}{each}" not in taken][:2]:
        value = {"objects": 0, "size": 32, "checksum": data[-20:].hex()}
        value["data"] = {"$bytes": base64.b64encode(data).decode().rstrip("=")}
        taken[f"{first.rkey[:-1]}{letter}"] = first.to_json() | value
    pushed.fold(at_least=FEW)
    assert len(pushed.records()) == 1
    assert pushed.objects() == objects


def test_its_epoch_is_the_newest_of_theirs(pushed: Yard) -> None:
    edit(pushed.repository(), lambda repo: repo.changed(description="x"))
    pushed.commit()
    pushed.push("main")
    edit(pushed.repository(), lambda repo: repo.changed(description="y"))
    assert {record.epoch for record in pushed.records()} == {1, 2}
    pushed.fold(at_least=FEW)
    assert [record.epoch for record in pushed.records()] == [2]
    assert pushed.repository().record().epoch == 3


def test_its_key_is_the_latest_whatever_clocks_said(pushed: Yard) -> None:
    packs = pushed.host.records[PACK]
    late = f"{pushed.key}.7zzzzzzzzzzzz"[:-4] + "2222"
    packs[late] = packs.pop(max(packs))
    pushed.fold(at_least=FEW)
    assert [record.rkey > late for record in pushed.records()] == [True]


# --- packs that are none


def test_a_bad_pack_is_left_alone_and_named(pushed: Yard) -> None:
    bad, *good = pushed.records()
    pushed.host.records[PACK][bad.rkey] |= {"checksum": "0" * 40}
    folded = pushed.fold(at_least=FEW - 1)
    assert set(folded.packs) == {each.rkey for each in good}
    assert folded.left_out == (f"pack {bad.rkey}: its checksum is not its record's",)
    assert bad.rkey in pushed.host.records[PACK]
    assert bad.rkey not in dict(folded.sizes)


def test_a_record_that_is_no_pack_is_left_alone_and_named(pushed: Yard) -> None:
    rkey = f"{pushed.key}.2222222222222"
    pushed.host.records[PACK][rkey] = {"repo": pushed.key}
    folded = pushed.fold(at_least=FEW)
    assert len(folded.packs) == FEW
    assert [rkey in line for line in folded.left_out] == [True]
    assert rkey in pushed.host.records[PACK]


def test_a_pack_whose_blob_is_gone_is_left_alone(pushed: Yard) -> None:
    pushed.commit(60_000)
    pushed.push("main")
    lost = pushed.records()[-1]
    kept = pushed.host.blobs.pop(lost.blobs[0].cid)
    for _ in range(2):  # so that it is among those that are small
        pushed.commit(60_000)
        pushed.push("main")
    folded = pushed.fold(at_least=FEW)
    assert folded.left_out == (f"pack {lost.rkey}: a blob of it is not on the host",)
    pushed.host.blobs[lost.blobs[0].cid] = kept
    pushed.clone()


# --- more than one batch


def test_more_than_a_batch_has_room_for(yard: Yard) -> None:
    """In rounds: and what comes of the rounds is folded too."""
    yard.push("main")
    (record,) = yard.records()
    objects = yard.objects()
    for number in range(450):
        rkey = f"{record.rkey[:-4]}{number:04}".translate(str.maketrans("0189", "abcd"))
        yard.host.records[PACK][rkey] = record.to_json()
    yard.host.batches.clear()
    folded = yard.fold()
    (record,) = yard.records()
    assert len(folded.packs) == 451
    assert folded.into == (record.rkey,)
    assert [len(batch) <= 200 for batch in yard.host.batches] == [True] * 3
    assert yard.objects() == objects
    yard.clone()


# --- others at the same time


def test_of_two_that_fold_the_same_packs_one_loses(pushed: Yard) -> None:
    objects = pushed.objects()
    pushed.host.before = once(lambda: pushed.fold(at_least=FEW), pushed.host)
    folded = pushed.fold(at_least=FEW)
    assert folded.packs == ()
    assert len(pushed.records()) == 1
    assert pushed.objects() == objects


class Half(Met):
    """A host as seen by whoever gets only some of the packs listed."""

    def __init__(self, host: Met, rest: int) -> None:
        super().__init__()
        self.whole, self.rest = host, rest

    def list(self, collection: str, prefix: str, **options: bool) -> Iterator[Sequence[Record]]:
        for page in self.whole.list(collection, prefix, **options):
            yield [r for n, r in enumerate(page) if n % 2 == self.rest or collection != PACK]

    def apply(self, writes: Sequence[Write]) -> Sequence[str]:
        return self.whole.apply(writes)

    def get(self, collection: str, rkey: str) -> Record | None:  # type: ignore[override] # a str
        return self.whole.get(collection, rkey)  # type: ignore[arg-type] # as above


def test_of_two_that_fold_other_packs_both_land(pushed: Yard) -> None:
    objects = pushed.objects()
    ones, others = (Repository(URL, Half(pushed.host, rest), writable=True) for rest in (0, 1))
    scratch = pushed.gitenv.root

    def other() -> None:
        assert len(fold(others, scratch / "b", progress=SILENT, at_least=2).packs) == FEW // 2

    pushed.host.before = once(other, pushed.host)
    assert len(fold(ones, scratch / "a", progress=SILENT, at_least=2).packs) == FEW // 2
    assert len(pushed.records()) == 2
    assert pushed.objects() == objects
    pushed.clone()


def test_an_epoch_that_moves_meanwhile(pushed: Yard) -> None:
    def move() -> None:
        edit(pushed.repository(), lambda repo: repo.changed(description="x"))

    pushed.host.before = once(move, pushed.host)
    assert len(pushed.fold(at_least=FEW).packs) == FEW
    assert len(pushed.records()) == 1


def test_a_push_meanwhile(pushed: Yard) -> None:
    pushed.commit()
    pushed.host.before = once(lambda: pushed.push("main"), pushed.host)
    assert len(pushed.fold(at_least=FEW).packs) == FEW
    assert len(pushed.records()) == 2
    pushed.clone()


def test_a_repository_that_is_deleted_meanwhile_does_not_come_back(pushed: Yard) -> None:
    from git_knotless.storage.deletion import delete

    pushed.host.before = once(lambda: delete(pushed.repository()), pushed.host)
    with pytest.raises(KnotlessError):
        pushed.fold(at_least=FEW)
    assert not any(pushed.host.records.values())


# --- answers


@pytest.mark.parametrize(
    "error", [refusal(ServerFault), HostTimeout("no answer")], ids=["500", "none"]
)
@pytest.mark.parametrize("landed", [True, False])
def test_an_answer_that_says_nothing(pushed: Yard, error: KnotlessError, landed: bool) -> None:
    objects = pushed.objects()
    hook = once(raises(error), pushed.host)
    setattr(pushed.host, "after" if landed else "before", hook)
    folded = pushed.fold(at_least=FEW)
    assert len(folded.packs) == FEW
    assert [record.rkey for record in pushed.records()] == list(folded.into)
    assert pushed.objects() == objects


def test_a_host_that_never_takes_it(pushed: Yard) -> None:
    before = pushed.records()

    def fail(_: Sequence[Write]) -> None:
        raise refusal(ServerFault)

    pushed.host.before = fail
    with pytest.raises(HostRefused):
        pushed.fold(at_least=FEW)
    assert pushed.records() == before


def test_blobs_that_are_lost_before_the_batch_are_sent_again(pushed: Yard) -> None:
    pushed.commit(60_000)
    pushed.push("main")
    pushed.host.requests.clear()
    pushed.host.before = once(raises(refusal(BlobNotFound, 400, "BlobNotFound")), pushed.host)
    pushed.host.blob_limit = 70_000
    pushed.commit(60_000)
    pushed.push("main")
    pushed.fold(at_least=2)
    assert len(pushed.records()) == 1
    pushed.clone()

    def lost(_: Sequence[Write]) -> None:
        raise refusal(BlobNotFound, 400, "BlobNotFound")

    for _ in range(2):
        pushed.commit(60_000)
        pushed.push("main")
    pushed.host.before = lost
    with pytest.raises(BlobsLost):
        pushed.fold(at_least=2)


# --- those who read meanwhile, and those who are killed


def test_a_clone_of_which_the_packs_go_meanwhile(gitenv: GitEnv, host: Met) -> None:
    """It has listed them, and each time that it asks for one they are in others."""
    yard = Yard(gitenv, host, gitenv.repository(commits=1))
    for _ in range(3):
        yard.commit(60_000)
        yard.push("main")
    first = [True]

    def fold_first(moment: str) -> None:
        if moment != "before download" or not first:
            return
        first.clear()
        yard.fold(at_least=2)
        named = str(host.records[PACK])
        for blob in [cid for cid in host.blobs if cid not in named]:
            del host.blobs[blob]  # as a host does with what no record names

    host.meet = fold_first
    yard.clone()
    assert len(yard.records()) == 1


class Killed(BaseException):
    pass


def killed_at(host: Met, number: int, do: Callable[[], object]) -> bool:
    """Whether it was, at the `number`th moment, rather than done before."""
    left = [number]

    def meet(_: str) -> None:
        left[0] -= 1
        if not left[0]:
            host.meet = lambda moment: None
            raise Killed

    host.meet = meet
    try:
        do()
    except Killed:
        return True
    finally:
        host.meet = lambda moment: None
    return False


def test_killed_at_each_request_it_loses_nothing(pushed: Yard) -> None:
    objects, number = pushed.objects(), 1
    before = dict(pushed.host.records[PACK])
    while killed_at(pushed.host, number, lambda: pushed.fold(at_least=2)):
        assert len(pushed.records()) in (1, FEW)
        assert pushed.objects() == objects
        pushed.host.records[PACK] = dict(before)
        number += 1
    assert number > 5
    assert len(pushed.records()) == 1
    pushed.clone()


def test_who_lacked_one_push_downloads_what_was_folded_and_no_more(pushed: Yard) -> None:
    clone = pushed.clone()
    pushed.commit(60_000)
    pushed.push("main")
    for _ in range(2):
        pushed.commit(60_000)
        pushed.push("main")
    pushed.fold(at_least=2)
    (record,) = pushed.records()
    pushed.host.requests.clear()
    pushed.fetch(clone)
    assert pushed.host.requests.count("download") == len(record.blobs)
