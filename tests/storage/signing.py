"""An account's host and the directory, in memory: a signed repo, and answers that a test may bend.

What it answers by itself is what the reference PDS does: it keeps the blocks of the newest commit
alone. `bend` is given each answer, by the method's last word, before it goes out.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from git_knotless.atproto import mst
from git_knotless.atproto.blocks import Blocks, Missing
from git_knotless.atproto.car import write_car
from git_knotless.atproto.commit import Commit, record_key, write_proof
from git_knotless.atproto.dag_cbor import cid_of, cid_text, encode_json
from git_knotless.atproto.keys import Curve, PrivateKey
from git_knotless.atproto.syntax import Did, Nsid, Rkey, Tid, tid
from git_knotless.storage.claims import EpochRecord
from git_knotless.storage.records import CLAIM, REF, REPO, RefRecord, RepoRecord
from git_knotless.storage.store import Record
from tests.atproto.fakes import DID, PLC, document, json_answer, nsid_of, xrpc_error

KEY = "3k2akcsyzdc2r"
NOW = "2026-01-02T03:04:05.678Z"
LATER = 1_800_000_000_000_000  # microseconds: when the first commit was made

Bend = Callable[[httpx.Request, httpx.Response], httpx.Response]
Records = Mapping[tuple[str, str], dict[str, Any] | None]


def ref(name: str, target: str | None, generation: int = 1) -> tuple[tuple[str, str], Any]:
    record = RefRecord(KEY, f"refs/heads/{name}", target, generation, NOW)
    return (REF, record.rkey), record.to_json()


def repository(**fields: Any) -> tuple[tuple[str, str], Any]:
    value = {"key": KEY, "epoch": 1, "createdAt": NOW, **fields}
    return (REPO, "notes"), RepoRecord.from_record(Record(Rkey("notes"), value)).to_json()


def epoch(number: int = 1) -> tuple[tuple[str, str], Any]:
    record = EpochRecord(KEY, number, KEY, NOW)
    return (CLAIM, record.rkey), record.to_json()


@dataclass
class State:
    """What a host keeps as of one commit."""

    head: bytes
    rev: Tid
    data: bytes
    blocks: dict[bytes, tuple[Tid, bytes]]  # with the revision that each is of
    records: dict[tuple[str, str], dict[str, Any]]


@dataclass
class Host:
    curve: Curve = Curve.K256
    bend: dict[str, Bend] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.key = self.named = PrivateKey.generate(self.curve)
        self.commits = 0
        empty = Blocks()
        root = mst.empty(empty)
        self.state = State(b"", Tid(""), root, {root: (Tid(""), empty.get(root))}, {})
        self.write(dict([repository(), epoch()]))

    # --- what is in it

    def write(self, changes: Records) -> Tid:
        """One commit; None takes a record away."""
        old = self.state
        store = Blocks({cid: block for cid, (_, block) in old.blocks.items()})
        root, records = old.data, dict(old.records)
        for (collection, rkey), value in changes.items():
            key = record_key(Nsid(collection), Rkey(rkey))
            if value is None:
                root = mst.delete(store, root, key)
                records.pop((collection, rkey), None)
            else:
                root = mst.put(store, root, key, store.put(encode_json(value)))
                records[collection, rkey] = value
        return self.sign(store, root, records)

    def sign(self, store: Blocks, root: bytes, records: Any, *, did: str = DID) -> Tid:
        old = self.state
        self.commits += 1
        rev = tid(LATER + self.commits, 0)
        block = Commit(Did(did), rev, root).sign(self.key)
        diff = mst.diff(store, old.data, root)
        kept = {c: b for c, b in old.blocks.items() if c not in {*diff.dropped, old.head}}
        new = {cid: store.get(cid) for cid in diff.added} | {cid_of(block): block}
        new |= {cid_of(each): each for each in map(encode_json, records.values())}
        blocks = {cid: (rev, each) for cid, each in new.items()} | {
            cid: each for cid, each in kept.items() if cid not in diff.added
        }
        self.state = State(cid_of(block), rev, root, blocks, dict(records))
        return rev

    # --- what it answers

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if f"http://{request.url.netloc.decode()}" == PLC:
            self.asked.append("did")
            return json_answer(self.document())
        method = nsid_of(request).rpartition(".")[2]
        name = f"sync.{method}" if ".sync." in nsid_of(request) else method
        self.asked.append(name)
        answer = self.answer(request)
        return self.bend[name](request, answer) if name in self.bend else answer

    def document(self) -> dict[str, Any]:
        method = {"id": f"{DID}#atproto", "type": "Multikey", "controller": DID}
        method["publicKeyMultibase"] = self.named.public.multikey
        return document(handle=None) | {"verificationMethod": [method]}

    def answer(self, request: httpx.Request) -> httpx.Response:
        """As it is now, bent by nobody."""
        state, params = self.state, dict(request.url.params)
        match nsid_of(request).removeprefix("com.atproto."):
            case "repo.getRecord":
                value = state.records.get((params["collection"], params["rkey"]))
                if value is None:
                    return xrpc_error(400, "RecordNotFound")
                uri = f"at://{DID}/{params['collection']}/{params['rkey']}"
                return json_answer({"uri": uri, "value": value})
            case "repo.listRecords":
                return json_answer(self._page(params))
            case "sync.getRecord":
                place = Nsid(params["collection"]), Rkey(params["rkey"])
                return car(b"".join(write_proof(self, state.head, *place)))
            case "sync.getBlocks":
                return self._blocks(request.url.params.get_list("cids"))
            case "sync.getRepo":
                since = params.get("since", "")
                new = {c: b for c, (rev, b) in state.blocks.items() if rev > since}
                return car(b"".join(write_car(state.head, new.items())))
            case "sync.getLatestCommit":
                return json_answer({"cid": cid_text(state.head), "rev": state.rev})
            case "repo.applyWrites":
                return json_answer({"commit": {"rev": state.rev}, "results": [{"$type": "x#y"}]})
        return xrpc_error(501, "MethodNotImplemented")

    def get(self, cid: bytes) -> bytes:
        if cid not in self.state.blocks:
            raise Missing(cid_text(cid))
        return self.state.blocks[cid][1]

    def put(self, block: bytes) -> bytes:
        raise TypeError

    def _blocks(self, cids: list[str]) -> httpx.Response:
        named = {cid_text(cid): cid for cid in self.state.blocks}
        lacking = [cid for cid in cids if cid not in named]
        if lacking:
            return xrpc_error(400, "InvalidRequest", f"Could not find cids: {','.join(lacking)}")
        found = [(named[cid], self.state.blocks[named[cid]][1]) for cid in cids]
        return car(b"".join(write_car(None, found)))

    def _page(self, params: dict[str, str]) -> dict[str, Any]:
        collection, ascending = params["collection"], params.get("reverse") == "true"
        keys = sorted(
            (rkey for kind, rkey in self.state.records if kind == collection),
            reverse=not ascending,
        )
        if "cursor" in params:
            after = params["cursor"]
            keys = [key for key in keys if (key > after if ascending else key < after)]
        keys = keys[: int(params["limit"])]
        records = [
            {
                "uri": f"at://{DID}/{collection}/{key}",
                "value": self.state.records[collection, key],
            }
            for key in keys
        ]
        return {"records": records, **({"cursor": keys[-1]} if keys else {})}


def car(data: bytes) -> httpx.Response:
    return httpx.Response(200, content=data)


def bent(change: Callable[[Any], Any]) -> Bend:
    """An answer of JSON as the function has it."""

    def bend(_: httpx.Request, answer: httpx.Response) -> httpx.Response:
        return json_answer(change(json.loads(answer.content)))

    return bend


def listed(change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> Bend:
    """A listing with other records in it."""
    return bent(lambda page: {**page, "records": change(page["records"])})
