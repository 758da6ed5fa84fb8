"""An account's records, when its host says that it is not, or no longer, there."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from git_knotless.atproto.errors import (
    AccountNotHere,
    AtprotoError,
    RepoNotFound,
    RepoTakendown,
    StillMoving,
)
from git_knotless.atproto.identity import Identity
from git_knotless.atproto.session import Session
from git_knotless.atproto.syntax import Did, Handle, Rkey
from git_knotless.context import Context
from git_knotless.errors import LoginNeeded
from git_knotless.settings import Password, Settings
from git_knotless.storage.packs.outgoing import INLINE_LIMIT
from git_knotless.storage.packs.spool import blob_cid
from git_knotless.storage.public import PublicStore
from git_knotless.storage.records import REF
from git_knotless.storage.store import AccountMoved, BlobRef, Record, Write
from git_knotless.value import replace
from tests.atproto.fakes import (
    DID,
    PLC,
    Body,
    client_for,
    document,
    json_answer,
    nsid_of,
    xrpc_error,
)

OLD, NEW = "http://localhost:1001", "http://localhost:1002"
ME, ALICE = Did(DID), Handle("alice.test")
PLACE = (REF, Rkey("k.1"))
WRITES = [Write("create", *PLACE, {"n": 1})]
BLOB = BlobRef(blob_cid(b"\0" * 32), "application/x-git-pack", INLINE_LIMIT)

# What hosts say of an account that is not there: to what is asked, and when asked for its state.
Says = Callable[[str], httpx.Response]


def says(status: int, name: str, text: str = "") -> Says:
    return lambda nsid: xrpc_error(status, name, text)


def inactive(why: str) -> Says:
    """To `getRecord` it is somebody else who answers; the state alone tells."""

    def answer(nsid: str) -> httpx.Response:
        if nsid.endswith("getRepoStatus"):
            return json_answer({"did": DID, "active": False, "status": why})
        return xrpc_error(400, "InvalidRequest", "Could not locate record")

    return answer


GONE = {
    "RepoNotFound": says(400, "RepoNotFound"),
    "RepoDeactivated": says(400, "RepoDeactivated"),
    "AccountDeactivated": says(401, "AccountDeactivated"),
    "could not find": says(400, "InvalidRequest", f"Could not find repo: {DID}"),
    **{why: inactive(why) for why in ("deactivated", "takendown", "suspended")},
}
REFUSED = {
    "AccountNotFound": says(403, "AccountNotFound"),
    "AccountDeactivated": says(401, "AccountDeactivated"),
}
by_answer = pytest.mark.parametrize("gone", GONE.values(), ids=GONE.keys())
by_refusal = pytest.mark.parametrize("gone", REFUSED.values(), ids=REFUSED.keys())


@dataclass
class World:
    """A directory and two hosts, the one that the account is at last."""

    at: str = OLD
    gone: dict[str, Says] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        host, nsid = f"http://{request.url.netloc.decode()}", nsid_of(request)
        self.asked.append((host, nsid.rpartition(".")[2]))
        if host == PLC:
            return json_answer(document(pds=self.at))
        if nsid.endswith("resolveHandle"):
            return json_answer({"did": DID})
        if host in self.gone:
            return self.gone[host](nsid)
        return self.answer(host, nsid.rpartition(".")[2])

    def answer(self, host: str, method: str) -> httpx.Response:
        uri = f"at://{DID}/{REF}/k.1"
        match method:
            case "getRecord":
                return json_answer({"uri": uri, "value": {"host": host}})
            case "listRecords":
                return json_answer({"records": [{"uri": uri, "value": {"host": host}}]})
            case "getBlob":
                return httpx.Response(200, content=host.encode())
            case "applyWrites":
                return json_answer({"results": [{"$type": "x#createResult"}]})
            case "uploadBlob":
                ref = {"$link": BLOB.cid}
                blob = {"$type": "blob", "ref": ref, "mimeType": BLOB.mime, "size": BLOB.size}
                return json_answer({"blob": blob})
            case "createSession":
                tokens = {"accessJwt": "new", "refreshJwt": "new", "active": True}
                return json_answer({"did": DID, "handle": ALICE, **tokens})
        return json_answer({})

    def moves(self, gone: Says) -> None:
        self.at, self.gone = NEW, {OLD: gone}

    def times(self, host: str) -> int:
        return sum(each == host for each, _ in self.asked)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def context(world: World, tmp_path: Path) -> Context:
    directories = {"config_dir": tmp_path / "config", "cache_dir": tmp_path / "cache"}
    made = Context(Settings(**directories, plc_url=PLC, handle_resolvers=(NEW,)))
    made.__dict__["client"] = client_for(world)
    made.sessions.save(Session(ME, ALICE, OLD, "old", "old"))
    return made


def cached(context: Context) -> str | None:
    text = (context.settings.cache_dir / "identity.json").read_text()
    found: str | None = json.loads(text)["dids"].get(DID, {}).get("pds")
    return found


def read_record(store: PublicStore) -> Any:
    record = store.get(*PLACE)
    assert record is not None
    return record.value["host"]


def read_page(store: PublicStore) -> Any:
    (page,) = store.list(REF, "")
    return page[0].value["host"]


def read_blob(store: PublicStore) -> Any:
    return b"".join(store.download(BLOB)).decode()


@by_answer
@pytest.mark.parametrize("read", [read_record, read_page])
def test_what_is_read_is_read_where_the_account_is_now(
    read: Callable[[PublicStore], Any], gone: Says, world: World, context: Context
) -> None:
    store = context.store(context.identify(ALICE))
    assert (read(store), cached(context)) == (OLD, OLD)
    world.moves(gone)
    assert (read(store), cached(context)) == (NEW, NEW)
    assert world.times(PLC) == 2
    asked = world.times(OLD)
    assert (read(store), world.times(OLD), world.times(PLC)) == (NEW, asked, 2)


@pytest.mark.parametrize("name", ["RepoNotFound", "RepoDeactivated", "RepoTakendown"])
def test_so_is_a_blob(name: str, world: World, context: Context) -> None:
    store = context.store(context.identify(ALICE))
    world.moves(says(400, name))
    assert read_blob(store) == NEW
    assert cached(context) == NEW


@by_answer
def test_an_account_that_is_nowhere_else_is_not_kept(
    gone: Says, world: World, context: Context
) -> None:
    world.gone = {OLD: gone}
    with pytest.raises(AtprotoError) as raised, context:
        read_record(context.store(context.identify(ALICE)))
    assert isinstance(raised.value, StillMoving | RepoNotFound | RepoTakendown)
    assert cached(context) is None
    assert world.times(PLC) == 2


def test_it_is_deactivated_or_on_its_way(world: World, context: Context) -> None:
    world.gone = {OLD: inactive("deactivated")}
    with pytest.raises(StillMoving) as raised:
        read_record(context.store(context.identify(ALICE)))
    told = (
        "alice.test is not active at localhost:1001: it is deactivated, or still being moved there"
    )
    assert raised.value.message == told


@by_answer
def test_it_is_on_its_way_to_where_it_is_not_active_yet(
    gone: Says, world: World, context: Context
) -> None:
    store = context.store(context.identify(ALICE))
    world.moves(gone)
    world.gone[NEW] = inactive("deactivated")
    with pytest.raises(StillMoving, match=r"^alice.test is still being moved to localhost:1002: "):
        read_record(store)


def test_no_host_sends_anybody_round_and_round(world: World, context: Context) -> None:
    store = context.store(context.identify(ALICE))
    world.moves(says(400, "RepoNotFound"))
    assert read_record(store) == NEW
    world.at, world.gone = OLD, {NEW: says(400, "RepoNotFound")}
    with pytest.raises(AccountNotHere):
        read_record(store)


@by_refusal
def test_a_write_takes_a_login_for_the_new_host(gone: Says, world: World, context: Context) -> None:
    store = context.store(context.identify(ALICE, write=True), write=True)
    world.moves(gone)
    with pytest.raises(LoginNeeded) as raised:
        store.apply(WRITES)
    assert raised.value.message == "alice.test moved to localhost:1002"
    assert raised.value.hint == "git knotless login alice.test"
    assert cached(context) == NEW
    assert [host for host, method in world.asked if method == "applyWrites"] == [OLD]


@by_refusal
def test_a_write_that_is_refused_where_the_account_should_be(
    gone: Says, world: World, context: Context
) -> None:
    store = context.store(context.identify(ALICE, write=True), write=True)
    world.gone = {OLD: gone}
    with pytest.raises(AtprotoError), context:
        store.apply(WRITES)
    assert cached(context) is None


def with_password(context: Context) -> Context:
    settings = replace(context.settings, account=ALICE, password=Password("secret", ALICE))
    made = Context(settings)
    made.__dict__["client"] = context.client
    return made


@by_refusal
def test_what_rests_on_what_the_other_host_said_is_read_again(
    gone: Says, world: World, context: Context
) -> None:
    context = with_password(context)
    store = context.store(context.identify(ALICE, write=True), write=True)
    assert read_record(store) == OLD
    world.moves(gone)
    with pytest.raises(AccountMoved) as raised:
        store.apply(WRITES)
    assert raised.value.message.startswith("alice.test has just moved to localhost:1002: ")
    assert (NEW, "applyWrites") not in world.asked
    assert read_record(store) == NEW
    assert len(store.apply(WRITES)) == 1
    session = context.sessions.load(ME)
    assert session is not None
    assert (session.pds, session.access) == (NEW, "new")


@by_refusal
def test_a_write_that_rests_on_nothing_goes_on(gone: Says, world: World, context: Context) -> None:
    context = with_password(context)
    store = context.store(context.identify(ALICE, write=True), write=True)
    world.moves(gone)
    assert len(store.apply(WRITES)) == 1
    assert (NEW, "applyWrites") in world.asked


def test_an_upload_goes_to_the_new_host(world: World, context: Context) -> None:
    """Hosts that were left take uploads, or do not; a batch that names one is another matter."""
    context = with_password(context)
    store = context.store(context.identify(ALICE, write=True), write=True)
    assert read_record(store) == OLD
    world.moves(says(403, "AccountNotFound"))
    assert store.upload(Body(b"PACK")).cid == BLOB.cid
    with pytest.raises(AccountMoved):
        store.apply(WRITES)


def test_a_directory_that_cannot_be_asked_hides_nothing(world: World, context: Context) -> None:
    here = Identity(ME, ALICE, OLD, time.time())
    store = context.store(here)
    world.gone = {OLD: says(400, "RepoNotFound")}
    world.at = "not an origin"
    with pytest.raises(RepoNotFound):
        assert isinstance(store.get(*PLACE), Record)
