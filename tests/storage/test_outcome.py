"""What became of a batch, whatever the host answered."""

from collections.abc import Callable, Sequence

import pytest

from git_knotless.atproto.errors import (
    AuthRefused,
    BlobNotFound,
    HostTimeout,
    HostUnreachable,
    NotAsked,
    NotRenewed,
    PayloadTooLarge,
    RateLimited,
    RecordAlreadyExists,
    ServerFault,
    XrpcError,
)
from git_knotless.atproto.syntax import Rkey
from git_knotless.errors import KnotlessError, LoginNeeded
from git_knotless.storage.outcome import (
    Batch,
    HostOverwrites,
    HostRefused,
    OutcomeUnknown,
    Sent,
    send,
)
from git_knotless.storage.records import CLAIM
from git_knotless.storage.store import Record, Write
from tests.storage.account import Account, refusal

pytestmark = pytest.mark.usefixtures("in_no_time")

KEY = Rkey("3k2akcsyzdc2r.x.1")


def batch(nonce: str = "ours") -> Batch:
    return Batch([Write("create", CLAIM, KEY, {"nonce": nonce})], KEY, nonce)


def never() -> bool:
    return False


def failing(times: int, error: KnotlessError) -> Callable[[Sequence[Write]], None]:
    left = [times]

    def fail(_: Sequence[Write]) -> None:
        left[0] -= 1
        if left[0] >= 0:
            raise error

    return fail


LOST_ANSWERS = [
    refusal(ServerFault),
    refusal(RecordAlreadyExists, 400, "RecordAlreadyExists"),
    refusal(XrpcError, 409, "Conflict"),
    HostTimeout("no answer"),
    HostUnreachable("cut"),
]


@pytest.mark.parametrize("error", LOST_ANSWERS)
def test_it_landed_and_the_answer_was_lost(error: KnotlessError) -> None:
    host = Account(after=failing(1, error))
    assert send(host, batch(), stale=never) is Sent.LANDED
    assert len(host.batches) == 1


@pytest.mark.parametrize("error", [e for e in LOST_ANSWERS if getattr(e, "status", 500) >= 500])
def test_it_did_not_land_and_is_sent_again(error: KnotlessError) -> None:
    host = Account(before=failing(2, error))
    assert send(host, batch(), stale=never) is Sent.LANDED


def test_another_was_first() -> None:
    host = Account()
    assert send(host, batch("theirs"), stale=never) is Sent.LANDED
    assert send(host, batch(), stale=never) is Sent.LOST
    assert host.records[CLAIM][KEY]["nonce"] == "theirs"


def test_a_second_copy_that_comes_late_changes_nothing() -> None:
    host = Account()
    assert send(host, batch(), stale=never) is Sent.LANDED
    assert send(host, batch(), stale=never) is Sent.LANDED
    assert len(host.batches) == 1


def test_what_it_rests_on_has_moved() -> None:
    host = Account(before=failing(9, refusal(ServerFault)))
    assert send(host, batch(), stale=lambda: True) is Sent.LOST
    assert host.requests.count("apply") == 1


def test_it_landed_while_the_rest_was_read_again() -> None:
    """The receipt was not there yet, and what the batch rests on has moved: by the batch."""
    host = Account(before=failing(9, HostTimeout("no answer")))

    def stale() -> bool:
        host.records[CLAIM] = {KEY: {"nonce": "ours"}}
        return True

    assert send(host, batch(), stale=stale) is Sent.LANDED


def test_three_times_and_no_more() -> None:
    host = Account(before=failing(9, refusal(ServerFault)))
    with pytest.raises(HostRefused):
        send(host, batch(), stale=never)
    assert host.requests.count("apply") == 3


def test_a_fault_of_the_request_is_not_sent_again() -> None:
    host = Account(before=failing(9, refusal(XrpcError, 400, "InvalidRequest")))
    with pytest.raises(HostRefused):
        send(host, batch(), stale=never)
    assert host.requests.count("apply") == 1


def test_a_refusal_that_names_itself_is_believed() -> None:
    host = Account(before=failing(9, refusal(BlobNotFound, 400, "BlobNotFound")))
    with pytest.raises(BlobNotFound):
        send(host, batch(), stale=never)
    assert host.requests == ["apply"]


UNCLEAR = [HostTimeout("no answer"), HostUnreachable("cut"), refusal(ServerFault, 502, "Bad")]


@pytest.mark.parametrize("error", [NotRenewed("could not be renewed"), NotAsked("slow")])
def test_what_was_not_sent_has_no_outcome(error: KnotlessError) -> None:
    sendings: list[int] = []

    def fail(_: Sequence[Write]) -> None:
        sendings.append(1)
        raise error

    account = Account(before=fail)
    with pytest.raises(type(error)):
        send(account, batch(), stale=never)
    assert len(sendings) == 1
    assert "get" not in account.requests, "there is no receipt to look for"


@pytest.mark.parametrize("first", UNCLEAR)
@pytest.mark.parametrize(
    "then",
    [
        refusal(RateLimited, 429, "RateLimitExceeded"),
        refusal(AuthRefused, 401, "AuthMissing"),
        refusal(XrpcError, 403, "Forbidden"),
        refusal(PayloadTooLarge, 413, "PayloadTooLarge"),
        LoginNeeded("the login has ended"),
        *UNCLEAR,
    ],
)
def test_what_may_still_be_under_way_is_not_said_to_be_refused(
    first: KnotlessError, then: KnotlessError
) -> None:
    errors = iter([first, then, then])

    def fail(_: Sequence[Write]) -> None:
        raise next(errors)

    with pytest.raises(OutcomeUnknown):
        send(Account(before=fail), batch(), stale=never)


def test_a_reading_that_fails_leaves_it_open() -> None:
    def stale() -> bool:
        raise HostUnreachable("down")

    with pytest.raises(OutcomeUnknown):
        send(Account(before=failing(9, HostTimeout("no answer"))), batch(), stale=stale)


def test_a_host_that_stops_answering_leaves_it_open() -> None:
    class Gone(Account):
        def get(self, collection: str, rkey: Rkey) -> Record | None:
            raise HostUnreachable("down")

    with pytest.raises(OutcomeUnknown) as caught:
        send(Gone(before=failing(9, HostTimeout("no answer"))), batch(), stale=never)
    assert caught.value.hint is not None


def test_a_host_that_brings_back_is_found_out() -> None:
    """What guards the batch was gone, and the host made it anew."""
    host = Account(updates_create=True)
    guard = Write("update", CLAIM, Rkey("guard"), {"nonce": "x"})
    with pytest.raises(HostOverwrites):
        send(host, Batch([guard, *batch().writes], KEY, "ours"), stale=never)


def test_a_host_that_overwrites_is_found_out() -> None:
    host = Account(creates_update=True)
    assert send(host, batch("theirs"), stale=never) is Sent.LANDED
    with pytest.raises(HostOverwrites):
        send(host, batch(), stale=never)
