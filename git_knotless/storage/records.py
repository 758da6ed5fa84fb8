"""The records that a repository is kept in, as values; `lexicons/dev/knotless/` is their contract.

Whatever a host hands out is checked as a value is made from it, and refused with `BadRecord`.
A client that rewrites a record keeps the fields that it does not know, so a `RepoRecord`
carries the whole of what was read.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from blake3 import blake3

from git_knotless.atproto.syntax import Did, Rkey, is_cid, is_did, is_tid
from git_knotless.errors import KnotlessError
from git_knotless.storage.refname import is_ref_name
from git_knotless.storage.store import BlobRef, Record

REPO = "dev.knotless.repo"
REF = "dev.knotless.ref"
CLAIM = "dev.knotless.claim"
PACK = "dev.knotless.pack"

# What goes when a repository goes: their keys begin with the repository's key.
COLLECTIONS_OF_A_REPOSITORY = (REF, CLAIM, PACK)

PACK_MIME = "application/x-git-pack"
DEFAULT_BRANCH = "main"
_OID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_SHA1 = re.compile(r"[0-9a-f]{40}")
# The texts of a repo record that may be absent, and their longest in bytes.
_TEXTS = {
    "description": 3000,
    "defaultBranch": 255,
    "createdAt": 64,
    "updatedAt": 64,
    "nonce": 64,
    "objectFormat": 64,
}
_LARGEST_PACK = 1 << 53  # the largest integer that every atproto host keeps
_SMALLEST_PACK = 32  # a header of 12 bytes and a trailer of 20
# The most blobs of a pack. An upload is cut at 32 KiB at the least, and then at most four single
# bytes off a slice that a host takes for another kind of file; the last slice may be short.
_FEW_BLOBS = 16
_BYTES_A_BLOB = 4096


class BadRecord(KnotlessError):
    """A record that is not what its key or its lexicon says."""


def prefix_of(key: str) -> str:
    """What the record keys of all of a repository's refs, claims and packs begin with."""
    return f"{key}."


def ref_rkey(key: str, name: str) -> Rkey:
    """A ref's record key: hosts filter words in record keys, and hex spells none."""
    return Rkey(f"{key}.{blake3(name.encode()).hexdigest(length=16)}")


def claim_rkey(ref: Rkey, generation: int) -> Rkey:
    return Rkey(f"{ref}.{generation}")


def epoch_rkey(key: str, epoch: int) -> Rkey:
    return Rkey(f"{key}.epoch.{epoch}")


def is_oid(text: object) -> bool:
    return isinstance(text, str) and _OID.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Rule:
    """What protects one branch. Anything this version does not know reads strictly."""

    branch: str
    linear: bool
    queue: bool
    fields: Mapping[str, Any]

    _KNOWN = frozenset({"branch", "history", "queue", "reviews", "$type"})

    @classmethod
    def from_json(cls, value: object) -> Self:
        fields = _object(value, "a rule")
        unknown = fields.keys() - cls._KNOWN
        linear = fields.get("history") != "merges" or bool(unknown)
        branch = _text(fields, "branch", limit=255)
        return cls(branch, linear, fields.get("queue", False) is not False, fields)


@dataclass(frozen=True, slots=True)
class RepoRecord:
    """`dev.knotless.repo`: `name` is its record key, `fields` the whole value as it was read."""

    name: str
    fields: Mapping[str, Any]

    @classmethod
    def from_record(cls, record: Record) -> Self:
        fields = _object(record.value, "a repository")
        if not is_tid(_text(fields, "key", limit=13)):
            raise BadRecord(f"repository {record.rkey}: its key is not a TID")
        _integer(fields, "epoch", least=1)
        for did in _list(fields, "collaborators"):
            if not (isinstance(did, str) and is_did(did)):
                raise BadRecord(f"repository {record.rkey}: a collaborator is not a DID")
        for rule in _list(fields, "rules"):
            Rule.from_json(rule)
        for name, limit in _TEXTS.items():
            _text(fields, name, limit=limit, default="")
        if not isinstance(fields.get("archived", False), bool):
            raise BadRecord(f"repository {record.rkey}: archived is not true or false")
        return cls(str(record.rkey), fields)

    @property
    def rkey(self) -> Rkey:
        return Rkey(self.name)

    @property
    def key(self) -> str:
        """The TID minted with the repository: names come and go, it stays."""
        return str(self.fields["key"])

    @property
    def epoch(self) -> int:
        return int(self.fields["epoch"])

    @property
    def description(self) -> str:
        return str(self.fields.get("description", ""))

    @property
    def default_branch(self) -> str:
        return str(self.fields.get("defaultBranch") or DEFAULT_BRANCH)

    @property
    def created_at(self) -> str:
        return str(self.fields.get("createdAt", ""))

    @property
    def updated_at(self) -> str:
        """When the record was last rewritten."""
        return str(self.fields.get("updatedAt", self.created_at))

    @property
    def nonce(self) -> str:
        """The nonce of the epoch's record, by which its writer knows that it landed."""
        return str(self.fields.get("nonce", self.key))

    @property
    def archived(self) -> bool:
        return bool(self.fields.get("archived", False))

    @property
    def collaborators(self) -> tuple[Did, ...]:
        return tuple(Did(did) for did in _list(self.fields, "collaborators"))

    @property
    def rules(self) -> tuple[Rule, ...]:
        return tuple(Rule.from_json(rule) for rule in _list(self.fields, "rules"))

    @property
    def object_format(self) -> str:
        return str(self.fields.get("objectFormat", "sha1"))

    @property
    def head(self) -> str:
        return f"refs/heads/{self.default_branch}"

    def changed(self, **fields: Any) -> "RepoRecord":
        """The same with lexicon fields replaced; None takes one away."""
        merged = {**self.fields, **fields}
        kept = {name: value for name, value in merged.items() if value is not None}
        return RepoRecord.from_record(Record(Rkey(self.name), kept))

    def next_epoch(self, nonce: str, at: str) -> "RepoRecord":
        """The same as whoever rewrites it now writes it; `at` is in RFC 3339."""
        return self.changed(epoch=self.epoch + 1, nonce=nonce, updatedAt=at)

    def to_json(self) -> dict[str, Any]:
        return {**self.fields, "$type": REPO}


@dataclass(frozen=True, slots=True)
class RefRecord:
    """`dev.knotless.ref`: one ref; no `target` once it is deleted. `generation` counts moves."""

    repo: str
    name: str
    target: str | None
    generation: int
    updated_at: str
    pusher: Did | None = None

    @classmethod
    def from_record(cls, record: Record) -> Self:
        fields = _object(record.value, "a ref")
        repo, name = _text(fields, "repo", limit=13), _text(fields, "name", limit=4096)
        if not is_ref_name(name):
            raise BadRecord(f"ref {record.rkey}: git would refuse its name")
        if record.rkey != ref_rkey(repo, name):
            raise BadRecord(f"ref {record.rkey}: its key is not of its name")
        target = fields.get("target")
        if target is not None and not (isinstance(target, str) and _SHA1.fullmatch(target)):
            raise BadRecord(f"ref {record.rkey}: its target is not an object id")
        generation = _integer(fields, "generation", least=1)
        return cls(repo, name, target, generation, _text(fields, "updatedAt", limit=64))

    @property
    def rkey(self) -> Rkey:
        return ref_rkey(self.repo, self.name)

    def to_json(self) -> dict[str, Any]:
        value: dict[str, Any] = {"$type": REF, "repo": self.repo, "name": self.name}
        value |= {"generation": self.generation, "updatedAt": self.updated_at}
        if self.target is not None:
            value["target"] = self.target
        if self.pusher is not None:
            value["pusher"] = self.pusher
        return value


@dataclass(frozen=True, slots=True)
class ClaimRecord:
    """`dev.knotless.claim`: the compare-and-swap of one move of one ref, and its receipt."""

    repo: str
    ref: str
    generation: int
    epoch: int
    old: str | None
    new: str | None
    nonce: str
    created_at: str
    pusher: Did | None = None

    @property
    def rkey(self) -> Rkey:
        return claim_rkey(ref_rkey(self.repo, self.ref), self.generation)

    def to_json(self) -> dict[str, Any]:
        value: dict[str, Any] = {"$type": CLAIM, "repo": self.repo, "ref": self.ref}
        value |= {"generation": self.generation, "epoch": self.epoch, "nonce": self.nonce}
        value |= {"createdAt": self.created_at}
        optional = {"old": self.old, "new": self.new, "pusher": self.pusher}
        return value | {name: text for name, text in optional.items() if text is not None}


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """The claim record that stands while the repo record carries `epoch`.

    It says what the repo record says of it and no more, so that a push can update it, to what
    it already is, without reading it. The one that replaces it as the repository is deleted
    says so, and under which name it was: a delete that was cut is found by it.
    """

    repo: str
    epoch: int
    nonce: str
    created_at: str
    deleted: str | None = None

    @classmethod
    def of(cls, repo: RepoRecord) -> Self:
        return cls(repo.key, repo.epoch, repo.nonce, repo.updated_at)

    @property
    def rkey(self) -> Rkey:
        return epoch_rkey(self.repo, self.epoch)

    def to_json(self) -> dict[str, Any]:
        value: dict[str, Any] = {"$type": CLAIM, "repo": self.repo, "epoch": self.epoch}
        value |= {"nonce": self.nonce, "createdAt": self.created_at}
        return value if self.deleted is None else value | {"deleted": self.deleted}


@dataclass(frozen=True, slots=True)
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
        fields = _object(record.value, "a pack")
        size = _integer(fields, "size", least=_SMALLEST_PACK, most=_LARGEST_PACK)
        checksum = _text(fields, "checksum", limit=64)
        repo = _text(fields, "repo", limit=13)
        if not _SHA1.fullmatch(checksum):
            raise BadRecord(f"{where}: its checksum is not a SHA-1")
        if not record.rkey.startswith(prefix_of(repo)):
            raise BadRecord(f"{where}: its key is not of its repository")
        data = _bytes(fields, where)
        blobs = tuple(_blob(blob, where) for blob in _list(fields, "blobs"))
        if len(blobs) > _FEW_BLOBS + size // _BYTES_A_BLOB:
            raise BadRecord(f"{where}: {len(blobs)} blobs are too many for {size} bytes")
        held = len(data) if data is not None else sum(blob.size for blob in blobs)
        if held != size or (data is not None and blobs):
            raise BadRecord(f"{where}: it says {size} bytes and holds {held}")
        return cls(
            rkey=record.rkey,
            repo=repo,
            epoch=_integer(fields, "epoch", least=1),
            size=size,
            objects=_integer(fields, "objects", least=0, most=0xFFFFFFFF),
            checksum=checksum,
            data=data,
            blobs=blobs,
            created_at=_text(fields, "createdAt", limit=64),
            tips=tuple(filter(is_oid, _list(fields, "tips"))),
            bases=tuple(filter(is_oid, _list(fields, "bases"))),
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


def _object(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadRecord(f"{what} is not an object")
    return value


def _text(fields: Mapping[str, Any], name: str, *, limit: int, default: str | None = None) -> str:
    """`limit` is in bytes of UTF-8, as everywhere in lexicons."""
    text = fields.get(name, default)
    if not isinstance(text, str) or len(text.encode(errors="replace")) > limit:
        raise BadRecord(f"{name} is not a text of at most {limit} bytes")
    return text


def _integer(fields: Mapping[str, Any], name: str, *, least: int, most: int = (1 << 53) - 1) -> int:
    number = fields.get(name)
    if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= most:
        raise BadRecord(f"{name} is not a whole number from {least} to {most}")
    return number


def _list(fields: Mapping[str, Any], name: str) -> list[Any]:
    values = fields.get(name, [])
    if not isinstance(values, list):
        raise BadRecord(f"{name} is not a list")
    return values


def _bytes(fields: Mapping[str, Any], where: str) -> bytes | None:
    if "data" not in fields:
        return None
    text = _object(fields["data"], "data").get("$bytes")
    if not isinstance(text, str):
        raise BadRecord(f"{where}: its data is not bytes")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadRecord(f"{where}: its data is not base64") from error


def _blob(value: object, where: str) -> BlobRef:
    fields = _object(value, "a blob")
    link = _object(fields.get("ref"), "a blob's ref").get("$link")
    if not isinstance(link, str) or not is_cid(link):
        raise BadRecord(f"{where}: a blob without a CID")
    size = _integer(fields, "size", least=1, most=_LARGEST_PACK)
    return BlobRef(link, _text(fields, "mimeType", limit=255), size)
