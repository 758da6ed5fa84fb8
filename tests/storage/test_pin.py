"""The repository that a remote belongs to, in the config of a real one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from git_knotless.atproto.errors import HostUnreachable
from git_knotless.atproto.syntax import Did, Rkey
from git_knotless.storage.git import Git
from git_knotless.storage.pin import OtherAccount, OtherRepository, Pin
from git_knotless.storage.places.references import RedirectRecord, RepoRef
from git_knotless.storage.records import REDIRECT, REPO
from git_knotless.storage.repositories import Repository
from git_knotless.storage.snapshot import NoSuchRepository
from git_knotless.storage.url import parse_url
from tests.gitenv import GitEnv
from tests.storage.places import ALICE as OURS
from tests.storage.places import BOB as OTHER
from tests.storage.places import Host, World

URL = "knotless://alice.test/hello"
BY_DID = f"knotless://{OURS}/hello"
NOW = "2026-01-02T03:04:05.678Z"
KEY, NEW_KEY = "3k2akcsyzdc2r", "3k2akcsyzdc2s"
SECTION = "remote.origin.knotless"
ONLY_IF = "only if you mean the other repository from now on: "


@pytest.fixture
def work(gitenv: GitEnv) -> Path:
    work = gitenv.repository(commits=0)
    gitenv.git("remote", "add", "origin", URL, cwd=work)
    return work


class Run:
    """Runs of the helper or of a command, each of which reads the config anew."""

    def __init__(self, gitenv: GitEnv, work: Path | None) -> None:
        self.gitenv = gitenv
        self.work = work
        self.world = World(gitenv.root)
        self.told: list[str] = []
        self.have("hello", KEY)
        self.have("hello", NEW_KEY, did=OTHER)

    @property
    def account(self) -> Host:
        return self.world.alice

    def have(self, name: str, key: str, *, did: Did = OURS, **fields: Any) -> None:
        value = {"$type": REPO, "key": key, "epoch": 1, "createdAt": NOW, **fields}
        self.world.hosts[did].records.setdefault(REPO, {})[name] = value

    def lose(self, name: str, *, did: Did = OURS) -> None:
        del self.world.hosts[did].records[REPO][name]

    def move(self) -> None:
        """To the other account, where it is `moved`."""
        here, there = (
            RepoRef(did, Rkey(name), KEY).to_json()
            for did, name in ((OURS, "hello"), (OTHER, "moved"))
        )
        self.have("hello", KEY, transfer=there)
        self.have("moved", KEY, did=OTHER, transferredFrom=here)

    def pin(self, remote: str = "origin", url: str = URL) -> Pin:
        git_dir = self.work / ".git" if self.work else None
        return Pin(Git(git_dir, env=self.gitenv.env), remote, url, self.told.append)

    def __call__(self, remote: str = "origin", url: str = URL, *, did: Did = OURS) -> None:
        self.last = pin = self.pin(remote, url)
        pin.hold_account(did, self.world)
        Repository(
            parse_url(url),
            self.world.hosts[did],
            writable=False,
            accounts=self.world,
            hold=pin.hold,
            elsewhere=pin.elsewhere,
        ).record()

    def config(self, *names: str, of: str = "origin") -> list[str]:
        assert self.work
        section = f"remote.{of}.knotless"
        asked = (["config", "--get-all", section + name] for name in names or ("did", "key", "url"))
        return [self.gitenv.git(*args, cwd=self.work, code=None).out.rstrip("\n") for args in asked]

    def set_url(self, *args: str) -> None:
        assert self.work
        self.gitenv.git("remote", "set-url", *args, cwd=self.work)

    def follow(self, hint: str | None) -> None:
        """The command in it, as a shell takes it."""
        assert self.work
        self.gitenv.run("/bin/sh", "-c", (hint or "").removeprefix(ONLY_IF), cwd=self.work)


@pytest.fixture
def run(gitenv: GitEnv, work: Path) -> Run:
    return Run(gitenv, work)


def test_what_a_remote_led_to_first_is_kept(run: Run) -> None:
    run()
    assert run.config() == [OURS, KEY, URL]
    run()
    assert run.config() == [OURS, KEY, URL]
    assert run.told == []


def test_another_account_is_refused(run: Run) -> None:
    run()
    with pytest.raises(OtherAccount) as raised:
        run(did=OTHER)
    assert raised.value.message == f"{URL} leads to {OTHER} now, and origin is a remote of {OURS}"
    assert run.config() == [OURS, KEY, URL]
    assert raised.value.hint == f"git remote set-url origin {BY_DID}"
    run.follow(raised.value.hint)
    run(url=BY_DID)
    assert run.config() == ["", KEY, BY_DID]
    assert run.told == [], "it is the same repository"


@pytest.mark.parametrize("gone", ["the repository", "the account"])
def test_another_account_until_it_is_let(run: Run, gone: str) -> None:
    """What was the remote's is nowhere any more."""
    run()
    if gone == "the account":
        del run.world.hosts[OURS]
    else:
        run.lose("hello")
    with pytest.raises(OtherAccount) as raised:
        run(did=OTHER)
    commands = f"git config --unset {SECTION}key && git config --unset {SECTION}did"
    meant = "only if you mean the other account from now on: "
    assert raised.value.hint == meant + commands
    run.follow(commands)
    run(did=OTHER)
    assert run.config() == [OTHER, NEW_KEY, URL]


def test_another_repository_is_refused_until_it_is_let(run: Run) -> None:
    run()
    run.have("hello", NEW_KEY)
    for _ in range(2):
        with pytest.raises(OtherRepository) as raised:
            run()
    assert raised.value.message == (f"{URL} is another repository now than origin is a remote of")
    assert raised.value.hint == f"{ONLY_IF}git config --unset {SECTION}key"
    run.follow(raised.value.hint)
    run()
    assert run.config("key") == [NEW_KEY]


def moved_to_a_record(run: Run) -> None:
    run.have("renamed", KEY)


def moved_by_a_redirect(run: Run) -> None:
    """An older name, which is not the one that another took."""
    run.have("renamed", KEY)
    old = RedirectRecord.new(Rkey("older"), RepoRef(OURS, Rkey("renamed"), KEY), NOW)
    run.account.records[REDIRECT] = {"older": old.to_json()}


@pytest.mark.parametrize("moved", [moved_to_a_record, moved_by_a_redirect])
def test_the_hint_leads_to_the_repository_that_is_meant(
    run: Run, moved: Callable[[Run], None]
) -> None:
    run()
    run.have("hello", NEW_KEY)
    moved(run)
    with pytest.raises(OtherRepository) as raised:
        run()
    new = "knotless://alice.test/renamed"
    assert raised.value.hint == f"git remote set-url origin {new}"
    run.follow(raised.value.hint)
    run(url=new)
    assert run.config() == [OURS, KEY, new]
    assert run.told == [], "it is the same repository"


def test_one_that_is_not_there_is_looked_for_by_its_key(run: Run) -> None:
    run()
    run.lose("hello")
    run.have("renamed", KEY)
    with pytest.raises(NoSuchRepository) as raised:
        run()
    assert raised.value.message == f"{URL}: no such repository"
    new = "knotless://alice.test/renamed"
    assert raised.value.hint == f"git remote set-url origin {new}"
    run.follow(raised.value.hint)
    run(url=new)
    assert run.told == [], "it is the same repository"


def test_one_that_is_nowhere_is_let_go_of(run: Run) -> None:
    run()
    run.lose("hello")
    with pytest.raises(NoSuchRepository) as raised:
        run()
    assert raised.value.hint is None
    assert run.last.letting_go() == f"git config --unset {SECTION}key"
    run.set_url("origin", BY_DID)
    with pytest.raises(NoSuchRepository) as raised:
        run(url=BY_DID)
    assert (raised.value.hint, run.last.letting_go()) == (None, None), "nothing stands in the way"


def test_whether_it_is_anywhere_cannot_be_told(run: Run) -> None:
    """Then nobody is to be told to make another."""
    run.move()
    run()
    run.lose("hello")
    run.world.hosts[OTHER].down = True
    with pytest.raises(HostUnreachable):
        run()


def taken(run: Run) -> None:
    run.have("hello", NEW_KEY)


def deleted(run: Run) -> None:
    run.lose("hello")


@pytest.mark.parametrize("come_to", [taken, deleted])
def test_one_that_moved_is_found_where_it_was_last(
    run: Run, come_to: Callable[[Run], None]
) -> None:
    """By its old place nothing leads there any more."""
    run()
    run.move()
    run()
    assert run.config("owner") == [OTHER]
    come_to(run)
    run.lose("moved", did=OTHER)
    run.have("renamed", KEY, did=OTHER)
    with pytest.raises((OtherRepository, NoSuchRepository)) as raised:
        run()
    new = "knotless://bob.test/renamed"
    assert raised.value.hint == f"git remote set-url origin {new}"
    run.follow(raised.value.hint)
    run(url=new, did=OTHER)
    assert run.config("did", "key", "owner", "url") == [OTHER, KEY, "", new]
    assert run.told == [], "it is the same repository"


def test_one_that_came_back_is_in_the_account_that_is_asked(run: Run) -> None:
    run.move()
    run()
    assert run.config("did", "owner") == [OURS, OTHER]
    run.have("hello", KEY)
    run()
    assert run.config("did", "key", "owner", "url") == [OURS, KEY, "", URL]


def test_the_other_is_meant_where_the_one_is_at_a_host_that_is_down(run: Run) -> None:
    run.move()
    run()
    run.have("hello", NEW_KEY)
    run.world.hosts[OTHER].down = True
    with pytest.raises(OtherRepository) as raised:
        run()
    assert raised.value.hint == f"{ONLY_IF}git config --unset {SECTION}key"


def test_a_remote_by_the_did_is_kept_to_its_repository_alone(run: Run) -> None:
    run.set_url("origin", BY_DID)
    run(url=BY_DID)
    assert run.config() == ["", KEY, BY_DID]
    run.have("hello", NEW_KEY)
    run.have("renamed", KEY)
    with pytest.raises(OtherRepository) as raised:
        run(url=BY_DID)
    assert raised.value.hint == f"git remote set-url origin knotless://{OURS}/renamed"


def test_where_a_remote_led_is_known_without_a_look(run: Run) -> None:
    assert run.pin().place is None
    run()
    assert run.pin().place == (OURS, KEY)
    assert run.pin(URL, URL).place is None, "a bare address is kept to nothing"
    run.move()
    run()
    assert run.pin().place == (OTHER, KEY)
    run.set_url("origin", BY_DID)
    assert run.pin(url=BY_DID).place is None, "another address may lead elsewhere"


@pytest.mark.parametrize(("name", "text"), [("did", "did:plc:../.."), ("key", "../../../etc")])
def test_a_config_that_was_tampered_with_names_no_place(run: Run, name: str, text: str) -> None:
    run()
    run.gitenv.git("config", f"{SECTION}{name}", text, cwd=run.work)
    assert run.pin().place is None


def test_whoever_changes_the_address_means_another(run: Run) -> None:
    run()
    other = "knotless://bob.test/hello"
    run.set_url("origin", other)
    run(url=other, did=OTHER)
    run(url=other, did=OTHER)
    assert run.told == [f"origin was a remote of {URL}, and is kept to {other} from now on"]
    assert run.config() == [OTHER, NEW_KEY, other]
    run.set_url("origin", BY_DID)
    run.have("hello", NEW_KEY)
    run(url=BY_DID)
    assert run.config() == ["", NEW_KEY, BY_DID]
    assert len(run.told) == 2, "another account, whatever its copy is called"


def test_the_same_repository_by_another_address_is_not_worth_a_word(run: Run) -> None:
    run()
    run.set_url("origin", BY_DID)
    run(url=BY_DID)
    assert run.config() == ["", KEY, BY_DID]
    assert run.told == []


def test_what_was_kept_without_an_address_counts_for_any(run: Run) -> None:
    """As clones have it that were made before addresses were kept."""
    run()
    run.follow(f"git config --unset {SECTION}url && git config --unset {SECTION}key")
    with pytest.raises(OtherAccount):
        run(did=OTHER)
    run()
    assert run.config() == [OURS, KEY, URL]


def test_where_one_pushes_to_is_another_matter(run: Run) -> None:
    fork = "knotless://bob.test/hello"
    run.set_url("--push", "origin", fork)
    run(url=fork, did=OTHER)
    assert run.config() == ["", "", ""]
    run()
    run(url=fork, did=OTHER)
    assert run.config() == [OURS, KEY, URL]


def test_but_it_is_kept_where_nothing_of_ours_is_fetched(run: Run) -> None:
    run.set_url("origin", "https://git.example/hello")
    run.set_url("--push", "origin", URL)
    run()
    with pytest.raises(OtherAccount):
        run(did=OTHER)


def test_an_address_that_git_rewrote_is_the_remotes(run: Run) -> None:
    run.set_url("origin", "alice:hello")
    run()
    with pytest.raises(OtherAccount):
        run(did=OTHER)


def test_a_bare_address_belongs_to_no_remote(run: Run, work: Path) -> None:
    before = (work / ".git/config").read_text()
    run(URL)
    run("nowhere")
    run("orig.n")
    assert (work / ".git/config").read_text() == before


@pytest.mark.parametrize("name", ["a.b.C", "it's & more"])
def test_names_of_remotes_are_taken_as_they_are(run: Run, name: str) -> None:
    run.follow(f'git config "remote.{name}.url" {URL}')
    run(name)
    assert run.config(of=name) == [OURS, KEY, URL]
    with pytest.raises(OtherAccount) as raised:
        run(name, did=OTHER)
    run.follow(raised.value.hint)
    run(name, url=BY_DID)
    assert run.config(of=name) == ["", KEY, BY_DID]
    run.have("hello", NEW_KEY)
    with pytest.raises(OtherRepository) as let:
        run(name, url=BY_DID)
    run.follow(let.value.hint)
    run(name, url=BY_DID)
    assert run.config("key", of=name) == [NEW_KEY]


def test_who_is_asked_where_a_handle_names_nobody_any_more(run: Run) -> None:
    assert run.pin().did is None
    run()
    assert run.pin().did == OURS
    assert run.pin(URL).did is None
    run.set_url("origin", "knotless://bob.test/hello")
    assert run.pin(url="knotless://bob.test/hello").did is None


@pytest.mark.parametrize("value", ["", "x", "did:plc:short", "-x"])
def test_a_value_that_is_no_did_is_nobodys(run: Run, value: str) -> None:
    run()
    run.follow(f"git config {SECTION}did '{value}'")
    assert run.pin().did is None
    with pytest.raises(OtherAccount):
        run()


def test_without_a_repository_nothing_is_kept(gitenv: GitEnv) -> None:
    Run(gitenv, None)()


def test_a_config_that_cannot_be_written_now_stops_nothing(run: Run, work: Path) -> None:
    (work / ".git/config.lock").touch()
    run()
    assert run.config() == ["", "", ""]


def test_what_was_cut_short_is_begun_again(run: Run) -> None:
    """The address is written last."""
    run()
    other: dict[str, Any] = {"url": "knotless://bob.test/hello", "did": OTHER}
    run.set_url("origin", other["url"])
    run.follow(f"git config {SECTION}did {OTHER}")
    run(**other)
    assert run.config() == [OTHER, NEW_KEY, other["url"]]
