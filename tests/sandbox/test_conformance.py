"""The sandbox answers about records and blobs as the reference PDS does.

A difference that is meant stands in MEANT, with its reason.
"""

import base64
import gzip
from typing import Any

import httpx
import pytest

from tests.network import Account, Network, write
from tests.sandbox.conversation import (
    MISSING,
    NOT_THERE,
    NOTE,
    REPO,
    SERVER,
    SYNC,
    Conversation,
    Recorder,
    batch,
    differences,
)

pytestmark = pytest.mark.testnet

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)

MEANT = {
    "batches: gzip that is none": "the reference's name is that of zlib's exception, Error",
}


def batches(on: Recorder) -> None:
    alice = on.network.account()
    apply = f"{REPO}applyWrites"
    one = write("create", NOTE, "one", {"text": "hello"})

    def say(label: str, body: Any, **options: Any) -> httpx.Response:
        return on.post(label, alice, apply, body, **options)

    say("create", batch(alice, one))
    say("create of a taken key", batch(alice, one))
    say(
        "create and update",
        batch(alice, write("create", NOTE, "two", {}), write("update", NOTE, "two", {"a": 1})),
    )
    say("update of a missing key", batch(alice, write("update", NOTE, "missing", {})))
    say("delete of a missing key", batch(alice, write("delete", NOTE, "missing")))
    say("one refused of two", batch(alice, write("create", NOTE, "three", {}), one))
    on.get(
        "and nothing of it",
        alice,
        f"{REPO}getRecord",
        repo=alice.did,
        collection=NOTE,
        rkey="three",
    )
    say("delete and create", batch(alice, write("delete", NOTE, "one"), one))
    say(
        "create and delete",
        batch(alice, write("create", NOTE, "gone", {}), write("delete", NOTE, "gone")),
    )
    say(
        "create twice", batch(alice, write("create", NOTE, "x", {}), write("create", NOTE, "x", {}))
    )
    say("update and create", batch(alice, write("update", NOTE, "one", {}), one))
    say("no writes", batch(alice))
    say(
        "without a key", batch(alice, {"$type": f"{apply}#create", "collection": NOTE, "value": {}})
    )
    say("201 writes", batch(alice, *(write("create", NOTE, f"n{n}", {}) for n in range(201))))
    say("200 writes", batch(alice, *(write("create", NOTE, f"n{n}", {}) for n in range(200))))
    say("stale swapCommit", batch(alice, one, swapCommit=MISSING))
    head = alice.get(f"{SYNC}getLatestCommit", did=alice.did)["cid"]
    say("swapCommit", batch(alice, write("update", NOTE, "one", {}), swapCommit=head))
    say("swapCommit that is no CID", batch(alice, one, swapCommit="x"))
    say("validate false", batch(alice, write("update", NOTE, "one", {}), validate=False))
    say("validate true", batch(alice, write("update", NOTE, "one", {}), validate=True))
    say("validate text", batch(alice, write("update", NOTE, "one", {}), validate="yes"))
    say("another $type", batch(alice, write("update", NOTE, "one", {"$type": "com.example.other"})))
    say("no writes field", {"repo": alice.did})
    say("no repo field", {"writes": []})
    say("writes is text", {"repo": alice.did, "writes": "x"})
    say("a write is text", {"repo": alice.did, "writes": ["x"]})
    say("an unknown write", {"repo": alice.did, "writes": [{"$type": f"{apply}#move"}]})
    say(
        "a write without a type", {"repo": alice.did, "writes": [{"collection": NOTE, "rkey": "k"}]}
    )
    say(
        "update without a key",
        batch(alice, {"$type": f"{apply}#update", "collection": NOTE, "value": {}}),
    )
    say(
        "create without a value",
        batch(alice, {"$type": f"{apply}#create", "collection": NOTE, "rkey": "nv"}),
    )
    for key in ("", ".", "..", "a/b", "a b", "é", "x" * 513, "@"):
        say(f"key {key[:8]!r} {len(key)}", batch(alice, write("create", NOTE, key, {})))
    for key in ("x" * 512, "a:b~c_d-e.f", "Foo", "foo"):
        say(f"key {key[:8]!r} {len(key)}", batch(alice, write("create", NOTE, key, {})))
    for collection in (
        "note",
        "com.example",
        "com.example.no-te",
        "com.example.1a",
        "com.exa mple.n",
        "com.example." + "a" * 64,
    ):
        say(f"collection {collection[:30]}", batch(alice, write("create", collection, "k", {})))
    say("collection in two cases", batch(alice, write("create", "com.Example.noteTwo", "k", {})))
    say("not JSON", None, content=b"{", headers={"Content-Type": "application/json"})
    say("no object", [1])
    say("another content type", None, content=b"{}", headers={"Content-Type": "text/plain"})
    say("no content type", None, content=b"{}")
    say("no body", None)
    body = httpx.Request(
        "POST", "http://x", json=batch(alice, write("create", NOTE, "gzip", {}))
    ).content
    packed = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    say("gzip", None, content=gzip.compress(body), headers=packed)
    say("gzip that is none", None, content=b"nonsense", headers=packed)
    say("an unknown encoding", None, content=body, headers={**packed, "Content-Encoding": "rot13"})


def sizes(on: Recorder) -> None:
    alice = on.network.account()

    def say(label: str, size: int, **options: Any) -> None:
        body = httpx.Request(
            "POST", "http://x", json=batch(alice, write("create", NOTE, f"s{size}", {"text": ""}))
        ).content
        padded = body.replace(b'"text":""', b'"text":"' + b"a" * (size - len(body)) + b'"')
        assert len(padded) == size
        encoding = {}
        if options.get("packed"):
            padded, encoding = gzip.compress(padded), {"Content-Encoding": "gzip"}
        headers = {"Content-Type": "application/json", **encoding}
        on.post(label, alice, f"{REPO}applyWrites", content=padded, headers=headers)

    say("the most", 1_000_000)
    say("more", 1_000_001)
    say("more, packed", 1_000_002, packed=True)
    session = {"identifier": alice.handle, "password": "a" * 160_000}
    on.post("a session of 160 KB", alice.host, f"{SERVER}createSession", session)


def values(on: Recorder) -> None:
    alice = on.network.account()
    cases: dict[str, Any] = {
        "null": None,
        "true": True,
        "one": 1,
        "one.0": 1.0,
        "1e3": 1e3,
        "fraction": 1.5,
        "most": 2**53 - 1,
        "least": -(2**53 - 1),
        "too much": 2**53,
        "far too much": 2**70,
        "nested": {"a": [{"b": [1, [2, [3]]]}]},
        "empty name": {"": 1},
        "non-ASCII": "zażółć 🥔",
        "link": {"$link": MISSING},
        "no link": {"$link": "x"},
        "link with more": {"$link": MISSING, "more": 1},
        "bytes": {"$bytes": "aGVsbG8"},
        "padded bytes": {"$bytes": "aGVsbG8="},
        "no bytes": {"$bytes": "*"},
        "no text bytes": {"$bytes": 1},
        "bytes of an odd length": {"$bytes": "aGVsbG8gd"},
        "no blob": {"$type": "blob"},
        "unknown $type": {"$type": "com.example.thing", "a": 1},
        "legacy blob": {
            "cid": "bafkreifb65wzkskevjn263kzzpbtpe2dfrvo3dftbc2zlykqkwu6g4mfw4",
            "mimeType": "text/plain",
        },
    }
    for n, (name, value) in enumerate(cases.items()):
        on.post(
            name,
            alice,
            f"{REPO}applyWrites",
            batch(alice, write("create", NOTE, f"v{n}", {"value": value})),
        )
        read = on.get(
            f"{name} read", alice, f"{REPO}getRecord", repo=alice.did, collection=NOTE, rkey=f"v{n}"
        )
        if read.status_code == 200:  # as it is, not only its shape
            on.answers[f"{name} in full"] = read.json()["value"], read.json()["cid"]
    deep: Any = 1
    for _ in range(100):
        deep = [deep]
    on.post(
        "a hundred levels",
        alice,
        f"{REPO}applyWrites",
        batch(alice, write("create", NOTE, "deep", {"value": deep})),
    )


def single_records(on: Recorder) -> None:
    alice = on.network.account()
    place = {"repo": alice.did, "collection": NOTE}
    create, put, delete = (f"{REPO}{name}Record" for name in ("create", "put", "delete"))
    on.post("create", alice, create, {**place, "record": {"a": 1}})
    made = on.post(
        "create at a key", alice, create, {**place, "rkey": "k", "record": {"a": 1}}
    ).json()
    on.post("create again", alice, create, {**place, "rkey": "k", "record": {"a": 1}})
    on.post("create without a record", alice, create, place)
    on.post("create, record is text", alice, create, {**place, "record": "x"})
    on.post(
        "create with another $type", alice, create, {**place, "record": {"$type": "com.example.x"}}
    )
    on.post("put the same", alice, put, {**place, "rkey": "k", "record": {"a": 1}})
    on.post(
        "put the same, swapped",
        alice,
        put,
        {**place, "rkey": "k", "record": {"a": 1}, "swapRecord": None},
    )
    on.post("put another", alice, put, {**place, "rkey": "k", "record": {"a": 2}})
    on.post(
        "put, stale swapRecord",
        alice,
        put,
        {**place, "rkey": "k", "record": {"a": 3}, "swapRecord": made["cid"]},
    )
    on.post(
        "put, must not exist",
        alice,
        put,
        {**place, "rkey": "k", "record": {"a": 3}, "swapRecord": None},
    )
    on.post("put a new one", alice, put, {**place, "rkey": "new", "record": {"a": 1}})
    on.post(
        "put a new one, must not exist",
        alice,
        put,
        {**place, "rkey": "new2", "record": {}, "swapRecord": None},
    )
    on.post(
        "put a new one, must exist",
        alice,
        put,
        {**place, "rkey": "new3", "record": {}, "swapRecord": MISSING},
    )
    on.post(
        "put, stale swapCommit",
        alice,
        put,
        {**place, "rkey": "k", "record": {"a": 9}, "swapCommit": MISSING},
    )
    on.post("put without a key", alice, put, {**place, "record": {}})
    on.post("put at a bad key", alice, put, {**place, "rkey": "a/b", "record": {}})
    on.post(
        "put, swapRecord no CID",
        alice,
        put,
        {**place, "rkey": "k", "record": {"a": 9}, "swapRecord": "x"},
    )
    on.post(
        "delete, stale swapRecord", alice, delete, {**place, "rkey": "k", "swapRecord": made["cid"]}
    )
    on.post(
        "delete, stale swapCommit", alice, delete, {**place, "rkey": "k", "swapCommit": MISSING}
    )
    on.post("delete", alice, delete, {**place, "rkey": "k"})
    on.post("delete again", alice, delete, {**place, "rkey": "k"})
    on.post("delete by handle", alice, delete, {**place, "repo": alice.handle, "rkey": "new"})
    on.post("delete without a key", alice, delete, place)


def reading(on: Recorder) -> None:
    alice = on.network.account()
    writes = [write("create", NOTE, f"k{n:03}", {"n": n}) for n in range(120)]
    alice.apply(*writes)
    record = {"repo": alice.did, "collection": NOTE, "rkey": "k000"}
    get, listing = f"{REPO}getRecord", f"{REPO}listRecords"
    there = on.get("record", alice.host, get, **record)
    on.get("by handle", alice.host, get, **{**record, "repo": alice.handle})
    on.get("with its cid", alice.host, get, **record, cid=there.json()["cid"])
    on.get("with another cid", alice.host, get, **record, cid=MISSING)
    on.get("missing", alice.host, get, **{**record, "rkey": "missing"})
    on.get("bad key", alice.host, get, **{**record, "rkey": "a/b"})
    on.get("bad collection", alice.host, get, **{**record, "collection": "note"})
    on.get("without a key", alice.host, get, repo=alice.did, collection=NOTE)
    on.get("another account", alice.host, get, **{**record, "repo": NOT_THERE})
    on.get("no account", alice.host, get, **{**record, "repo": "x"})
    etag = there.headers["etag"]
    on.ask("not modified", alice.host, "GET", get, params=record, headers={"If-None-Match": etag})
    on.ask("head", alice.host, "HEAD", get, params=record)
    on.post("as a procedure", alice.host, get, {})
    on.ask("a procedure as a query", alice.host, "GET", f"{REPO}applyWrites")

    def page(label: str, **params: Any) -> None:
        response = on.get(
            label, alice.host, listing, **{"repo": alice.did, "collection": NOTE, **params}
        )
        if response.status_code == 200:
            body = response.json()
            keys = [each["uri"].rpartition("/")[2] for each in body["records"]]
            on.answers[f"{label}: keys"] = keys, body.get("cursor")

    page("page")
    page("of 100", limit=100)
    page("of 101", limit=101)
    page("of 0", limit=0)
    page("of text", limit="x")
    page("ascending", reverse=True, limit=3)
    page("reverse of 1", reverse="1")
    page("after a key", cursor="k010", limit=3)
    page("after a key, ascending", cursor="k010", reverse=True, limit=3)
    page("after no key", cursor="k01.", reverse=True, limit=3)
    page("before no key", cursor="k01~", limit=3)
    page("empty cursor", cursor="", limit=3)
    page("past the end", cursor="k000", limit=3)
    page("last page", cursor="k003", limit=3)
    page("unknown parameter", rkeyStart="k100", limit=3)
    page("empty collection", collection="com.example.empty")
    page("of a bad collection", collection="note")
    page("of a handle", repo=alice.handle, limit=1)
    page("of another account", repo=NOT_THERE)
    on.get("describe", alice.host, f"{REPO}describeRepo", repo=alice.did)
    on.get("describe by handle", alice.host, f"{REPO}describeRepo", repo=alice.handle)
    on.get("describe nobody", alice.host, f"{REPO}describeRepo", repo=NOT_THERE)


def syncing(on: Recorder) -> None:
    alice = on.network.account()
    alice.apply(*(write("create", NOTE, f"k{n}", {"n": n}) for n in range(30)))
    did = {"did": alice.did}
    key = {"collection": NOTE, "rkey": "k3"}
    commit = on.get("commit", alice.host, f"{SYNC}getLatestCommit", **did).json()
    on.get("proof", alice.host, f"{SYNC}getRecord", **did, **key)
    on.get("proof of absence", alice.host, f"{SYNC}getRecord", **did, **{**key, "rkey": "x"})
    on.get("proof at a bad key", alice.host, f"{SYNC}getRecord", **did, **{**key, "rkey": "a/b"})
    on.get("repo", alice.host, f"{SYNC}getRepo", **did)
    on.get("repo since", alice.host, f"{SYNC}getRepo", **did, since=commit["rev"])
    on.get("status", alice.host, f"{SYNC}getRepoStatus", **did)
    on.get("blocks", alice.host, f"{SYNC}getBlocks", **did, cids=[commit["cid"]])
    on.get("missing blocks", alice.host, f"{SYNC}getBlocks", **did, cids=[MISSING])
    on.get("bad blocks", alice.host, f"{SYNC}getBlocks", **did, cids=["x"])
    on.get("blobs", alice.host, f"{SYNC}listBlobs", **did)
    on.get("repos", alice.host, f"{SYNC}listRepos", limit=1)
    on.get("repos, bad cursor", alice.host, f"{SYNC}listRepos", cursor="x")
    on.get("repos, limit", alice.host, f"{SYNC}listRepos", limit=1001)
    for name in ("getLatestCommit", "getRepo", "getRepoStatus", "listBlobs"):
        on.get(f"{name} of nobody", alice.host, f"{SYNC}{name}", did=NOT_THERE)
        on.get(f"{name} of no DID", alice.host, f"{SYNC}{name}", did="x")
        on.get(f"{name} without", alice.host, f"{SYNC}{name}")
    on.get("proof of nobody", alice.host, f"{SYNC}getRecord", did=NOT_THERE, **key)


def blobs(on: Recorder) -> None:
    alice, bob = on.network.account(), on.network.account()

    def upload(
        label: str, data: bytes, mime: str | None = "text/plain", **options: Any
    ) -> dict[str, Any]:
        headers = {**({"Content-Type": mime} if mime else {}), **options.pop("headers", {})}
        sent = on.post(label, alice, f"{REPO}uploadBlob", content=data, headers=headers, **options)
        if sent.status_code != 200:
            return {}
        blob: dict[str, Any] = sent.json()["blob"]
        on.answers[f"{label}: blob"] = blob
        return blob

    def read(label: str, blob: dict[str, Any], *, at: Account = alice) -> None:
        response = on.get(label, at.host, f"{SYNC}getBlob", did=at.did, cid=blob["ref"]["$link"])
        names = (
            "cache-control",
            "x-content-type-options",
            "content-security-policy",
            "content-length",
            "etag",
        )
        if response.status_code == 200:
            on.answers[f"{label}: headers"] = {name: response.headers.get(name) for name in names}

    data = b"PACK" + bytes(100)
    blob = upload("a pack", data, "application/x-git-pack")
    read("temporary", blob)
    on.get(
        "temporary, to its owner", alice, f"{SYNC}getBlob", did=alice.did, cid=blob["ref"]["$link"]
    )

    def note(label: str, key: str, value: Any, action: str = "create") -> None:
        on.post(
            label,
            alice,
            f"{REPO}applyWrites",
            batch(alice, write(action, NOTE, key, {"blob": value})),
        )

    note("a bare link", "link", blob["ref"])
    read("still temporary", blob)
    note("another size", "size", {**blob, "size": 5})
    note("another type", "type", {**blob, "mimeType": "text/plain"})
    note("missing", "missing", {**blob, "ref": {"$link": MISSING}})
    note("reference", "one", blob)
    read("referenced", blob)
    on.ask(
        "head",
        alice.host,
        "HEAD",
        f"{SYNC}getBlob",
        params={"did": alice.did, "cid": blob["ref"]["$link"]},
    )
    on.ask(
        "range",
        alice.host,
        "GET",
        f"{SYNC}getBlob",
        params={"did": alice.did, "cid": blob["ref"]["$link"]},
        headers={"Range": "bytes=0-3"},
    )
    read("of another account", blob, at=bob)
    note("another size, later", "size2", {**blob, "size": 5})
    note("again", "two", blob)
    listed = on.get("listed", alice.host, f"{SYNC}listBlobs", did=alice.did).json()
    on.answers["listed: cids"] = listed["cids"]
    alice.delete(NOTE, "one")
    read("one reference less", blob)
    alice.put(NOTE, "size2", {})
    alice.put(NOTE, "two", {"blob": None})
    read("no reference", blob)
    note("reference to what is gone", "three", blob)
    upload("uploaded again", data, "application/x-git-pack")
    note("reference again", "three", blob)
    on.post(
        "moved within a batch",
        alice,
        f"{REPO}applyWrites",
        batch(alice, write("delete", NOTE, "three"), write("create", NOTE, "four", {"blob": blob})),
    )
    read("moved", blob)

    upload("empty", b"", "text/plain")
    upload("with parameters", b"text", "text/plain; charset=utf-8")
    upload("gzip bytes", gzip.compress(b"x" * 300, mtime=0), "application/x-git-pack")
    upload("zip bytes", b"PK\x03\x04" + bytes(100), "application/x-git-pack")
    upload("pdf bytes", b"%PDF-1.4\n" + bytes(100), "application/x-git-pack")
    upload("png bytes", PNG, "application/x-git-pack")
    upload("no type", b"data", None)
    upload("any type", b"data2", "*/*")
    upload("two types: first", b"two types", "text/one")
    second = upload("two types: second", b"two types", "text/two")
    note("by the second type", "second", second)
    note("by the first type", "first", {**second, "mimeType": "text/one"})
    packed = upload(
        "packed",
        gzip.compress(b"unpacked", mtime=0),
        "text/plain",
        headers={"Content-Encoding": "gzip"},
    )
    assert packed["size"] == 8
    limit = 5 * 1024 * 1024
    upload("the most", bytes(limit), "application/octet-stream")
    upload("one more", bytes(limit + 1), "application/octet-stream")
    on.post(
        "nobody's",
        alice.host,
        f"{REPO}uploadBlob",
        content=b"x",
        headers={"Content-Type": "text/plain"},
    )
    on.get("missing blobs", alice, f"{REPO}listMissingBlobs")
    on.get("blob of nobody", alice.host, f"{SYNC}getBlob", did=NOT_THERE, cid=MISSING)
    on.get("no blob", alice.host, f"{SYNC}getBlob", did=alice.did, cid="x")


@pytest.mark.parametrize(
    "have",
    [batches, sizes, values, single_records, reading, syncing, blobs],
    ids=lambda each: each.__name__,
)
def test_both_answer_alike(have: Conversation, reference: Network, sandbox: Network) -> None:
    assert not differences(have, (reference, sandbox), MEANT)
