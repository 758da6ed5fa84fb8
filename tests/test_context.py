"""Which account a command acts as, and how long a host's claims are kept."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from git_knotless.atproto.errors import HostUnreachable
from git_knotless.atproto.guard import PrivateAddress
from git_knotless.atproto.identity import Identity
from git_knotless.atproto.session import Session
from git_knotless.atproto.syntax import Did, Handle
from git_knotless.context import Context
from git_knotless.errors import LoginNeeded
from git_knotless.logins import AmbiguousAccount
from git_knotless.settings import Settings

ALICE, BOB = Did("did:plc:" + "a" * 24), Did("did:plc:" + "b" * 24)
NOWHERE = "http://localhost:1"  # nobody listens there


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    return {
        "config_dir": tmp_path / "config",
        "cache_dir": tmp_path / "cache",
        "plc_url": NOWHERE,
        "handle_resolvers": (NOWHERE,),
    }


def log_in(context: Context, did: Did, handle: str, pds: str = NOWHERE) -> Session:
    session = Session(did, Handle(handle), pds, "access", "refresh")
    context.sessions.save(session)
    return session


def test_nobody_is_logged_in(settings: dict[str, Any]) -> None:
    with Context(Settings(**settings)) as context, pytest.raises(LoginNeeded):
        context.account()


def test_one_account_is_the_default(settings: dict[str, Any]) -> None:
    with Context(Settings(**settings)) as context:
        alice = log_in(context, ALICE, "alice.test")
        assert context.account() == alice


def test_of_several_one_is_named_by_its_handle_or_its_did(settings: dict[str, Any]) -> None:
    with Context(Settings(**settings)) as context:
        alice = log_in(context, ALICE, "alice.test")
        bob = log_in(context, BOB, "bob.test")
        with pytest.raises(AmbiguousAccount, match=r"alice\.test, bob\.test"):
            context.account()
    with Context(Settings(**settings, account=Handle("bob.test"))) as context:
        assert context.account() == bob
    with Context(Settings(**settings, account=ALICE)) as context:
        assert context.account() == alice


def damage(context: Context, did: Did) -> None:
    place = context.settings.config_dir / "sessions"
    (place / f"{did.replace(':', '_')}.json").write_text("{")


def test_a_damaged_session_is_in_nobody_elses_way(settings: dict[str, Any]) -> None:
    told: list[str] = []
    with Context(Settings(**settings), told.append) as context:
        log_in(context, ALICE, "alice.test")
        bob = log_in(context, BOB, "bob.test")
        damage(context, ALICE)
        assert context.account() == bob
    assert len(told) == 1
    assert ALICE in told[0]
    for account in (BOB, Handle("bob.test")):
        with Context(Settings(**settings, account=account), told.append) as context:
            assert context.account() == bob
            assert context.session_for(BOB) is not None
    assert len(told) == 1, "who is named is loaded alone"


@pytest.mark.parametrize("account", [None, ALICE])
def test_a_damaged_session_that_is_meant_is_a_login_that_is_missing(
    settings: dict[str, Any], account: Did | None
) -> None:
    with Context(Settings(**settings, account=account)) as context:
        log_in(context, ALICE, "alice.test")
        damage(context, ALICE)
        assert context.account_did() == ALICE
        with pytest.raises(LoginNeeded, match="is damaged") as caught:
            context.account()
    assert caught.value.hint == f"git knotless login {ALICE}", "no host that knows its handle"


def test_who_is_damaged_among_several_is_not_counted(settings: dict[str, Any]) -> None:
    with Context(Settings(**settings)) as context:
        for did, handle in ((ALICE, "alice.test"), (BOB, "bob.test")):
            log_in(context, did, handle)
            damage(context, did)
        with pytest.raises(LoginNeeded, match="nobody is logged in"):
            context.account()


def test_who_never_logged_in_is_told_how(settings: dict[str, Any]) -> None:
    named = Context(Settings(**settings, account=Handle("alice.test")))
    with named as context, pytest.raises(LoginNeeded) as caught:
        context.account()
    assert caught.value.hint == "git knotless login alice.test"


def test_a_login_is_for_the_host_that_it_was_made_at(settings: dict[str, Any]) -> None:
    with Context(Settings(**settings)) as context:
        log_in(context, ALICE, "alice.test", "https://old.example")
        moved = Identity(ALICE, Handle("alice.test"), "https://new.example", 0)
        with pytest.raises(LoginNeeded, match=r"alice\.test moved to new\.example"):
            context.store(moved, write=True)
        context.store(moved)  # anybody reads


@pytest.mark.parametrize(
    ("pds", "said", "kept"),
    [
        ("http://localhost:2583", 5, 5),
        ("https://pds.example", 5, 86_400),
        ("https://pds.example", 100_000, 100_000),
    ],
)
def test_claims_go_early_on_loopback_only(
    pds: str, said: int, kept: float, settings: dict[str, Any]
) -> None:
    with Context(Settings(**settings, claim_grace=said)) as context:
        assert context.claim_grace(Identity(ALICE, None, pds, 0)) == kept


def test_the_account_that_was_chosen_comes_after_one_that_is_named(
    settings: dict[str, Any],
) -> None:
    with Context(Settings(**settings)) as context:
        log_in(context, ALICE, "alice.test")
        bob = log_in(context, BOB, "bob.test")
        context.sessions.choose(BOB)
        assert context.account() == bob
    with Context(Settings(**settings, account=ALICE)) as context:
        assert context.account_did() == ALICE


def test_a_choice_outlives_no_logout(settings: dict[str, Any]) -> None:
    with Context(Settings(**settings)) as context:
        alice = log_in(context, ALICE, "alice.test")
        log_in(context, BOB, "bob.test")
        context.sessions.choose(BOB)
        context.sessions.delete(BOB)
        assert context.account() == alice


def test_a_session_that_has_ended_is_named_before_anything_is_sent(
    settings: dict[str, Any],
) -> None:
    """Nobody listens at the host."""
    with Context(Settings(**settings)) as context:
        context.sessions.save(replace(log_in(context, ALICE, "alice.test"), access="", refresh=""))
        here = Identity(ALICE, Handle("alice.test"), NOWHERE, 0)
        with pytest.raises(LoginNeeded, match=r"the login of alice\.test has ended") as caught:
            context.store(here, write=True)
        assert caught.value.hint == "git knotless login alice.test"
        assert context.account().ended, "whoami still shows whose it was"


def test_what_a_user_has_set_may_be_anywhere_and_what_others_name_may_not(
    settings: dict[str, Any],
) -> None:
    """Set, typed, allowed, or where they are logged in."""
    set_by_user = {"plc_url": "https://plc.corp", "handle_resolvers": ("https://names.corp",)}
    with Context(Settings(**settings | set_by_user, allow_hosts=("blobs.corp",))) as context:
        log_in(context, ALICE, "alice.test", "https://pds.corp")
        guard = context.client.guard
        for host in ("plc.corp", "names.corp", "pds.corp", "blobs.corp"):
            assert guard.usable(host, 443, ["10.0.0.1"]) == ["10.0.0.1"]
        for host in ("evil.corp", "localhost"):
            with pytest.raises(PrivateAddress):
                guard.usable(host, 1, ["127.0.0.1"])
        with pytest.raises(HostUnreachable, match="localhost:1 cannot be reached"):
            context.identify(Did("did:web:localhost%3A1"))
        assert guard.usable("localhost", 1, ["127.0.0.1"]) == ["127.0.0.1"]


def test_what_a_record_names_is_nobody_s_choice(settings: dict[str, Any]) -> None:
    elsewhere = settings | {"plc_url": "https://plc.directory", "handle_resolvers": ()}
    with Context(Settings(**elsewhere)) as context, pytest.raises(PrivateAddress) as caught:
        context.accounts().open_account(Did("did:web:localhost%3A1"))
    assert caught.value.hint == "git config --global --add knotless.allowHost localhost"
