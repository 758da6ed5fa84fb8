"""The commands against real hosts: git's state first, then the records, then what is printed."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.gitenv import GitEnv, Result
from tests.marks import sandbox_only
from tests.network import Account

MakeAccount = Callable[..., Account]
MakeMachine = Callable[[], GitEnv]
REPO = "dev.knotless.repo"
RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def knotless(machine: GitEnv, *arguments: str, **options: Any) -> Result:
    return machine.git("knotless", *arguments, **options)


def as_json(machine: GitEnv, *arguments: str, **options: Any) -> dict[str, Any]:
    result = knotless(machine, *arguments, "--json", **options)
    assert not result.err
    document = json.loads(result.out)
    assert isinstance(document, dict)
    return document


def on_terminal(
    machine: GitEnv, *arguments: str, typed: str | None = None, signum: int | None = None
) -> tuple[int, str]:
    """The exit code, and what is shown, of a command whose standard streams are a terminal.

    `typed` is written, or `signum` sent, once the command asks: what comes before a password
    prompt is dropped.
    """
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        ["git-knotless", *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=machine.root,
        env=machine.env,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        try:
            shown = b"" if typed is None and signum is None else read_until(ours, b": ")
            os.write(ours, (typed or "").encode())
            if signum is not None:
                process.send_signal(signum)
            shown += read_until(ours, None)
        finally:
            os.close(ours)
            process.terminate()
    return process.returncode, shown.decode()


def read_until(terminal: int, end: bytes | None) -> bytes:
    """What a terminal shows, up to `end` or until its other side is closed."""
    shown = b""
    while end is None or not shown.endswith(end):
        assert select.select([terminal], [], [], 30)[0], shown
        try:
            shown += os.read(terminal, 4096)
        except OSError:
            break
    return shown


def test_a_password_that_is_asked_for_is_not_shown(machine: MakeMachine, alice: Account) -> None:
    code, shown = on_terminal(
        machine(), "login", alice.handle, "--password-stdin", typed=f"{alice.password}\n"
    )
    assert code == 0
    assert f"logged in as {alice.handle}" in shown
    assert alice.password not in shown.replace("\r\n", "")


def test_a_wrong_password_is_one_line(machine: MakeMachine, alice: Account) -> None:
    done = knotless(machine(), "login", alice.handle, "--password-stdin", stdin="no\n", code=1)
    host = alice.pds.removeprefix("http://")
    assert done.err.splitlines() == [
        f"error: wrong password for {alice.handle}",
        f"hint: an app password is made in the account's settings at {host}",
    ]


@sandbox_only
def test_ctrl_c_at_the_password_leaves_the_line(machine: MakeMachine, alice: Account) -> None:
    asked = ("login", alice.handle, "--password-stdin")
    code, shown = on_terminal(machine(), *asked, signum=signal.SIGINT)
    assert code == 130
    assert shown.endswith(": \r\n")
    assert "Traceback" not in shown


def test_create_adds_the_remote_and_pushes(one: GitEnv, alice: Account) -> None:
    work = one.repository("notes")
    (work / "sub").mkdir()
    done = knotless(one, "create", "--push", "--description", "a b", cwd=work / "sub")
    url = f"knotless://{alice.handle}/notes"
    assert one.git("remote", "get-url", "origin", cwd=work).out == f"{url}\n"
    assert one.oid(work, "main@{upstream}") == one.oid(work)
    record = alice.record(REPO, "notes")
    assert record is not None
    assert (record["description"], record["defaultBranch"]) == ("a b", "main")
    assert done.out == f"{url}\n"
    assert done.err.startswith("added the remote origin\n")


@sandbox_only
def test_create_leaves_a_remote_that_is_there(one: GitEnv, alice: Account) -> None:
    work = one.repository()
    one.git("remote", "add", "origin", "https://git.example/x", cwd=work)
    url = f"knotless://{alice.handle}/first"
    done = knotless(one, "create", "first", cwd=work)
    assert one.git("remote", cwd=work).out == "origin\n"
    assert (done.out, done.err) == (
        f"{url}\n",
        f"hint: to push here: git remote add knotless {url}\n",
    )
    one.git("remote", "set-url", "origin", f"knotless://{alice.handle}/second", cwd=work)
    assert knotless(one, "create", "second", cwd=work).err == "the remote origin is that already\n"
    full = f"{alice.handle}/second"
    knotless(one, "repo", "delete", full, "--yes", full, cwd=work)
    refused = knotless(one, "create", "second", "--push", cwd=work, code=1)
    assert alice.record(REPO, "second") is None
    assert refused.err.splitlines() == [
        "error: this repository has a remote origin already",
        f"hint: git knotless create {alice.handle}/second --remote NAME",
    ]
    as_json(one, "create", f"{alice.did}/second", "--remote", "mine", cwd=work)
    assert one.git("remote", "get-url", "mine", cwd=work).out.endswith("/second\n")


@sandbox_only
def test_create_refuses_before_anything_is_made(one: GitEnv, alice: Account) -> None:
    work = one.repository(commits=0)
    assert "no commit" in knotless(one, "create", "--push", cwd=work, code=1).err
    assert "remote" in knotless(one, "create", "--remote", "-x", cwd=work, code=1).err
    full_name = knotless(one, "create", "--default-branch", "refs/heads/x", cwd=work, code=1)
    assert full_name.err.endswith("name the branch: x\n")
    assert not one.git("remote", cwd=work).out
    assert not alice.records(REPO)


def hooked(machine: GitEnv, script: str) -> Path:
    """A repository whose pushes run `script` first."""
    work = machine.repository("notes")
    hook = work / ".git/hooks/pre-push"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\n{script}\n")
    hook.chmod(0o755)
    return work


def test_a_push_that_fails_leaves_what_was_created(one: GitEnv, alice: Account) -> None:
    work = hooked(one, "echo no >&2; exit 1")
    done = knotless(one, "create", "--push", cwd=work, code=1)
    url = f"knotless://{alice.handle}/notes"
    assert alice.record(REPO, "notes") is not None
    assert done.out == f"{url}\n"
    assert done.err.splitlines()[-2:] == [
        f"error: created {url}, but not pushed",
        "hint: git push -u origin main",
    ]
    arguments = ["create", "second", "--push", "--remote", "mine", "--json"]
    done = knotless(one, *arguments, cwd=work, code=1)
    check_shape(json.loads(done.out), alice, "second")
    assert json.loads(done.err.splitlines()[-1]) == {
        "error": "NotPushed",
        "message": f"created knotless://{alice.handle}/second, but not pushed",
        "hint": "git push -u mine main",
    }


@sandbox_only
@pytest.mark.parametrize(
    ("signum", "code"),
    [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("whole_group", [True, False])
def test_a_push_that_is_interrupted_leaves_what_was_created(
    signum: int, code: int, whole_group: bool, one: GitEnv, alice: Account
) -> None:
    work = hooked(one, f"touch {one.root}/begun; while [ -e {one.root}/begun ]; do sleep 0.1; done")
    with one.start("git-knotless", "create", "--push", cwd=work) as process:
        until = time.monotonic() + 30
        while not (one.root / "begun").exists() and time.monotonic() < until:
            time.sleep(0.02)  # the hook of another process says that it is there
        (os.killpg if whole_group else os.kill)(process.pid, signum)
        process.wait(20)
        (one.root / "begun").unlink()  # git does not end its hook, which has our pipes too
        out, err = process.communicate(timeout=20)
    url = f"knotless://{alice.handle}/notes"
    assert alice.record(REPO, "notes") is not None
    assert (process.returncode, out.decode()) == (code, f"{url}\n")
    assert err.decode().splitlines()[-2:] == [
        f"error: created {url}, but not pushed",
        "hint: git push -u origin main",
    ]


def test_a_name_that_is_taken(one: GitEnv, alice: Account) -> None:
    knotless(one, "create", "notes")
    url = f"knotless://{alice.handle}/notes"
    error = {"error": "AlreadyExists", "message": f"{url} already exists"}
    place = f"{alice.handle}/"
    for name, new in (("notes", "NEW"), (f"{place}notes", f"{place}NEW")):
        done = knotless(one, "repo", "create", name, "--json", code=1)
        hint = f"git knotless repo create {new} --json"
        assert json.loads(done.err) == {**error, "hint": hint}
    unnamed = knotless(one, "create", cwd=one.repository("notes"), code=1)
    assert unnamed.err.endswith("hint: git knotless create NEW\n")


def test_another_account_is_not_ours_to_create_in(
    one: GitEnv, alice: Account, account: MakeAccount
) -> None:
    bob = account("bob")
    done = knotless(one, "create", f"{bob.handle}/notes", code=4)
    assert done.err.splitlines() == [
        f"error: not logged in as {bob.handle}",
        f"hint: git knotless login {bob.handle}",
    ]
    one.log_in(bob)
    knotless(one, "create", "notes", code=1)
    knotless(one, "create", f"{bob.handle}/notes", "--account", alice.handle, code=1)
    knotless(one, "create", f"{bob.handle}/notes")
    assert list(bob.records(REPO)) == ["notes"]
    assert not alice.records(REPO)


KEYS = ["uri", "url", "name", "key", "epoch", "description", "defaultBranch"]
KEYS += ["createdAt", "updatedAt", "archived", "collaborators", "rules"]
KEYS += ["forkOf", "transfer", "transferredFrom"]


def check_shape(document: dict[str, Any], alice: Account, name: str) -> None:
    assert [key for key in document if key != "refs"] == KEYS
    assert document["uri"] == f"at://{alice.did}/{REPO}/{name}"
    assert document["url"] == f"knotless://{alice.handle}/{name}"
    assert document["name"] == name
    assert RFC_3339.fullmatch(document["createdAt"])
    assert RFC_3339.fullmatch(document["updatedAt"])


def test_every_command_answers_in_one_shape(one: GitEnv, alice: Account) -> None:
    made = as_json(one, "create", "notes", "--description", "é")
    full = f"{alice.handle}/notes"
    one.git("push", made["url"], "main", "main:refs/tags/v1", cwd=one.repository())
    shown = as_json(one, "repo", "view", full)
    listed = as_json(one, "repo", "list", alice.handle)
    edited = as_json(one, "repo", "edit", full, "--protect", "main")
    for document in (made, shown, edited, *listed["items"]):
        check_shape(document, alice, "notes")
    assert list(listed) == ["items"]
    refs = {ref["name"]: ref["target"] for ref in shown["refs"]}
    assert refs == dict.fromkeys(("refs/heads/main", "refs/tags/v1"), one.oid(one.root / "work"))
    gone = as_json(one, "repo", "delete", full, "--yes", full)
    assert list(gone.items()) == [(key, made[key]) for key in ("uri", "url", "name")]


def test_a_record_cannot_say_that_it_is_elsewhere(one: GitEnv, alice: Account) -> None:
    knotless(one, "create", "notes")
    record = alice.record(REPO, "notes")
    assert record is not None
    alice.put(REPO, "notes", record | {"url": "knotless://bank.test/x", "uri": "x", "name": "y"})
    check_shape(as_json(one, "repo", "show", f"{alice.handle}/notes"), alice, "notes")


def test_show_and_list_for_people(one: GitEnv, alice: Account, account: MakeAccount) -> None:
    bob = account("bob")
    work = one.repository("notes")
    knotless(one, "create", "--push", "--description", "esc \x1b[31m", cwd=work)
    knotless(one, "repo", "edit", "--add-collaborator", bob.handle, "--archived", cwd=work)
    rows = dict(
        line.split("  ", 1) for line in knotless(one, "repo", "show", cwd=work).out.splitlines()
    )
    assert {name.strip(): value.strip() for name, value in rows.items()} | {"created": ""} == {
        "url": f"knotless://{alice.handle}/notes",
        "description": r"esc \x1b[31m",
        "default branch": "main",
        "created": "",
        "archived": "yes",
        "collaborators": bob.handle,
        "branches": "1",
        "tags": "0",
    }
    knotless(one, "create", "other", "--description", "word " * 99)
    notes, other = knotless(one, "repo", "list").out.splitlines()
    assert re.fullmatch(r"notes\tesc \\x1b\[31m\t\S+Z\tarchived", notes)
    assert re.fullmatch(r"other\t(word ){99}\t\S+Z\t", other)
    assert knotless(one, "repo", "list", bob.handle).out == ""
    code, shown = on_terminal(one, "repo", "list")
    assert code == 0
    head, notes, other = shown.splitlines()
    assert head.split() == ["name", "description", "created"]
    assert re.fullmatch(r"notes +esc \\x1b\[31m +\d{4}-\d\d-\d\d +archived", notes.rstrip())
    assert re.fullmatch(r"other +word .*… +\d{4}-\d\d-\d\d", other.rstrip())


def test_edit_changes_the_record_and_moves_the_epoch(one: GitEnv, alice: Account) -> None:
    knotless(one, "create", "notes")
    before = alice.record(REPO, "notes")
    full = f"{alice.handle}/notes"
    knotless(one, "repo", "edit", full, "--description", "", "--protect", "main")
    after = alice.record(REPO, "notes")
    assert before is not None
    assert after is not None
    assert after["rules"] == [{"branch": "main"}]
    assert after["epoch"] == before["epoch"] + 1
    knotless(one, "repo", "edit", full, "--protect", "main")
    assert alice.record(REPO, "notes") == after, "nothing to change is nothing to write"


def test_a_default_branch_that_is_not_there_is_refused(one: GitEnv, alice: Account) -> None:
    work = one.repository("notes")
    url = f"knotless://{alice.handle}/notes"
    knotless(one, "create", cwd=work)
    assert not knotless(one, "repo", "edit", "--default-branch", "trunk", cwd=work).err
    one.git("push", "origin", *(f"main:refs/heads/b{n}" for n in range(7)), cwd=work)
    before = alice.record(REPO, "notes")
    edit = ["repo", "edit", "--default-branch"]
    error = json.loads(knotless(one, *edit, "trunk", "--json", cwd=work, code=1).err)
    assert error["error"] == "NoSuchBranch"
    assert error["message"] == f"{url} has no branch trunk: it has b0, b1, b2, b3, b4 and 2 more"
    assert alice.record(REPO, "notes") == before
    assert not knotless(one, *edit, "b6", cwd=work).err


def test_a_protected_branch_that_is_not_there_is_mentioned(one: GitEnv, alice: Account) -> None:
    work = one.repository("notes")
    knotless(one, "create", "--push", cwd=work)
    for option in ([], ["--json"]):
        done = knotless(one, "repo", "edit", "--protect", "rel", *option, cwd=work)
        assert done.err == f"warning: knotless://{alice.handle}/notes has no branch rel yet\n"
    record = alice.record(REPO, "notes")
    assert record is not None
    assert record["rules"] == [{"branch": "rel"}]
    assert not knotless(one, "repo", "edit", "--protect", "main", cwd=work).err


def test_collaborators_are_told_by_what_was_typed(
    one: GitEnv, alice: Account, account: MakeAccount
) -> None:
    bob, full = account("bob"), f"@{alice.handle}/notes"
    knotless(one, "create", full)
    done = knotless(one, "repo", "edit", full, "--add-collaborator", f"@{bob.handle}")
    record = alice.record(REPO, "notes")
    assert record is not None
    assert record["collaborators"] == [bob.did]
    assert "without one only the owner pushes" in done.err
    knotless(one, "repo", "edit", full, "--remove-collaborator", bob.did)
    gone = knotless(one, "repo", "edit", full, "--remove-collaborator", bob.handle, code=1)
    assert gone.err == f"error: {bob.handle} is not a collaborator on notes\n"


def test_delete_asks_for_the_full_name(one: GitEnv, alice: Account) -> None:
    knotless(one, "create", "notes")
    full = f"{alice.handle}/notes"
    done = knotless(one, "repo", "delete", full, code=1)
    assert done.err.splitlines()[-1] == f"hint: git knotless repo delete {full} --yes {full}"
    for name in ("other", "notes"):
        knotless(one, "repo", "delete", full, "--yes", name, code=2)
    code, shown = on_terminal(one, "repo", "delete", full, typed="notes\n")
    assert code == 1
    assert "nothing was changed" in shown
    assert alice.record(REPO, "notes") is not None
    code, shown = on_terminal(one, "repo", "delete", full, typed=f"{full}\n")
    assert code == 0
    assert alice.record(REPO, "notes") is None
    assert not alice.records("dev.knotless.claim")


@pytest.mark.parametrize("spelt", ["{handle}/notes", "@{handle}/notes", "knotless://{did}/notes"])
def test_delete_in_a_clone_takes_no_short_name(one: GitEnv, alice: Account, spelt: str) -> None:
    work = one.repository("notes")
    knotless(one, "create", cwd=work)
    knotless(one, "repo", "delete", "--yes", "notes", cwd=work, code=2)
    yes = spelt.format(handle=alice.handle, did=alice.did)
    knotless(one, "repo", "delete", "--yes", yes, cwd=work)
    assert alice.record(REPO, "notes") is None


def test_what_is_not_there(one: GitEnv, alice: Account) -> None:
    full = f"{alice.handle}/none"
    error = f"error: knotless://{full}: no such repository\n"
    for command in (["show", full], ["edit", full, "--archived"], ["delete", full, "--yes", full]):
        assert knotless(one, "repo", *command, code=1).err == error


def test_clone(one: GitEnv, alice: Account, machine: MakeMachine) -> None:
    work = one.repository("notes")
    knotless(one, "create", "--push", cwd=work)
    two = machine()
    knotless(two, "clone", f"{alice.did}/notes", "there", "--", "--branch", "main", "--quiet")
    assert two.refs(two.root / "there")["refs/heads/main"] == one.oid(work)
    missing = knotless(two, "clone", f"{alice.handle}/none", code=128)
    assert "no such repository" in missing.err
    assert not (two.root / "none").exists()


def test_several_accounts(one: GitEnv, alice: Account, account: MakeAccount) -> None:
    bob = account("bob")
    one.log_in(bob)
    ambiguous = json.loads(knotless(one, "whoami", "--json", code=1).err)
    assert ambiguous["error"] == "AmbiguousAccount"
    assert alice.handle in ambiguous["message"]
    assert as_json(one, "whoami", "--account", bob.handle)["did"] == bob.did
    assert as_json(one, "whoami", env={"KNOTLESS_ACCOUNT": alice.did})["did"] == alice.did
    one.git("config", "--global", "knotless.account", bob.handle)
    assert as_json(one, "whoami")["did"] == bob.did
    knotless(one, "create", f"{alice.handle}/notes")
    edit = ["repo", "edit", f"{alice.handle}/notes", "--archived"]
    assert "is not in" in knotless(one, *edit, "--account", bob.handle, code=1).err
    knotless(one, *edit, "--account", alice.handle)
    knotless(one, *edit[:-1], "--no-archived", env={"KNOTLESS_ACCOUNT": bob.handle})
    record = alice.record(REPO, "notes")
    assert record is not None
    assert "archived" not in record, "as the owner, whoever the settings say"
    as_json(one, "logout", alice.handle)
    assert as_json(one, "whoami")["did"] == bob.did


def test_a_password_logs_in_the_account_beside_it_and_no_other(
    machine: MakeMachine, alice: Account, account: MakeAccount
) -> None:
    bob, one = account("bob", password="of bob alone"), machine()
    env = {"KNOTLESS_ACCOUNT": bob.handle, "KNOTLESS_PASSWORD": "of bob alone"}
    done = knotless(one, "create", f"{alice.handle}/notes", env=env, code=4)
    assert done.err.startswith(f"error: not logged in as {alice.handle}\n")
    knotless(one, "create", "notes", env=env)
    assert list(bob.records(REPO)) == ["notes"]


def test_a_session_that_was_ended_is_a_login_that_is_missing(one: GitEnv, alice: Account) -> None:
    (file,) = one.home.rglob("did_*.json")
    session = json.loads(file.read_text())
    ended = {"access": session["access"] + "x", "refresh": session["refresh"] + "x"}
    file.write_text(json.dumps(session | ended))
    done = knotless(one, "create", "notes", code=4)
    assert done.err.splitlines()[-1] == f"hint: git knotless login {alice.handle}"
    assert as_json(one, "repo", "list") == {"items": []}, "reading needs none"


def session_file(machine: GitEnv, account: Account) -> Path:
    (file,) = machine.home.rglob(f"{account.did.replace(':', '_')}.json")
    return file


@sandbox_only
def test_a_damaged_session_is_in_nobody_elses_way(
    one: GitEnv, alice: Account, account: MakeAccount
) -> None:
    """Nobody was chosen among the two."""
    bob = account("bob")
    one.log_in(bob)
    session_file(one, alice).write_text("{")
    assert as_json(one, "whoami", "--account", bob.handle)["did"] == bob.did
    assert not knotless(one, "create", f"{bob.handle}/notes").err
    done = knotless(one, "whoami")
    assert f"did   {bob.did}".split() in [line.split() for line in done.out.splitlines()]
    assert done.err.startswith("warning: ")
    assert alice.did in done.err
    meant = knotless(one, "create", f"{alice.handle}/notes", code=4)
    assert meant.err.splitlines()[-1] == f"hint: git knotless login {alice.handle}"
    assert "is damaged" in meant.err


@sandbox_only
@pytest.mark.parametrize("named", ["handle", "did", None])
def test_a_damaged_session_can_be_logged_out(
    one: GitEnv, alice: Account, named: str | None
) -> None:
    file = session_file(one, alice)
    file.write_text("{")
    arguments = [] if named is None else [getattr(alice, named)]
    done = knotless(one, "logout", *arguments, "--json")
    unknown = {"handle": None, "did": alice.did, "pds": None, "revoked": False}
    assert json.loads(done.out) == unknown
    assert done.err.startswith("warning: logged out here; its host could not be told: ")
    assert not file.exists()


@sandbox_only
def test_a_host_that_is_down_is_logged_out_of_here(one: GitEnv, alice: Account) -> None:
    file = session_file(one, alice)
    session = json.loads(file.read_text())
    file.write_text(json.dumps(session | {"pds": "http://localhost:1"}))
    done = knotless(one, "logout")
    assert not file.exists()
    assert done.out == f"logged out {alice.handle} ({alice.did})\n"
    why = "localhost:1 cannot be reached: connection refused"
    assert done.err.splitlines() == [
        f"warning: logged out here; localhost:1 could not be told: {why}",
        "hint: revoke the app password in the account's settings at localhost:1",
    ]


def test_an_account_that_has_gone_is_looked_up_again(one: GitEnv, alice: Account) -> None:
    knotless(one, "create", "notes")
    (cache,) = one.home.rglob("identity.json")
    assert alice.did in cache.read_text()
    alice.post("com.atproto.server.deactivateAccount")
    done = knotless(one, "repo", "show", f"{alice.handle}/notes", code=1)
    assert "deactivated" in done.err
    assert alice.did not in cache.read_text()


@sandbox_only
def test_a_host_that_is_down_is_one_line(one: GitEnv, tmp_path: Path) -> None:
    env = {"KNOTLESS_HANDLE_RESOLVER": "http://localhost:1", "KNOTLESS_CACHE_DIR": str(tmp_path)}
    done = knotless(one, "repo", "show", "nobody.test/x", env=env, code=1)
    first, hint = done.err.splitlines()
    assert "localhost:1 cannot be reached" in first
    assert hint == "hint: git knotless doctor"


@sandbox_only
def test_create_makes_nothing_that_cannot_be_pushed_to(one: GitEnv, alice: Account) -> None:
    work = one.repository(commits=3)
    shallow, other = one.root / "shallow", one.root / "sha256"
    one.git("clone", "-q", "--depth=1", f"file://{work}", str(shallow))
    one.git("remote", "remove", "origin", cwd=shallow)
    one.git("init", "-q", "--object-format=sha256", str(other))
    one.commit(other)
    for place, word in ((shallow, "shallow"), (other, "sha256")):
        refused = one.git("knotless", "create", "--push", cwd=place, code=1)
        assert word in refused.err
        assert alice.record("dev.knotless.repo", place.name) is None
