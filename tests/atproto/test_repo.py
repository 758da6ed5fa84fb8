"""The calls on records and blobs: what is asked, and which answers are believed."""

from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from git_knotless.atproto import repo
from git_knotless.atproto.errors import BadAnswer, RecordNotFound
from git_knotless.atproto.syntax import Did, Rkey
from tests.atproto.fakes import (
    DID,
    PDS,
    Body,
    Script,
    Token,
    Waits,
    client_for,
    json_answer,
    xrpc_error,
)

ME = Did(DID)
COLLECTION = "dev.knotless.ref"
CID = "bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku"


@dataclass(frozen=True)
class Write:
    action: str
    collection: str
    rkey: Rkey
    value: dict[str, Any] | None = None


def stored(rkey: str, value: Any = None, **changed: Any) -> dict[str, Any]:
    uri = f"at://{DID}/{COLLECTION}/{rkey}"
    return {"uri": uri, "cid": CID, "value": {"a": 1} if value is None else value, **changed}


def test_get_record() -> None:
    host = Script([json_answer(stored("k.1"))])
    with client_for(host) as client:
        found = repo.get_record(client, PDS, ME, COLLECTION, Rkey("k.1"))
    assert found == repo.StoredRecord(Rkey("k.1"), {"a": 1}, CID)
    assert dict(host.requests[0].url.params) == {
        "repo": DID,
        "collection": COLLECTION,
        "rkey": "k.1",
    }


def test_get_record_that_is_not_there() -> None:
    host = Script([xrpc_error(400, "RecordNotFound")])
    with client_for(host) as client, pytest.raises(RecordNotFound):
        repo.get_record(client, PDS, ME, COLLECTION, Rkey("k"))


@pytest.mark.parametrize(
    "answer",
    [
        {},
        stored("other"),
        stored("k", value=["a"]),
        stored("k", uri=7),
        stored("k", uri="https://example.com"),
        stored("k", uri=f"at://did:plc:ragtjsm2j2vknwkz3zp4oxrd/{COLLECTION}/k"),
        stored("k", uri=f"at://alice.test/{COLLECTION}/k"),
        stored("k", uri=f"at://{DID}/dev.knotless.pack/k"),
        stored("k", uri=f"at://{DID}/{COLLECTION}"),
    ],
)
def test_another_record_than_asked_for(answer: dict[str, Any]) -> None:
    with client_for(Script([json_answer(answer)])) as client, pytest.raises(BadAnswer):
        repo.get_record(client, PDS, ME, COLLECTION, Rkey("k"))


def test_list_records() -> None:
    host = Script([json_answer({"records": [stored("b"), stored("c")], "cursor": "c"})])
    with client_for(host) as client:
        page = repo.list_records(client, PDS, ME, COLLECTION, cursor="a", reverse=True)
    assert [record.rkey for record in page.records] == ["b", "c"]
    assert page.cursor == "c"
    assert dict(host.requests[0].url.params) == {
        "repo": DID,
        "collection": COLLECTION,
        "limit": "100",
        "cursor": "a",
        "reverse": "true",
    }


@pytest.mark.parametrize("cursor", [{}, {"cursor": None}, {"cursor": ""}])
def test_the_last_page(cursor: dict[str, Any]) -> None:
    host = Script([json_answer({"records": [], **cursor})])
    with client_for(host) as client:
        assert repo.list_records(client, PDS, ME, COLLECTION) == repo.Page((), None)
    assert set(host.requests[0].url.params) == {"repo", "collection", "limit"}


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"records": {}},
        {"records": [7]},
        {"records": [stored("..")]},
        {"records": [stored("k")] * 101},
        {"records": [], "cursor": 7},
        {"records": [], "cursor": "x" * 3000},
    ],
)
def test_a_listing_that_is_none(answer: dict[str, Any]) -> None:
    with client_for(Script([json_answer(answer)])) as client, pytest.raises(BadAnswer):
        repo.list_records(client, PDS, ME, COLLECTION)


WRITES = [
    Write("update", "dev.knotless.repo", Rkey("work"), {"epoch": 1}),
    Write("delete", COLLECTION, Rkey("k.1")),
]
KINDS = (
    "com.atproto.repo.applyWrites#updateResult",
    "com.atproto.repo.applyWrites#deleteResult",
)


def test_apply_writes() -> None:
    results = [{"$type": kind} for kind in KINDS]
    host = Script([json_answer({"commit": {"rev": "3k2akcsyzdc2r"}, "results": results})])
    with client_for(host) as client:
        done = repo.apply_writes(client, PDS, ME, WRITES, auth=Token())
    assert done == repo.Applied(KINDS, "3k2akcsyzdc2r")
    (body,) = host.bodies
    assert body == (
        b'{"repo":"did:plc:ewvi7nxzyoun6zhxrhs64oiz","writes":['
        b'{"$type":"com.atproto.repo.applyWrites#update","collection":"dev.knotless.repo",'
        b'"rkey":"work","value":{"epoch":1}},'
        b'{"$type":"com.atproto.repo.applyWrites#delete","collection":"dev.knotless.ref",'
        b'"rkey":"k.1"}]}'
    )
    assert host.requests[0].headers["authorization"] == "Bearer 1"


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"results": None},
        {"results": [{"$type": KINDS[0]}]},
        {"results": [{"$type": KINDS[0]}, {}]},
        {"results": [{"$type": KINDS[0]}, 7]},
    ],
)
def test_results_that_are_none(answer: dict[str, Any]) -> None:
    with client_for(Script([json_answer(answer)])) as client, pytest.raises(BadAnswer):
        repo.apply_writes(client, PDS, ME, WRITES, auth=Token())


@pytest.mark.parametrize("commit", [{}, None, [], {"rev": 1}, {"rev": "x"}])
def test_a_revision_that_is_none(commit: Any) -> None:
    results = [{"$type": kind} for kind in KINDS]
    with client_for(Script([json_answer({"commit": commit, "results": results})])) as client:
        done = repo.apply_writes(client, PDS, ME, WRITES, auth=Token())
    assert done == repo.Applied(KINDS, None)


def test_a_batch_that_is_refused_for_a_while_is_sent_again() -> None:
    waits = Waits()
    limited = xrpc_error(429, "RateLimitExceeded", retry_after="7")
    host = Script([limited, json_answer({"results": [{"$type": kind} for kind in KINDS]})])
    with client_for(host, waits) as client:
        assert repo.apply_writes(client, PDS, ME, WRITES, auth=Token()).kinds == KINDS
    assert len(waits.seconds) == 1
    assert host.bodies[0] == host.bodies[1]


def blob(**changed: Any) -> httpx.Response:
    whole = {"$type": "blob", "ref": {"$link": CID}, "mimeType": "application/gzip", "size": 4}
    return json_answer({"blob": {**whole, **changed}})


def test_upload_blob() -> None:
    with client_for(Script([blob()])) as client:
        found = repo.upload_blob(client, PDS, Body(b"PACK"), "a/b", auth=Token())
    assert (found.cid, found.mime, found.size) == (CID, "application/gzip", 4)


@pytest.mark.parametrize(
    "answer",
    [
        json_answer({}),
        blob(ref=CID),
        blob(ref={"$link": "../x"}),
        blob(size=-1),
        blob(size="4"),
        blob(mimeType=None),
    ],
)
def test_a_blob_that_is_none(answer: httpx.Response) -> None:
    with client_for(Script([answer])) as client, pytest.raises(BadAnswer):
        repo.upload_blob(client, PDS, Body(b"PACK"), "a/b", auth=Token())


def test_get_blob() -> None:
    host = Script([httpx.Response(200, content=b"PACK!")])
    with client_for(host) as client:
        assert b"".join(repo.get_blob(client, PDS, ME, CID, size=5)) == b"PACK!"
        with pytest.raises(BadAnswer, match="too long"):
            b"".join(repo.get_blob(client, PDS, ME, CID, size=4))
        with pytest.raises(BadAnswer, match="is not the CID of a blob"):
            repo.get_blob(client, PDS, ME, "../x", size=4)


@pytest.mark.parametrize(
    ("says", "limit"),
    [(5_242_880, 5_242_880), (None, None), ("5", None), (True, None), (0, None), (1 << 62, None)],
)
def test_describe_server(says: Any, limit: int | None) -> None:
    host = Script([json_answer({"did": "did:web:localhost", "blobUploadLimit": says})])
    with client_for(host) as client:
        assert repo.describe_server(client, PDS) == repo.HostDescription(limit)


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (
            {"did": DID, "active": True, "rev": "3jzfcijpj2z2a"},
            repo.RepoStatus(True, None, "3jzfcijpj2z2a"),
        ),
        (
            {"did": DID, "active": False, "status": "deactivated"},
            repo.RepoStatus(False, "deactivated", None),
        ),
        (
            {"did": DID, "active": False, "status": 7, "rev": "x"},
            repo.RepoStatus(False, None, None),
        ),
    ],
)
def test_get_repo_status(answer: dict[str, Any], status: repo.RepoStatus) -> None:
    with client_for(Script([json_answer(answer)])) as client:
        assert repo.get_repo_status(client, PDS, ME) == status


@pytest.mark.parametrize(
    "answer", [{}, {"did": DID, "active": "yes"}, {"did": "x", "active": True}]
)
def test_a_status_that_is_none(answer: dict[str, Any]) -> None:
    with client_for(Script([json_answer(answer)])) as client, pytest.raises(BadAnswer):
        repo.get_repo_status(client, PDS, ME)
