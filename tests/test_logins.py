"""Whose password goes where, and what is kept of a login."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Barrier

import httpx
import pytest

from git_knotless.atproto.errors import HandleNotFound
from git_knotless.atproto.identity import Identity
from git_knotless.atproto.session import BadSession, Session
from git_knotless.atproto.syntax import Did, Handle
from git_knotless.atproto.xrpc import Client
from git_knotless.errors import LoginNeeded
from git_knotless.logins import Logins, OthersPassword
from git_knotless.settings import Password, Settings
from tests.atproto.fakes import client_for, json_answer, nsid_of

ALICE, BOB = Did("did:plc:" + "a" * 24), Did("did:plc:" + "b" * 24)
AT_ALICES, AT_BOBS = "http://localhost:1001", "http://localhost:1002"
PEOPLE = {
    "alice.test": Identity(ALICE, Handle("alice.test"), AT_ALICES, 0),
    "bob.test": Identity(BOB, Handle("bob.test"), AT_BOBS, 0),
}
SECRET = "alices own"
CREATE, DELETE = "com.atproto.server.createSession", "com.atproto.server.deleteSession"


@dataclass
class Hosts:
    """Both hosts, which take any password, and who is on them."""

    people: dict[str, Identity] = field(default_factory=lambda: dict(PEOPLE))
    got: list[tuple[str, str]] = field(default_factory=list)
    passwords: list[tuple[str, str]] = field(default_factory=list)
    before: Callable[[], object] = lambda: None

    def __post_init__(self) -> None:
        self.client: Client = client_for(self)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        origin, nsid = str(request.url).partition("/xrpc/")[0], nsid_of(request)
        self.got.append((origin, nsid))
        if nsid == DELETE:
            return httpx.Response(200)
        self.before()
        body = json.loads(request.read())
        self.passwords.append((origin, body["password"]))
        tokens = {"accessJwt": f"a{len(self.got)}", "refreshJwt": f"r{len(self.got)}"}
        return json_answer({"did": body["identifier"], **tokens})

    def identify(self, who: Did | Handle, *, write: bool = False) -> Identity:
        for identity in self.people.values():
            if who in (identity.did, identity.handle):
                return identity
        raise HandleNotFound(f"{who}: no such handle")

    def name_of(self, did: Did) -> str:
        return self.identify(did).name


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    made = Hosts()
    with made.client:
        yield made


@pytest.fixture
def logins(hosts: Hosts, tmp_path: Path) -> Callable[..., Logins]:
    """Of a process whose environment has alice's password."""

    def make(account: str | None = None, owner: str | None = "alice.test") -> Logins:
        settings = Settings(
            config_dir=tmp_path / "config",
            cache_dir=tmp_path / "cache",
            account=None if account is None else Handle(account),
            password=Password(SECRET, None if owner is None else Handle(owner)),
        )
        return Logins(hosts, settings, None)

    return make


Make = Callable[..., Logins]


def session(did: Did, pds: str) -> Session:
    return Session(did, Handle("x.test"), pds, "old", "older")


def test_the_owner_of_a_password_is_logged_in_with_it_once(hosts: Hosts, logins: Make) -> None:
    for _ in range(2):
        assert logins("alice.test").account().did == ALICE
    assert hosts.passwords == [(AT_ALICES, SECRET)]


@pytest.mark.parametrize("owner", ["alice.test", None])
def test_a_password_is_sent_for_nobody_else(hosts: Hosts, logins: Make, owner: str | None) -> None:
    """With --account or knotless.account, whatever the environment names."""
    with pytest.raises(LoginNeeded, match=r"not logged in as bob\.test"):
        logins("bob.test", owner).account()
    assert logins("bob.test", owner).session_for(BOB) is None
    assert hosts.got == []


def test_a_password_of_nobody_is_in_nobody_elses_way(hosts: Hosts, logins: Make) -> None:
    with pytest.raises(LoginNeeded, match=r"not logged in as bob\.test"):
        logins("bob.test", "gone.test").account()
    with pytest.raises(HandleNotFound):
        logins("gone.test", "gone.test").account()


def test_a_session_of_another_that_has_ended_is_not_renewed_with_it(
    hosts: Hosts, logins: Make
) -> None:
    acting = logins("bob.test")
    acting.sessions.save(session(BOB, AT_BOBS).over())
    assert acting.account().ended
    with pytest.raises(LoginNeeded, match="has ended"):
        acting.writer(PEOPLE["bob.test"])
    assert hosts.got == []


def test_at_a_new_host_the_owner_is_logged_in_there(hosts: Hosts, logins: Make) -> None:
    """And the password of an account that has moved goes to where it is now."""
    acting = logins()
    acting.sessions.save(session(ALICE, AT_BOBS))
    auth = acting.writer(PEOPLE["alice.test"])
    assert (auth.session.pds, hosts.passwords) == (AT_ALICES, [(AT_ALICES, SECRET)])
    assert acting.sessions.load(ALICE) == auth.session


def test_a_person_names_whose_it_is_where_the_environment_does_not(logins: Make) -> None:
    assert logins(owner=None).password_for(PEOPLE["bob.test"]) == SECRET
    assert logins().password_for(PEOPLE["alice.test"]) == SECRET
    assert logins(owner="alice.test").password_for(PEOPLE["alice.test"]) == SECRET


@pytest.mark.parametrize("owner", ["alice.test", "gone.test", ALICE])
def test_a_login_of_another_says_whose_password_it_is(
    hosts: Hosts, logins: Make, owner: str
) -> None:
    with pytest.raises(OthersPassword, match=f"is the password of {owner}.*not of bob") as caught:
        logins(owner=owner).password_for(PEOPLE["bob.test"])
    assert caught.value.hint == "env -u KNOTLESS_PASSWORD git knotless login bob.test"


def test_an_owner_named_by_another_handle_is_the_same(hosts: Hosts, logins: Make) -> None:
    hosts.people["second"] = Identity(BOB, Handle("robert.test"), AT_BOBS, 0)
    assert logins(owner="robert.test").password_for(PEOPLE["bob.test"]) == SECRET


def test_of_many_that_begin_together_one_logs_in(hosts: Hosts, logins: Make) -> None:
    """Each has seen that there is no session; all but one wait for it."""
    together = Barrier(8)

    def begin(_: int) -> str:
        acting = logins()
        assert acting.sessions.load(ALICE) is None
        together.wait(10)
        auth = acting.session_for(ALICE)
        assert auth is not None
        return auth.session.refresh

    with ThreadPoolExecutor(8) as processes:
        assert len(set(processes.map(begin, range(8)))) == 1
    assert hosts.passwords == [(AT_ALICES, SECRET)]


def test_nothing_is_asked_for_where_it_cannot_be_kept(
    hosts: Hosts, logins: Make, tmp_path: Path
) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "sessions").write_text("")
    with pytest.raises(BadSession, match="cannot be written"):
        logins().with_password(PEOPLE["alice.test"], SECRET)
    assert hosts.got == []


def test_what_cannot_be_kept_after_all_is_given_back(hosts: Hosts, logins: Make) -> None:
    """As of a disk that has lost its folder meanwhile."""
    acting = logins()
    acting.sessions.check_writable(ALICE)
    folder = acting.sessions._directory

    def lose() -> None:
        for file in folder.glob(".*.new"):
            file.unlink()

    hosts.before = lose
    with pytest.raises(BadSession, match="cannot be written"):
        acting.with_password(PEOPLE["alice.test"], SECRET)
    assert hosts.got == [(AT_ALICES, CREATE), (AT_ALICES, DELETE)]
    assert acting.sessions.load(ALICE) is None


def test_one_more_account_takes_nothing_from_the_only_one(hosts: Hosts, logins: Make) -> None:
    acting = logins()
    acting.sessions.save(session(BOB, AT_BOBS))
    assert acting.account_did() == BOB
    acting.with_password(PEOPLE["alice.test"], SECRET)
    assert acting.account_did() == BOB
