"""`dev.knotless.lfs`: the record of a Git LFS object, which names the blobs that it is in."""

import re
from typing import Any, Self

from git_knotless import limits
from git_knotless.atproto.syntax import Rkey
from git_knotless.storage.fields import BadRecord, an_object, integer, items, text
from git_knotless.storage.packs.packrecord import blob_from, blob_json
from git_knotless.storage.packs.spool import blob_cid
from git_knotless.storage.records import LFS, prefix_of
from git_knotless.storage.store import BlobRef, Record
from git_knotless.value import value

LARGEST_OBJECT = (1 << 53) - 1  # the largest integer that every atproto host keeps
EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"  # no bytes at all
_OID = re.compile(r"[0-9a-f]{64}")


def is_lfs_oid(text: object) -> bool:
    return isinstance(text, str) and _OID.fullmatch(text) is not None


def lfs_rkey(key: str, oid: str) -> Rkey:
    return Rkey(prefix_of(key) + oid)


@value
class LfsRecord:
    """The object `oid`, its own SHA-256 in hex, cut into `blobs` in their order."""

    repo: str
    oid: str
    size: int
    blobs: tuple[BlobRef, ...]
    created_at: str

    @classmethod
    def from_record(cls, record: Record) -> Self:
        where = f"LFS object {record.rkey}"
        fields = an_object(record.value, "an LFS object")
        repo = text(fields, "repo", limit=13)
        oid = record.rkey.removeprefix(prefix_of(repo))
        if not is_lfs_oid(oid) or record.rkey != lfs_rkey(repo, oid):
            raise BadRecord(f"{where}: its key is not of its repository and a SHA-256")
        size = integer(fields, "size", least=0, most=LARGEST_OBJECT)
        blobs = tuple(blob_from(blob, where) for blob in items(fields, "blobs"))
        if len(blobs) > limits.FEW_BLOBS + size // limits.BYTES_A_BLOB:
            raise BadRecord(f"{where}: {len(blobs)} blobs are too many for {size} bytes")
        held = sum(blob.size for blob in blobs)
        if held != size:
            raise BadRecord(f"{where}: it says {size} bytes and holds {held}")
        if not _may_be(oid, blobs):
            raise BadRecord(f"{where}: its blob is not what its key says")
        return cls(repo, oid, size, blobs, text(fields, "createdAt", limit=64))

    @property
    def rkey(self) -> Rkey:
        return lfs_rkey(self.repo, self.oid)

    def to_json(self) -> dict[str, Any]:
        value: dict[str, Any] = {"$type": LFS, "repo": self.repo, "size": self.size}
        value["blobs"] = [blob_json(blob) for blob in self.blobs]
        return value | {"createdAt": self.created_at}


def _may_be(oid: str, blobs: tuple[BlobRef, ...]) -> bool:
    """What is whole in one blob, or has no bytes, has one hash that it can have."""
    if len(blobs) > 1:
        return True
    return blobs[0].cid == blob_cid(bytes.fromhex(oid)) if blobs else oid == EMPTY
