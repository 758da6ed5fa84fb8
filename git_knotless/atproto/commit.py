"""Signed commits of a repo, and proofs of what a record is in one.

https://atproto.com/specs/repository#commit-objects and com.atproto.sync.getRecord. A proof says
what a commit holds, not that the commit is the newest: whoever asks keeps the greatest `rev` seen.
"""

from collections.abc import Iterator
from typing import Any, Self

from git_knotless import limits
from git_knotless.atproto import dag_cbor
from git_knotless.atproto.blocks import Blocks, BlockStore
from git_knotless.atproto.car import read_car, write_car
from git_knotless.atproto.dag_cbor import BadData, Link, cid_text, is_link
from git_knotless.atproto.keys import PrivateKey, PublicKey
from git_knotless.atproto.syntax import Cid, Did, Nsid, Rkey, Tid, is_did, is_tid
from git_knotless.value import value

VERSION = 3


@value
class Commit:
    """`data` is the root of the records' tree; `prev` has had no meaning since version 3."""

    did: Did
    rev: Tid
    data: bytes
    prev: bytes | None = None

    def sign(self, key: PrivateKey) -> bytes:
        """The block."""
        unsigned = {
            "did": self.did,
            "version": VERSION,
            "data": Link(self.data),
            "rev": self.rev,
            "prev": None if self.prev is None else Link(self.prev),
        }
        return dag_cbor.encode({**unsigned, "sig": key.sign(dag_cbor.encode(unsigned))})

    @classmethod
    def decode(cls, block: bytes) -> Self:
        """A block's commit, by whomever it is signed."""
        return cls._of(dag_cbor.decode(block))

    @classmethod
    def verify(cls, block: bytes, *, did: Did, key: PublicKey) -> Self:
        """A block's commit, which is the account's; raises BadSignature if not by the key."""
        fields = dag_cbor.decode(block)
        commit = cls._of(fields)
        if commit.did != did:
            raise BadData("a commit of another account")
        # Whatever else it holds is signed with it.
        unsigned = {name: value for name, value in fields.items() if name != "sig"}
        key.verify(fields["sig"], dag_cbor.encode(unsigned))
        return commit

    @classmethod
    def _of(cls, fields: Any) -> Self:
        match fields:
            case {
                "did": str(did),
                "version": int(version),
                "data": data,
                "rev": str(rev),
                "prev": prev,
                "sig": signature,
            } if version == VERSION and is_did(did) and is_tid(rev) and type(signature) is bytes:
                if is_link(data) and (prev is None or is_link(prev)):
                    return cls(Did(did), Tid(rev), data, prev)
        raise BadData(f"a block is no commit of version {VERSION}")


@value
class Proof:
    """What an account's repo has at a key, as of a commit. `value` is the record as the JSON of
    XRPC has it; it and `cid` are None where there is none."""

    value: dict[str, Any] | None
    cid: Cid | None
    rev: Tid
    commit: Cid


def verify_proof(car: bytes, *, did: Did, key: PublicKey, collection: Nsid, rkey: Rkey) -> Proof:
    """Reads an answer of com.atproto.sync.getRecord, of which nothing is believed.

    Raises BadData; BadSignature, which is one, where a newer key may be what is missing.
    """
    from git_knotless.atproto import mst  # whoever reads a range needs no more than the commit

    root, found = read_car(car, limit=limits.PROOF)
    blocks = Blocks(found)
    commit = Commit.verify(blocks.get(root), did=did, key=key)
    cid = mst.get(blocks, commit.data, record_key(collection, rkey))
    if cid is None:
        return Proof(None, None, commit.rev, cid_text(root))
    record = dag_cbor.to_json(dag_cbor.decode(blocks.get(cid)))
    if not isinstance(record, dict) or record.get("$type") != collection:
        raise BadData("a record of another type than its collection's")
    return Proof(record, cid_text(cid), commit.rev, cid_text(root))


def write_proof(store: BlockStore, commit: bytes, collection: Nsid, rkey: Rkey) -> Iterator[bytes]:
    """The answer of com.atproto.sync.getRecord: a CAR of the commit, of the nodes on the way to the
    record, and of the record if there is one."""
    from git_knotless.atproto import mst

    key = record_key(collection, rkey)
    data = Commit.decode(store.get(commit)).data
    record = mst.get(store, data, key)
    cids = [commit, *mst.path(store, data, key), *([] if record is None else [record])]
    return write_car(commit, ((cid, store.get(cid)) for cid in cids))


def record_key(collection: Nsid, rkey: Rkey) -> bytes:
    """A record's key in the tree."""
    return f"{collection}/{rkey}".encode()
