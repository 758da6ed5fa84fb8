"""Where a repository is, was, or is to be: references to it, and the redirects left behind.

The name is for people and changes; an account's DID with the repository's key does not.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from git_knotless.atproto.syntax import AtUri, Did, InvalidSyntax, Rkey, is_did, is_tid
from git_knotless.storage.fields import BadRecord
from git_knotless.storage.records import REDIRECT as REDIRECT
from git_knotless.storage.records import REPO
from git_knotless.storage.store import Record, RecordStore
from git_knotless.value import value

_LONGEST_URI = 8192  # bytes, of any at:// URI
_LONGEST_OFFER = 64  # bytes
_MOST_PLACES = 16  # in other accounts, that a repository came to one account from


@value
class RepoRef:
    """`dev.knotless.defs#repoRef`: `name` is the one it had when this was written.

    `offer` tells one offer from the next to the same account: what is offered says it, and what
    was accepted repeats it.
    """

    did: Did
    name: Rkey
    key: str
    offer: str | None = None

    @classmethod
    def from_json(cls, value: object) -> Self:
        match value:
            case {"uri": str(uri), "key": str(key), **others} if is_tid(key):
                if len(uri) <= _LONGEST_URI:
                    return cls(*_place(uri), key, _offer(others.get("offer")))
        raise BadRecord("a reference to a repository holds no address and key")

    def is_to(self, did: Did, key: str) -> bool:
        return (self.did, self.key) == (did, key)

    def answers(self, did: Did, offer: str | None) -> bool:
        """Whether who says that it came from here means what `did` offered by `offer`.

        Where either of them names no offer, it is any that there was.
        """
        return self.did == did and (None in (self.offer, offer) or self.offer == offer)

    def to_json(self) -> dict[str, Any]:
        ref = {"uri": f"at://{self.did}/{REPO}/{self.name}", "key": self.key}
        return ref if self.offer is None else ref | {"offer": self.offer}


def _offer(value: object) -> str | None:
    if value is None or (isinstance(value, str) and 0 < len(value.encode()) <= _LONGEST_OFFER):
        return value
    raise BadRecord("a reference to a repository holds no name of an offer")


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
    def new(cls, name: Rkey, repo: RepoRef, at: str, came_from: Sequence[RepoRef] = ()) -> Self:
        """`at` is in RFC 3339; `came_from` is what the record said that this stands for."""
        return cls(name, repo, {"repo": repo.to_json(), "createdAt": at, **from_places(came_from)})

    @property
    def came_from(self) -> tuple[RepoRef, ...]:
        """What the repo record said that this stands for: it is gone, and the chain goes on."""
        return places_from(self.fields, self.repo.key)

    @property
    def created_at(self) -> str:
        return str(self.fields.get("createdAt", ""))

    def leading_to(self, repo: RepoRef) -> "RedirectRecord":
        return RedirectRecord(self.name, repo, {**self.fields, "repo": repo.to_json()})

    def to_json(self) -> dict[str, Any]:
        return {**self.fields, "$type": REDIRECT}


def from_places(places: Sequence[RepoRef]) -> dict[str, Any]:
    """What a record says of a repository that came from `places`: last from the first of them."""
    fields: dict[str, Any] = {}
    if places:
        fields["transferredFrom"] = places[0].to_json()
    if before := [place.to_json() for place in places[1:_MOST_PLACES]]:
        fields["transferredBefore"] = before
    return fields


def places_from(fields: Mapping[str, Any], key: str) -> tuple[RepoRef, ...]:
    """What `from_places` says. What makes no sense, or is of another key, counts as absent."""
    before = fields.get("transferredBefore")
    listed = before[: _MOST_PLACES - 1] if isinstance(before, list) else []
    refs = map(_reference, [fields.get("transferredFrom"), *listed])
    return tuple(ref for ref in refs if ref is not None and ref.key == key)


def _reference(value: object) -> RepoRef | None:
    try:
        return RepoRef.from_json(value)
    except BadRecord:
        return None


def redirect_named(store: RecordStore, name: Rkey) -> RedirectRecord | None:
    """One that cannot be read leads nowhere."""
    record = store.get(REDIRECT, name)
    return None if record is None else _readable(record)


def redirects_of(store: RecordStore, key: str) -> list[RedirectRecord]:
    """Every redirect of the account whose repository has `key`, wherever it leads, by name."""
    return redirects_in(store.list(REDIRECT, ""), key)


def redirects_in(pages: Iterable[Sequence[Record]], key: str) -> list[RedirectRecord]:
    redirects = filter(None, (_readable(record) for page in pages for record in page))
    return sorted((each for each in redirects if each.repo.key == key), key=lambda each: each.name)


def _readable(record: Record) -> RedirectRecord | None:
    try:
        return RedirectRecord.from_record(record)
    except BadRecord:
        return None
