"""Making, changing and deleting a repository, against others that do the same."""

from collections.abc import Sequence

import pytest

from git_knotless.atproto.errors import HostTimeout, RateLimited, ServerFault, XrpcError
from git_knotless.atproto.syntax import Rkey
from git_knotless.errors import KnotlessError
from git_knotless.storage import proving, remains
from git_knotless.storage.claims import epoch_rkey
from git_knotless.storage.creation import AlreadyExists, BadBranch, UnsafeHost, create
from git_knotless.storage.deletion import delete
from git_knotless.storage.editing import edit
from git_knotless.storage.records import CLAIM, REF, REPO, RefRecord, RepoRecord
from git_knotless.storage.repositories import Repository, repositories
from git_knotless.storage.snapshot import NoSuchRepository
from git_knotless.storage.store import Write
from git_knotless.storage.url import parse_url
from tests.storage.account import Account, refusal

pytestmark = pytest.mark.usefixtures("in_no_time")

URL = parse_url("knotless://alice.test/repo")


@pytest.fixture
def host() -> Account:
    return Account()


@pytest.fixture
def repository(host: Account) -> Repository:
    create(host, URL)
    host.batches.clear()
    return Repository(URL, host, writable=True)


def test_create(host: Account) -> None:
    made = create(host, URL, description="A thing", default_branch="trunk")
    assert made.guards_updates
    (record,) = host.records[REPO].values()
    assert record["description"] == "A thing"
    assert record["defaultBranch"] == "trunk"
    assert list(host.records[CLAIM]) == [epoch_rkey(record["key"], record["epoch"])]


def test_create_where_one_is(host: Account, repository: Repository) -> None:
    before = dict(host.records)
    with pytest.raises(AlreadyExists, match="knotless://alice.test/repo already exists"):
        create(host, URL)
    assert host.records == before


def test_create_raced_by_another(host: Account) -> None:
    def first(_: Sequence[Write]) -> None:
        host.before = lambda writes: None
        create(host, URL, description="theirs")

    host.before = first
    with pytest.raises(AlreadyExists):
        create(host, URL)
    assert [repo.description for repo in repositories(host)] == ["theirs"]
    assert len(host.records[CLAIM]) == 1


def test_create_whose_answer_is_lost(host: Account) -> None:
    def lose(_: Sequence[Write]) -> None:
        host.after = lambda writes: None
        raise HostTimeout("no answer")

    host.after = lose
    create(host, URL)
    assert len(list(repositories(host))) == 1


def test_a_host_that_overwrites_gets_no_repository() -> None:
    host = Account(creates_update=True)
    with pytest.raises(UnsafeHost):
        create(host, URL)
    assert not any(host.records.values())


def test_a_host_that_resurrects_is_said_to(host: Account) -> None:
    host.updates_create = True
    assert not create(host, URL).guards_updates
    assert len(host.records[CLAIM]) == 1


@pytest.mark.parametrize("cut", range(1, 5))
def test_a_create_that_is_interrupted_leaves_nothing(host: Account, cut: int) -> None:
    left = [cut]

    def interrupt(_: Sequence[Write]) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt

    host.after = host.before = interrupt
    with pytest.raises(KeyboardInterrupt):
        create(host, URL)
    claims, repos = host.records.get(CLAIM, {}), host.records.get(REPO, {})
    assert len(claims) == len(repos)


@pytest.mark.parametrize("trouble", [refusal(ServerFault), HostTimeout("no answer")])
def test_a_delete_goes_on_after_a_fault(
    monkeypatch: pytest.MonkeyPatch, host: Account, repository: Repository, trouble: Exception
) -> None:
    monkeypatch.setattr(remains, "_PAUSE", 0.001)
    _some_refs(host, repository.record(), 3)
    left = [0]

    def fail(_: Sequence[Write]) -> None:
        left[0] += 1
        if left[0] % 2 == 0:
            raise trouble

    host.before = fail
    delete(repository)
    assert not any(host.records.values())


@pytest.mark.parametrize(
    ("refused", "status", "raised", "says"),
    [
        (ServerFault, 503, UnsafeHost, "could not be found out"),
        (RateLimited, 429, RateLimited, "^[^ ]+ has had too many requests"),
    ],
)
def test_a_host_that_could_not_be_asked_is_not_taken_for_safe(
    monkeypatch: pytest.MonkeyPatch,
    refused: type[XrpcError],
    status: int,
    raised: type[KnotlessError],
    says: str,
) -> None:
    """One that has had too much says so itself, and until when."""
    monkeypatch.setattr(proving, "_PAUSE", 0.001)
    host, asked = Account(creates_update=True), [0]

    def busy(_: Sequence[Write]) -> None:
        asked[0] += 1
        if asked[0] > 1:
            raise refusal(refused, status, "Busy")

    host.before = busy
    with pytest.raises(raised, match=says):
        create(host, URL)
    assert host.records.get(REPO, {}) == {}


def test_what_others_do_with_it_at_once_stands(host: Account) -> None:
    """The repository is there for all to write to before `create` has returned."""

    def meanwhile(writes: Sequence[Write]) -> None:
        if any(write.collection == REPO for write in writes):
            host.after = lambda writes: None
            repository = Repository(URL, host, writable=True)
            edit(repository, lambda repo: repo.changed(description="kept"))

    host.after = meanwhile
    create(host, URL)
    (repo,) = repositories(host)
    assert (repo.description, repo.epoch) == ("kept", 2)
    assert list(host.records[CLAIM]) == [epoch_rkey(repo.key, 2)]


@pytest.mark.parametrize("branch", ["", "-x", "a..b", "a b", "x.lock", "é" * 200])
def test_a_default_branch_that_none_can_be(host: Account, branch: str) -> None:
    with pytest.raises(BadBranch):
        create(host, URL, default_branch=branch)
    assert host.requests == []


def test_edit_moves_the_epoch_and_keeps_what_it_does_not_know(
    host: Account, repository: Repository
) -> None:
    (value,) = host.records[REPO].values()
    value["later"] = {"some": "thing"}
    new = edit(repository, lambda repo: repo.changed(description="new", archived=True))
    assert (new.epoch, new.archived, new.fields["later"]) == (2, True, {"some": "thing"})
    assert host.records[REPO]["repo"] == new.to_json()
    assert list(host.records[CLAIM]) == [epoch_rkey(new.key, 2)]


def test_an_edit_of_nothing_writes_nothing(host: Account, repository: Repository) -> None:
    edit(repository, lambda repo: repo.changed(description=None))
    assert host.batches == []


def test_two_edits_at_once_both_hold(host: Account, repository: Repository) -> None:
    def theirs(_: Sequence[Write]) -> None:
        host.before = lambda writes: None
        edit(repository, lambda repo: repo.changed(description="theirs"))

    host.before = theirs
    new = edit(repository, lambda repo: repo.changed(archived=True))
    assert (new.description, new.archived, new.epoch) == ("theirs", True, 3)


def test_delete_leaves_nothing_and_touches_no_other(host: Account, repository: Repository) -> None:
    other = create(host, parse_url("knotless://alice.test/other")).repo
    _some_refs(host, repository.record(), 450)
    _some_refs(host, other, 3)
    delete(repository)
    assert [repo.name for repo in repositories(host)] == ["other"]
    assert len(host.records[REF]) == 3
    assert list(host.records[CLAIM]) == [epoch_rkey(other.key, 1)]


def test_delete_of_nothing(host: Account) -> None:
    with pytest.raises(NoSuchRepository):
        delete(Repository(URL, host, writable=True))


@pytest.mark.parametrize("cut", range(1, 5))
def test_a_delete_that_was_cut_is_finished(host: Account, repository: Repository, cut: int) -> None:
    _some_refs(host, repository.record(), 450)
    left = [cut]

    def stop(_: Sequence[Write]) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt

    host.after = stop
    with pytest.raises(KeyboardInterrupt):
        delete(repository)
    host.after = lambda writes: None
    with pytest.raises(NoSuchRepository):
        repository.snapshot()
    delete(repository)
    assert not any(host.records.values())


def test_one_that_was_cut_is_finished_with_the_next_of_its_name(
    host: Account, repository: Repository
) -> None:
    _some_refs(host, repository.record(), 5)

    def stop(_: Sequence[Write]) -> None:
        raise KeyboardInterrupt

    host.after = stop
    with pytest.raises(KeyboardInterrupt):
        delete(repository)
    host.after = lambda writes: None
    create(host, URL)
    delete(Repository(URL, host, writable=True))
    assert not any(host.records.values())


def _some_refs(host: Account, repo: RepoRecord, count: int) -> None:
    for n in range(count):
        ref = RefRecord(repo.key, f"refs/heads/b{n}", "a" * 40, 1, "2026-01-02T03:04:05.678Z")
        host.records.setdefault(REF, {})[Rkey(ref.rkey)] = ref.to_json()
