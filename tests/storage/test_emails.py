"""The hashes of the addresses that an account claims, against others that change them too."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from git_knotless.atproto.errors import (
    AuthRefused,
    HostTimeout,
    HostUnreachable,
    NotRenewed,
    ServerFault,
)
from git_knotless.atproto.syntax import Did
from git_knotless.storage.accounts import emails, own_record
from git_knotless.storage.accounts.emails import (
    MOST,
    BadAddress,
    TooManyAddresses,
    add,
    claim_first,
    count,
    hash_of,
    is_anonymous,
    parse_address,
    remove,
)
from git_knotless.storage.accounts.looked_up import LookedUp
from git_knotless.storage.editing import RacedTooOften
from git_knotless.storage.outcome import OutcomeUnknown
from git_knotless.storage.store import Write
from tests.storage.account import DID, Account, refusal

ADDRESS = "person@example.com"


@pytest.fixture
def account() -> Account:
    return Account()


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_record, "_PAUSE", 0.0)


def hashes(account: Account) -> Any:
    return account.records[emails.COLLECTION]["self"]["hashes"]


def hold(account: Account, value: dict[str, Any]) -> None:
    account.records[emails.COLLECTION] = {"self": value}


def once(act: Callable[[], object]) -> Callable[[Sequence[Write]], None]:
    """For `before` and `after`: done at the first write alone."""
    left = [act]

    def do(_: Sequence[Write]) -> None:
        if left:
            left.pop()()

    return do


def fail(error: Exception) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


def test_a_hash_is_of_the_did_a_newline_and_the_address() -> None:
    """As the specification has it, and as `printf | sha256sum` gives it."""
    did = Did("did:plc:ewvi7nxzyoun6zhxrhs64oiz")
    expected = hashlib.sha256(b"did:plc:ewvi7nxzyoun6zhxrhs64oiz\nperson@example.com").hexdigest()
    assert hash_of(did, parse_address("  Person@EXAMPLE.com\t")) == expected
    assert expected == "f14849d2019f48ad9ad8da52e0c575733c2d6912048d5935bb134d91c8505438"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "person",
        "@example.com",
        "person@",
        "a@b@c",
        "a b@example.com",
        "a\x07@example.com",
        "a\n@example.com",
        "<a@example.com>",
        "a\udcff@example.com",
        "a\u202e@example.com",
        "a" * 243 + "@example.com",
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(BadAddress):
        parse_address(text)


def test_the_longest_address() -> None:
    assert parse_address("a" * 242 + "@example.com")


@pytest.mark.parametrize(
    ("address", "anonymous"),
    [
        ("noreply@example.com", True),
        ("a@example.invalid", True),
        ("a@invalid", True),
        ("1+alice@users.noreply.github.com", False),
        ("a@invalid.example", False),
        ("no.reply@example.com", False),
    ],
)
def test_addresses_that_tell_of_nobody(address: str, anonymous: bool) -> None:
    assert is_anonymous(address) == anonymous


def test_an_address_is_added_once_and_taken_back_once(account: Account) -> None:
    assert count(account) == 0
    assert add(account, ADDRESS)
    assert hashes(account) == [hash_of(DID, ADDRESS)]
    assert not add(account, ADDRESS)
    assert account.requests.count("put") == 1
    assert add(account, "other@example.com")
    assert count(account) == 2
    assert remove(account, ADDRESS)
    assert hashes(account) == [hash_of(DID, "other@example.com")]
    assert not remove(account, ADDRESS)


def test_what_is_taken_back_first_leaves_a_record(account: Account) -> None:
    assert not remove(account, ADDRESS)
    assert hashes(account) == []
    assert not claim_first(account, ADDRESS)
    assert hashes(account) == []


def test_the_first_claim_is_the_first(account: Account) -> None:
    assert claim_first(account, ADDRESS)
    assert hashes(account) == [hash_of(DID, ADDRESS)]
    assert not claim_first(account, "other@example.com")
    assert hashes(account) == [hash_of(DID, ADDRESS)]


def test_a_full_record_says_so(account: Account) -> None:
    full = [f"{n:064x}" for n in range(MOST)]
    hold(account, {"hashes": full})
    with pytest.raises(TooManyAddresses) as refused:
        add(account, ADDRESS)
    assert refused.value.message == "the account claims 100 addresses, and a record takes 100"
    assert hashes(account) == full
    hold(account, {"hashes": full[1:]})
    assert add(account, ADDRESS)


@pytest.mark.parametrize(
    ("held", "claimed"),
    [
        ({}, 0),
        ({"hashes": None}, 0),
        ({"hashes": "a" * 64}, 0),
        ({"hashes": ["A" * 64, "a" * 63, 7, None, ["a" * 64], "a" * 64 + "\n"]}, 0),
        ({"hashes": ["a" * 64, "a" * 64, 7]}, 1),
    ],
)
def test_of_a_record_that_holds_anything_only_hashes_count(
    account: Account, held: dict[str, Any], claimed: int
) -> None:
    hold(account, {"new": {"x": 1}, **held})
    assert count(account) == claimed
    assert add(account, ADDRESS)
    assert count(account) == claimed + 1
    assert account.records[emails.COLLECTION]["self"]["new"] == {"x": 1}


@pytest.mark.parametrize("there", [{}, {"hashes": ["b" * 64]}])
def test_two_that_add_at_once_both_stay(account: Account, there: dict[str, Any]) -> None:
    if there:
        hold(account, there)
    account.before = once(lambda: add(account, "other@example.com"))
    assert add(account, ADDRESS)
    both = [hash_of(DID, "other@example.com"), hash_of(DID, ADDRESS)]
    assert hashes(account) == there.get("hashes", []) + both


def test_one_that_adds_while_another_takes_back(account: Account) -> None:
    add(account, "other@example.com")
    account.before = once(lambda: remove(account, "other@example.com"))
    assert add(account, ADDRESS)
    assert hashes(account) == [hash_of(DID, ADDRESS)]


def test_others_that_never_stop(account: Account) -> None:
    def meddle(_: Sequence[Write]) -> None:
        hold(account, {"hashes": [], "n": len(account.requests)})

    account.before = meddle
    with pytest.raises(RacedTooOften):
        add(account, ADDRESS)


@pytest.mark.parametrize("error", [HostTimeout("late"), refusal(ServerFault, 502)])
def test_an_answer_that_is_lost_is_looked_for(account: Account, error: Exception) -> None:
    account.after = once(fail(error))
    assert add(account, ADDRESS)
    assert account.requests.count("put") == 1
    account.after = once(fail(error))
    assert remove(account, ADDRESS)
    assert hashes(account) == []


def test_a_write_that_did_not_go_through_is_sent_again(account: Account) -> None:
    account.before = once(fail(HostUnreachable("down")))
    assert add(account, ADDRESS)
    assert hashes(account) == [hash_of(DID, ADDRESS)]


def test_a_host_that_never_says_what_became_of_it(account: Account) -> None:
    account.before = lambda writes: fail(HostTimeout("late"))()
    with pytest.raises(
        OutcomeUnknown, match="it is not known whether the host took the write: late"
    ):
        add(account, ADDRESS)
    assert account.requests.count("put") == 3


def test_a_host_that_goes_away_after_a_write(account: Account) -> None:
    def leave() -> None:
        account.down = True
        raise HostTimeout("late")

    account.after = once(leave)
    with pytest.raises(OutcomeUnknown):
        add(account, ADDRESS)


def test_a_refusal_is_final(account: Account) -> None:
    account.before = lambda writes: fail(refusal(AuthRefused, 403, "ScopeMissingError"))()
    with pytest.raises(AuthRefused):
        add(account, ADDRESS)
    assert account.requests.count("put") == 1


def test_a_login_that_is_not_renewed_is_no_write_that_failed(account: Account) -> None:
    account.before = lambda writes: fail(NotRenewed("the login could not be renewed"))()
    with pytest.raises(NotRenewed):
        add(account, ADDRESS)
    assert account.requests.count("put") == 1


def test_a_machine_remembers_whom_it_looked_up(tmp_path: Path) -> None:
    other = Did("did:web:other.example")
    looked_up = LookedUp(tmp_path / "cache" / "emails.json")
    assert DID not in looked_up
    looked_up.remember(DID)
    assert DID in looked_up
    assert DID in LookedUp(tmp_path / "cache" / "emails.json")
    assert other not in looked_up
    looked_up.remember(other)
    assert DID in looked_up


@pytest.mark.parametrize("garbage", [b"", b"[]", b"\xff", b'{"did', b"[" * 100_000, b"7"])
def test_a_cache_of_garbage_is_as_none(tmp_path: Path, garbage: bytes) -> None:
    path = tmp_path / "emails.json"
    path.write_bytes(garbage)
    looked_up = LookedUp(path)
    assert DID not in looked_up
    looked_up.remember(DID)
    assert DID in looked_up


def test_a_cache_that_cannot_be_written_is_left(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    looked_up = LookedUp(tmp_path / "file" / "emails.json")
    looked_up.remember(DID)
    assert DID not in looked_up


def test_a_cache_stays_small(tmp_path: Path) -> None:
    looked_up = LookedUp(tmp_path / "emails.json")
    dids = [Did(f"did:web:{n}.example") for n in range(300)]
    for did in dids:
        looked_up.remember(did)
    assert [did in looked_up for did in (dids[0], dids[-1])] == [False, True]
    assert (tmp_path / "emails.json").stat().st_size < 1 << 14
