"""Logging in with an app password, several accounts, and which of them commands act as."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.browser import Opener
from tests.gitenv import GitEnv
from tests.marks import sandbox_only
from tests.network import Account

MakeAccount = Callable[..., Account]
MakeMachine = Callable[[], GitEnv]
KEYS = ["handle", "did", "pds", "kind", "scopes", "expiresAt", "inUse", "ended"]


@pytest.fixture
def bob(account: MakeAccount) -> Account:
    return account("bob", host=1)


@pytest.fixture
def one(machine: MakeMachine) -> GitEnv:
    return machine()


def as_json(machine: GitEnv, *arguments: str, **options: Any) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(machine.git("knotless", *arguments, "--json", **options).out)
    return shown


def logged_in(machine: GitEnv) -> dict[str, dict[str, Any]]:
    return {each["did"]: each for each in as_json(machine, "account", "list")["items"]}


def session_file(machine: GitEnv, account: Account) -> Path:
    return machine.home / f"knotless/sessions/{account.did.replace(':', '_')}.json"


def test_login_whoami_logout(one: GitEnv, alice: Account) -> None:
    told = one.login(alice)
    assert (told.out, told.err) == (f"logged in as {alice.handle} ({alice.did})\n", "")
    who = as_json(one, "whoami")
    assert list(who) == [*KEYS, "commitsAs"]
    account = {"handle": alice.handle, "did": alice.did, "pds": alice.pds}
    assert {key: who[key] for key in account} == account
    assert (who["kind"], who["scopes"], who["inUse"], who["ended"]) == (
        "password", None, True, False,
    )  # fmt: skip
    assert as_json(one, "auth", "status") == who
    assert as_json(one, "logout") == account | {"revoked": True}
    assert not session_file(one, alice).exists()
    assert one.git("knotless", "whoami", code=4).err.startswith("error: nobody is logged in\n")


@sandbox_only
def test_what_a_person_is_shown_of_an_account(one: GitEnv, alice: Account) -> None:
    one.login(alice)
    rows = [line.split(maxsplit=1) for line in one.git("knotless", "whoami").out.splitlines()]
    shown = dict(rows)
    expires = shown.pop("token")
    assert expires == f"until {as_json(one, 'whoami')['expiresAt']}, then renewed"
    person = one.git("var", "GIT_AUTHOR_IDENT").out.rsplit(" ", 2)[0]
    assert shown == {
        "handle": alice.handle,
        "did": alice.did,
        "host": alice.pds.removeprefix("http://"),
        "login": "password",
        "commits": person,
    }


@sandbox_only
def test_without_an_identity_of_gits_commits_are_the_accounts(one: GitEnv, alice: Account) -> None:
    one.login(alice)
    for key in ("name", "email"):
        one.git("config", "--global", "--unset", f"user.{key}")
    by = as_json(one, "whoami")["commitsAs"]
    assert by == {"name": alice.handle, "email": f"{alice.did}@knotless.invalid"}


def test_a_password_from_the_environment(one: GitEnv, alice: Account) -> None:
    """No browser is opened for it."""
    Opener.on(one)
    env = {"KNOTLESS_PASSWORD": alice.password}
    done = one.git("knotless", "login", f"@{alice.handle}", env=env)
    assert done.out == f"logged in as {alice.handle} ({alice.did})\n"
    assert done.err == "logging in with KNOTLESS_PASSWORD\n"
    assert logged_in(one)[alice.did]["kind"] == "password"


@sandbox_only
def test_a_host_of_app_passwords_only_says_so(one: GitEnv, alice: Account) -> None:
    """Before anybody is sent anywhere."""
    opener = Opener.on(one)
    error = json.loads(one.git("knotless", "login", alice.handle, "--json", code=1).err)
    assert error["error"] == "NoOAuth"
    assert "app password" in error["message"]
    assert error["hint"] == f"git knotless login {alice.handle} --password-stdin"
    assert not opener.kept.exists()


@sandbox_only
def test_a_folder_that_takes_no_session_is_told_before_one_is_begun(
    one: GitEnv, alice: Account
) -> None:
    opener = Opener.on(one)
    (one.home / "file").touch()
    env = {"KNOTLESS_CONFIG_DIR": str(one.home / "file")}
    error = one.git("knotless", "login", alice.handle, env=env, code=1).err
    assert error.startswith(f"error: {one.home}/file/sessions cannot be written: ")
    assert not opener.kept.exists()


def test_of_two_accounts_the_first_stays_in_use_until_another_is_chosen(
    one: GitEnv, alice: Account, bob: Account
) -> None:
    one.login(alice)
    told = one.login(bob)
    assert told.err.splitlines() == [
        f"note: commands act as {alice.handle}; to have them act as {bob.handle}:",
        f"hint: git knotless account use {bob.handle}",
    ]
    assert {did: each["inUse"] for did, each in logged_in(one).items()} == {
        alice.did: True, bob.did: False,
    }  # fmt: skip

    used = one.git("knotless", "account", "use", f"@{bob.handle}")
    assert used.out == f"commands act as {bob.handle} ({bob.did})\n"
    assert as_json(one, "whoami")["did"] == bob.did
    one.git("knotless", "create", "notes")
    assert list(bob.records("dev.knotless.repo")) == ["notes"]
    assert as_json(one, "whoami", "--account", alice.handle)["did"] == alice.did
    assert as_json(one, "auth", "switch", alice.did)["inUse"] is True
    assert as_json(one, "whoami")["did"] == alice.did

    assert as_json(one, "logout")["did"] == alice.did
    assert as_json(one, "whoami")["did"] == bob.did


@sandbox_only
def test_a_second_login_takes_the_choice_from_nobody(
    one: GitEnv, alice: Account, bob: Account
) -> None:
    """Nor does a password that logs in for one command, or the end of the one that was chosen."""
    one.log_in(alice)
    assert not (one.home / "knotless/account").exists()
    one.login(bob)
    assert as_json(one, "whoami")["did"] == alice.did
    one.git("knotless", "logout")
    assert as_json(one, "whoami")["did"] == bob.did
    one.login(alice)
    assert as_json(one, "whoami")["did"] == bob.did
    one.git("knotless", "logout", alice.handle)
    (one.home / "knotless/account").unlink(missing_ok=True)
    password = {"KNOTLESS_ACCOUNT": alice.handle, "KNOTLESS_PASSWORD": alice.password}
    one.git("knotless", "create", "notes", env=password)
    assert as_json(one, "whoami")["did"] == bob.did


@sandbox_only
def test_who_is_not_logged_in_is_not_chosen(one: GitEnv, alice: Account, bob: Account) -> None:
    one.login(alice)
    for who in (bob.handle, bob.did):
        done = one.git("knotless", "account", "use", who, code=4)
        assert done.err.splitlines() == [
            f"error: not logged in as {who}",
            f"hint: git knotless login {who}",
        ]
    assert as_json(one, "whoami")["did"] == alice.did


@sandbox_only
def test_what_is_set_comes_before_what_was_chosen(
    one: GitEnv, alice: Account, bob: Account
) -> None:
    one.login(alice)
    one.login(bob)
    env = {"KNOTLESS_ACCOUNT": alice.handle}
    done = one.git("knotless", "account", "use", bob.handle, env=env)
    assert done.err == (
        f"warning: KNOTLESS_ACCOUNT or knotless.account names {alice.handle}, which comes first\n"
    )
    listed = as_json(one, "account", "list", env=env)["items"]
    assert [each["did"] for each in listed if each["inUse"]] == [alice.did]
    assert as_json(one, "whoami")["did"] == bob.did


@sandbox_only
def test_where_nobody_was_chosen_a_command_says_which_there_are(
    one: GitEnv, alice: Account, bob: Account
) -> None:
    one.login(alice)
    one.login(bob)
    (one.home / "knotless/account").unlink()
    done = one.git("knotless", "create", "notes", code=1)
    names = ", ".join(sorted([alice.handle, bob.handle]))
    assert done.err.splitlines()[0] == f"error: several accounts are logged in: {names}"
    assert not any(each["inUse"] for each in logged_in(one).values())
    assert one.login(alice).err.splitlines() == [
        f"note: no account is chosen; to have them act as {alice.handle}:",
        f"hint: git knotless account use {alice.handle}",
    ]


def test_a_login_replaces_one_that_there_is(one: GitEnv, alice: Account) -> None:
    one.login(alice)
    before = session_file(one, alice).read_text()
    one.login(alice)
    assert session_file(one, alice).read_text() != before
    assert list(logged_in(one)) == [alice.did]


@sandbox_only
def test_a_list_for_programs_is_a_line_an_account(
    one: GitEnv, alice: Account, bob: Account
) -> None:
    nobody = one.git("knotless", "account", "list")
    assert nobody.out == ""
    assert nobody.err == "nobody is logged in\nhint: git knotless login HANDLE\n"
    one.login(alice)
    one.login(bob)
    file = session_file(one, bob)
    ended = json.loads(file.read_text()) | {"access": "", "refresh": ""}
    file.write_text(json.dumps(ended))
    rows = [line.split("\t") for line in one.git("knotless", "account", "list").out.splitlines()]
    hosts = [each.pds.removeprefix("http://") for each in (alice, bob)]
    assert sorted(rows) == sorted(
        [
            [alice.handle, alice.did, hosts[0], "password", "in use"],
            [bob.handle, bob.did, hosts[1], "password", "ended"],
        ]
    )
    assert logged_in(one)[bob.did]["ended"] is True
    done = one.git("knotless", "whoami", "--account", bob.handle, code=4)
    assert done.err.splitlines()[-2:] == [
        f"error: the login of {bob.handle} has ended",
        f"hint: git knotless login {bob.handle}",
    ]
