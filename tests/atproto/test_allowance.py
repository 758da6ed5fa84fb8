"""What a host's limits leave, as its answers say, and as the next command finds it."""

import json
import time
from email.utils import formatdate
from pathlib import Path
from typing import Any

import httpx
import pytest

from git_knotless.atproto.allowance import Allowances, Left
from git_knotless.atproto.errors import RateLimited
from git_knotless.atproto.xrpc import Client

HOST = "https://pds.example"
APPLY, UPLOAD = "com.atproto.repo.applyWrites", "com.atproto.repo.uploadBlob"
ALICE, BOB = "did:plc:" + "a" * 24, "did:plc:" + "b" * 24

ODD = (
    '{"x": [1, 2, 9e9]}',
    '{"3600": [3, 2, 9e9]}',
    '{"3600": [1, 2, 1e300]}',
    '{"3600": ["1", 2, 9e9]}',
    '{"3600": [1, 2, NaN]}',
    '{"3600": [1]}',
    "[1]",
    "1",
)


def headers(
    remaining: int | str, limit: int | str = 5000, window: int | None = 3600, **more: str
) -> dict[str, str]:
    said = {
        "ratelimit-limit": str(limit),
        "ratelimit-remaining": str(remaining),
        "ratelimit-reset": str(int(time.time()) + 1200),
    }
    return said | ({} if window is None else {"ratelimit-policy": f"{limit};w={window}"}) | more


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "limits.json"


@pytest.fixture
def known(path: Path) -> Allowances:
    return Allowances(path)


def remaining(known: Allowances, kind: Any = "writes", who: str = ALICE) -> int | None:
    left = known.left(HOST, kind, who)
    return None if left is None else left.remaining


def test_nothing_is_known_of_a_host_that_says_nothing(known: Allowances, path: Path) -> None:
    known.heard(HOST, APPLY, ALICE, {})
    assert known.left(HOST, "writes", ALICE) is None
    assert not path.exists()


def test_what_is_left_is_of_an_account_at_a_host(known: Allowances) -> None:
    known.heard(HOST, APPLY, ALICE, headers(100))
    assert known.left(HOST, "writes", ALICE) == Left(
        100, 5000, pytest.approx(time.time() + 1200, abs=2)
    )
    assert remaining(known, who=BOB) is None
    assert known.left("https://other.example", "writes", ALICE) is None
    assert remaining(known, "uploads") is None


def test_uploads_are_of_the_address(known: Allowances) -> None:
    known.heard(HOST, UPLOAD, "", headers(7, 1000, 86_400))
    assert remaining(known, "uploads", ALICE) == remaining(known, "uploads", BOB) == 7
    assert remaining(known) is None


def test_the_tightest_of_several_counts(known: Allowances) -> None:
    known.heard(HOST, APPLY, ALICE, headers(900))
    known.heard(HOST, APPLY, ALICE, headers(500, 35_000, 86_400))
    assert remaining(known) == 500
    known.heard(HOST, APPLY, ALICE, headers(20))
    assert remaining(known) == 20
    known.heard(HOST, APPLY, ALICE, headers(1200))
    assert remaining(known) == 1200


def test_the_limit_on_all_calls_is_another(known: Allowances) -> None:
    known.heard(HOST, APPLY, ALICE, headers(2, 3000, 300))
    assert remaining(known) is None
    known.heard(HOST, "com.atproto.repo.getRecord", ALICE, headers(2))
    assert remaining(known) is None


def test_the_next_command_knows(known: Allowances, path: Path) -> None:
    known.heard(HOST, APPLY, ALICE, headers(100))
    known.heard(HOST, UPLOAD, "", headers(0, 1000, 86_400))
    later = Allowances(path)
    assert (remaining(later), remaining(later, "uploads")) == (100, 0)
    later.heard(HOST, APPLY, BOB, headers(50))
    assert remaining(Allowances(path), who=BOB) == 50
    assert remaining(Allowances(path)) == 100


def test_uploads_are_written_with_the_batch(known: Allowances, path: Path) -> None:
    known.heard(HOST, UPLOAD, "", headers(9, 1000, 86_400))
    assert not path.exists()
    known.heard(HOST, APPLY, ALICE, headers(100))
    assert remaining(Allowances(path), "uploads") == 9


def test_what_was_reset_is_unknown(known: Allowances, path: Path) -> None:
    path.parent.mkdir()
    entry = {"3600": [0, 5000, time.time() - 1], "86400": [30, 35_000, time.time() + 60]}
    path.write_text(json.dumps({f"writes {HOST} {ALICE}": entry}))
    assert remaining(known) == 30


@pytest.mark.parametrize("ahead", [-86_400, 86_400])
def test_a_reset_is_by_the_hosts_clock(known: Allowances, ahead: int) -> None:
    said = headers(5) | {
        "ratelimit-reset": str(int(time.time()) + ahead + 600),
        "date": formatdate(time.time() + ahead, usegmt=True),
    }
    known.heard(HOST, APPLY, ALICE, said)
    left = known.left(HOST, "writes", ALICE)
    assert left is not None
    assert left.resets == pytest.approx(time.time() + 600, abs=3)


def test_a_reset_may_be_a_span(known: Allowances) -> None:
    known.heard(HOST, APPLY, ALICE, headers(5, window=None) | {"ratelimit-reset": "600"})
    left = known.left(HOST, "writes", ALICE)
    assert left is not None
    assert left.resets == pytest.approx(time.time() + 600, abs=3)


@pytest.mark.parametrize(
    "odd",
    [
        {"ratelimit-remaining": "-1"},
        {"ratelimit-remaining": "lots"},
        {"ratelimit-limit": ""},
        {"ratelimit-limit": "9" * 13},
        {"ratelimit-reset": "١٢٣"},
        {"ratelimit-reset": "1000000001"},
        {"ratelimit-reset": "999999999999"},
        {"ratelimit-reset": "0"},
    ],
)
def test_what_makes_no_sense_is_not_said(known: Allowances, odd: dict[str, str]) -> None:
    known.heard(HOST, APPLY, ALICE, headers(5) | odd)
    assert remaining(known) is None


@pytest.mark.parametrize(
    "text",
    ["", "[]", "nonsense", "[" * 100_000, *(f'{{"writes {HOST} {ALICE}": {odd}}}' for odd in ODD)],
)
def test_a_file_that_makes_no_sense_is_as_none(known: Allowances, path: Path, text: str) -> None:
    path.parent.mkdir()
    path.write_text(text)
    assert remaining(known) is None
    known.heard(HOST, APPLY, ALICE, headers(5))
    assert remaining(Allowances(path)) == 5


def test_a_file_that_cannot_be_written_is_left(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    known = Allowances(tmp_path / "cache" / "limits.json")
    known.heard(HOST, APPLY, ALICE, headers(5))
    assert remaining(known) == 5


def test_so_many_hosts_are_remembered(known: Allowances, path: Path) -> None:
    for number in range(300):
        known.heard(f"https://pds{number}.example", UPLOAD, "", headers(0, 1000, 86_400))
    assert len(json.loads(path.read_text())) == 256
    assert Allowances(path).left("https://pds299.example", "uploads", "") is not None


class Anyone:
    """A login that any host takes."""

    def credential(self, url: str) -> httpx.Auth:
        return httpx.Auth()

    def renewed(self, sent: httpx.Auth, refusal: object) -> bool:
        return False


def test_a_client_hears_answers_and_refusals(known: Allowances) -> None:
    answers = iter([(200, headers(40)), (429, headers(0) | {"retry-after": "999"})])

    def answer(request: httpx.Request) -> httpx.Response:
        status, said = next(answers)
        return httpx.Response(status, headers=said, stream=httpx.ByteStream(b"{}"))

    with Client(httpx.MockTransport(answer)) as client:
        client.allowances = known
        client.post(HOST, APPLY, {"repo": ALICE}, auth=Anyone())
        assert remaining(known) == 40
        with pytest.raises(RateLimited):
            client.post(HOST, APPLY, {"repo": ALICE}, auth=Anyone(), patient=True)
    assert remaining(known) == 0
