"""`git knotless doctor`, as a person runs it: on machines, accounts and hosts that are well, and on
such as are not."""

import json
import os
import pty
import re
import shlex
import shutil
import signal
import subprocess
import sysconfig
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import pytest

from git_knotless.atproto import oauth
from git_knotless.storage.scope import login_scope
from tests.approval import Page
from tests.gitenv import GIT, GitEnv
from tests.marks import sandbox_only
from tests.network import Account, Network, run_sandbox, run_testnet
from tests.porcelain.checkup import (
    CLAIM,
    COLLECTIONS,
    PACK,
    REPO,
    Found,
    doctor,
    failed,
    found_in,
    not_ok,
    records,
)
from tests.proxy import Answer, Exchange, Proxy, proxy

PROGRAM = Path(sysconfig.get_path("scripts")) / "git-knotless"
HELPER = "git-remote-knotless"
WRITING = "taken key", "missing key", "missing delete", "batch", "large batch", "new listing"
MARKED = "2222222222abc"
TIME = "2026-01-02T03:04:05.678Z"


# --- all is well


def test_all_is_well(one: GitEnv, alice: Account) -> None:
    one.create(f"{alice.handle}/work")
    before = records(alice)
    found = doctor(one)
    assert not_ok(found) == {}
    assert found["login"]["detail"].startswith(alice.handle)
    assert alice.did in found["handle"]["detail"]
    assert "5 MiB" in found["blob limit"]["detail"]
    assert records(alice) == before


@sandbox_only
def test_nobody_is_logged_in(machine: Callable[[], GitEnv]) -> None:
    found = doctor(machine())
    assert not_ok(found) == {"login": "warn", "host": "skipped"}
    assert found["login"]["hint"] == "git knotless login HANDLE"


def test_an_account_of_somebody_else(machine: Callable[[], GitEnv], alice: Account) -> None:
    found = doctor(machine(), f"@{alice.handle}")
    assert alice.did in found["handle"]["detail"]
    assert found["session"]["status"] == found["scopes"]["status"] == "skipped"
    assert failed(found) == set()
    assert found.keys() == doctor(machine(), alice.did).keys()


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(run_sandbox, id="sandbox"),
        pytest.param(run_testnet, id="testnet", marks=pytest.mark.testnet),
    ],
)
def test_a_host_by_its_name(
    tmp_path: Path, run: Callable[..., AbstractContextManager[Network]]
) -> None:
    """Whoever has a record there is who its cursors and proofs are looked at with: on a host of
    its own, as only the first of many accounts are looked at."""
    with run(data=tmp_path / "network") as network:
        one, alice = GitEnv(tmp_path / "machine", network), network.account("alice")
        alice.create("com.example.thing", "one", {})
        found = doctor(one, alice.pds.removeprefix("http://"))
        assert "is a PDS" in found["host"]["detail"]
        assert found["cursors"]["status"] == found["proofs"]["status"] == "ok"
        assert found["spaces"]["status"] == "skipped"
        assert found.keys() == doctor(one, alice.pds).keys()


def test_writing(one: GitEnv, alice: Account) -> None:
    work = one.repository(commits=3)
    one.create(f"{alice.handle}/work")
    one.git("push", "-q", f"knotless://{alice.handle}/work", "main", cwd=work)
    before = records(alice)
    done = one.git("knotless", "doctor", "--write", "--json")
    assert not_ok(found_in(done)) == {}
    assert found_in(done).keys() >= {*WRITING, "new blob", "new proofs", "limit held", "removal"}
    assert f"to {alice.handle}," in done.err
    assert records(alice) == before


@sandbox_only
def test_a_table(one: GitEnv) -> None:
    """A line a check, in columns, and one for each hint."""
    shown = one.git(
        "knotless", "doctor", env={"KNOTLESS_PLC_URL": "http://localhost:1"}, code=1
    ).out
    assert re.search(r"^ok {7}git {13}git [0-9]", shown, re.MULTILINE)
    assert re.search(r"^FAIL {5}directory {7}localhost:1 cannot be reached", shown, re.MULTILINE)
    assert re.search(r"^ {25}hint: .*KNOTLESS_PLC_URL", shown, re.MULTILINE)
    assert re.search(r"^skipped {2}host {12}\w", shown, re.MULTILINE)


@pytest.mark.slow
@sandbox_only
def test_a_table_on_a_terminal(one: GitEnv) -> None:
    """In colours, and a long line goes on under where it began."""
    env = {**one.env, "TERM": "xterm", "COLUMNS": "60", "KNOTLESS_PLC_URL": "http://localhost:1"}
    shown = on_terminal(env, str(PROGRAM), "doctor")
    assert "\x1b[32mok " in shown
    assert "\x1b[1;31mFAIL " in shown
    plain = re.sub(r" +$", "", re.sub(r"\x1b\[[0-9;]*m", "", shown), flags=re.MULTILINE)
    assert re.search(r"^FAIL {5}directory {7}localhost:1 cannot be reached:\n {25}\w", plain, re.M)
    assert max(map(len, plain.split("\n"))) <= 60


def on_terminal(env: dict[str, str], *command: str) -> str:
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, env=env, stdout=theirs, stderr=subprocess.DEVNULL):
        os.close(theirs)
        shown = b""
        with suppress(OSError):  # as it is at its end
            while more := os.read(ours, 4096):
                shown += more
    os.close(ours)
    return shown.decode().replace("\r\n", "\n")


# --- this machine


def bare_machine(one: GitEnv, *programs: str) -> Path:
    """A PATH of git and what is named alone; the folder that goes first on it."""
    folder = one.root / "bin"
    folder.mkdir()
    one.env["PATH"] = os.pathsep.join([str(folder), str(GIT.parent)])
    for name in programs:
        (folder / name).symlink_to(PROGRAM.with_name(name))
    return folder


def ours(one: GitEnv, *, code: int = 1) -> Found:
    return found_in(one.run(str(PROGRAM), "doctor", "--json", code=code))


@sandbox_only
@pytest.mark.skipif(bool(shutil.which(HELPER, path=str(GIT.parent))), reason="it is beside git")
def test_the_helper_is_not_on_path(one: GitEnv) -> None:
    bare_machine(one)
    found = ours(one)
    assert failed(found) == {"helper"}
    assert "not on PATH" in found["helper"]["detail"]
    mended = f"{found['helper']['hint']} && {shlex.quote(str(PROGRAM))} doctor --json"
    assert failed(found_in(one.run("/bin/sh", "-c", mended))) == set()


@pytest.mark.slow
@sandbox_only
def test_the_helper_cannot_be_run(one: GitEnv) -> None:
    helper = bare_machine(one) / HELPER
    helper.write_text("#!/nowhere/python\n")
    found = ours(one)["helper"]
    assert found["hint"] == f"chmod +x {helper}"
    helper.chmod(0o755)
    found = ours(one)["helper"]
    assert found["detail"] == f"{helper} does not run: No such file or directory"
    helper.write_text("#!/bin/sh\necho 'ModuleNotFoundError: git_knotless' >&2\n")
    assert "ModuleNotFoundError: git_knotless" in ours(one)["helper"]["detail"]


@sandbox_only
def test_the_helper_of_another_installation(one: GitEnv) -> None:
    helper = bare_machine(one) / HELPER
    helper.write_text(f'#!/bin/sh\nexec {shlex.quote(str(PROGRAM.with_name(HELPER)))} "$@"\n')
    helper.chmod(0o755)
    found = ours(one, code=0)["helper"]
    assert (found["status"], str(helper) in found["detail"]) == ("warn", True)
    assert found["hint"].startswith("export PATH=")


@sandbox_only
def test_a_git_that_is_too_old(one: GitEnv) -> None:
    git = bare_machine(one, HELPER) / "git"
    git.write_text(
        "#!/bin/sh\n"
        'case "$*" in *--version*) exec echo git version 2.30.9; esac\n'
        f'exec {GIT} "$@"\n'
    )
    git.chmod(0o755)
    found = ours(one)
    assert failed(found) == {"git"}
    assert found["git"]["detail"] == "git 2.30.9 is too old"


@sandbox_only
def test_no_git(one: GitEnv) -> None:
    one.env["PATH"] = str(one.root)
    found = ours(one)
    assert failed(found) == {"git", "settings"}
    assert found["helper"]["status"] == found["network"]["status"] == "skipped"
    assert "install git" in found["git"]["hint"]


@sandbox_only
def test_a_setting_that_cannot_be(one: GitEnv) -> None:
    one.git("config", "--global", "knotless.identityTtlSecs", "soon")
    found = doctor(one, code=1)
    assert failed(found) == {"settings"}
    assert "knotless.identityTtlSecs" in found["settings"]["detail"]


@sandbox_only
def test_folders_that_are_not_ours(one: GitEnv) -> None:
    sessions = Path(one.env["KNOTLESS_CONFIG_DIR"]) / "sessions"
    (session,) = sessions.glob("did_*.json")
    session.chmod(0o644)
    found = doctor(one, env={"KNOTLESS_CACHE_DIR": "/dev/null/cache"})
    assert found["cache folder"]["status"] == "warn"
    assert found["cache folder"]["detail"] == "/dev/null is not a folder"
    assert found["config folder"]["detail"] == f"{session} can be read by others"
    found = doctor(one, code=1, env={"KNOTLESS_CONFIG_DIR": "/dev/null/knotless"})
    assert failed(found) == {"config folder"}


@sandbox_only
@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_to(one: GitEnv) -> None:
    config = Path(one.env["KNOTLESS_CONFIG_DIR"]) / "sessions"
    config.chmod(0o500)
    found = doctor(one, code=1)["config folder"]
    assert found["detail"] == f"{config} cannot be written to: Permission denied"


def test_the_clock_is_off(one: GitEnv, between: Proxy) -> None:
    between.set_clock(7 * 60)
    found = doctor(one, code=1)
    assert failed(found) == {"clock"}
    assert found["clock"]["detail"] == "this machine's clock is 7 minutes behind"
    between.set_clock(-90)
    found = doctor(one)
    assert found["clock"]["status"] == "warn"
    assert found["clock"]["detail"] == "this machine's clock is 90 seconds ahead"


def test_the_hosts_clock_is_off(machine: Callable[[], GitEnv], between: Proxy) -> None:
    between.set_clock(7 * 60)
    found = doctor(machine(), between.url)
    name = between.url.removeprefix("http://")
    assert found["clock"]["detail"] == f"the clock of {name} is 7 minutes ahead"


# --- an account


def test_a_handle_that_does_not_lead_back(
    one: GitEnv, network: Network, alice: Account, between: Proxy
) -> None:
    document = network.http.get(f"{network.plc}/{alice.did}").json()
    document["service"][0]["serviceEndpoint"] = between.url
    between.document(alice.did, {**document, "alsoKnownAs": ["at://bob.test"]})
    found = doctor(one, code=1)
    assert failed(found) == {"handle"}
    assert found["handle"]["detail"] == f"bob.test does not lead to {alice.did}"
    assert f'"did={alice.did}"' in found["handle"]["hint"]
    found = doctor(one, alice.handle, code=1)
    assert failed(found) == {"handle"}
    assert "which names bob.test" in found["handle"]["detail"]
    between.document(alice.did, {**document, "verificationMethod": []})
    found = doctor(one, code=1)
    assert failed(found) == {"document"}
    assert "names no signing key" in found["document"]["detail"]


def test_nobody_has_the_handle(one: GitEnv) -> None:
    found = doctor(one, "nobody.test", code=1)
    assert failed(found) == {"handle"}
    assert found["handle"]["detail"] == "nobody.test: no such handle"
    assert found["account"]["status"] == found["host"]["status"] == "skipped"


def test_an_account_that_has_moved(one: GitEnv, network: Network, alice: Account) -> None:
    with proxy(network, alice) as host:
        one.env |= host.environment()
        found = doctor(one, code=1)
    assert failed(found) == {"session"}
    assert "has moved to" in found["session"]["detail"]
    assert found["session"]["hint"] == f"git knotless login {alice.handle}"


def test_an_account_that_is_deactivated(one: GitEnv, alice: Account) -> None:
    alice.post("com.atproto.server.deactivateAccount")
    found = doctor(one, alice.did, code=1)
    assert "account" in failed(found)
    assert "deactivated" in found["account"]["detail"]
    assert found["cursors"]["status"] in ("ok", "skipped")  # by somebody else's records


def test_a_login_that_has_ended(one: GitEnv, alice: Account, between: Proxy) -> None:
    ended = Answer.json(400, {"error": "ExpiredToken", "message": "Token has expired"})

    def act(exchange: Exchange) -> None:
        if exchange.headers["Authorization"]:
            exchange.answer(ended)
        else:
            exchange.pass_on()

    between.act(act)
    found = doctor(one, code=1)
    assert failed(found) == {"session"}
    assert found["session"]["hint"] == f"git knotless login {alice.handle}"
    assert found["spaces"]["status"] == "skipped"
    found = doctor(one, "--write", code=1)
    assert failed(found) == {"session"}
    assert found["writing"]["status"] == "skipped"


def test_an_account_that_was_never_logged_in(one: GitEnv, account: Callable[..., Account]) -> None:
    bob = account("bob")
    found = doctor(one, "--account", bob.handle, code=1)
    assert failed(found) == {"login"}
    assert found["login"]["hint"] == f"git knotless login {bob.handle}"
    assert bob.did in found["handle"]["detail"]


def in_a_browser(one: GitEnv, account: Account, scope: str) -> None:
    """Logged in for these scopes alone."""
    with one.knotless() as context:
        identity = context.resolver.resolve(account.handle)
        begun = oauth.begin(context.client, identity, scope, redirect_port=None)
        answer = Page(begun.url).approve(account.handle, account.password)
        context.sessions.save(begun.finish(context.client, answer))


@pytest.mark.testnet
@pytest.mark.parametrize("network", [run_testnet], indirect=True, ids=["testnet"])
def test_a_login_in_a_browser(one: GitEnv, alice: Account) -> None:
    in_a_browser(one, alice, login_scope())
    found = doctor(one, "--write")
    assert not_ok(found) in ({}, {"cursors": "skipped", "proofs": "skipped"})
    assert found["login"]["detail"] == f"{alice.handle}, by a browser"
    assert found["spaces"]["detail"].startswith("none")
    assert records(alice)[CLAIM] == {}


@pytest.mark.testnet
@pytest.mark.parametrize("network", [run_testnet], indirect=True, ids=["testnet"])
def test_a_login_without_a_scope(one: GitEnv, alice: Account) -> None:
    lacking = login_scope().replace(f" repo:{CLAIM}", "")
    in_a_browser(one, alice, lacking)
    found = doctor(one, "--write", code=1)
    assert failed(found) == {"scopes", "writing"}
    assert found["scopes"]["detail"] == f"not granted: repo:{CLAIM}"
    assert found["scopes"]["hint"] == found["writing"]["hint"]
    assert found["scopes"]["hint"] == f"git knotless login {alice.handle}"


# --- a host


@sandbox_only
def test_a_dead_host(one: GitEnv) -> None:
    found = doctor(one, "localhost:1", "--write", code=1)
    assert failed(found) == {"host"}
    assert "cannot be reached: connection refused" in found["host"]["detail"]
    assert "curl" in found["host"]["hint"]
    assert found["proofs"]["status"] == found["writing"]["status"] == "skipped"
    assert found["session"]["status"] == "ok"


def test_a_host_that_is_no_pds(one: GitEnv, network: Network, between: Proxy) -> None:
    assert failed(doctor(one, network.plc, code=1)) == {"host"}
    between.act(lambda exchange: exchange.answer(Answer.json(200, {})))
    found = doctor(one, between.url, code=1, env=network.environment())
    assert "is no PDS" in found["host"]["detail"]


def test_a_host_of_others_is_not_written_to(
    one: GitEnv, account: Callable[..., Account], alice: Account
) -> None:
    other = account("other", host=1)
    found = doctor(one, other.pds, "--write", code=1)
    assert failed(found) == {"writing"}
    assert "git knotless login" in found["writing"]["hint"]
    assert records(alice)[CLAIM] == {}


@sandbox_only
def test_what_is_no_target(one: GitEnv) -> None:
    done = one.git("knotless", "doctor", "http://example.com", code=1)
    assert (done.out, "use https" in done.err) == ("", True)
    for text in ("", "@"):
        done = one.git("knotless", "doctor", text, code=2)
        assert done.err.splitlines() == [
            f"error: {text!r} names neither an account nor a host",
            "hint: git knotless doctor -h",
        ]


@pytest.mark.slow
def test_a_proof_that_does_not_hold(one: GitEnv, alice: Account, between: Proxy) -> None:
    alice.create("com.example.thing", "one", {})

    def spoil(exchange: Exchange) -> None:
        answer = exchange.passed_on()
        exchange.answer(Answer(answer.status, answer.body[:-1] + b"?", answer.headers))

    between.on("sync.getRecord", spoil)
    assert failed(doctor(one, "--write", code=1)) == {"proofs", "new proofs"}
    assert records(alice)[CLAIM] == {}


def test_a_host_that_changes_blobs(one: GitEnv, between: Proxy) -> None:
    def spoil(exchange: Exchange) -> None:
        answer = exchange.passed_on()
        body = answer.body[:-1] + b"?" if answer.status == 200 else answer.body
        exchange.answer(Answer(answer.status, body, answer.headers))

    between.on("sync.getBlob", spoil)
    found = doctor(one, "--write", code=1)
    assert failed(found) == {"new blob"}
    assert found["new blob"]["detail"] == "it does not come back byte for byte"


@pytest.mark.slow
def test_a_host_that_tears_batches(one: GitEnv, between: Proxy) -> None:
    """Each write by itself, up to the first that fails."""

    def tear(exchange: Exchange) -> None:
        body = json.loads(exchange.read())
        results: list[Any] = []
        for write in body["writes"]:
            answer = exchange.passed_on(json.dumps({**body, "writes": [write]}).encode())
            if answer.status != 200:
                exchange.answer(answer)
                return
            results += json.loads(answer.body)["results"]
        exchange.answer(Answer.json(200, {"results": results}))

    between.on("repo.applyWrites", tear)
    assert failed(doctor(one, "--write", code=1)) == {"batch"}


@pytest.mark.slow
def test_a_proxy_that_takes_less(one: GitEnv, alice: Account, between: Proxy) -> None:
    small = Answer(413, b"<html>Request Entity Too Large</html>")

    def limited(exchange: Exchange) -> None:
        if exchange.size > 500_000 and exchange.nsid.endswith("applyWrites"):
            exchange.answer(small)
        else:
            exchange.pass_on()

    between.act(limited)
    found = doctor(one, "--write", code=1)
    assert failed(found) == {"large batch"}
    assert "too large" in found["large batch"]["detail"]
    assert records(alice)[PACK] == {}


# --- hosts that do not keep what pushes rely on: the sandbox, asked to be one


def on_a_sandbox(tmp_path: Path, *options: str) -> tuple[Found, dict[str, Any]]:
    with run_sandbox(*options, data=tmp_path / "network", pds=1) as network:
        account, one = network.account(), GitEnv(tmp_path / "machine", network)
        one.log_in(account)
        for number in range(3):
            account.create("com.example.thing", str(number), {})
        done = one.git("knotless", "doctor", "--write", "--json", code=None)
        return found_in(done), records(account)


def test_a_host_whose_creates_overwrite(tmp_path: Path) -> None:
    found, left = on_a_sandbox(tmp_path, "--create-updates")
    assert failed(found) == {"taken key"}
    assert "overwrites" in found["taken key"]["detail"]
    assert {*left[CLAIM], *left[PACK]} == set()


def test_a_host_whose_cursors_do_not_seek(tmp_path: Path) -> None:
    found, left = on_a_sandbox(tmp_path, "--no-seek")
    assert not_ok(found) == {"cursors": "warn", "new listing": "warn"}
    assert {*left[CLAIM], *left[PACK]} == set()


@pytest.mark.slow
@pytest.mark.parametrize("options", [("--clean-errors",), ("--blob-limit", "100000000")])
def test_hosts_that_are_well_in_other_ways(tmp_path: Path, options: tuple[str, ...]) -> None:
    found, _ = on_a_sandbox(tmp_path, *options)
    assert not_ok(found) == ({} if options[0] == "--clean-errors" else {"limit held": "skipped"})


# --- what is written is removed


def at_write(number: int, act: Callable[[Exchange], None]) -> Callable[[Exchange], None]:
    """`act` for that of the requests that write, and only that."""
    left = [number]

    def choose(exchange: Exchange) -> None:
        if exchange.method == "POST":
            left[0] -= 1
        if exchange.method == "POST" and left[0] == 0:
            act(exchange)
        else:
            exchange.pass_on()

    return choose


def ended_by(one: GitEnv, host: Proxy, signum: int, number: int) -> int:
    """Its exit code, after that signal at that write, which the host has carried out."""

    def end(exchange: Exchange) -> None:
        answer = exchange.passed_on()
        process.send_signal(signum)
        if signum != signal.SIGKILL:
            exchange.answer(answer)
        else:
            exchange.cut()

    host.act(at_write(number, end))
    with one.start(str(PROGRAM), "doctor", "--write") as process:
        process.communicate(timeout=60)
    host.well()
    return process.returncode


@pytest.mark.parametrize(
    "number", [1, *(pytest.param(number, marks=pytest.mark.slow) for number in (6, 8, 11))]
)
def test_killed_and_run_again(one: GitEnv, alice: Account, between: Proxy, number: int) -> None:
    """At its first write, its largest, after an upload, and as it removes what it wrote."""
    one.create(f"{alice.handle}/work")
    before = records(alice)
    assert ended_by(one, between, signal.SIGKILL, number) == -signal.SIGKILL
    left = sum(len(records(alice)[each]) - len(before[each]) for each in COLLECTIONS)
    assert left or number == 11
    found = doctor(one, "--write")
    assert (f"nor are {left} records" in found["removal"]["detail"]) == bool(left)
    assert records(alice) == before


@pytest.mark.slow
def test_ended_by_ctrl_c(one: GitEnv, alice: Account, between: Proxy) -> None:
    before = records(alice)
    for number in (1, 6):
        assert ended_by(one, between, signal.SIGINT, number) == 130
        assert records(alice) == before


@pytest.mark.slow
def test_an_answer_that_is_lost(one: GitEnv, alice: Account, between: Proxy) -> None:
    """Of each write at its first sending: all of them landed."""
    before = records(alice)
    lost: set[bytes] = set()

    def lose(exchange: Exchange) -> None:
        body = exchange.read()
        exchange.passed_on(body)
        if body in lost:
            exchange.answer(exchange.passed_on(body))
        else:
            lost.add(body)
            exchange.cut()

    between.on("repo.applyWrites", lose)
    doctor(one, "--write", code=0)
    assert len(lost) > 5
    assert records(alice) == before


@pytest.mark.slow
def test_what_cannot_be_removed_now(one: GitEnv, alice: Account, between: Proxy) -> None:
    def refuse(exchange: Exchange) -> None:
        body = exchange.read()
        if b"applyWrites#create" not in body and b'"delete"' not in body and b"#delete" in body:
            exchange.answer(Answer.json(429, {"error": "RateLimitExceeded", "message": "Later"}))
        else:
            exchange.answer(exchange.passed_on(body))

    before = records(alice)
    between.on("repo.applyWrites", refuse)
    found = doctor(one, "--write", code=1)
    assert "removal" in failed(found)
    assert "--write" in found["removal"]["hint"]
    assert records(alice) != before
    between.well()
    doctor(one, "--write")
    assert records(alice) == before


@pytest.mark.slow
def test_nothing_else_is_removed(one: GitEnv, alice: Account, between: Proxy) -> None:
    """Not a repository whose key is like those of check-ups, and nothing that is being written."""
    claim = {"repo": MARKED, "epoch": 1, "nonce": "n", "createdAt": TIME}
    alice.create(REPO, "odd", {"key": MARKED, "epoch": 1, "createdAt": TIME})
    alice.create(REPO, "odder", {"key": [MARKED]})
    alice.create(CLAIM, f"{MARKED}.epoch.1", claim)
    other = MARKED.replace("abc", "xyz")
    alice.create(CLAIM, f"{other}.epoch.1", {**claim, "repo": other})

    def write_too(exchange: Exchange) -> None:
        alice.create(CLAIM, f"{other}.epoch.2", {**claim, "repo": other, "epoch": 2})
        exchange.pass_on()

    between.act(at_write(4, write_too))
    assert failed(doctor(one, "--write")) == set()
    assert set(alice.records(CLAIM)) == {
        f"{MARKED}.epoch.1",
        f"{other}.epoch.1",
        f"{other}.epoch.2",
    }
    between.well()
    doctor(one, "--write")
    assert set(alice.records(CLAIM)) == {f"{MARKED}.epoch.1"}
