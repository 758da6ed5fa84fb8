"""One account's records and blobs in memory, answering as the reference PDS does.

A fake at the edge of the network: it stands where a `RecordStore` on a host stands. What it
answers to each write is what was measured of the reference PDS; the switches are what other
hosts do.
"""

import base64
import hashlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from git_knotless.atproto import mst
from git_knotless.atproto.allowance import Kind, Left
from git_knotless.atproto.blocks import Blocks
from git_knotless.atproto.commit import Commit, record_key
from git_knotless.atproto.dag_cbor import cid_text, encode_json
from git_knotless.atproto.errors import (
    BlobNotFound,
    HostUnreachable,
    InvalidSwap,
    PayloadTooLarge,
    ServerFault,
)
from git_knotless.atproto.keys import Curve, PrivateKey, PublicKey
from git_knotless.atproto.syntax import Cid, Did, Nsid, Rkey, Tid
from git_knotless.storage.listing import Page, ReadPage, everything, under, whole
from git_knotless.storage.store import (
    Archive,
    Authority,
    BlobBody,
    BlobRef,
    HostFacts,
    Proofs,
    Record,
    Write,
)

DID = Did("did:plc:" + "a" * 24)
HOST = "http://localhost:1"
KEY = PrivateKey.generate(Curve.K256)
REV = Tid("3k2akcsyzdc2r")


def refusal(kind: type, status: int = 500, name: str = "InternalServerError") -> Any:
    return kind(status, name, "Internal Server Error", nsid="applyWrites", host=HOST)


def cid_of(data: bytes) -> str:
    raw = b"\x01\x55\x12\x20" + hashlib.sha256(data).digest()
    return "b" + base64.b32encode(raw).decode().lower().rstrip("=")


@dataclass
class Account:
    """`before` and `after` see each batch, before and after it is applied; either may raise."""

    did: Did = DID
    seeks: bool = True
    creates_update: bool = False
    updates_create: bool = False
    blob_limit: int | None = 5 << 20
    page: int = 100
    down: bool = False
    offset: float = 0.0
    records: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    batches: list[Sequence[Write]] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    allowance: dict[Kind, Left] = field(default_factory=dict)
    before: Callable[[Sequence[Write]], None] = lambda writes: None
    after: Callable[[Sequence[Write]], None] = lambda writes: None
    lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def proofs(self) -> Proofs:
        return AccountProofs(self)

    def signed(self) -> tuple[bytes, dict[bytes, bytes]]:
        """The commit's CID, and all blocks there are, as of now."""
        with self.lock:
            records = {name: dict(values) for name, values in self.records.items()}
        store = Blocks()
        root = mst.empty(store)
        for collection, values in records.items():
            for rkey, value in values.items():
                key = record_key(Nsid(collection), Rkey(rkey))
                root = mst.put(store, root, key, store.put(encode_json(value)))
        return store.put(Commit(self.did, REV, root).sign(KEY)), store.blocks

    def get(self, collection: str, rkey: Rkey) -> Record | None:
        self.requests.append(f"get {collection}")
        if self.down:
            raise HostUnreachable("down")
        with self.lock:
            value = self.records.get(collection, {}).get(rkey)
        return None if value is None else Record(rkey, value, version(value))

    def list(
        self, collection: str, prefix: str, *, newest_first: bool = False
    ) -> Iterator[Sequence[Record]]:
        read = self._reader(collection)
        return under(prefix, read, newest_first=newest_first) if prefix else everything(read)

    def list_whole(self, collection: str, prefix: str) -> Iterator[Sequence[Record]]:
        return whole(prefix, self._reader(collection), lambda: str(len(self.batches)))

    def _reader(self, collection: str) -> ReadPage:
        def read(cursor: str | None, ascending: bool) -> Page:
            return self._page(collection, cursor, ascending)

        return read

    def _page(self, collection: str, cursor: str | None, ascending: bool) -> Page:
        self.requests.append(f"list {collection}")
        if self.down:
            raise HostUnreachable("down")
        with self.lock:
            values = dict(self.records.get(collection, {}))
        keys = sorted(values, reverse=not ascending)
        if not self.seeks:
            keys = sorted(values, key=lambda key: hashlib.sha256(key.encode()).digest())
            keys = keys[keys.index(cursor) + 1 if cursor in keys else 0 :]
        elif cursor is not None:
            keys = [key for key in keys if (key > cursor if ascending else key < cursor)]
        keys = keys[: self.page]
        records = [Record(Rkey(key), values[key]) for key in keys]
        return Page(records, keys[-1] if keys else None)

    def apply(self, writes: Sequence[Write]) -> Sequence[str]:
        self.requests.append("apply")
        self.before(writes)
        with self.lock:
            results = self._applied(writes)
        self.batches.append(writes)
        self.after(writes)
        return results

    def _applied(self, writes: Sequence[Write]) -> Sequence[str]:
        assert len(writes) <= 200
        staged = {name: dict(values) for name, values in self.records.items()}
        results = [self._one(staged.setdefault(w.collection, {}), w) for w in writes]
        self.records = staged
        return [f"com.atproto.repo.applyWrites#{action}Result" for action in results]

    def _one(self, values: dict[str, dict[str, Any]], write: Write) -> str:
        exists = write.rkey in values
        action: str = write.action
        if action == "create" and exists:
            if not self.creates_update:
                raise refusal(ServerFault)
            action = "update"
        if action != "create" and not exists and not self.updates_create:
            raise refusal(ServerFault)
        if action == "update" and not exists:
            action = "create"
        for blob in (write.value or {}).get("blobs", []):
            if blob["ref"]["$link"] not in self.blobs:
                raise refusal(BlobNotFound, 400, "BlobNotFound")
        if write.value is None:
            values.pop(write.rkey, None)
        else:
            values[write.rkey] = write.value
        return action

    def put(
        self, collection: str, rkey: Rkey, value: Mapping[str, Any], *, replaces: str | None
    ) -> None:
        write = Write("update", collection, rkey, dict(value))
        self.requests.append("put")
        self.before([write])
        with self.lock:
            values = self.records.setdefault(collection, {})
            there = version(values[rkey]) if rkey in values else None
            if there != replaces:
                raise refusal(InvalidSwap, 400, "InvalidSwap")
            values[rkey] = dict(value)
        self.after([write])

    def upload(self, body: BlobBody, *, mime: str = "application/x-git-pack") -> BlobRef:
        self.requests.append("upload")
        if self.blob_limit is not None and body.size > self.blob_limit:
            raise refusal(PayloadTooLarge, 413, "PayloadTooLarge")
        data = b"".join(body.chunks())
        assert len(data) == body.size
        self.blobs[cid_of(data)] = data
        return BlobRef(cid_of(data), sniffed(data, mime), len(data))

    def download(self, blob: BlobRef) -> Iterator[bytes]:
        self.requests.append("download")
        if blob.cid not in self.blobs:
            raise refusal(BlobNotFound, 400, "InvalidRequest")
        data = self.blobs[blob.cid]
        yield from (data[at : at + 65536] for at in range(0, len(data), 65536))

    def host(self) -> HostFacts:
        return HostFacts(self.blob_limit)

    def learn_blob_limit(self, limit: int) -> None:
        self.blob_limit = limit

    def left(self, kind: Kind) -> Left | None:
        return self.allowance.get(kind)

    def clock_offset(self) -> float:
        return self.offset


class AccountProofs:
    """What the account has signed, as its host proves it. Satisfies `Proofs`."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._blocks: dict[bytes, bytes] = {}

    @property
    def authority(self) -> Authority:
        return Authority("localhost:1", straight=True)

    def signing_key(self, *, fresh: bool) -> PublicKey:
        return KEY.public

    def commit(self) -> tuple[Cid, Tid]:
        return cid_text(self._account.signed()[0]), REV

    def record(self, collection: Nsid, rkey: Rkey) -> Archive:
        commit, self._blocks = self._account.signed()
        return commit, self._blocks

    def blocks(self, cids: Sequence[bytes]) -> dict[bytes, bytes]:
        return {cid: self._blocks[cid] for cid in cids}

    def since(self, rev: Tid, *, limit: int) -> Archive:
        return self._account.signed()


def version(value: Mapping[str, Any]) -> str:
    """Stands for the CID of a record: another for each value."""
    return cid_of(json.dumps(value, sort_keys=True).encode())


def sniffed(data: bytes, declared: str) -> str:
    """What the reference PDS makes of some bytes; `declared` where it knows no better."""
    if data.startswith(b"\x1f\x8b"):
        return "application/gzip"
    return "application/zip" if data.startswith(b"PK\x03\x04") else declared
