"""What a push writes, and what it says, against a host that does what hosts do."""

import io
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from git_knotless.atproto.errors import (
    BlobNotFound,
    HostTimeout,
    RateLimited,
    ServerFault,
)
from git_knotless.errors import KnotlessError
from git_knotless.storage.creation import create
from git_knotless.storage.deletion import delete
from git_knotless.storage.editing import edit
from git_knotless.storage.places.renaming import rename
from git_knotless.storage.progress import TextProgress
from git_knotless.storage.pushing.push import push
from git_knotless.storage.pushing.updates import Outcome, Update
from git_knotless.storage.records import PACK, REF, REPO, RefRecord
from git_knotless.storage.repositories import Repository
from git_knotless.storage.snapshot import NoSuchRepository, Snapshot
from git_knotless.storage.store import Write
from tests.gitenv import GitEnv
from tests.storage.account import Account, refusal
from tests.storage.pusher import MAIN, URL, Pusher

pytestmark = pytest.mark.usefixtures("in_no_time")


@pytest.fixture
def host() -> Account:
    return Account()


@pytest.fixture
def alice(gitenv: GitEnv, host: Account) -> Pusher:
    create(host, URL)
    host.batches.clear()
    host.requests.clear()
    return Pusher(gitenv, gitenv.repository(commits=3), host)


def kinds(batch: Sequence[Write]) -> list[str]:
    return [f"{write.action} {write.collection.rpartition('.')[2]}" for write in batch]


def once(do: Callable[[], object], host: Account) -> Callable[[Sequence[Write]], None]:
    """`do`, as the first batch comes and never again."""

    def first(_: Sequence[Write]) -> None:
        host.before = host.after = lambda writes: None
        do()

    return first


def change(pusher: Pusher, **fields: Any) -> None:
    edit(pusher.repository, lambda repo: repo.changed(**fields))


def raises(error: KnotlessError) -> Callable[[], object]:
    def do() -> object:
        raise error

    return do


def test_the_first_push(alice: Pusher, host: Account) -> None:
    assert alice.push(f"main:{MAIN}") == {MAIN: None}
    assert alice.live() == {MAIN: alice.oid("main")}
    (batch,) = host.batches
    assert kinds(batch) == ["update claim", "create pack", "create claim", "create ref"]
    assert alice.objects() == set(_reached(alice, "main"))


def _reached(alice: Pusher, *revisions: str) -> list[str]:
    listed = alice.gitenv.git("rev-list", "--objects", *revisions, cwd=alice.path).out
    return [line.split(" ")[0] for line in listed.splitlines()]


def test_a_small_push_reads_three_times_and_writes_once(alice: Pusher, host: Account) -> None:
    alice.push(f"main~1:{MAIN}")
    host.batches.clear()
    host.requests.clear()
    assert alice.push(f"main:{MAIN}") == {MAIN: None}
    assert host.requests == [f"get {REPO}", f"list {REF}", f"list {REF}", "apply"]
    (batch,) = host.batches
    assert kinds(batch) == ["update claim", "create pack", "create claim", "update ref"]
    (ref,) = host.records[REF].values()
    assert (ref["target"], ref["generation"]) == (alice.oid("main"), 2)


def test_a_push_of_nothing_new_writes_nothing(alice: Pusher, host: Account) -> None:
    alice.push(f"main:{MAIN}")
    host.batches.clear()
    assert alice.push(f"main:{MAIN}", ":refs/heads/never") == {MAIN: None, "refs/heads/never": None}
    assert host.batches == []


def test_a_dry_run_writes_nothing(alice: Pusher, host: Account) -> None:
    assert alice.push(f"main:{MAIN}", dry_run=True) == {MAIN: None}
    assert host.batches == []


def test_a_ref_to_what_is_there_brings_no_pack(alice: Pusher, host: Account) -> None:
    alice.push(f"main:{MAIN}")
    alice.push("main~1:refs/heads/old", "main:refs/tags/v1")
    assert kinds(host.batches[-1]).count("create pack") == 0
    assert len(host.records[PACK]) == 1


def test_delete_and_create_again(alice: Pusher, host: Account) -> None:
    alice.push(f"main:{MAIN}", "main:refs/heads/b")
    assert alice.push(":refs/heads/b") == {"refs/heads/b": None}
    assert alice.live() == {MAIN: alice.oid("main")}
    assert alice.push("main~1:refs/heads/b") == {"refs/heads/b": None}
    ref = alice.repository.snapshot().refs["refs/heads/b"]
    assert (ref.target, ref.generation) == (alice.oid("main~1"), 3)


def test_the_only_branch_becomes_the_default(alice: Pusher, host: Account) -> None:
    alice.push("main:refs/heads/trunk", "main:refs/tags/v1")
    snapshot = alice.repository.snapshot()
    assert (snapshot.repo.default_branch, snapshot.repo.epoch) == ("trunk", 2)
    assert alice.told == [f"trunk is the default branch of {URL} now"]
    assert snapshot.head == "refs/heads/trunk"
    assert kinds(host.batches[0])[:3] == ["delete claim", "create claim", "update repo"]
    (pack,) = host.records[PACK].values()
    assert pack["epoch"] == 2
    alice.push("main:refs/heads/other")
    assert alice.repository.snapshot().repo.default_branch == "trunk"


@pytest.mark.parametrize(
    ("names", "default"),
    [
        (["a", "here", "master"], "here"),
        (["a", "master"], "master"),
        (["b", "a"], "a"),
        (["a", "main", "here"], "main"),
    ],
)
def test_of_several_branches_one_becomes_the_default(
    alice: Pusher, names: list[str], default: str
) -> None:
    alice.gitenv.git("checkout", "-q", "-b", "here", cwd=alice.path)
    alice.push(*(f"main:refs/heads/{name}" for name in names))
    assert alice.repository.snapshot().head == f"refs/heads/{default}"


@pytest.mark.parametrize("force", ["", "+"])
def test_another_was_first(alice: Pusher, host: Account, force: str) -> None:
    alice.push(f"main~2:{MAIN}")
    read = alice.repository.snapshot()
    alice.push(f"main~1:{MAIN}")
    assert alice.push(f"{force}main:{MAIN}", read=read) == {MAIN: "fetch first"}
    assert alice.live() == {MAIN: alice.oid("main~1")}


def test_another_was_first_with_the_first_record(alice: Pusher, host: Account) -> None:
    read = alice.repository.snapshot()
    alice.push(f"main~1:{MAIN}")
    assert alice.push(f"main:{MAIN}", read=read) == {MAIN: "fetch first"}


def test_another_was_first_with_the_same(alice: Pusher, host: Account) -> None:
    read = alice.repository.snapshot()
    alice.push(f"main:{MAIN}")
    assert alice.push(f"main:{MAIN}", read=read) == {MAIN: None}


def test_those_that_have_not_moved_go_on(alice: Pusher, host: Account) -> None:
    alice.push(f"main~2:{MAIN}", "main~2:refs/heads/b")
    read = alice.repository.snapshot()
    alice.push(f"main~1:{MAIN}")
    got = alice.push(f"main:{MAIN}", "main:refs/heads/b", "main:refs/heads/new", read=read)
    assert got == {MAIN: "fetch first", "refs/heads/b": None, "refs/heads/new": None}
    assert alice.live()["refs/heads/b"] == alice.oid("main")
    assert set(_reached(alice, "main")) <= alice.objects()


def test_of_an_atomic_push_all_or_none(alice: Pusher, host: Account) -> None:
    alice.push(f"main~2:{MAIN}", "main~2:refs/heads/b")
    read = alice.repository.snapshot()
    alice.push(f"main~1:{MAIN}")
    got = alice.push(f"main:{MAIN}", "main:refs/heads/b", read=read, atomic=True)
    assert got == {MAIN: "fetch first", "refs/heads/b": "atomic push failed"}
    assert alice.live()["refs/heads/b"] == alice.oid("main~2")


def test_an_atomic_push_with_one_refusal_sends_nothing(alice: Pusher, host: Account) -> None:
    got = alice.push(f"main:{MAIN}", "main:HEAD", atomic=True)
    assert got == {MAIN: "atomic push failed", "HEAD": "funny refname"}
    assert host.batches == []


def test_an_atomic_push_too_large_for_a_batch(alice: Pusher, host: Account) -> None:
    with pytest.raises(KnotlessError, match="do not fit in one write"):
        alice.push(*(f"main:refs/heads/b{n}" for n in range(300)), atomic=True)
    assert host.batches == []


def test_more_refs_than_a_batch_holds(alice: Pusher, host: Account) -> None:
    names = [f"refs/heads/b{n}" for n in range(450)]
    assert alice.push(*(f"main:{name}" for name in names)) == dict.fromkeys(names)
    assert len(alice.live()) == 450
    assert [len(batch) for batch in host.batches] == [200, 200, 59]
    assert len(host.records[PACK]) == 1


def test_settings_that_change_meanwhile(alice: Pusher, host: Account) -> None:
    alice.push(f"main~1:{MAIN}")
    host.before = once(partial(change, alice, description="new"), host)
    assert alice.push(f"main:{MAIN}") == {MAIN: None}
    (value,) = host.records[REPO].values()
    assert (value["description"], value["epoch"]) == ("new", 2)
    assert {pack["epoch"] for pack in host.records[PACK].values()} == {1, 2}


def test_a_rule_that_comes_meanwhile_holds(alice: Pusher, host: Account) -> None:
    alice.push(f"main:{MAIN}")
    host.before = once(partial(change, alice, rules=[{"branch": "main"}]), host)
    error = "protected branch: it only moves forward"
    assert alice.push(f"+main~1:{MAIN}") == {MAIN: error}


def test_what_the_refs_no_longer_reach_is_packed_again(alice: Pusher, host: Account) -> None:
    """The base of the push is deleted, and then the epoch moves: its objects may be pruned."""
    alice.push("main~1:refs/heads/base")

    def meanwhile() -> None:
        alice.push(":refs/heads/base")
        edit(alice.repository, lambda repo: repo.changed(description="new"))

    host.before = once(meanwhile, host)
    assert alice.push(f"main:{MAIN}") == {MAIN: None}
    newest = max(host.records[PACK])
    value = host.records[PACK][newest]
    assert alice.unpacked(value) == set(_reached(alice, "main"))


def test_deleted_meanwhile(alice: Pusher, host: Account) -> None:
    host.before = once(lambda: delete(alice.repository), host)
    with pytest.raises(NoSuchRepository):
        alice.push(f"main:{MAIN}")
    assert not any(host.records.values())


def test_renamed_meanwhile(alice: Pusher, host: Account) -> None:
    """What is pushed lands under the new name, and nothing of the old is left but a redirect."""
    host.before = once(lambda: rename(Repository(URL, host, writable=True), "b"), host)
    assert alice.push(f"main:{MAIN}") == {MAIN: None}
    assert alice.repository.url.name == "b"
    (ref,) = host.records[REF].values()
    assert ref["repo"] == host.records[REPO]["b"]["key"]


def test_renamed_and_its_name_taken_meanwhile(alice: Pusher, host: Account) -> None:
    def meanwhile() -> None:
        rename(Repository(URL, host, writable=True), "b")
        create(host, URL)

    host.before = once(meanwhile, host)
    with pytest.raises(KnotlessError, match="another repository"):
        alice.push(f"main:{MAIN}")
    assert host.records.get(REF, {}) == {}


def test_deleted_and_made_again_meanwhile(alice: Pusher, host: Account) -> None:
    def meanwhile() -> None:
        delete(alice.repository)
        create(host, URL)

    host.before = once(meanwhile, host)
    with pytest.raises(KnotlessError, match="another repository"):
        alice.push(f"main:{MAIN}")
    assert Repository(URL, host, writable=True).snapshot().live == {}


def test_archived(alice: Pusher, host: Account) -> None:
    edit(alice.repository, lambda repo: repo.changed(archived=True))
    with pytest.raises(KnotlessError, match="knotless://alice.test/repo is archived"):
        alice.push(f"main:{MAIN}")


def test_archived_meanwhile(alice: Pusher, host: Account) -> None:
    host.before = once(partial(change, alice, archived=True), host)
    with pytest.raises(KnotlessError, match="is archived"):
        alice.push(f"main:{MAIN}")
    assert alice.live() == {}


def test_the_answer_is_lost(alice: Pusher, host: Account) -> None:
    host.after = once(raises(HostTimeout("no answer")), host)
    assert alice.push(f"main:{MAIN}") == {MAIN: None}
    assert len(host.batches) == 1


def test_the_host_fails_once(alice: Pusher, host: Account) -> None:
    host.before = once(raises(refusal(ServerFault)), host)
    assert alice.push(f"main:{MAIN}") == {MAIN: None}


def test_the_host_fails_for_good(alice: Pusher, host: Account) -> None:
    host.before = lambda writes: raises(refusal(ServerFault))() and None
    with pytest.raises(KnotlessError, match="did not take the write"):
        alice.push(f"main:{MAIN}")
    assert alice.live() == {}


def test_it_fails_after_some_refs_have_moved(alice: Pusher, host: Account) -> None:
    def second(_: Sequence[Write]) -> None:
        if host.batches:
            raise refusal(RateLimited, 429, "RateLimitExceeded")

    host.before = second
    got = alice.push(*(f"main:refs/heads/b{n}" for n in range(300)))
    assert sum(error is None for error in got.values()) == len(alice.live()) > 0
    assert len({error for error in got.values() if error}) == 1


def test_blobs_that_vanish_are_uploaded_again(alice: Pusher, host: Account) -> None:
    alice.gitenv.commit(alice.path, "large", random.Random(1).randbytes(200_000))
    lose = once(lambda: (host.blobs.clear(), raises(refusal(BlobNotFound, 400))()), host)
    host.before = lose
    assert alice.push(f"main:{MAIN}") == {MAIN: None}
    assert set(_reached(alice, "main")) == alice.objects()


def test_a_snapshot_older_than_half_the_grace_is_read_again(alice: Pusher, host: Account) -> None:
    alice.push(f"main~1:{MAIN}")
    read = alice.repository.snapshot()
    old = Snapshot(read.repo, read.refs, read.hidden, read.taken - 43_201)
    host.requests.clear()
    assert alice.push(f"main:{MAIN}", read=old) == {MAIN: None}
    assert host.requests[0] == f"get {REPO}"


def test_a_race_that_lets_both_in_side_by_side(alice: Pusher, host: Account) -> None:
    a, ab = "refs/heads/a", "refs/heads/a/b"
    alice.push("main:refs/tags/v1")
    read = alice.repository.snapshot()
    alice.push(f"main:{a}")
    assert alice.push(f"main:{ab}", read=read) == {ab: f"'{a}' exists; cannot create '{ab}'"}
    assert alice.live() == {a: alice.oid("main"), "refs/tags/v1": alice.oid("main")}
    assert alice.repository.snapshot().hidden == {}


def test_the_shorter_one_takes_itself_back_too(alice: Pusher, host: Account) -> None:
    """The longer was accepted, and would be hidden."""
    a, ab = "refs/heads/a", "refs/heads/a/b"
    alice.push("main:refs/tags/v1")
    read = alice.repository.snapshot()
    assert alice.push(f"main:{ab}") == {ab: None}
    assert alice.push(f"main:{a}", read=read) == {a: f"'{ab}' exists; cannot create '{a}'"}
    assert alice.live() == {ab: alice.oid("main"), "refs/tags/v1": alice.oid("main")}


def test_an_atomic_push_is_taken_back_whole(alice: Pusher, host: Account) -> None:
    a, ab, old = "refs/heads/a", "refs/heads/a/b", "refs/heads/old"
    alice.push(f"main~1:{old}")
    read = alice.repository.snapshot()
    alice.push(f"main:{a}")
    got = alice.push(f"main:{ab}", f"main:{old}", "main:refs/heads/new", read=read, atomic=True)
    assert got == {
        ab: f"'{a}' exists; cannot create '{ab}'",
        old: "atomic push failed",
        "refs/heads/new": "atomic push failed",
    }
    assert alice.live() == {a: alice.oid("main"), old: alice.oid("main~1")}
    assert alice.repository.snapshot().hidden == {}


def test_one_that_cannot_be_looked_at_again_is_not_said_to_stand(
    alice: Pusher, host: Account
) -> None:
    alice.push("main:refs/tags/v1")

    def down(_: Sequence[Write]) -> None:
        host.down = True

    host.after = down
    (error,) = alice.push("main:refs/heads/a").values()
    assert error is not None
    assert "not known" in error


def test_a_hidden_ref_can_be_deleted(alice: Pusher, host: Account) -> None:
    a, ab = "refs/heads/a", "refs/heads/a/b"
    alice.push(f"main:{a}")
    key = alice.repository.snapshot().repo.key
    hidden = RefRecord(key, ab, alice.oid("main"), 1, "2026-01-02T03:04:05.678Z")
    host.records[REF][hidden.rkey] = hidden.to_json()
    assert alice.push(f":{ab}") == {ab: None}
    assert alice.repository.snapshot().targets == {a: alice.oid("main")}


def test_the_default_branch_lands_with_the_record_that_names_it(
    alice: Pusher, host: Account
) -> None:
    alice.gitenv.git("checkout", "-q", "-b", "topic", cwd=alice.path)

    def limited(_: Sequence[Write]) -> None:
        if host.batches:
            raise refusal(RateLimited, 429, "RateLimitExceeded")

    host.before = limited
    alice.push(*(f"main:refs/heads/b{n}" for n in range(250)), "main:refs/heads/topic")
    assert alice.repository.snapshot().head == "refs/heads/topic"


def test_new_refs_that_are_gone_at_once_are_not_said_to_stand(alice: Pusher, host: Account) -> None:
    alice.push("main:refs/tags/v1")
    host.after = once(lambda: delete(alice.repository), host)
    (error,) = alice.push("main:refs/heads/a").values()
    assert error is not None
    assert "not known" in error


def test_what_landed_at_an_earlier_epoch_is_brought_again(alice: Pusher, host: Account) -> None:
    """The first batch lands, a prune drops its pack and moves the epoch, the second is lost."""
    alice.push("main~2:refs/tags/v0")
    names = [f"refs/heads/b{n}" for n in range(300)]

    def prune(_: Sequence[Write]) -> None:
        if len(host.records[REF]) > 10:
            host.before = lambda writes: None
            alice.push(*(f":{name}" for name in alice.live() if name != "refs/tags/v0"))
            host.records[PACK].pop(max(host.records[PACK]))
            change(alice, description="pruned")

    host.before = prune
    alice.push(*(f"main:{name}" for name in names))
    assert set(_reached(alice, "main")) <= alice.objects()


def test_a_shallow_clone_is_checked_against_what_it_is_built_on(
    alice: Pusher, host: Account
) -> None:
    alice.push("main~1:refs/heads/base", "main^{tree}:refs/tags/v0")
    shallow = alice.gitenv.root / "shallow"
    alice.gitenv.git("clone", "-q", "--depth=2", f"file://{alice.path}", str(shallow))
    bob = Pusher(alice.gitenv, shallow, host)

    def meanwhile() -> None:
        alice.push(":refs/heads/base")
        change(alice, description="new")

    host.before = once(meanwhile, host)
    with pytest.raises(KnotlessError, match="shallow"):
        bob.push("main:refs/heads/new")


def test_another_object_format(gitenv: GitEnv, host: Account) -> None:
    create(host, URL)
    host.batches.clear()
    path = gitenv.root / "sha256"
    gitenv.git("init", "-q", "--object-format=sha256", str(path))
    gitenv.commit(path)
    with pytest.raises(KnotlessError, match="sha256"):
        Pusher(gitenv, path, host).push(f"main:{MAIN}")
    assert host.batches == []


def test_from_a_shallow_clone(alice: Pusher, host: Account) -> None:
    shallow = alice.gitenv.root / "shallow"
    alice.gitenv.git("clone", "-q", "--depth=2", f"file://{alice.path}", str(shallow))
    bob = Pusher(alice.gitenv, shallow, host)
    host.batches.clear()
    with pytest.raises(KnotlessError, match="shallow") as caught:
        bob.push(f"main:{MAIN}")
    assert caught.value.hint == "git fetch --unshallow"
    assert host.batches == []
    alice.push(f"main~1:{MAIN}")
    assert bob.push(f"main:{MAIN}") == {MAIN: None}  # now it leaves no hole


def test_an_outcome_for_each_update_in_its_place(alice: Pusher) -> None:
    updates = [Update("HEAD", alice.oid("main")), Update(MAIN, alice.oid("main"))]
    progress = TextProgress(io.StringIO(), enabled=False)
    outcomes = push(
        alice.repository,
        alice.git,
        alice.repository.snapshot(),
        updates,
        progress=progress,
        notify=alice.told.append,
    )
    assert outcomes == [Outcome("HEAD", "funny refname"), Outcome(MAIN)]
