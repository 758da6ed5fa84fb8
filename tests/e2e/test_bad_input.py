"""What people mistype and what hosts get wrong: one clear line, and the next try works."""

import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import Person
from tests.gitenv import GitEnv, Result
from tests.marks import sandbox_only
from tests.network import Account, Network
from tests.proxy import Answer, Exchange, Proxy, proxy

LINES = 4  # ours, a hint, and what git itself adds to it


def lines(result: Result) -> list[str]:
    return [line for line in result.err.splitlines() if line and not line.startswith("Cloning")]


def said(result: Result, *words: str) -> None:
    """One line of ours that holds `words`."""
    ours = [line for line in lines(result) if line.startswith("error: ")]
    assert len(ours) >= 1, result.err
    assert all(word in ours[0] for word in words), result.err
    assert len(lines(result)) <= LINES, result.err


@pytest.fixture
def between(
    account: Callable[..., Account], network: Network, machine: Callable[[], GitEnv]
) -> Iterator[tuple[Person, Proxy]]:
    """alice, who reaches her PDS through a proxy alone, with a repository pushed there."""
    alice = account("alice")
    with proxy(network, alice) as made:
        person = Person(alice, machine())
        person.machine.env |= made.environment()
        person.machine.log_in(person.account)
        person.published()
        yield person, made


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("knotless://nobody.test/x", ("nobody.test", "no such handle")),
        ("knotless://did:plc:aaaaaaaaaaaaaaaaaaaaaaaa/x", ("no such account",)),
        ("knotless::{handle}/none", ("no such repository",)),
    ],
)
def test_addresses_that_lead_nowhere(
    alice: Person, bob: GitEnv, url: str, words: tuple[str, ...]
) -> None:
    refused = bob.git("ls-remote", "--", url.format(handle=alice.handle), code=128)
    said(refused, *words)


@sandbox_only
@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("knotless://{handle}/../x", ("'../x'",)),
        pytest.param("knotless://{handle}/-x", ("'-x'",), marks=pytest.mark.slow),
        pytest.param("knotless://{handle}/a b", (), marks=pytest.mark.slow),
        pytest.param("knotless://{handle}/x?y=1", (), marks=pytest.mark.slow),
        pytest.param("knotless://{handle}/x#y", (), marks=pytest.mark.slow),
        ("knotless://{handle}/\x01", ()),
        ("knotless://{handle}", ("names no repository",)),
        pytest.param("knotless://user@{handle}/x", (), marks=pytest.mark.slow),
        pytest.param("knotless://{handle}:99/x", (), marks=pytest.mark.slow),
        ("knotless://-oProxyCommand=x/x", ()),
        pytest.param("knotless://localhost/x", (), marks=pytest.mark.slow),
    ],
)
def test_addresses_that_are_refused(
    alice: Person, bob: GitEnv, url: str, words: tuple[str, ...]
) -> None:
    """Before any host is asked; tests/storage/test_url.py has them all."""
    refused = bob.git("ls-remote", "--", url.format(handle=alice.handle), code=128)
    said(refused, *words)


def test_addresses_that_are_taken(alice: Person, bob: GitEnv) -> None:
    alice.published()
    host = alice.handle
    for where in (f"{host.upper()}/work", f"{host}/work/", f"{host}/work.git"):
        assert "refs/heads/main" in bob.git("ls-remote", f"knotless://{where}").out


@sandbox_only
def test_a_url_is_never_an_option_to_git(alice: Person) -> None:
    refused = alice.git("knotless", "clone", "--upload-pack=touch /tmp/x", code=2)
    assert "--upload-pack" in refused.err
    refused = alice.git("knotless", "clone", "--", "-x", code=2)
    assert lines(refused)


@sandbox_only
def test_a_document_without_a_host(between: tuple[Person, Proxy], bob: GitEnv) -> None:
    person, host = between
    host.document(person.account.did, {"id": person.account.did, "service": []})
    bob.env |= host.environment()
    said(bob.git("ls-remote", f"knotless://{person.account.did}/work", code=128), "no host")


def fresh(bob: GitEnv, host: Proxy) -> GitEnv:
    bob.env |= host.environment()
    return bob


@sandbox_only
def test_a_host_that_is_down(between: tuple[Person, Proxy], bob: GitEnv) -> None:
    person, host = between
    document = {
        "id": person.account.did,
        "service": [
            {
                "id": "#atproto_pds",
                "type": "AtprotoPersonalDataServer",
                "serviceEndpoint": "http://localhost:1",
            }
        ],
    }
    host.document(person.account.did, document)
    refused = fresh(bob, host).git("ls-remote", f"knotless://{person.account.did}/work", code=128)
    said(refused, "localhost:1")


def html(exchange: Exchange) -> None:
    exchange.answer(Answer(200, b"<html>Welcome to nginx</html>", {"Content-Type": "text/html"}))


def not_found(exchange: Exchange) -> None:
    exchange.answer(Answer(404, b"<html>Not found</html>", {"Content-Type": "text/html"}))


def failing(exchange: Exchange) -> None:
    exchange.answer(Answer.json(502, {"error": "UpstreamFailure"}))


@pytest.mark.parametrize("nsid", ["repo.getRecord", "repo.listRecords"])
def test_a_host_that_answers_with_something_else(
    between: tuple[Person, Proxy], bob: GitEnv, nsid: str
) -> None:
    person, host = between
    for act in (html, not_found, failing, Exchange.cut):
        host.on(nsid, act)
        said(fresh(bob, host).git("clone", person.url(), "c", code=128), "localhost")
        assert not (bob.root / "c").exists(), act.__name__
    host.well()
    bob.git("clone", person.url(), "c")


def wrong_bytes(exchange: Exchange) -> None:
    answer = exchange.passed_on()
    exchange.answer(Answer(200, b"x" + answer.body[1:], answer.headers))


def other_blob(exchange: Exchange) -> None:
    exchange.answer(Answer(200, b"something else altogether"))


def too_short(exchange: Exchange) -> None:
    answer = exchange.passed_on()
    exchange.answer(Answer(200, answer.body[:-10], answer.headers))


def cut_short(exchange: Exchange) -> None:
    answer = exchange.passed_on()
    exchange.answer(Answer(200, answer.body[:1000], answer.headers), length=len(answer.body))


def too_long(exchange: Exchange) -> None:
    answer = exchange.passed_on()
    exchange.answer(Answer(200, answer.body + b"more", answer.headers))


def test_a_host_that_serves_a_wrong_blob(between: tuple[Person, Proxy], bob: GitEnv) -> None:
    person, host = between
    work = person.machine.root / "work"
    person.machine.commit(work, "large", bytes(i * i % 251 for i in range(1 << 18)) + b"y" * 99)
    person.machine.commit(work, "random", random.Random(3).randbytes(3 << 20))
    person.git("push", cwd=work)
    clone = bob.root / "c"
    fresh(bob, host).git("init", "-q", str(clone))
    for act in (wrong_bytes, other_blob, too_short, cut_short, too_long):
        host.on("sync.getBlob", act)
        said(bob.git("fetch", person.url(), "main", cwd=clone, code=128))
        assert list((clone / ".git/objects/pack").iterdir()) == [], act.__name__
    host.well()
    bob.git("fetch", person.url(), "main", cwd=clone)
    bob.git("fsck", cwd=clone)


def test_a_session_that_was_ended(alice: Person) -> None:
    work = alice.published()
    alice.machine.commit(work)
    (session,) = Path(alice.machine.env["KNOTLESS_CONFIG_DIR"]).glob("sessions/*.json")
    text = session.read_text()
    session.write_text(
        text.replace('"access": "', '"access": "x').replace('"refresh": "', '"refresh": "x')
    )
    refused = alice.git("push", cwd=work, code=None)
    assert refused.code in (1, 128)
    assert f"hint: git knotless login {alice.handle}" in refused.err
    alice.machine.log_in(alice.account)
    alice.git("push", cwd=work)


LIMITED = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
os.execvp("git", sys.argv[1:])
"""


@pytest.mark.parametrize("verb", ["push", "fetch"])
def test_a_full_disk(alice: Person, verb: str) -> None:
    work = alice.published()
    clone = alice.clone(alice.url())
    alice.machine.commit(work, "large", random.Random(5).randbytes(3 << 20))
    if verb == "fetch":
        alice.git("push", cwd=work)
    where = work if verb == "push" else clone
    refused = alice.machine.run(sys.executable, "-c", LIMITED, "git", verb, cwd=where, code=None)
    assert refused.code in (1, 128)
    said(refused, "space")
    assert not list((where / ".git/objects/pack").glob("tmp_*"))
    alice.git(verb, cwd=where)


def test_a_deactivated_account(alice: Person, bob: GitEnv) -> None:
    alice.published()
    url = f"knotless://{alice.account.did}/work"
    alice.account.post("com.atproto.server.deactivateAccount", {})
    said(bob.git("clone", url, "c", code=128), "deactivated")
    host = alice.account.host
    assert host.send(
        "POST", "com.atproto.server.activateAccount", auth=alice.account.auth
    ).is_success
    bob.git("clone", url, "c")


def test_a_deleted_account(network: Network, person: Callable[..., Person], bob: GitEnv) -> None:
    alice = person("alice")
    alice.published()
    bob.git("ls-remote", alice.url())
    body = {"did": alice.account.did}
    network.admin(alice.account.host, "com.atproto.admin.deleteAccount", body)
    said(bob.git("ls-remote", alice.url(), code=128), "the account is not there")


def test_a_wrong_password(account: Callable[..., Account], machine: Callable[[], GitEnv]) -> None:
    one, made = machine(), account("alice")
    args = ("knotless", "login", made.handle, "--password-stdin")
    refused = one.git(*args, stdin="wrong\n", code=1)
    said(refused, f"wrong password for {made.handle}")
    assert one.git("knotless", "login", "nobody.test", "--password-stdin", stdin="x\n", code=1).err


@sandbox_only
def test_nobody_is_logged_in(bob: GitEnv) -> None:
    refused = bob.git("knotless", "create", "x", code=4)
    assert "hint: git knotless login" in refused.err
