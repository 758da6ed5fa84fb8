"""`dev.knotless.pack`: the record of a pack, whether it holds the pack or names its blobs."""

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Self

from git_knotless import limits
from git_knotless.atproto.syntax import Rkey, is_cid
from git_knotless.storage.fields import BadRecord, an_object, integer, is_oid, is_sha1, items, text
from git_knotless.storage.records import PACK, prefix_of
from git_knotless.storage.store import BlobRef, Record
from git_knotless.value import value

PACK_MIME = "application/x-git-pack"
_SMALLEST_PACK = 32  # a header of 12 bytes and a trailer of 20
MOST_HINTS = 64  # tips, or bases: of more bases none is named, and of tips the first


@value
class PackRecord:
    """`dev.knotless.pack`: a self-contained git pack, in the record or in blobs in their order.

    `size` is in bytes, `checksum` the pack's own trailer in hex.
    """

    rkey: Rkey
    repo: str
    epoch: int
    size: int
    objects: int
    checksum: str
    data: bytes | None
    blobs: tuple[BlobRef, ...]
    created_at: str
    tips: tuple[str, ...] = ()
    bases: tuple[str, ...] = ()

    @classmethod
    def from_record(cls, record: Record) -> Self:
        where = f"pack {record.rkey}"
        fields = an_object(record.value, "a pack")
        size = integer(fields, "size", least=_SMALLEST_PACK, most=limits.PACK)
        checksum = text(fields, "checksum", limit=64)
        repo = text(fields, "repo", limit=13)
        if not is_sha1(checksum):
            raise BadRecord(f"{where}: its checksum is not a SHA-1")
        if not record.rkey.startswith(prefix_of(repo)):
            raise BadRecord(f"{where}: its key is not of its repository")
        data = _bytes(fields, where)
        blobs = tuple(blob_from(blob, where) for blob in items(fields, "blobs"))
        if len(blobs) > limits.FEW_BLOBS + size // limits.BYTES_A_BLOB:
            raise BadRecord(f"{where}: {len(blobs)} blobs are too many for {size} bytes")
        held = len(data) if data is not None else sum(blob.size for blob in blobs)
        if held != size or (data is not None and blobs):
            raise BadRecord(f"{where}: it says {size} bytes and holds {held}")
        objects = integer(fields, "objects", least=0, most=0xFFFFFFFF)
        if objects * limits.BYTES_AN_OBJECT > size:
            raise BadRecord(f"{where}: {objects} objects are too many for {size} bytes")
        bases = items(fields, "bases")
        return cls(
            rkey=record.rkey,
            repo=repo,
            epoch=integer(fields, "epoch", least=1),
            size=size,
            objects=objects,
            checksum=checksum,
            data=data,
            blobs=blobs,
            created_at=text(fields, "createdAt", limit=64),
            tips=tuple(filter(is_oid, items(fields, "tips")[:MOST_HINTS])),
            bases=tuple(filter(is_oid, bases)) if len(bases) <= MOST_HINTS else (),
        )

    def to_json(self) -> dict[str, Any]:
        value: dict[str, Any] = {"$type": PACK, "repo": self.repo, "epoch": self.epoch}
        value |= {"size": self.size, "objects": self.objects, "checksum": self.checksum}
        if self.data is not None:
            value["data"] = {"$bytes": base64.b64encode(self.data).decode().rstrip("=")}
        else:
            value["blobs"] = [blob_json(blob) for blob in self.blobs]
        value |= {"tips": list(self.tips)} if self.tips else {}
        value |= {"bases": list(self.bases)} if self.bases else {}
        return value | {"createdAt": self.created_at}


def blob_json(blob: BlobRef) -> dict[str, Any]:
    """A blob as the host's answer to its upload gave it."""
    link = {"$link": blob.cid}
    return {"$type": "blob", "ref": link, "mimeType": blob.mime, "size": blob.size}


def _bytes(fields: Mapping[str, Any], where: str) -> bytes | None:
    if "data" not in fields:
        return None
    text = an_object(fields["data"], "data").get("$bytes")
    if not isinstance(text, str):
        raise BadRecord(f"{where}: its data is not bytes")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadRecord(f"{where}: its data is not base64") from error


def blob_from(value: object, where: str) -> BlobRef:
    fields = an_object(value, "a blob")
    link = an_object(fields.get("ref"), "a blob's ref").get("$link")
    if not isinstance(link, str) or not is_cid(link):
        raise BadRecord(f"{where}: a blob without a CID")
    size = integer(fields, "size", least=1, most=limits.PACK)
    return BlobRef(link, text(fields, "mimeType", limit=255), size)
