"""com.atproto.sync, as hosts answer it and as they should not."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from git_knotless.atproto import sync
from git_knotless.atproto.blocks import Missing
from git_knotless.atproto.car import write_car
from git_knotless.atproto.dag_cbor import BadData, cid_of, cid_text
from git_knotless.atproto.errors import BadAnswer, RepoNotFound, XrpcError
from git_knotless.atproto.syntax import Did, Nsid, Rkey, Tid
from git_knotless.atproto.xrpc import Client
from tests.atproto.fakes import DID, PDS, Script, client_for, json_answer, xrpc_error
from tests.network import Account, write

ME = Did(DID)
BLOCKS = {cid_of(b"\x18%c" % n): b"\x18%c" % n for n in range(24, 128)} | {
    cid_of(b"\x19\x01%c" % n): b"\x19\x01%c" % n for n in range(256)
}
ROOT = cid_of(b"root")
EVER = Tid("2222222222222")  # before every other


def car(blocks: dict[bytes, bytes], root: bytes | None = None) -> httpx.Response:
    return httpx.Response(200, content=b"".join(write_car(root, blocks.items())))


def of(request: httpx.Request) -> httpx.Response:
    """A host that has these blocks."""
    named = {cid_text(cid): cid for cid in BLOCKS}
    wanted = request.url.params.get_list("cids")
    assert len(str(request.url)) < 16_000
    return car({named[text]: BLOCKS[named[text]] for text in wanted})


def test_blocks_come_200_at_a_time() -> None:
    seen: list[int] = []

    def host(request: httpx.Request) -> httpx.Response:
        seen.append(len(request.url.params.get_list("cids")))
        return of(request)

    with client_for(host) as client:
        assert sync.get_blocks(client, PDS, ME, list(BLOCKS)) == BLOCKS
        assert sync.get_blocks(client, PDS, ME, []) == {}
    assert seen == [200, 160]


CIDS = list(BLOCKS)[:3]
THREE = {cid: BLOCKS[cid] for cid in CIDS}


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (car({cid: BLOCKS[cid] for cid in CIDS[:2]}), Missing),
        (car({}), Missing),
        (xrpc_error(400, "InvalidRequest", "Could not find cids: x"), Missing),
        (car(THREE, ROOT), BadData),
        (car({**THREE, CIDS[1]: b"\x00"}), BadData),
        (httpx.Response(200, content=b"<html>"), BadData),
        (httpx.Response(200, content=b"".join(write_car(None, THREE.items()))[:-1]), BadData),
        (httpx.Response(200, content=bytes(9 << 20)), BadAnswer),
        (xrpc_error(501, "MethodNotImplemented"), XrpcError),
        (xrpc_error(400, "RepoNotFound"), RepoNotFound),
    ],
)
def test_blocks_that_are_not_those(answer: httpx.Response, kind: type[Exception]) -> None:
    with client_for(Script([answer])) as client, pytest.raises(kind) as caught:
        sync.get_blocks(client, PDS, ME, CIDS)
    assert isinstance(caught.value, Missing) == (kind is Missing)


def test_a_block_more_is_none_that_was_asked_for() -> None:
    with client_for(Script([car(BLOCKS)])) as client:
        assert sync.get_blocks(client, PDS, ME, CIDS) == THREE


def test_the_newest_commit() -> None:
    said = {"cid": cid_text(ROOT), "rev": "3k2akcsyzdc2r"}
    with client_for(Script([json_answer(said)])) as client:
        assert sync.get_latest_commit(client, PDS, ME) == (said["cid"], said["rev"])


@pytest.mark.parametrize(
    "said", [{}, {"cid": "x", "rev": "3k2akcsyzdc2r"}, {"cid": cid_text(ROOT), "rev": "1"}]
)
def test_a_commit_that_is_none(said: Any) -> None:
    with client_for(Script([json_answer(said)])) as client, pytest.raises(BadAnswer):
        sync.get_latest_commit(client, PDS, ME)


def test_what_came_after_is_bounded() -> None:
    host = Script([car(BLOCKS, ROOT)])
    with client_for(host) as client:
        since = Tid("3k2akcsyzdc2r")
        assert sync.get_repo(client, PDS, ME, since=since, limit=100_000) == (ROOT, BLOCKS)
        assert host.requests[0].url.params["since"] == since
        with pytest.raises(BadAnswer, match="more than"):
            sync.get_repo(client, PDS, ME, since=since, limit=1000)


@pytest.mark.slow
def test_real_hosts_answer_so(account: Callable[..., Account]) -> None:
    """Of a tree with more nodes than one request takes, and of the same after a write."""
    collection, alice = Nsid("com.example.note"), account()
    did = Did(alice.did)
    names = [f"r{n:04}" for n in range(800)]
    for at in range(0, len(names), 200):
        some = enumerate(names[at : at + 200], at)
        alice.apply(*(write("create", collection, name, {"n": n}) for n, name in some))
    with Client() as client:
        head, first = sync.get_record(client, alice.pds, did, collection, Rkey("r0500x"))
        cid, rev = sync.get_latest_commit(client, alice.pds, did)
        assert cid == cid_text(head)
        _, everything = sync.get_repo(client, alice.pds, did, since=EVER, limit=1 << 24)
        assert first.items() <= everything.items()
        assert len(everything) > 900
        assert sync.get_blocks(client, alice.pds, did, list(everything)) == everything
        with pytest.raises(Missing):
            sync.get_blocks(client, alice.pds, did, [*everything, ROOT])
        assert sync.get_repo(client, alice.pds, did, since=rev, limit=1000) == (head, {})
        alice.apply(write("update", collection, "r0500", {"n": -1}))
        after, new = sync.get_repo(client, alice.pds, did, since=rev, limit=1 << 20)
        assert after in new
        assert 3 <= len(new) < 20
        with pytest.raises(Missing):
            sync.get_blocks(client, alice.pds, did, [head])
