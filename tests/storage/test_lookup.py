"""What an address leads to: by redirects in an account, and by moves that both sides tell of."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from git_knotless.atproto.errors import (
    DidNotFound,
    HostUnreachable,
    RepoDeactivated,
    RepoNotFound,
    RepoTakendown,
)
from git_knotless.atproto.syntax import Did, Handle, Rkey
from git_knotless.storage.fields import BadRecord
from git_knotless.storage.places.lookup import Found, OfferUnsure, go_on, look_up
from git_knotless.storage.places.references import REDIRECT, RedirectRecord, RepoRef
from git_knotless.storage.records import REPO
from git_knotless.storage.repositories import AnotherRepository, MovedAway, Repository
from git_knotless.storage.snapshot import NoSuchRepository, UnreadableRepository
from git_knotless.storage.store import Record, RecordStore
from git_knotless.storage.url import RepoUrl, parse_url
from tests.storage.account import Account, refusal

KEY, OTHER = "3k2akcsyzdc2r", "3k2akcsyzdc2s"
NOW = "2026-01-02T03:04:05.678Z"
NAMES = "abcdefg"


def did(name: str) -> Did:
    return Did("did:plc:" + name * 24)


class World:
    """Accounts a, b, … with handles `a.test`, …: each is looked up by its handle or its DID."""

    def __init__(self) -> None:
        self.accounts = {name: Account(did=did(name)) for name in NAMES}
        self.opened: list[str] = []

    def open_account(self, who: Did | Handle) -> tuple[Did | Handle, RecordStore]:
        name = who[-1] if who.startswith("did:") else who[0]
        self.opened.append(name)
        if name not in self.accounts:
            raise DidNotFound(f"{who}: no such account")
        return Handle(f"{name}.test"), self.accounts[name]

    def repo(self, at: str, key: str = KEY, **fields: Any) -> None:
        account, name = at.split("/")
        value = {"$type": REPO, "key": key, "epoch": 1, "createdAt": NOW, **fields}
        self.accounts[account].records.setdefault(REPO, {})[Rkey(name)] = value

    def redirect(self, at: str, to: str, key: str = KEY, came_from: str | None = None) -> None:
        account, name = at.split("/")
        value = {"$type": REDIRECT, "repo": ref(to, key), "createdAt": NOW}
        value |= {"transferredFrom": ref(came_from, key)} if came_from else {}
        self.accounts[account].records.setdefault(REDIRECT, {})[Rkey(name)] = value

    def find(self, at: str) -> str | None:
        """The account and name of what is found, None for nothing; anything else is raised."""
        try:
            found = self.look_up(at)
        except NoSuchRepository as error:
            return None if error.message == f"{url(at)}: no such repository" else error.message
        assert found.repo.name == found.url.name
        assert found.store is self.accounts[found.url.authority[0]]
        assert found.moved == (str(found.url) != url(at).removesuffix(".git"))
        return f"{found.url.authority[0]}/{found.url.name}"

    def look_up(self, at: str) -> Found:
        return look_up(parse_url(url(at)), self)

    def requests(self) -> list[str]:
        return [each for name in self.opened for each in self.accounts[name].requests]


def url(at: str) -> str:
    account, _, name = at.partition("/")
    return f"knotless://{account}.test/{name}"


def ref(at: str, key: str = KEY) -> dict[str, Any]:
    account, _, name = at.partition("/")
    return {"uri": f"at://{did(account)}/{REPO}/{name}", "key": key}


@pytest.fixture
def world() -> World:
    return World()


def test_a_record_that_is_there_takes_one_request(world: World) -> None:
    world.repo("a/x")
    world.redirect("a/x", "a/y")
    assert world.find("a/x") == "a/x"
    assert world.requests() == [f"get {REPO}"]
    assert world.opened == ["a"]


def test_nothing(world: World) -> None:
    assert world.find("a/x") is None


# --- within an account


@pytest.mark.parametrize("hops", range(1, 7))
def test_redirects_are_followed_four_times(world: World, hops: int) -> None:
    for hop in range(hops):
        world.redirect(f"a/n{hop}", f"a/n{hop + 1}")
    world.repo(f"a/n{hops}")
    assert world.find("a/n0") == (f"a/n{hops}" if hops <= 4 else None)


def test_a_loop_of_redirects(world: World) -> None:
    world.redirect("a/x", "a/y")
    world.redirect("a/y", "a/x")
    world.redirect("a/z", "a/z")
    assert world.find("a/x") is None
    assert world.find("a/z") is None


def test_a_redirect_whose_name_another_repository_has(world: World) -> None:
    world.redirect("a/x", "a/y")
    world.repo("a/y", OTHER)
    assert world.find("a/x") is None


def test_a_redirect_to_a_name_that_another_repository_left(world: World) -> None:
    world.redirect("a/x", "a/y")
    world.redirect("a/y", "a/z", OTHER)
    world.repo("a/z", OTHER)
    assert world.find("a/x") is None
    assert world.find("a/y") == "a/z"


def test_a_redirect_to_a_name_that_another_repository_left_as_it_moved(world: World) -> None:
    world.redirect("a/x", "a/y")
    world.redirect("a/y", "b/z", OTHER)
    world.repo("b/z", OTHER, transferredFrom=ref("a/y", OTHER))
    assert world.find("a/x") is None
    assert world.find("a/y") == "b/z"


def test_a_redirect_to_what_is_gone_or_cannot_be_read(world: World) -> None:
    world.redirect("a/x", "a/y")
    assert world.find("a/x") is None
    world.repo("a/y", epoch="many")
    assert world.find("a/x") is None


def test_a_redirect_to_what_a_newer_version_made(world: World) -> None:
    world.redirect("a/x", "a/y")
    world.repo("a/y", objectFormat="sha256")
    with pytest.raises(UnreadableRepository, match="knotless://a.test/y: its objects are named by"):
        world.find("a/x")


@pytest.mark.parametrize(
    "to",
    [
        None,
        {},
        [],
        "at://x",
        {"uri": "x", "key": KEY},
        {"uri": ref("a/y")["uri"], "key": "short"},
        {"uri": ref("a/y")["uri"], "key": 7},
        {"uri": f"at://a.test/{REPO}/y", "key": KEY},
        {"uri": f"at://{did('a')}/dev.knotless.pack/y", "key": KEY},
        {"uri": f"at://{did('a')}/{REPO}", "key": KEY},
        {"uri": f"at://{did('a')}/{REPO}/y/z", "key": KEY},
        {"uri": f"at://{did('a')}/{REPO}/..", "key": KEY},
        {"uri": f"at://{did('a')}/{REPO}/" + "y" * 9000, "key": KEY},
    ],
)
def test_a_redirect_that_makes_no_sense(world: World, to: object) -> None:
    world.repo("a/y")
    world.accounts["a"].records[REDIRECT] = {"x": {"$type": REDIRECT, "repo": to}}
    assert world.find("a/x") is None
    with pytest.raises(BadRecord):
        RepoRef.from_json(to)


def test_git_at_the_end(world: World) -> None:
    """The whole name comes first, of a record or of a redirect; then a record of the other."""
    world.redirect("a/x", "a/y")
    world.repo("a/y")
    assert world.find("a/x.git") == "a/y"
    world.repo("a/x")
    assert world.find("a/x.git") == "a/x"
    world.redirect("a/x.git", "a/z", OTHER)
    assert world.find("a/x.git") is None
    world.repo("a/z", OTHER)
    assert world.find("a/x.git") == "a/z"
    world.repo("a/x.git", OTHER)
    assert world.look_up("a/x.git").url == RepoUrl(Handle("a.test"), Rkey("x.git"))


def test_case_counts(world: World) -> None:
    world.redirect("a/Notes", "a/y")
    world.repo("a/y")
    assert world.find("a/Notes") == "a/y"
    assert world.find("a/notes") is None


def test_one_that_gets_its_name_back_while_it_is_looked_for(world: World) -> None:
    account = world.accounts["a"]

    class Renaming(Account):
        def get(self, collection: str, rkey: Rkey) -> Record | None:
            found = super().get(collection, rkey)
            if collection == REPO and not account.records.get(REPO):
                self.records[REPO] = {"x": {"key": KEY, "epoch": 3}}
            return found

    world.accounts["a"] = account = Renaming(did=did("a"))
    assert world.find("a/x") == "a/x"


def test_one_that_is_renamed_to_and_fro_while_it_is_looked_for(world: World) -> None:
    account = world.accounts["a"]
    world.redirect("a/x", "a/y")

    class Renaming(Account):
        def get(self, collection: str, rkey: Rkey) -> Record | None:
            found = super().get(collection, rkey)
            if (collection, rkey) == (REPO, "y"):
                self.records[REPO] = {"y": {"key": KEY, "epoch": 3}}
            return found

    world.accounts["a"] = Renaming(did=did("a"), records=account.records)
    assert world.find("a/x") == "a/y"


# --- across accounts


def moved(world: World, *places: str, old_copies: bool) -> None:
    """Through each of `places` in turn, the old copies kept there or deleted."""
    for n, place in enumerate(places):
        came = {"transferredFrom": ref(places[n - 1])} if n else {}
        goes = {"transfer": ref(places[n + 1])} if n + 1 < len(places) else {}
        if old_copies or not goes:
            world.repo(place, **came, **goes)
        else:
            world.redirect(place, places[n + 1], came_from=places[n - 1] if n else None)


@pytest.mark.parametrize("old_copies", [True, False])
@pytest.mark.parametrize("moves", range(1, 6))
def test_moves_are_followed_four_times(world: World, moves: int, old_copies: bool) -> None:
    places = [f"{NAMES[n]}/n{n}" for n in range(moves + 1)]
    moved(world, *places, old_copies=old_copies)
    assert world.find(places[0]) == (places[-1] if moves <= 4 else None)


@pytest.mark.parametrize("gone", ["a", "b", "ab"])
def test_a_chain_of_which_some_deleted_their_copy(world: World, gone: str) -> None:
    moved(world, "a/x", "b/y", "c/z", old_copies=True)
    if "a" in gone:
        del world.accounts["a"].records[REPO]
        world.redirect("a/x", "b/y")
    if "b" in gone:
        del world.accounts["b"].records[REPO]
        world.redirect("b/y", "c/z", came_from="a/x")
    assert world.find("a/x") == "c/z"
    assert world.find("b/y") == "c/z"


def test_a_link_that_does_not_say_where_it_came_from_ends_the_chain(world: World) -> None:
    world.redirect("a/x", "b/y")
    world.redirect("b/y", "c/z")
    world.repo("c/z", transferredFrom=ref("b/y"))
    assert world.find("b/y") == "c/z"
    assert world.find("a/x") is None


@pytest.mark.parametrize(
    "came_from",
    [None, ref("c/x"), ref("a/x", OTHER), ref("b/x"), {"uri": ref("a/x")["uri"]}, "a/x"],
)
def test_an_offer_that_was_not_accepted_stands(world: World, came_from: object) -> None:
    """Somebody else has a copy of that key, says nothing, or that it came from elsewhere."""
    world.repo("a/x", transfer=ref("b/x"))
    world.repo("b/x", **({} if came_from is None else {"transferredFrom": came_from}))
    assert world.find("a/x") == "a/x"
    world.accounts["a"].records = {}
    world.redirect("a/x", "b/x")
    assert world.find("a/x") is None


def test_another_repository_that_moved_there_before_is_not_it(world: World) -> None:
    world.repo("a/x", transfer=ref("b/x"))
    world.repo("b/x", OTHER, transferredFrom=ref("a/x", OTHER))
    assert world.find("a/x") == "a/x"


def test_a_redirect_that_leads_nowhere_accepts_nothing(world: World) -> None:
    world.repo("a/x", transfer=ref("b/x"))
    world.redirect("b/old", "b/gone", came_from="a/x")
    assert world.find("a/x") == "a/x"


def test_a_place_that_was_never_offered(world: World) -> None:
    """Whoever says that it came from here is believed only if it was let go to them."""
    world.repo("a/x")
    world.repo("b/x", transferredFrom=ref("a/x"))
    assert world.find("a/x") == "a/x"
    world.repo("a/x", transfer=ref("c/x"))
    assert world.find("a/x") == "a/x"


@pytest.mark.parametrize("offer", [ref("b/x", OTHER), ref("a/y"), {"uri": "x"}, None, 7])
def test_an_offer_that_makes_no_sense_is_none(world: World, offer: object) -> None:
    world.repo("a/x", transfer=offer)
    world.repo("a/y", transferredFrom=ref("a/x"))
    world.repo("b/x", OTHER, transferredFrom=ref("a/x", OTHER))
    assert world.find("a/x") == "a/x"


def test_accepted_under_another_name(world: World) -> None:
    world.repo("a/x", transfer=ref("b/x"))
    world.repo("b/x", OTHER)
    world.repo("b/renamed", transferredFrom=ref("a/x"))
    assert world.find("a/x") == "b/renamed"


def test_accepted_and_renamed(world: World) -> None:
    world.repo("a/x", transfer=ref("b/x"))
    world.redirect("b/x", "b/y")
    world.repo("b/y", transferredFrom=ref("a/elsewhere"))
    assert world.find("a/x") == "b/y"
    assert f"list {REPO}" not in world.accounts["b"].requests


def test_accepted_under_another_name_and_moved_on(world: World) -> None:
    world.redirect("a/x", "b/x")
    world.repo("b/x", OTHER)
    world.redirect("b/other", "c/z", came_from="a/x")
    world.repo("c/z", transferredFrom=ref("b/other"))
    assert world.find("a/x") == "c/z"


def test_renamed_before_it_moved(world: World) -> None:
    world.redirect("a/older", "a/x")
    world.repo("a/x", transfer=ref("b/x"))
    world.repo("b/x", transferredFrom=ref("a/older"))
    assert world.find("a/older") == "b/x"


def test_a_loop_of_moves(world: World) -> None:
    world.repo("a/x", transfer=ref("b/x"), transferredFrom=ref("b/x"))
    world.repo("b/x", transfer=ref("a/x"), transferredFrom=ref("a/x"))
    assert world.find("a/x") is None
    assert world.find("b/x") is None


@pytest.mark.parametrize("present", ["a/x", "b/y", "c/z"])
def test_it_is_offered_to_where_a_copy_of_an_earlier_round_is(world: World, present: str) -> None:
    """All of them were accepted once, and one was accepted last."""
    places = ["a/x", "b/y", "c/z"]
    for n, place in enumerate(places):
        came, goes = ref(places[n - 1]), ref(places[(n + 1) % 3])
        world.repo(
            place, transferredFrom=came, transfer=goes, epoch=9 if place == present else n + 1
        )
    world.repo("d/w", transfer=ref("a/x"))
    world.repo(
        "a/x", **world.accounts["a"].records[REPO]["x"] | {"transferredBefore": [ref("d/w")]}
    )
    assert {world.find(place) for place in [*places, "d/w"]} == {present}


def test_where_it_came_from_in_an_earlier_round(world: World) -> None:
    """Of its places only the last but one is in `transferredFrom`."""
    came = {"transferredFrom": ref("b/y"), "transferredBefore": [ref("a/x")]}
    world.repo("a/x", transfer=ref("c/z"))
    world.repo("c/z", **came)
    assert world.find("a/x") == "c/z"
    world.repo("c/z", transferredFrom=ref("b/y"), transferredBefore=[ref("a/x", OTHER), 1, {}])
    assert world.find("a/x") == "a/x"
    world.accounts["c"].records = {}
    world.redirect("c/z", "d/w")
    world.accounts["c"].records[REDIRECT]["z"] |= came
    world.repo("d/w", transferredFrom=ref("c/z"))
    assert world.find("a/x") == "d/w"


def offer_of(at: str, name: str | None) -> dict[str, Any]:
    return ref(at) | ({} if name is None else {"offer": name})


@pytest.mark.parametrize(
    ("offered", "accepted", "leads"),
    [
        ("1", "1", True),
        ("2", "1", False),
        ("1", None, True),
        (None, "1", True),
        ("1", 7, False),
        ("1", "", False),
        ("1", "x" * 65, False),
    ],
)
def test_what_was_accepted_is_that_offer(
    world: World, offered: str | None, accepted: Any, leads: bool
) -> None:
    """A copy of an earlier one is none of this; where one has no name, it is any that there was."""
    world.repo("a/x", transfer=offer_of("b/y", offered))
    world.repo("b/y", transferredFrom=offer_of("a/x", accepted))
    assert world.find("a/x") == ("b/y" if leads else "a/x")
    world.accounts["a"].records = {}
    world.redirect("a/x", "b/y")
    world.accounts["a"].records[REDIRECT]["x"]["repo"] = offer_of("b/y", offered)
    assert world.find("a/x") == ("b/y" if leads else None)


def test_it_is_offered_again_to_who_has_an_old_copy(world: World) -> None:
    """Though that says that it came from here, and was offered back."""
    world.repo("a/x", transferredFrom=offer_of("b/y", "2"), transfer=offer_of("b/y", "3"), epoch=9)
    world.repo("b/y", transferredFrom=offer_of("a/x", "1"), transfer=offer_of("a/x", "2"))
    assert world.find("a/x") == world.find("b/y") == "a/x"
    world.repo("b/y", transferredFrom=offer_of("a/x", "1"), transfer=offer_of("a/x", "2"), epoch=9)
    assert world.find("a/x") == world.find("b/y") == "a/x"


def test_it_comes_back(world: World) -> None:
    """The first owner deleted the copy, and was offered the repository in turn."""
    world.repo("a/again", transferredFrom=ref("b/y"))
    world.redirect("a/x", "b/y")
    world.repo("b/y", transferredFrom=ref("a/x"), transfer=ref("a/again"))
    assert world.find("a/x") == "a/again"
    assert world.find("b/y") == "a/again"


def test_what_moved_to_an_account_that_is_gone(world: World) -> None:
    world.repo("a/x", transfer=ref("z/x"))
    world.redirect("a/y", "z/x")
    assert world.find("a/x") == "a/x"
    assert world.find("a/y") is None


def failing(world: World, name: str, error: Exception) -> None:
    class Failing(Account):
        def get(self, collection: str, rkey: Rkey) -> Record | None:
            raise error

    world.accounts[name] = Failing(did=did(name))


def test_an_account_that_its_host_has_deleted_is_gone(world: World) -> None:
    world.repo("a/x", transfer=ref("b/x"))
    failing(world, "b", refusal(RepoNotFound, 400, "RepoNotFound"))
    assert world.find("a/x") == "a/x"


@pytest.mark.parametrize(
    "error", [HostUnreachable("down"), refusal(RepoDeactivated, 400, "RepoDeactivated")]
)
def test_a_place_that_cannot_be_asked_is_not_passed_over(world: World, error: Exception) -> None:
    """The repository may be there: what is pushed to the old place would be lost."""
    world.repo("a/x", transfer=ref("b/x"))
    world.redirect("a/y", "b/x")
    failing(world, "b", error)
    with pytest.raises(type(error)):
        world.find("a/y")
    with pytest.raises(OfferUnsure) as caught:
        opened(world, "a/x", sure=True).record()
    assert caught.value.message.startswith(f"{url('a/x')} is offered to b.test, whose host")
    hint = f"to take the offer back: git knotless repo transfer -R {url('a/x')} --withdraw"
    assert caught.value.hint == hint
    read = opened(world, "a/x")
    assert (read.record().name, str(read.url), read.moved) == ("x", url("a/x"), False)
    assert isinstance(read.unsure, OfferUnsure)
    failing(world, "b", refusal(RepoTakendown, 400, "RepoTakendown"))  # which holds nothing
    assert opened(world, "a/x", sure=True).record().name == "x"
    assert world.find("a/y") is None


def test_a_host_that_lists_without_end(world: World) -> None:
    class Endless(Account):
        def list(
            self, collection: str, prefix: str, *, newest_first: bool = False
        ) -> Iterator[Sequence[Record]]:
            for n in range(2000):
                self.requests.append(f"list {collection}")
                yield [Record(Rkey(f"n{n}"), {})]

    world.repo("a/x", transfer=ref("b/x"))
    world.accounts["b"] = Endless(did=did("b"))
    with pytest.raises(OfferUnsure, match="it lists more than can be looked through"):
        opened(world, "a/x", sure=True).record()
    assert world.accounts["b"].requests.count(f"list {REPO}") == 101


def test_its_own_record_is_there_for_whoever_changes_it(world: World) -> None:
    """Wherever readers are led from it, and be it nowhere."""
    moved(world, *[f"{NAMES[n]}/n{n}" for n in range(6)], old_copies=True)
    with pytest.raises(NoSuchRepository):
        opened(world, "a/n0").record()
    assert opened(world, "a/n0", own=True).record().name == "n0"


def test_without_accounts_nobody_else_is_asked(world: World) -> None:
    moved(world, "a/x", "b/y", old_copies=False)
    with pytest.raises(NoSuchRepository):
        go_on(parse_url(url("a/x")), world.accounts["a"], None, None)


# --- a repository that is read more than once


def opened(
    world: World, at: str, *, writable: bool = False, sure: bool = False, own: bool = False
) -> Repository:
    address = parse_url(url(at))
    store = world.accounts[at[0]]
    return Repository(address, store, writable=writable, sure=sure, own=own, accounts=world)


def test_a_repository_is_where_it_was_found(world: World) -> None:
    moved(world, "a/x", "b/y", old_copies=True)
    repository = opened(world, "a/x")
    assert repository.snapshot().repo.name == "y"
    assert (str(repository.url), str(repository.asked)) == (url("b/y"), url("a/x"))
    assert repository.moved
    world.accounts["a"].down = True
    assert repository.record().name == "y"


def test_what_was_looked_at_is_read_once(world: World) -> None:
    world.repo("a/x")
    repository = opened(world, "a/x")
    repository.look()
    repository.snapshot()
    assert world.accounts["a"].requests.count(f"get {REPO}") == 1
    repository.record()
    assert world.accounts["a"].requests.count(f"get {REPO}") == 2


def test_a_repository_that_is_renamed_between_readings(world: World) -> None:
    world.repo("a/x")
    repository = opened(world, "a/x", writable=True)
    repository.record()
    world.accounts["a"].records = {}
    world.redirect("a/x", "a/y")
    world.repo("a/y")
    assert repository.record().name == "y"


def test_another_repository_that_takes_the_name_is_not_it(world: World) -> None:
    world.repo("a/x")
    repository = opened(world, "a/x", writable=True)
    repository.record()
    world.repo("a/x", OTHER)
    with pytest.raises(AnotherRepository, match="knotless://a.test/x is another repository now"):
        repository.record()


def test_one_that_moves_away_while_it_is_written_to(world: World) -> None:
    world.repo("a/x")
    repository = opened(world, "a/x", writable=True)
    repository.record()
    moved(world, "a/x", "b/y", old_copies=True)
    with pytest.raises(MovedAway, match="knotless://a.test/x has moved to knotless://b.test/y"):
        repository.record()
    assert repository.store is world.accounts["a"]


def test_an_offer(world: World) -> None:
    world.repo("a/x", transfer=ref("b/x"))
    repository = opened(world, "a/x")
    assert repository.offered(repository.record()) == RepoRef(did("b"), Rkey("x"), KEY)
    world.repo("b/x", transferredFrom=ref("a/x"))
    assert repository.offered(repository.record()) is None
    world.repo("a/y", transfer=ref("a/z"))
    own = opened(world, "a/y")
    assert own.offered(own.record()) is None


# --- the records


def test_a_redirect_keeps_what_it_does_not_know() -> None:
    value = {"repo": ref("a/x"), "createdAt": NOW, "later": [1]}
    read = RedirectRecord.from_record(Record(Rkey("old"), value))
    to = RepoRef(did("a"), Rkey("y"), KEY)
    written = read.leading_to(to).to_json()
    assert written == {"$type": REDIRECT, **value, "repo": ref("a/y")}


def test_what_a_redirect_says_of_another_key_is_nothing() -> None:
    def came(value: Any, before: Any = None) -> tuple[RepoRef, ...]:
        fields = {"repo": ref("b/x"), "createdAt": NOW, "transferredFrom": value}
        fields["transferredBefore"] = before
        return RedirectRecord.from_record(Record(Rkey("old"), fields)).came_from

    a, c = (RepoRef(did(who), Rkey("x"), KEY) for who in "ac")
    assert came(ref("a/x")) == (a,)
    assert came(ref("a/x"), [ref("c/x")]) == (a, c)
    bad: Sequence[object] = (ref("a/x", OTHER), None, {}, "x")
    assert [came(value) for value in bad] == [()] * len(bad)
    assert came(ref("a/x"), [*bad, ref("c/x")]) == (a, c)
    assert [came(ref("a/x"), value) for value in bad] == [(a,)] * len(bad)
