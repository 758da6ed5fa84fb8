"""A repository goes to another account: whole, once, whatever happens on the way."""

from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from git_knotless.atproto.errors import BlobNotFound, HostTimeout, ServerFault, XrpcError
from git_knotless.errors import KnotlessError
from git_knotless.storage.claims import epoch_rkey
from git_knotless.storage.creation import AlreadyExists, create
from git_knotless.storage.deletion import delete
from git_knotless.storage.editing import edit
from git_knotless.storage.outcome import HostRefused
from git_knotless.storage.places.holds import CopyExists, HoldRecord, Overtaken
from git_knotless.storage.places.lookup import look_up
from git_knotless.storage.places.offers import (
    AlreadyAccepted,
    NotOffered,
    OwnAccount,
    offer,
    withdraw,
)
from git_knotless.storage.places.references import RedirectRecord, RepoRef
from git_knotless.storage.places.renaming import rename
from git_knotless.storage.records import CLAIM, PACK, REDIRECT, REF, REPO
from git_knotless.storage.repositories import repositories
from git_knotless.storage.snapshot import NoSuchRepository, UnreadableRepository
from git_knotless.storage.store import Write
from git_knotless.storage.url import BadName
from tests.lexicon import Lexicons, read_all
from tests.storage.account import refusal
from tests.storage.places import (
    ALICE,
    BOB,
    CAROL,
    TIME,
    Host,
    Killed,
    World,
    kill,
    packs_of,
    place,
    push,
    put_pack,
    put_ref,
    refs_of,
)

pytestmark = pytest.mark.usefixtures("in_no_time")


def whole(world: World, key: str, name: str = "repo") -> None:
    """Bob has all that Alice has, and nothing besides."""
    assert refs_of(world.bob, key) == refs_of(world.alice, key)
    assert packs_of(world.bob, key) == packs_of(world.alice, key)
    (repo,) = repositories(world.bob)
    assert (repo.key, repo.name) == (key, name)
    assert list(world.bob.named(CLAIM)) == [epoch_rkey(key, repo.epoch)]


def test_what_was_offered_is_there_with_its_key(world: World) -> None:
    old = world.offered(
        runners=[CAROL],
        rules=[{"branch": "main"}],
        collaborators=[CAROL],
        readers=[CAROL],
        agents=[CAROL],
        gateway="https://gate.test",
        archived=True,
        contribution="members",
    )
    done = world.accept(world.alice, world.bob)
    whole(world, old.key)
    assert (done.url, done.late, done.withdrawn) == (world.url(world.bob), [], False)
    offered = world.own(world.alice).record().transfer
    assert offered is not None
    assert done.repo.transferred_from == RepoRef(ALICE, old.rkey, old.key, offered.offer)
    assert done.repo.epoch > world.own(world.alice).record().epoch
    fields = done.repo.fields
    assert fields["runners"] == [CAROL]
    assert fields["rules"] == [{"branch": "main"}]
    assert (fields["description"], fields["archived"]) == ("A thing", True)
    assert fields["contribution"] == "members"
    assert not fields.keys() & {"transfer", "collaborators", "readers", "agents", "gateway"}
    assert fields["createdAt"] != old.created_at


def test_what_is_written_is_as_the_lexicons_say(world: World) -> None:
    world.offered()
    written: list[Write] = []
    world.bob.before = written.extend
    world.accept(world.alice, world.bob)
    lexicons = Lexicons(read_all())
    values = [write.value for write in written if write.value and write.value.get("epoch", 1) > 0]
    assert any("accepting" in value for value in values)
    for value in values:
        assert list(lexicons.misfits(value)) == []
        assert list(lexicons.unknown_fields(value)) == []


def test_no_reader_sees_it_before_it_is_whole(world: World) -> None:
    old = world.offered()

    def look(writes: Sequence[Write]) -> None:
        if list(repositories(world.bob)):
            whole(world, old.key)

    world.bob.after = look
    world.accept(world.alice, world.bob)


def test_readers_of_the_old_place_are_led_to_the_new_one(world: World) -> None:
    old = world.offered()
    assert look_up(world.url(world.alice), world).store is world.alice
    world.accept(world.alice, world.bob, "other")
    found = look_up(world.url(world.alice), world)
    assert (found.store, found.url, found.repo.key) == (
        world.bob,
        world.url(world.bob, "other"),
        old.key,
    )


def test_a_redirect_under_its_name_is_replaced(world: World) -> None:
    world.offered()
    other = RedirectRecord.new("repo", RepoRef(BOB, "elsewhere", "3k2akcsyzdc2r"), TIME)
    world.bob.records[REDIRECT] = {"repo": other.to_json()}
    world.accept(world.alice, world.bob)
    assert world.bob.named(REDIRECT) == {}


def test_large_blobs_are_cut_anew_for_a_host_that_takes_less(world: World) -> None:
    old = world.offered()
    world.bob.blob_limit = 70_000
    world.accept(world.alice, world.bob)
    whole(world, old.key)
    assert max(map(len, world.bob.blobs.values())) <= 70_000


# --- refusals


def refused(
    world: World, kind: type[KnotlessError], words: str, attempt: Callable[[], Any]
) -> None:
    before = world.state()
    with pytest.raises(kind) as caught:
        attempt()
    assert words in caught.value.message
    assert world.state() == before


def test_an_offer_to_the_account_it_is_in(world: World) -> None:
    world.published(world.alice)
    words = "knotless://alice.test/repo is already in that account: rename it instead"
    refused(world, OwnAccount, words, lambda: offer(world.own(world.alice), ALICE))


def test_an_offer_under_a_name_that_none_can_have(world: World) -> None:
    world.published(world.alice)
    refused(world, BadName, "'-x'", lambda: offer(world.own(world.alice), BOB, "-x"))


def test_what_was_offered_to_nobody(world: World) -> None:
    world.published(world.alice)
    words = "knotless://alice.test/repo has not been offered to anyone"
    refused(world, NotOffered, words, lambda: world.accept(world.alice, world.bob))
    refused(world, NotOffered, words, lambda: withdraw(world.own(world.alice)))


def test_what_was_offered_to_another(world: World) -> None:
    world.offered()
    words = f"knotless://alice.test/repo is offered to {BOB}, not to you"
    refused(world, NotOffered, words, lambda: world.accept(world.alice, world.carol))


def test_an_offer_of_another_key_is_none(world: World) -> None:
    repo = world.offered()
    record = dict(world.alice.records[REPO]["repo"])
    record["transfer"] = place(world.bob, "repo", "3k2akcsyzdc2r")
    world.alice.records[REPO]["repo"] = record
    assert repo.key != "3k2akcsyzdc2r"
    refused(world, NotOffered, "not been offered", lambda: world.accept(world.alice, world.bob))


def test_a_name_that_is_taken(world: World) -> None:
    world.offered()
    create(world.bob, world.url(world.bob))
    words = "knotless://bob.test/repo already exists"
    refused(world, AlreadyExists, words, lambda: world.accept(world.alice, world.bob))
    assert world.accept(world.alice, world.bob, "other").url == world.url(world.bob, "other")


def test_a_name_that_none_can_have(world: World) -> None:
    world.offered()
    for name in ("-x", "x.git", "é", "a/b", "x" * 101, ".."):
        refused(world, BadName, "", lambda name=name: world.accept(world.alice, world.bob, name))


def test_a_name_that_the_host_does_not_take(world: World) -> None:
    """As one that filters words: it is the host that is said to refuse."""
    world.offered()
    words = "the host did not take the write"

    def refuse(writes: Sequence[Write]) -> None:
        if any(write.collection == REPO for write in writes):
            raise refusal(XrpcError, 400, "InvalidRequest")

    world.bob.before = refuse
    refused(world, HostRefused, words, lambda: world.accept(world.alice, world.bob))


def test_a_host_that_fails_in_the_middle_keeps_what_it_has(world: World) -> None:
    old = world.offered()

    def fail(writes: Sequence[Write]) -> None:
        if any(write.collection == REF for write in writes):
            raise refusal(ServerFault)

    world.bob.before = fail
    with pytest.raises(HostRefused):
        world.accept(world.alice, world.bob)
    assert len(world.bob.named(PACK)) == 2
    world.bob.before = lambda writes: None
    world.accept(world.alice, world.bob)
    whole(world, old.key)


def test_an_account_that_holds_a_copy_of_it(world: World) -> None:
    repo = world.offered()
    value = {"key": repo.key, "epoch": "of a version to come"}
    world.bob.records[REPO] = {"mine": value}
    with pytest.raises(CopyExists) as caught:
        world.accept(world.alice, world.bob)
    assert "knotless://bob.test/mine" in caught.value.message
    assert "git knotless repo delete knotless://bob.test/mine" in str(caught.value.hint)
    assert world.bob.records[REPO] == {"mine": value}
    assert world.bob.named(CLAIM) == world.bob.named(REF) == world.bob.named(PACK) == {}


def test_what_was_accepted_before(world: World) -> None:
    world.offered()
    world.accept(world.alice, world.bob)
    words = "it is knotless://bob.test/repo"
    refused(world, AlreadyAccepted, words, lambda: world.accept(world.alice, world.bob))


def test_a_blob_that_is_not_what_its_name_says(world: World) -> None:
    world.offered()
    cid = next(iter(world.alice.blobs))
    world.alice.blobs[cid] = b"x" * len(world.alice.blobs[cid])
    refused(world, KnotlessError, "not its own", lambda: world.accept(world.alice, world.bob))


def test_a_pack_that_cannot_be_read(world: World) -> None:
    repo = world.offered()
    world.alice.records[PACK][f"{repo.key}.zzz"] = {"of": "a version to come"}
    refused(world, KnotlessError, "alice.test/repo", lambda: world.accept(world.alice, world.bob))


# --- others at it


def test_what_is_pushed_meanwhile_comes_too(world: World) -> None:
    old = world.offered()
    repo = world.own(world.alice).record()
    pushes = iter(range(3))

    def pushed(_: Sequence[Write]) -> None:
        for n in pushes:
            put_pack(world.alice, repo, b"more" * 20 * (n + 1))
            push(world.alice, repo, f"refs/heads/new{n}", "a" * 40)
            push(world.alice, repo, "refs/heads/b0", f"{n}f" * 20)
            return

    world.bob.after = pushed
    done = world.accept(world.alice, world.bob)
    assert next(pushes, None) is None
    assert done.late == []
    whole(world, old.key)


def test_what_is_pushed_at_the_last_moment_is_named(world: World) -> None:
    world.offered()
    repo = world.own(world.alice).record()

    def pushed(writes: Sequence[Write]) -> None:
        if any(write.collection == REPO for write in writes):
            push(world.alice, repo, "refs/heads/b1", "e" * 40)

    world.bob.before = pushed
    assert world.accept(world.alice, world.bob).late == ["refs/heads/b1"]


@pytest.mark.parametrize("at", range(1, 9))
def test_an_offer_that_is_withdrawn_meanwhile(world: World, at: int) -> None:
    world.offered()
    left = [at]

    def take_back(moment: str) -> None:
        left[0] -= moment == "before apply"
        if left[0] == 0:
            left[0] = 99
            withdraw(world.own(world.alice))

    world.bob.meet = take_back
    try:
        done = world.accept(world.alice, world.bob)
    except NotOffered:
        assert not any(world.bob.records.values())
    else:
        assert not done.withdrawn
        assert left[0] < 90


def at_the_last_write(host: Host, act: Callable[[], object]) -> None:
    """Before it lands that there is a repository."""

    def before(writes: Sequence[Write]) -> None:
        if any(write.collection == REPO and write.action == "create" for write in writes):
            host.before = lambda _: None
            act()

    host.before = before


def test_one_that_is_offered_anew_at_the_last_moment(world: World) -> None:
    """What was copied answers the offer before, and goes again; it can be accepted at once."""
    old = world.offered()

    def anew() -> None:
        withdraw(world.own(world.alice))
        offer(world.own(world.alice), BOB)

    at_the_last_write(world.bob, anew)
    with pytest.raises(NotOffered) as caught:
        world.accept(world.alice, world.bob)
    assert caught.value.message == "knotless://alice.test/repo was offered anew just then"
    assert not any(world.bob.records.values())
    world.accept(world.alice, world.bob)
    whole(world, old.key)


def test_what_it_was_before_it_was_withdrawn_at_the_last_moment(world: World) -> None:
    """Its old names, and the one that it was to have, lead again where they did."""
    world.published(world.bob, "first")
    rename(world.own(world.bob, "first"), "repo")
    offer(world.own(world.bob), ALICE)
    world.accept(world.bob, world.alice)
    delete(world.own(world.bob), world)
    offer(world.own(world.alice), BOB)
    before = dict(world.bob.records)[REDIRECT].copy()
    assert before.keys() == {"first", "repo"}
    at_the_last_write(world.bob, lambda: withdraw(world.own(world.alice)))
    with pytest.raises(NotOffered):
        world.accept(world.alice, world.bob)
    assert {nsid: values for nsid, values in world.bob.records.items() if values} == {
        REDIRECT: before
    }
    assert look_up(world.url(world.bob, "first"), world).store is world.alice


def test_one_that_was_withdrawn_and_is_written_to_already_stays(world: World) -> None:
    world.offered()
    at_the_last_write(world.bob, lambda: withdraw(world.own(world.alice)))

    def written(writes: Sequence[Write]) -> None:
        if any(write.collection == REPO and write.action == "create" for write in writes):
            world.bob.after = lambda _: None
            edit(world.own(world.bob), lambda repo: repo.changed(description="mine"))

    world.bob.after = written
    assert world.accept(world.alice, world.bob).withdrawn
    assert look_up(world.url(world.alice), world).store is world.alice
    offer(world.own(world.alice), BOB)
    assert look_up(world.url(world.alice), world).store is world.alice


def test_an_offer_that_stands_is_not_made_anew(world: World) -> None:
    world.offered()
    before = world.state()
    offer(world.own(world.alice), BOB, "repo")
    assert world.state() == before
    offer(world.own(world.alice), BOB, "other")
    assert world.state() != before


def test_an_empty_name_is_none(world: World) -> None:
    world.offered()
    with pytest.raises(BadName):
        world.accept(world.alice, world.bob, "")
    with pytest.raises(BadName):
        offer(world.own(world.alice), BOB, "")


def test_a_name_that_is_taken_meanwhile(world: World) -> None:
    world.offered()
    left = [4]

    def take(_: Sequence[Write]) -> None:
        left[0] -= 1
        if left[0] == 0:
            create(world.bob, world.url(world.bob), description="theirs")

    world.bob.before = take
    with pytest.raises(AlreadyExists):
        world.accept(world.alice, world.bob)
    (repo,) = repositories(world.bob)
    assert repo.description == "theirs"
    assert list(world.bob.named(CLAIM)) == [epoch_rkey(repo.key, 1)]
    assert world.bob.named(REF) == world.bob.named(PACK) == {}


def test_its_place_is_renamed_meanwhile(world: World) -> None:
    from git_knotless.storage.places.renaming import rename

    old = world.offered()
    left = [4]

    def renamed(_: Sequence[Write]) -> None:
        left[0] -= 1
        if left[0] == 0:
            rename(world.own(world.alice), "later")

    world.bob.before = renamed
    world.accept(world.alice, world.bob)
    whole(world, old.key)


def moments_of(host: Host, attempt: Callable[[], Any]) -> int:
    """How many there are at which something may happen."""
    moments: list[str] = []
    host.meet = moments.append
    attempt()
    host.meet = lambda moment: None
    return len(moments)


def test_two_accepts_at_once_make_one_repository(tmp_path: Path) -> None:
    """The other one runs, whole, at each moment of the first, the source having changed."""
    first = World(tmp_path)
    first.offered()
    for at in range(moments_of(first.bob, lambda: first.accept(first.alice, first.bob))):
        world = World(tmp_path)
        old = world.offered()
        left = [at]

        def meet(_: str, world: World = world, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == -1 and not list(repositories(world.bob)):
                edit(world.own(world.alice), lambda repo: repo.changed(description="moved"))
                world.accept(world.alice, world.bob, "theirs")

        world.bob.meet = meet
        try:
            name = world.accept(world.alice, world.bob).repo.name
        except (Overtaken, CopyExists, AlreadyAccepted):
            name = "theirs"
        whole(world, old.key, name)
        edit(world.own(world.bob, name), lambda repo: repo.changed(archived=True))


# --- cut


@pytest.mark.parametrize("whose", ["alice", "bob"])
def test_one_that_is_killed_at_any_moment_is_gone_on_with(tmp_path: Path, whose: str) -> None:
    for at in count():
        world = World(tmp_path)
        old = world.offered()
        host: Host = getattr(world, whose)
        kill(host, at)
        try:
            world.accept(world.alice, world.bob)
        except Killed:
            pass
        else:
            break
        host.meet = lambda moment: None
        assert len(list(repositories(world.bob))) <= 1
        try:
            world.accept(world.alice, world.bob)
        except AlreadyAccepted:
            world.bob.records[CLAIM] = {  # of the host's proof, under a key that is nobody's
                rkey: value for rkey, value in world.bob.named(CLAIM).items() if old.key in rkey
            }
        _drop_probes(world, old.key)
        whole(world, old.key)
    assert at > 10


def _drop_probes(world: World, key: str) -> None:
    """The proof of the host leaves a record that nobody reads where it is killed."""
    claims = world.bob.named(CLAIM)
    for rkey in [rkey for rkey in claims if not rkey.startswith(key)]:
        del claims[rkey]


def test_one_that_was_cut_is_taken_away_once_the_offer_is_gone(tmp_path: Path) -> None:
    for at in count():
        world = World(tmp_path)
        old = world.offered()
        kill(world.bob, at)
        try:
            world.accept(world.alice, world.bob)
        except Killed:
            pass
        else:
            break
        world.bob.meet = lambda moment: None
        if list(repositories(world.bob)):
            break
        withdraw(world.own(world.alice))
        with pytest.raises(NotOffered):
            world.accept(world.alice, world.bob)
        _drop_probes(world, old.key)
        assert not any(world.bob.records.values()), at
    assert at > 10


def test_and_once_the_repository_itself_is_gone(world: World) -> None:
    from git_knotless.storage.deletion import delete

    old = world.offered()
    kill(world.bob, 3, "after apply")
    with pytest.raises(Killed):
        world.accept(world.alice, world.bob)
    world.bob.meet = lambda moment: None
    assert world.bob.named(REF) or world.bob.named(PACK)
    delete(world.own(world.alice))
    with pytest.raises(NoSuchRepository):
        world.accept(world.alice, world.bob)
    _drop_probes(world, old.key)
    assert not any(world.bob.records.values())


def test_what_is_there_already_is_not_copied_again(world: World) -> None:
    world.offered()
    kill(world.bob, 3, "after apply")
    with pytest.raises(Killed):
        world.accept(world.alice, world.bob)
    assert len(world.bob.named(PACK)) == 2
    world.bob.meet = lambda moment: None
    world.bob.requests.clear()
    world.accept(world.alice, world.bob)
    assert "upload" not in world.bob.requests


# --- faults of hosts


@pytest.mark.parametrize("trouble", [refusal(ServerFault), HostTimeout("no answer")])
@pytest.mark.parametrize("landed", [True, False])
def test_every_other_answer_is_lost(world: World, trouble: Exception, landed: bool) -> None:
    old = world.offered()
    turns = count()

    def lose(_: Sequence[Write]) -> None:
        if next(turns) % 2:
            raise trouble

    if landed:
        world.bob.after = lose
    else:
        world.bob.before = lose
    world.accept(world.alice, world.bob)
    whole(world, old.key)


def test_a_batch_that_was_given_up_never_lands_later(world: World) -> None:
    """One that is under way when the accept goes on is dead: its hold has moved."""
    old = world.offered()
    late: list[Sequence[Write]] = []

    def hold_back(writes: Sequence[Write]) -> None:
        if not late and any(write.collection == REF for write in writes):
            late.append(writes)
            raise HostTimeout("no answer")

    world.bob.before = hold_back
    world.accept(world.alice, world.bob)
    whole(world, old.key)
    before = world.state()
    with pytest.raises(ServerFault):
        world.bob.apply(late[0])
    assert world.state() == before


def test_a_host_that_loses_blobs_is_sent_them_again(world: World) -> None:
    old = world.offered()
    lost = [2]

    def lose(writes: Sequence[Write]) -> None:
        if lost[0] and any("blobs" in (write.value or {}) for write in writes):
            lost[0] -= 1
            raise refusal(BlobNotFound, 400, "BlobNotFound")

    world.bob.before = lose
    world.accept(world.alice, world.bob)
    whole(world, old.key)


def test_a_pack_that_is_folded_meanwhile(world: World) -> None:
    """Its blobs are gone, and a newer pack holds what it held."""
    old = world.offered()
    (large,) = (rkey for rkey, value in world.alice.named(PACK).items() if "blobs" in value)

    def fold(moment: str) -> None:
        if moment == "before download" and large in world.alice.named(PACK):
            world.alice.blobs.clear()
            del world.alice.records[PACK][large]
            put_pack(world.alice, old, b"folded" * 20)

    world.alice.meet = fold
    world.accept(world.alice, world.bob)
    assert packs_of(world.bob, old.key) == packs_of(world.alice, old.key)


# --- where it has been


def test_a_hold_is_written_and_read_back() -> None:
    from git_knotless.storage.store import Record

    record = HoldRecord(
        "3k2akcsyzdc2r", 7, "n" * 32, TIME, "repo", RepoRef(ALICE, "a", "3k2akcsyzdc2r")
    )
    assert HoldRecord.from_record(Record(record.rkey, record.to_json())) == record


def test_refs_that_are_not_at_the_source_do_not_stay(world: World) -> None:
    """What a copy left that was cut long ago."""
    old = world.offered()
    put_ref(world.bob, old, "refs/heads/old", "a" * 40, generation=1)
    world.accept(world.alice, world.bob)
    whole(world, old.key)


@pytest.mark.parametrize("of", ["generation", "epoch"])
def test_a_source_that_counts_beyond_reason(world: World, of: str) -> None:
    """What goes on from there could not be written any more."""
    repo = world.offered()
    if of == "generation":
        put_ref(world.alice, repo, "refs/heads/b0", "0" * 40, generation=(1 << 53) - 1)
    else:
        world.alice.named(REPO)["repo"]["epoch"] = (1 << 53) - 2
    with pytest.raises(UnreadableRepository, match="knotless://alice.test/repo cannot go on here"):
        world.accept(world.alice, world.bob)
    assert "apply" not in world.bob.requests
    world.alice.named(REPO)["repo"]["epoch"] = 1 << 52
    put_ref(world.alice, repo, "refs/heads/b0", "0" * 40, generation=1 << 52)
    accepted = world.accept(world.alice, world.bob).repo
    push(world.bob, accepted, "refs/heads/b0", "1" * 40)
    assert edit(world.own(world.bob), lambda repo: repo.changed(description="on")).description
