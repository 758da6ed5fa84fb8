"""Where a repository is, was, or is to be: references to it, and the redirects left behind.

The name is for people and changes; an account's DID with the repository's key does not.
"""

from collections.abc import Mapping
from typing import Any, Self

from git_knotless.atproto.syntax import AtUri, Did, InvalidSyntax, Rkey, is_did, is_tid
from git_knotless.storage.fields import BadRecord
from git_knotless.storage.records import REDIRECT as REDIRECT
from git_knotless.storage.records import REPO
from git_knotless.storage.store import Record, RecordStore
from git_knotless.value import value

_LONGEST_URI = 8192  # bytes, of any at:// URI


@value
class RepoRef:
    """`dev.knotless.defs#repoRef`: `name` is the one it had when this was written."""

    did: Did
    name: Rkey
    key: str

    @classmethod
    def from_json(cls, value: object) -> Self:
        match value:
            case {"uri": str(uri), "key": str(key)} if is_tid(key) and len(uri) <= _LONGEST_URI:
                return cls(*_place(uri), key)
        raise BadRecord("a reference to a repository holds no address and key")

    def is_to(self, did: Did, key: str) -> bool:
        return (self.did, self.key) == (did, key)

    def to_json(self) -> dict[str, Any]:
        return {"uri": f"at://{self.did}/{REPO}/{self.name}", "key": self.key}


def _place(uri: str) -> tuple[Did, Rkey]:
    try:
        parsed = AtUri.parse(uri)
    except InvalidSyntax as error:
        raise BadRecord(error.message) from error
    if parsed.collection != REPO or parsed.rkey is None or not is_did(parsed.authority):
        raise BadRecord(f"{uri[:200]!a} is not the address of a repository's record")
    return Did(parsed.authority), parsed.rkey


@value
class RedirectRecord:
    """`dev.knotless.redirect`: `name`, its record key, is an old one of the repository `repo`.

    In another account, `repo` is where the repository moved to. `fields` is the whole value as
    it was read.
    """

    name: Rkey
    repo: RepoRef
    fields: Mapping[str, Any]

    @classmethod
    def from_record(cls, record: Record) -> Self:
        return cls(record.rkey, RepoRef.from_json(record.value.get("repo")), record.value)

    @classmethod
    def new(cls, name: Rkey, repo: RepoRef, at: str, came_from: RepoRef | None = None) -> Self:
        """`at` is in RFC 3339; `came_from` is what the record said that this stands for."""
        fields = {"repo": repo.to_json(), "createdAt": at}
        if came_from is not None:
            fields["transferredFrom"] = came_from.to_json()
        return cls(name, repo, fields)

    @property
    def transferred_from(self) -> RepoRef | None:
        """What the repo record said that this stands for: it is gone, and the chain goes on."""
        try:
            ref = RepoRef.from_json(self.fields.get("transferredFrom"))
        except BadRecord:
            return None
        return ref if ref.key == self.repo.key else None

    @property
    def created_at(self) -> str:
        return str(self.fields.get("createdAt", ""))

    def leading_to(self, repo: RepoRef) -> "RedirectRecord":
        return RedirectRecord(self.name, repo, {**self.fields, "repo": repo.to_json()})

    def to_json(self) -> dict[str, Any]:
        return {**self.fields, "$type": REDIRECT}


def redirect_named(store: RecordStore, name: Rkey) -> RedirectRecord | None:
    """One that cannot be read leads nowhere."""
    record = store.get(REDIRECT, name)
    return None if record is None else _readable(record)


def redirects_of(store: RecordStore, key: str) -> list[RedirectRecord]:
    """Every redirect of the account whose repository has `key`, wherever it leads, by name."""
    records = (record for page in store.list(REDIRECT, "") for record in page)
    redirects = filter(None, map(_readable, records))
    return sorted((each for each in redirects if each.repo.key == key), key=lambda each: each.name)


def _readable(record: Record) -> RedirectRecord | None:
    try:
        return RedirectRecord.from_record(record)
    except BadRecord:
        return None
