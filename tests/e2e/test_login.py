"""`git knotless login` with a person and a browser, against a real authorization server."""

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser import Opener, Person, chromium
from tests.gitenv import GitEnv, Result
from tests.network import Account, run_testnet

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext

# The sandbox's hosts take app passwords only.
pytestmark = pytest.mark.parametrize(
    "network",
    [pytest.param(run_testnet, id="testnet", marks=pytest.mark.testnet)],
    indirect=True,
    scope="session",
)
MakeAccount = Callable[..., Account]
MakeMachine = Callable[[], GitEnv]
PAST = "2026-01-02T03:04:05.678Z"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator["BrowserContext"]:
    with chromium(tmp_path_factory.mktemp("chromium")) as context:
        yield context


@pytest.fixture
def person(browser: "BrowserContext") -> Iterator[Person]:
    page = browser.new_page()
    yield Person(page)
    page.close()


@pytest.fixture
def alice(account: MakeAccount) -> Account:
    return account("alice")


@pytest.fixture
def one(machine: MakeMachine) -> GitEnv:
    return machine()


@contextmanager
def waiting(
    machine: GitEnv, *arguments: str, **options: Any
) -> Iterator["subprocess.Popen[bytes]"]:
    """A login that is under way."""
    with machine.start("git", "knotless", "login", *arguments, **options) as process:
        yield process


def ended(process: "subprocess.Popen[bytes]", code: int = 0, typed: bytes = b"") -> Result:
    out, err = (text.decode() for text in process.communicate(typed, timeout=60))
    assert process.returncode == code, out + err
    assert "Traceback" not in err
    assert "Warning: " not in err
    return Result(process.returncode, out, err)


def log_in(machine: GitEnv, person: Person, account: Account, *options: str) -> Result:
    opener = Opener.on(machine)
    with waiting(machine, account.handle, *options) as process:
        person.sign_in(opener.address(), account)
        person.approve()
        return ended(process)


def session_file(machine: GitEnv) -> Path:
    (file,) = (machine.home / "knotless/sessions").glob("did_*.json")
    return file


def edit(file: Path, **fields: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))


def whoami(machine: GitEnv) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(machine.git("knotless", "whoami", "--json").out)
    return shown


# --- what a person sees, in the browser and out of it


def test_a_login_a_push_and_a_logout(one: GitEnv, alice: Account, person: Person) -> None:
    done = log_in(one, person, alice)
    host = alice.pds.removeprefix("http://")
    assert done.out == f"logged in as {alice.handle} ({alice.did})\n"
    assert done.err.startswith(f"opening {host} in your browser…\n")
    assert "git-knotless has the answer" in person.shown()

    work = one.repository("notes", commits=2)
    one.git("knotless", "create", "--push", cwd=work)
    (ref,) = alice.records("dev.knotless.ref").values()
    assert ref["target"] == one.oid(work)

    shown = whoami(one)
    assert (shown["did"], shown["kind"], shown["inUse"]) == (alice.did, "oauth", True)
    assert {"atproto", "repo:dev.knotless.ref"} <= set(shown["scopes"])
    assert shown["scopes"] == sorted(shown["scopes"])
    name, email = (one.git("config", f"user.{key}").out.strip() for key in ("name", "email"))
    assert shown["commitsAs"] == {"name": name, "email": email}

    session = json.loads(session_file(one).read_text())
    gone = one.git("knotless", "logout", "--json")
    assert not gone.err
    assert json.loads(gone.out)["revoked"] is True
    assert not list((one.home / "knotless/sessions").glob("did_*.json"))
    # Put back, it is worth nothing: not its token, and not what renews it.
    file = one.home / f"knotless/sessions/{alice.did.replace(':', '_')}.json"
    file.write_text(json.dumps(session))
    dead = one.git("push", "origin", "main:again", cwd=work, code=1)
    assert f"the login of {alice.handle} has ended" in dead.err
    assert len(alice.records("dev.knotless.ref")) == 1


def test_who_denies_it_is_not_logged_in(one: GitEnv, alice: Account, person: Person) -> None:
    """And whose browser did not start has the address to open it in another."""
    opener = Opener.on(one, status=3)
    with waiting(one, alice.handle, "--json") as process:
        address = opener.address()
        assert printed_address(process) == address
        person.sign_in(address, alice)
        person.deny()
        error = json.loads(ended(process, 1).err.splitlines()[-1])
    assert error["error"] == "LoginRefused"
    assert error["message"].startswith(f"the login of {alice.handle} was denied")
    assert one.git("knotless", "whoami", code=4).err.startswith("error: nobody is logged in")


def test_another_account_that_approves_is_not_logged_in(
    one: GitEnv, alice: Account, account: MakeAccount, person: Person
) -> None:
    """The page is asked for a handle, which somebody else has by the time they sign in."""
    bob, opener = account("bob"), Opener.on(one)
    with waiting(one, alice.handle) as process:
        address = opener.address()
        assert printed_address(process) == address, "after a while without an answer"
        for renamed, handle in ((alice, f"was-{alice.handle}"), (bob, alice.handle)):
            renamed.post("com.atproto.identity.updateHandle", {"handle": handle})
        person.sign_in(address, bob)
        person.approve()
        told = ended(process, 1).err.splitlines()
    assert told[-2] == f"error: {bob.did} approved the login; it was asked of {alice.handle}"
    assert told[-1].endswith(f" in that browser, then: git knotless login {alice.handle}")
    assert not list((one.home / "knotless").rglob("did_*.json"))


def test_over_ssh_the_address_that_it_ends_at_is_pasted(
    one: GitEnv, alice: Account, person: Person
) -> None:
    with waiting(one, alice.handle, "--no-browser") as process:
        address = printed_address(process)
        person.move_away()
        person.sign_in(address, alice)
        arrived = person.approve()
        with pytest.raises(urllib.error.HTTPError, match="400"):  # of some other page's making
            urllib.request.urlopen(f"{arrived.partition('?')[0]}?state=x&code=y", timeout=10)
        done = ended(process, typed=f"https://wrong.example/callback?x=y\n\n{arrived}\n".encode())
    assert f"logged in as {alice.handle}" in done.out
    refused = f"that is not it: the address of this login begins with {arrived.partition('?')[0]}?"
    assert done.err.splitlines().count(refused) == 1
    assert whoami(one)["kind"] == "oauth"


def test_without_a_screen_it_goes_on_as_without_a_browser(
    one: GitEnv, alice: Account, person: Person
) -> None:
    """And here the browser is on this machine after all: nothing has to be pasted."""
    with waiting(one, alice.handle) as process:
        person.sign_in(printed_address(process), alice)
        first = person.approve()
        assert process.wait(30) == 0
        # Whoever comes later finds nobody.
        with pytest.raises(urllib.error.URLError, match="refused"):
            urllib.request.urlopen(first, timeout=10)
        done = ended(process)
    assert f"logged in as {alice.handle}" in done.out


# --- what becomes of a session


def test_an_expired_session_is_renewed_once_by_twenty_pushes(
    one: GitEnv, alice: Account, person: Person
) -> None:
    log_in(one, person, alice)
    work = one.repository("notes")
    one.git("knotless", "create", "--push", cwd=work)
    before = json.loads(session_file(one).read_text())
    edit(session_file(one), expires_at=PAST)

    def push(number: int) -> Result:
        return one.git("push", "--quiet", "origin", f"main:branch{number}", cwd=work)

    with ThreadPoolExecutor(20) as pool:
        pushed = list(pool.map(push, range(20)))
    assert {result.err for result in pushed} == {""}
    assert len(alice.records("dev.knotless.ref")) == 21
    after = json.loads(session_file(one).read_text())
    assert {name for name in after if after[name] != before[name]} == {
        "access", "refresh", "expires_at",
    }  # fmt: skip
    assert after["expires_at"] > before["expires_at"] > PAST
    push(20)  # a token that was renewed twice would have ended the session


def test_a_server_that_is_gone_when_the_answer_comes(one: GitEnv, person: Person) -> None:
    """Between the approval and the exchange of the code."""
    with ExitStack() as stack:
        network = stack.enter_context(run_testnet())
        alice = network.account("alice")
        one.env |= network.environment()
        with waiting(one, alice.handle, "--no-browser") as process:
            address = printed_address(process)
            person.move_away()
            person.sign_in(address, alice)
            arrived = person.approve()
            stack.close()
            told = ended(process, 1, typed=f"{arrived}\n".encode()).err.splitlines()
    assert told[-2].startswith(f"error: {alice.pds.removeprefix('http://')} cannot be reached")
    assert not list((one.home / "knotless").rglob("did_*.json"))


def printed_address(process: "subprocess.Popen[bytes]") -> str:
    assert process.stderr
    for line in process.stderr:
        if line.startswith(b"    http"):
            return line.decode().strip()
    raise AssertionError("no address is printed")
