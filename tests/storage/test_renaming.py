"""Renaming, against all that others do with the same names at once."""

import random
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest

from git_knotless.atproto.errors import HostTimeout, RateLimited, ServerFault, XrpcError
from git_knotless.atproto.syntax import Did, Rkey
from git_knotless.errors import KnotlessError
from git_knotless.storage.claims import epoch_rkey
from git_knotless.storage.creation import AlreadyExists, create
from git_knotless.storage.deletion import delete
from git_knotless.storage.editing import RacedTooOften, edit
from git_knotless.storage.outcome import HostRefused, OutcomeUnknown
from git_knotless.storage.places.references import REDIRECT, RepoRef
from git_knotless.storage.places.renaming import (
    NoSuchRedirect,
    SameName,
    TooManyRedirects,
    redirects,
    remove_redirect,
    rename,
)
from git_knotless.storage.pushing.batches import hold_epoch
from git_knotless.storage.records import CLAIM, REPO, RepoRecord
from git_knotless.storage.repositories import AnotherRepository, Repository, repositories
from git_knotless.storage.snapshot import NoSuchRepository
from git_knotless.storage.store import Write
from git_knotless.storage.url import BadName, parse_url
from tests.storage.account import Account, refusal

pytestmark = pytest.mark.usefixtures("in_no_time")

ELSEWHERE = Did("did:plc:" + "b" * 24)
NOW = "2026-01-02T03:04:05.678Z"


@pytest.fixture
def host() -> Account:
    return Account()


def at(host: Account, name: str) -> Repository:
    return Repository(parse_url(f"knotless://alice.test/{name}"), host, writable=True)


def made(host: Account, name: str = "a") -> Repository:
    create(host, parse_url(f"knotless://alice.test/{name}"))
    host.batches.clear()
    return at(host, name)


def names(host: Account) -> list[str]:
    return [repo.name for repo in repositories(host)]


def leads(host: Account) -> dict[str, str]:
    """Each redirect, and the name that its address has."""
    found = host.records.get(REDIRECT, {})
    return {name: value["repo"]["uri"].rpartition("/")[2] for name, value in found.items()}


def redirect(host: Account, name: str, to: RepoRef) -> None:
    value = {"$type": REDIRECT, "repo": to.to_json(), "createdAt": NOW}
    host.records.setdefault(REDIRECT, {})[name] = value


def meanwhile(host: Account, deed: Callable[[], Any]) -> None:
    """Done by another just before the next batch arrives."""

    def act(_: Sequence[Write]) -> None:
        host.before = lambda writes: None
        deed()

    host.before = act


def consistent(host: Account) -> bool:
    """Each repository has the one epoch's record that its own record names, and nothing is over."""
    epochs = {epoch_rkey(repo.key, repo.epoch) for repo in repositories(host)}
    return set(host.records.get(CLAIM, {})) == epochs


def test_one_batch_of_five_steps_that_moves_the_epoch(host: Account) -> None:
    repository = made(host)
    host.records[REPO]["a"] |= {"later": [1], "description": "kept"}
    before = host.records[REPO]["a"]
    key = before["key"]
    redirect(host, "old", RepoRef(host.did, Rkey("a"), key))
    redirect(host, "b", RepoRef(host.did, Rkey("other"), "3k2akcsyzdc2r"))
    renamed = rename(repository, "b")
    (batch,) = host.batches
    assert [(write.action, write.collection, write.rkey) for write in batch] == [
        ("delete", CLAIM, epoch_rkey(key, 1)),
        ("create", CLAIM, epoch_rkey(key, 2)),
        ("create", REPO, "b"),
        ("delete", REPO, "a"),
        ("create", REDIRECT, "a"),
        ("delete", REDIRECT, "b"),
        ("update", REDIRECT, "old"),
    ]
    assert host.records[REPO] == {"b": renamed.to_json()}
    changed = {name: value for name, value in renamed.fields.items() if before.get(name) != value}
    assert set(changed) == {"epoch", "nonce", "updatedAt"}
    assert leads(host) == {"a": "b", "old": "b"}
    assert consistent(host)
    assert repository.record() == renamed


def test_a_chain_is_left_clean(host: Account) -> None:
    repository = made(host)
    for new, left in [("b", "a"), ("a", "b"), ("c", "ab")]:
        rename(repository, new)
        assert leads(host) == dict.fromkeys(left, new)
        assert at(host, left[0]).record().name == new
    assert consistent(host)


def test_redirects_of_others_and_into_other_accounts_stay(host: Account) -> None:
    repository = made(host)
    key = repository.record().key
    redirect(host, "others", RepoRef(host.did, Rkey("a"), "3k2akcsyzdc2r"))
    redirect(host, "away", RepoRef(ELSEWHERE, Rkey("a"), key))
    host.records[REDIRECT]["bad"] = {"repo": 7}
    rename(repository, "b")
    assert host.records[REDIRECT]["bad"] == {"repo": 7}
    del host.records[REDIRECT]["bad"]
    assert leads(host) == {"others": "a", "away": "a", "a": "b"}


@pytest.mark.parametrize("left", [{"repo": 7}, None])
def test_a_redirect_that_is_under_the_old_name_all_the_same_is_replaced(
    host: Account, left: dict[str, Any] | None
) -> None:
    repository = made(host)
    redirect(host, "a", RepoRef(host.did, Rkey("x"), "3k2akcsyzdc2r"))
    if left is not None:
        host.records[REDIRECT]["a"] = left
    rename(repository, "b")
    assert at(host, "a").record().name == "b"


@pytest.mark.parametrize(
    "name",
    ["x" * 101, "x/y", "né", ".", "..", "-x", "x.git", "x.GIT", "x.lock", "x.", "x~", "", "x:"],
)
def test_names_that_none_gets(host: Account, name: str) -> None:
    repository = made(host)
    host.requests.clear()
    with pytest.raises(BadName):
        rename(repository, name)
    assert host.requests == []


def test_the_longest_name(host: Account) -> None:
    rename(made(host), "x" * 100)
    assert names(host) == ["x" * 100]


def test_from_a_name_that_we_would_not_give(host: Account) -> None:
    value = made(host).record().to_json()
    host.records[REPO] = {"a:b~.git": value}
    rename(at(host, "a:b~.git"), "b")
    assert at(host, "a:b~.git").record().name == "b"


def test_names_that_are_taken(host: Account) -> None:
    repository = made(host)
    made(host, "A")
    before = dict(host.records)
    with pytest.raises(AlreadyExists, match="^knotless://alice.test/A already exists$"):
        rename(repository, "A")
    with pytest.raises(SameName, match="^knotless://alice.test/a is already named a$"):
        rename(repository, "a")
    assert host.records == before
    rename(repository, "a-A")
    assert names(host) == ["A", "a-A"]


def test_nothing_is_renamed(host: Account) -> None:
    with pytest.raises(NoSuchRepository):
        rename(at(host, "a"), "b")


def test_more_old_names_than_a_write_holds(host: Account) -> None:
    repository = made(host)
    key = repository.record().key
    for n in range(196):
        redirect(host, f"n{n}", RepoRef(host.did, Rkey("a"), key))
    words = "^196 old names lead to knotless://alice.test/a, and one write repoints 195 at most$"
    with pytest.raises(TooManyRedirects, match=words) as refused:
        rename(repository, "b")
    assert refused.value.hint
    assert "git knotless repo redirects" in refused.value.hint
    assert host.batches == []
    remove_redirect(repository, "n0")
    rename(repository, "b")
    assert set(leads(host).values()) == {"b"}
    assert len(host.batches[-1]) == 200
    with pytest.raises(TooManyRedirects):
        rename(repository, "c")


# --- raced


def test_what_another_changed_is_not_undone(host: Account) -> None:
    repository = made(host)
    meanwhile(host, lambda: edit(at(host, "a"), lambda repo: repo.changed(archived=True)))
    renamed = rename(repository, "b")
    assert (renamed.archived, renamed.epoch) == (True, 3)
    assert host.records[REPO] == {"b": renamed.to_json()}
    assert consistent(host)


def test_a_setting_is_changed_under_the_new_name(host: Account) -> None:
    repository = made(host)
    meanwhile(host, lambda: rename(at(host, "a"), "b"))
    changed = edit(repository, lambda repo: repo.changed(archived=True))
    assert (changed.name, changed.archived) == ("b", True)
    assert names(host) == ["b"]
    assert consistent(host)


def test_a_push_that_rests_on_the_epoch_is_refused(host: Account) -> None:
    repository = made(host)
    held = hold_epoch(repository.record())
    rename(repository, "b")
    with pytest.raises(ServerFault):
        host.apply([held])


def test_two_renames_to_two_names(host: Account) -> None:
    repository = made(host)
    meanwhile(host, lambda: rename(at(host, "a"), "b"))
    assert rename(repository, "c").name == "c"
    assert names(host) == ["c"]
    assert leads(host) == {"a": "c", "b": "c"}
    assert consistent(host)


def test_two_renames_to_the_same_name(host: Account) -> None:
    repository = made(host)
    meanwhile(host, lambda: rename(at(host, "a"), "b"))
    with pytest.raises(SameName):
        rename(repository, "b")
    assert leads(host) == {"a": "b"}


def test_two_repositories_to_one_name(host: Account) -> None:
    repository, other = made(host), made(host, "other")
    meanwhile(host, lambda: rename(other, "b"))
    before = repository.record()
    with pytest.raises(AlreadyExists):
        rename(repository, "b")
    assert at(host, "a").record() == before
    assert leads(host) == {"other": "b"}
    assert consistent(host)


def test_a_repository_is_made_under_the_new_name(host: Account) -> None:
    repository = made(host)
    meanwhile(host, lambda: made(host, "b"))
    with pytest.raises(AlreadyExists):
        rename(repository, "b")
    assert names(host) == ["a", "b"]
    assert leads(host) == {}


def test_a_repository_is_made_under_an_old_name(host: Account) -> None:
    repository = made(host)
    rename(repository, "b")
    meanwhile(host, lambda: made(host, "a"))
    rename(repository, "c")
    assert names(host) == ["a", "c"]
    assert leads(host) == {"b": "c"}


def test_it_is_deleted(host: Account) -> None:
    repository = made(host)
    meanwhile(host, lambda: delete(at(host, "a")))
    with pytest.raises(NoSuchRepository):
        rename(repository, "b")
    assert not any(host.records.values())


def test_it_is_deleted_and_another_takes_its_name(host: Account) -> None:
    repository = made(host)

    def another() -> None:
        delete(at(host, "a"))
        made(host, "a")

    meanwhile(host, another)
    with pytest.raises(KnotlessError, match="another repository now"):
        rename(repository, "b")
    assert names(host) == ["a"]


@pytest.mark.parametrize("there", ["a", "b", "old"])
def test_a_redirect_that_comes_or_goes(host: Account, there: str) -> None:
    """Under the old name, the new one, or another of the repository's."""
    repository = made(host)
    here = RepoRef(host.did, Rkey("a"), repository.record().key)
    meanwhile(host, lambda: redirect(host, there, here))
    rename(repository, "b")
    assert at(host, "a").record().name == "b"
    redirect(host, there, RepoRef(host.did, Rkey("b"), here.key))
    meanwhile(host, lambda: host.records[REDIRECT].pop(there))
    rename(repository, "c")
    assert names(host) == ["c"]
    assert at(host, "b").record().name == "c"


def test_others_who_never_cease(host: Account) -> None:
    def change(_: Sequence[Write]) -> None:
        host.before, before = lambda writes: None, host.before
        edit(at(host, "a"), lambda repo: repo.changed(description=repo.description + "x"))
        host.before = before

    repository = made(host)
    host.before = change
    with pytest.raises(RacedTooOften):
        rename(repository, "b")
    assert names(host) == ["a"]
    assert leads(host) == {}


# What whoever loses is told; the last two where others rename faster than names are read.
LOST = (
    *(AlreadyExists, SameName, RacedTooOften, HostRefused),
    *(AnotherRepository, NoSuchRepository),
)


def described(text: str) -> Callable[[RepoRecord], RepoRecord]:
    return lambda repo: repo.changed(description=text)


def test_many_at_once(host: Account) -> None:
    """Whoever wins, every name that there was leads to its own repository, or nowhere."""
    keys = {name: made(host, name).record().key for name in ("a", "b")}
    choices, lock = random.Random(1), threading.Lock()

    def act() -> None:
        for _ in range(25):
            with lock:
                name, new, deed = choices.choice("ab"), choices.choice("cdefg"), choices.random()
            repository = at(host, name)
            with suppress(*LOST):
                if deed < 0.3:
                    edit(repository, described(f"{deed}"))
                else:
                    rename(repository, new)

    threads = [threading.Thread(target=act) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = {repo.name: repo.key for repo in repositories(host)}
    assert sorted(found.values()) == sorted(keys.values())
    assert consistent(host)
    assert {name: at(host, name).record().key for name in keys} == keys
    for name, value in host.records[REDIRECT].items():
        assert name in found or at(host, name).record().key == value["repo"]["key"]


# --- a host that fails


def once(host: Account, error: Exception, *, carried_out: bool) -> None:
    def fail(_: Sequence[Write]) -> None:
        host.before = host.after = lambda writes: None
        raise error

    if carried_out:
        host.after = fail
    else:
        host.before = fail


@pytest.mark.parametrize("carried_out", [True, False])
@pytest.mark.parametrize("error", [refusal(ServerFault), HostTimeout("no answer")])
def test_a_host_that_says_that_it_failed(
    host: Account, error: Exception, carried_out: bool
) -> None:
    repository = made(host)
    once(host, error, carried_out=carried_out)
    renamed = rename(repository, "b")
    assert host.records[REPO] == {"b": renamed.to_json()}
    assert (len(host.batches), renamed.epoch) == (1, 2)
    assert leads(host) == {"a": "b"}


def test_it_was_done_and_changed_since(host: Account) -> None:
    """The answer is lost, and the repository is another's to change before we ask."""
    repository = made(host)

    def lose(_: Sequence[Write]) -> None:
        host.after = lambda writes: None
        edit(at(host, "b"), lambda repo: repo.changed(archived=True))
        raise refusal(ServerFault)

    host.after = lose
    with pytest.raises(SameName):
        rename(repository, "b")
    (repo,) = repositories(host)
    assert (repo.name, repo.archived, repo.epoch) == ("b", True, 3)


@pytest.mark.parametrize(
    "error",
    [
        refusal(RateLimited, 429, "RateLimitExceeded"),
        refusal(XrpcError, 403, "Forbidden"),
        refusal(XrpcError, 400, "InvalidRequest"),
    ],
)
def test_a_host_that_refuses(host: Account, error: Exception) -> None:
    repository = made(host)
    before = dict(host.records)
    host.before = lambda writes: (_ for _ in ()).throw(error)
    with pytest.raises((type(error), HostRefused)):
        rename(repository, "b")
    assert host.records == before


def test_a_host_that_does_not_like_the_name(host: Account) -> None:
    """It is said that it was the host, and in its words."""
    words = "Unacceptable slur in record key"
    error = XrpcError(400, "InvalidRequest", words, nsid="applyWrites", host="https://pds.example")

    def filtered(writes: Sequence[Write]) -> None:
        if any(write.action == "create" and write.rkey == "b" for write in writes):
            raise error

    repository = made(host)
    host.before = filtered
    said = f"^the host did not take the write: https://pds.example refused applyWrites: {words}"
    with pytest.raises(HostRefused, match=said):
        rename(repository, "b")
    with pytest.raises(HostRefused, match=said):
        create(host, parse_url("knotless://alice.test/b"))
    assert names(host) == ["a"]
    assert consistent(host)


def test_a_host_that_falls_silent(host: Account) -> None:
    repository = made(host)

    def silent(_: Sequence[Write]) -> None:
        host.down = True
        raise HostTimeout("no answer")

    host.after = silent
    with pytest.raises(OutcomeUnknown):
        rename(repository, "b")
    host.down, host.after = False, lambda writes: None
    with pytest.raises(SameName):  # run again, as the hint says
        rename(at(host, "a"), "b")


# --- create and delete, where there are redirects


def test_a_new_repository_takes_a_redirects_name(host: Account) -> None:
    rename(made(host), "b")
    create(host, parse_url("knotless://alice.test/a"))
    assert leads(host) == {}
    assert names(host) == ["a", "b"]
    assert consistent(host)


@pytest.mark.parametrize("comes", [True, False])
def test_create_where_a_redirect_comes_or_goes(host: Account, comes: bool) -> None:
    left = RepoRef(host.did, Rkey("b"), made(host, "b").record().key)
    if not comes:
        redirect(host, "a", left)

    def act(writes: Sequence[Write]) -> None:
        if any(write.collection == REPO for write in writes):
            host.before = lambda writes: None
            redirect(host, "a", left) if comes else host.records[REDIRECT].pop("a")

    host.before = act
    key = create(host, parse_url("knotless://alice.test/a")).repo.key
    assert at(host, "a").record().key == key
    assert leads(host).keys() == ({"a"} if comes else set())  # one unseen stays below the record
    assert consistent(host)


def test_create_that_another_raced_over_a_redirect(host: Account) -> None:
    rename(made(host), "b")

    def act(writes: Sequence[Write]) -> None:
        if any(write.collection == REPO for write in writes):
            host.before = lambda writes: None
            create(host, parse_url("knotless://alice.test/a"))

    host.before = act
    with pytest.raises(AlreadyExists):
        create(host, parse_url("knotless://alice.test/a"))
    assert len(names(host)) == 2
    assert consistent(host)


def test_delete_deletes_the_redirects_to_it_and_no_other(host: Account) -> None:
    repository, other = made(host), made(host, "other")
    for name in ("b", "c"):
        rename(repository, name)
    rename(other, "else")
    redirect(host, "away", RepoRef(ELSEWHERE, Rkey("c"), repository.record().key))
    delete(at(host, "a"))
    assert leads(host) == {"other": "else", "away": "c"}
    assert names(host) == ["else"]
    assert consistent(host)


def test_a_delete_that_was_cut_deletes_the_redirects_when_it_is_finished(host: Account) -> None:
    repository = made(host)
    rename(repository, "b")

    def cut(_: Sequence[Write]) -> None:
        raise KeyboardInterrupt

    host.after = cut
    with pytest.raises(KeyboardInterrupt):
        delete(repository)
    host.after = lambda writes: None
    with pytest.raises(NoSuchRepository):
        at(host, "a").record()
    delete(at(host, "b"))
    assert not any(host.records.values())


# --- the redirects themselves


def test_old_names_are_listed_by_name(host: Account) -> None:
    repository = made(host, "z")
    for name in ("c", "b", "a"):
        rename(repository, name)
    redirect(host, "away", RepoRef(ELSEWHERE, Rkey("a"), repository.record().key))
    assert [each.name for each in redirects(repository, repository.record())] == ["b", "c", "z"]


def test_an_old_name_is_taken_back(host: Account) -> None:
    repository = made(host)
    rename(repository, "b")
    remove_redirect(repository, "a")
    with pytest.raises(NoSuchRepository):
        at(host, "a").record()
    for name in ("a", "b", "..", "", "né"):
        with pytest.raises(NoSuchRedirect, match="not an old name of knotless://alice.test/b"):
            remove_redirect(repository, name)


def test_another_repositorys_old_name_is_not(host: Account) -> None:
    repository, other = made(host), made(host, "other")
    rename(other, "b")
    redirect(host, "away", RepoRef(ELSEWHERE, Rkey("a"), repository.record().key))
    for name in ("other", "away"):
        with pytest.raises(NoSuchRedirect):
            remove_redirect(repository, name)


@pytest.mark.parametrize("carried_out", [True, False])
def test_taken_back_by_a_host_that_fails(host: Account, carried_out: bool) -> None:
    repository = made(host)
    rename(repository, "b")
    once(host, refusal(ServerFault), carried_out=carried_out)
    remove_redirect(repository, "a")
    assert leads(host) == {}


def test_a_host_that_goes_on_failing_is_said(host: Account) -> None:
    repository = made(host)
    rename(repository, "b")
    host.before = lambda writes: (_ for _ in ()).throw(refusal(ServerFault))
    with pytest.raises(HostRefused):
        remove_redirect(repository, "a")
    assert leads(host) == {"a": "b"}
