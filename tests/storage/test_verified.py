"""Refs that a host lists, beside those that the account has signed: lies are told, and by whom."""

from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest

from git_knotless.atproto.errors import XrpcError
from git_knotless.atproto.keys import Curve, PrivateKey
from git_knotless.atproto.syntax import Did, Rkey
from git_knotless.context import Context
from git_knotless.settings import Settings
from git_knotless.storage.proofs import proven, verified
from git_knotless.storage.proofs.revs import Revs
from git_knotless.storage.proofs.verified import (
    BlocksGone,
    NotProven,
    NotSigned,
    RolledBack,
    needs_proof,
)
from git_knotless.storage.records import REF
from git_knotless.storage.repositories import Repository
from git_knotless.storage.store import Authority, Write
from tests.atproto.fakes import DID, PLC, Token, client_for, xrpc_error
from tests.storage.signing import KEY, Host, bent, car, listed, ref

A, B, C = ("a" * 40, "b" * 40, "c" * 40)
URL = f"knotless://{DID}/notes"
HOST = "localhost:2583"
VERIFY = f"git knotless repo verify {URL}"


class Reader:
    """Each reading is another process on the same machine."""

    def __init__(self, folder: Path, host: Host) -> None:
        self.folder = folder
        self.host = host
        self.revs = Revs(folder / "config/revs.json")

    def context(self, setting: str = "always") -> Context:
        folders = {"config_dir": self.folder / "config", "cache_dir": self.folder / "cache"}
        context = Context(Settings(**folders, plc_url=PLC, verify=setting))
        context.__dict__["client"] = client_for(self.host)
        return context

    def open(self, setting: str = "always") -> Repository:
        return self.context(setting).open(URL)

    def refs(self, setting: str = "always") -> dict[str, str]:
        self.host.asked.clear()
        return {
            name.removeprefix("refs/heads/"): target
            for name, target in self.open(setting).snapshot().targets.items()
        }

    def refused(self, kind: type[Any], setting: str = "always") -> Any:
        with pytest.raises(kind) as caught:
            self.refs(setting)
        assert type(caught.value) is kind
        return caught.value


@pytest.fixture(params=Curve, ids=lambda curve: curve.name)
def curve(request: pytest.FixtureRequest) -> Curve:
    found: Curve = request.param
    return found


@pytest.fixture
def host() -> Host:
    host = Host()
    host.write(dict([ref("main", A), ref("topic", B), ref("gone", None, 2)]))
    return host


@pytest.fixture
def reader(tmp_path: Path, host: Host) -> Reader:
    return Reader(tmp_path, host)


@pytest.mark.parametrize(
    ("setting", "straight", "needed"),
    [
        ("auto", True, False),
        ("auto", False, True),
        ("always", True, True),
        ("always", False, True),
        ("never", True, False),
        ("never", False, False),
    ],
)
def test_who_needs_a_proof(setting: str, straight: bool, needed: bool) -> None:
    assert needs_proof(setting, Authority(HOST, straight)) is needed


def test_what_is_signed_is_listed(tmp_path: Path, curve: Curve) -> None:
    host = Host(curve)
    host.write(dict([ref("main", A), ref("gone", None, 2)]))
    reader = Reader(tmp_path, host)
    assert reader.refs() == {"main": A}
    pages = ["listRecords"] * 2
    assert sorted(host.asked) == ["did", "getRecord", *pages, "sync.getRecord"]
    assert reader.refs() == {"main": A}
    assert "did" not in host.asked
    host.write({(REF, ref("main", A)[0][1]): None})
    assert reader.refs() == {}


def test_nothing_is_asked_for_where_the_account_s_own_host_answers(reader: Reader) -> None:
    for setting in ("auto", "never"):
        assert reader.refs(setting) == {"main": A, "topic": B}
        assert not any(each.startswith("sync.") for each in reader.host.asked)
    assert not (reader.folder / "config/revs.json").exists()


def test_an_answer_that_came_by_another_way_is_proven(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("git_knotless.storage.proofs.proofs.is_straight", lambda origin: False)
    reader.host.bend["listRecords"] = listed(lambda records: records[:-1])
    reader.refused(NotSigned, "auto")
    assert len(reader.refs("never")) < 3


# --- lies in a listing


def named(records: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(each for each in records if each["value"]["name"] == f"refs/heads/{name}")


def but(name: str, **fields: Any) -> Callable[[list[dict[str, Any]]], list[dict[str, Any]]]:
    def change(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for record in records:
            if record is named(records, name):
                record["value"].update(fields)
        return records

    return change


def without(name: str) -> Callable[[list[dict[str, Any]]], list[dict[str, Any]]]:
    return lambda records: [each for each in records if each is not named(records, name)]


def with_one_more(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    (collection, rkey), value = ref("extra", C)
    more = {"uri": f"at://{DID}/{collection}/{rkey}", "value": value}
    return sorted([*records, more], key=lambda record: record["uri"])


LIES = {
    "another target": (
        but("main", target=C),
        f"refs/heads/main is listed at {C} (generation 1), and is signed at {A} (generation 1)",
    ),
    "another generation": (
        but("main", generation=7),
        f"refs/heads/main is listed at {A} (generation 7), and is signed at {A} (generation 1)",
    ),
    "a deleted one again": (
        but("gone", target=B),
        f"refs/heads/gone is listed at {B} (generation 2), and is signed as deleted (generation 2)",
    ),
    "another field": (but("main", pusher=DID), "refs/heads/main is listed otherwise than it is"),
    "no record at all": (but("main", more=1.5), "refs/heads/main is listed, and is signed at"),
    "left out": (without("topic"), f"refs/heads/topic is left out, and is signed at {B}"),
    "made up": (with_one_more, f"refs/heads/extra is listed at {C} (generation 1), and is not"),
}


@pytest.mark.parametrize(("change", "words"), LIES.values(), ids=LIES.keys())
def test_a_listing_that_is_not_what_is_signed(reader: Reader, change: Any, words: str) -> None:
    reader.host.bend["listRecords"] = listed(change)
    error = reader.refused(NotSigned)
    assert error.message.startswith(f"{URL}: {HOST} lists refs otherwise than the account has ")
    assert words in error.message
    assert error.hint == VERIFY
    assert reader.host.asked.count("getRecord") == 3, "a push could have come between, twice"


def test_the_repository_s_own_record_is_signed_too(reader: Reader) -> None:
    reader.host.bend["getRecord"] = bent(
        lambda found: {**found, "value": {**found["value"], "defaultBranch": "topic"}}
    )
    error = reader.refused(NotSigned)
    assert f"{HOST} shows the repository's own record otherwise" in error.message


# --- lies in a proof


def test_another_s_signature(reader: Reader) -> None:
    """The document is read again, once: the account may sign with another key by now."""
    reader.host.named = PrivateKey.generate(Curve.K256)
    error = reader.refused(NotProven)
    assert f"{HOST} does not prove what it lists: a signature is not by" in error.message
    assert error.hint == VERIFY
    assert reader.host.asked.count("did") == 2


def test_a_key_that_was_changed_since_the_document_was_kept(reader: Reader) -> None:
    reader.refs()
    reader.host.key = reader.host.named = PrivateKey.generate(Curve.P256)
    reader.host.write(dict([ref("main", C, 2)]))
    assert reader.refs()["main"] == C
    assert reader.host.asked.count("did") == 1


def test_a_commit_of_another_account(reader: Reader) -> None:
    state = reader.host.state
    from git_knotless.atproto.blocks import Blocks

    store = Blocks({cid: block for cid, (_, block) in state.blocks.items()})
    reader.host.sign(store, state.data, state.records, did=DID.replace("e", "f"))
    assert "another account" in reader.refused(NotProven).message


def test_a_host_that_keeps_a_block_back(tmp_path: Path) -> None:
    host = Host()
    host.write(dict(ref(f"b{n}", A) for n in range(60)))
    reader = Reader(tmp_path, host)
    host.bend["sync.getBlocks"] = lambda request, answer: xrpc_error(400, "InvalidRequest", "no")
    error = reader.refused(BlocksGone)
    assert f"{HOST} keeps back a part of its proof" in error.message
    host.bend["sync.getBlocks"] = lambda request, answer: car(answer.content[:18])
    assert "leaves out the block" in reader.refused(BlocksGone).message


@pytest.mark.parametrize("method", ["sync.getRecord", "sync.getBlocks"])
def test_bytes_that_were_changed(tmp_path: Path, method: str) -> None:
    host = Host()
    host.write(dict(ref(f"b{n}", A) for n in range(60)))
    reader = Reader(tmp_path, host)
    host.bend[method] = lambda request, answer: car(
        answer.content[:-9] + bytes([answer.content[-9] ^ 1]) + answer.content[-8:]
    )
    assert "does not hash to its CID" in reader.refused(NotProven).message


def test_a_host_that_proves_nothing(reader: Reader) -> None:
    reader.host.bend["sync.getRecord"] = lambda request, answer: xrpc_error(
        501, "MethodNotImplemented", "not here"
    )
    with pytest.raises(XrpcError, match="sync.getRecord"):
        reader.refs()


# --- what moves meanwhile


def test_a_push_that_lands_between_is_no_lie(reader: Reader) -> None:
    """Of a listing and a proof one is older; both are read again, twice at most."""
    pushes = [(C, 3), (B, 2)]
    proof_read = Event()

    def proof(request: httpx.Request, answer: httpx.Response) -> httpx.Response:
        proof_read.set()
        return answer

    def push_first(request: httpx.Request, answer: httpx.Response) -> httpx.Response:
        if request.url.params["cursor"] == f"{KEY}.":  # the first page
            assert proof_read.wait(10)
            proof_read.clear()
            if pushes:
                reader.host.write(dict([ref("main", *pushes.pop())]))
        return reader.host.answer(request)

    reader.host.bend |= {"listRecords": push_first, "sync.getRecord": proof}
    assert reader.refs()["main"] == C
    assert reader.host.asked.count("getRecord") == 3
    pushes.extend([(A, 6), (B, 5), (C, 4)])
    words = f"refs/heads/main is listed at {A} (generation 6), and is signed at {B} (generation 5)"
    assert words in reader.refused(NotSigned).message


def test_blocks_that_go_as_the_account_is_written_to(tmp_path: Path) -> None:
    host = Host()
    host.write(dict(ref(f"b{n}", A) for n in range(60)))
    reader = Reader(tmp_path, host)
    pushes = [1]

    def write_first(request: httpx.Request, answer: httpx.Response) -> httpx.Response:
        if pushes and pushes.pop():
            for n in range(60):  # every node of them
                host.write({("com.example.x", f"{n}"): {"n": n}})
                host.write(dict([ref(f"b{n}", B, 2)]))
            return xrpc_error(400, "InvalidRequest", "Could not find cids: …")
        return answer

    host.bend["sync.getBlocks"] = write_first
    assert set(reader.refs().values()) == {B}


# --- older states


def test_an_older_state_than_was_seen(reader: Reader) -> None:
    before = reader.host.state
    reader.host.write(dict([ref("main", C, 2)]))
    assert reader.refs()["main"] == C
    newest, reader.host.state = reader.host.state.rev, before
    error = reader.refused(RolledBack)
    assert error.message == (
        f"{URL}: the host shows an older state than before: {HOST} is at the revision "
        f"{before.rev}, and {newest} was seen"
    )
    assert error.hint == f"git knotless repo verify --accept-rollback {URL}"
    assert reader.refs("auto")["main"] == reader.refs("never")["main"] == A
    reader.revs.accept(Did(DID), KEY, before.rev)
    assert reader.refs()["main"] == A


def test_what_our_own_writes_made_is_seen(reader: Reader) -> None:
    before = reader.host.state
    reader.host.write(dict([ref("main", C, 2)]))
    context = reader.context()
    identity = context.identify(Did(DID))
    store = context.store(identity)
    store._auth = Token()
    (_, rkey), value = ref("main", C, 2)
    store.apply([Write("update", "dev.knotless.claim", Rkey(f"{KEY}.x"), {})])
    assert reader.revs.newest(Did(DID), KEY) is None, "no ref was moved"
    store.apply([Write("update", REF, Rkey(rkey), value)])
    assert reader.revs.newest(Did(DID), KEY) == reader.host.state.rev
    reader.host.state = before
    reader.refused(RolledBack)


# --- large snapshots


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reader:
    """Of 300 refs, where 100 are few."""
    monkeypatch.setattr(verified, "LARGE", 100)
    monkeypatch.setattr(proven, "LARGE", 100)
    host = Host()
    host.write(dict(ref(f"b{n}", A) for n in range(300)))
    host.write({("com.example.x", f"{n}"): {"n": n} for n in range(50)})
    return Reader(tmp_path, host)


def kept(reader: Reader) -> list[Path]:
    return list((reader.folder / "cache/snapshots").glob("*"))


BROUGHT_UP = ["getRecord", "sync.getRepo"]


@pytest.mark.parametrize("setting", ["always", "auto", "never"])
def test_a_large_snapshot_is_kept_and_brought_up(large: Reader, setting: str) -> None:
    host = large.host
    first = large.refs(setting)
    assert host.asked.count("listRecords") == 4
    assert large.refs(setting) == first
    assert host.asked == BROUGHT_UP
    host.write(dict([ref("b7", C, 2), ref("new", B), ref("b8", None, 2)]))
    expected = {**first, "b7": C, "new": B}
    del expected["b8"]
    for _ in range(2):
        assert large.refs(setting) == expected
        assert host.asked == BROUGHT_UP


def test_few_refs_are_not_kept(large: Reader) -> None:
    large.refs()
    assert len(kept(large)) == 1
    large.host.write({ref(f"b{n}", None)[0]: None for n in range(250)})
    assert len(large.refs()) == 50
    assert kept(large) == []
    large.refs("auto")
    assert kept(large) == []


def test_what_was_kept_may_go_or_be_garbage(large: Reader) -> None:
    first = large.refs("auto")
    (path,) = kept(large)
    whole = path.read_bytes()
    middle = len(whole) // 2
    for broken in (
        b"",
        b"x",
        whole[:middle],
        whole[:-1],
        whole[: middle - 1] + b"\0" + whole[middle:],
    ):
        path.write_bytes(broken)
        assert large.refs("auto") == first
        assert "listRecords" in large.host.asked
    path.unlink()
    assert large.refs("auto") == first
    assert large.refs("auto") == first
    assert large.host.asked == BROUGHT_UP


def test_what_was_kept_of_another_repository_is_of_no_use(large: Reader) -> None:
    first = large.refs("auto")
    (path,) = kept(large)
    other = Host()
    other.write(dict(ref(f"b{n}", C) for n in range(300)))
    stranger = Reader(large.folder / "other", other)
    stranger.refs("auto")
    path.write_bytes(kept(stranger)[0].read_bytes())
    for _ in range(2):
        assert large.refs("auto") == first


def test_more_came_after_than_is_read_at_once(
    large: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then only what changed of the tree is read."""
    large.refs("auto")
    monkeypatch.setattr(proven, "SINCE", 2000)
    large.host.write({("com.example.x", f"{n}"): {"n": n, "x": "y" * 99} for n in range(50)})
    large.host.write(dict([ref("b7", C, 2)]))
    assert large.refs("auto")["b7"] == C
    assert "listRecords" not in large.host.asked
    assert len(large.host.asked) < 10


def test_a_large_snapshot_does_not_go_back(large: Reader) -> None:
    before = large.host.state
    large.host.write(dict([ref("b7", C, 2)]))
    large.refs("auto")
    large.host.state = before
    large.refused(RolledBack, "auto")
    assert large.refs("never")["b7"] == A


def test_a_large_snapshot_lists_where_a_host_proves_nothing(large: Reader) -> None:
    """As long as nobody asks for a proof."""
    large.refs("auto")

    def no(request: httpx.Request, answer: httpx.Response) -> httpx.Response:
        return xrpc_error(501, "MethodNotImplemented")

    for method in ("getRepo", "getRecord", "getBlocks"):
        large.host.bend[f"sync.{method}"] = no
    assert len(large.refs("auto")) == 300
    with pytest.raises(XrpcError):
        large.refs("always")
