"""The records that a repository is kept in, as values; `lexicons/dev/knotless/` is their contract.

Whatever a host hands out is checked as a value is made from it, and refused with `BadRecord`.
A client that rewrites a record keeps the fields that it does not know, so a `RepoRecord`
carries the whole of what was read.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from blake3 import blake3

from git_knotless.atproto.syntax import Did, Rkey, is_did, is_tid
from git_knotless.storage.fields import BadRecord, an_object, integer, is_sha1, items, text
from git_knotless.storage.refname import is_ref_name
from git_knotless.storage.store import Record
from git_knotless.value import value

if TYPE_CHECKING:
    from git_knotless.storage.places.references import RepoRef

REPO = "dev.knotless.repo"
REF = "dev.knotless.ref"
CLAIM = "dev.knotless.claim"
PACK = "dev.knotless.pack"
LFS = "dev.knotless.lfs"
REDIRECT = "dev.knotless.redirect"

# What goes when a repository goes: their keys begin with the repository's key. Its redirects go
# too, which are keyed by the names that it had.
COLLECTIONS_OF_A_REPOSITORY = (REF, CLAIM, PACK, LFS)

DEFAULT_BRANCH = "main"
# The texts of a repo record that may be absent, and their longest in bytes.
_TEXTS = {
    "description": 3000,
    "defaultBranch": 255,
    "createdAt": 64,
    "updatedAt": 64,
    "nonce": 64,
    "objectFormat": 64,
}


def prefix_of(key: str) -> str:
    """What the record keys of all of a repository's refs, claims and packs begin with."""
    return f"{key}."


def ref_rkey(key: str, name: str) -> Rkey:
    """A ref's record key: hosts filter words in record keys, and hex spells none."""
    return Rkey(f"{key}.{blake3(name.encode()).hexdigest(length=16)}")


@value
class Rule:
    """What protects one branch. Anything this version does not know reads strictly."""

    branch: str
    linear: bool
    queue: bool
    fields: Mapping[str, Any]

    _KNOWN = frozenset({"branch", "history", "queue", "reviews", "$type"})

    @classmethod
    def from_json(cls, value: object) -> Self:
        fields = an_object(value, "a rule")
        unknown = fields.keys() - cls._KNOWN
        linear = fields.get("history") != "merges" or bool(unknown)
        branch = text(fields, "branch", limit=255)
        return cls(branch, linear, fields.get("queue", False) is not False, fields)


@value
class RepoRecord:
    """`dev.knotless.repo`: `name` is its record key, `fields` the whole value as it was read."""

    name: str
    fields: Mapping[str, Any]

    @classmethod
    def from_record(cls, record: Record) -> Self:
        fields = an_object(record.value, "a repository")
        if not is_tid(text(fields, "key", limit=13)):
            raise BadRecord(f"repository {record.rkey}: its key is not a TID")
        integer(fields, "epoch", least=1)
        for did in items(fields, "collaborators"):
            if not (isinstance(did, str) and is_did(did)):
                raise BadRecord(f"repository {record.rkey}: a collaborator is not a DID")
        for rule in items(fields, "rules"):
            Rule.from_json(rule)
        for name, limit in _TEXTS.items():
            text(fields, name, limit=limit, default="")
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
        return tuple(Did(did) for did in items(self.fields, "collaborators"))

    @property
    def runners(self) -> tuple[Did, ...]:
        runners = self.fields.get("runners")
        listed = runners if isinstance(runners, list) else []
        return tuple(Did(did) for did in listed if isinstance(did, str) and is_did(did))

    @property
    def transfer(self) -> "RepoRef | None":
        """The place in another account that it is offered to."""
        return self._same_key("transfer")

    @property
    def transferred_from(self) -> "RepoRef | None":
        """The place in another account that it came from."""
        return self._same_key("transferredFrom")

    @property
    def came_from(self) -> "tuple[RepoRef, ...]":
        """That, and from where it came to this account before it had left it."""
        if "transferredFrom" not in self.fields:
            return ()
        from git_knotless.storage.places.references import places_from

        return places_from(self.fields, self.key)

    @property
    def fork_of(self) -> "RepoRef | None":
        return self._reference("forkOf")

    def _same_key(self, field: str) -> "RepoRef | None":
        """A repository keeps its key as it moves: another is none of its places."""
        ref = self._reference(field)
        return ref if ref is not None and ref.key == self.key else None

    def _reference(self, field: str) -> "RepoRef | None":
        """One that makes no sense counts as absent: it is to lock nobody out."""
        if field not in self.fields:
            return None
        from git_knotless.storage.places.references import (
            RepoRef,  # few have any, and a list waits for it
        )

        try:
            return RepoRef.from_json(self.fields[field])
        except BadRecord:
            return None

    @property
    def rules(self) -> tuple[Rule, ...]:
        return tuple(Rule.from_json(rule) for rule in items(self.fields, "rules"))

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


@value
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
        fields = an_object(record.value, "a ref")
        repo, name = text(fields, "repo", limit=13), text(fields, "name", limit=4096)
        if not is_ref_name(name):
            raise BadRecord(f"ref {record.rkey}: git would refuse its name")
        if record.rkey != ref_rkey(repo, name):
            raise BadRecord(f"ref {record.rkey}: its key is not of its name")
        target = fields.get("target")
        if target is not None and not (isinstance(target, str) and is_sha1(target)):
            raise BadRecord(f"ref {record.rkey}: its target is not an object id")
        generation = integer(fields, "generation", least=1)
        pusher = fields.get("pusher")
        by = Did(pusher) if isinstance(pusher, str) and is_did(pusher) else None
        return cls(repo, name, target, generation, text(fields, "updatedAt", limit=64), by)

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
