"""What a call asks to write, by its shape: what of it is refused costs no points."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from git_knotless.sandbox.call import Call, nsid, optional_text_in, rkey, text_in
from git_knotless.sandbox.commits import next_rev
from git_knotless.sandbox.errors import invalid
from git_knotless.sandbox.limits import WRITE_COSTS
from git_knotless.sandbox.values import BlobRef, Encoded, encode_record

BATCH = "com.atproto.repo.applyWrites#"
Action = Literal["create", "update", "delete"]


@dataclass(frozen=True, slots=True)
class Change:
    """One write; `record` is None for a delete."""

    action: Action
    collection: str
    rkey: str
    record: Encoded | None = None
    status: str | None = None

    @property
    def key(self) -> bytes:
        return f"{self.collection}/{self.rkey}".encode()

    @property
    def blobs(self) -> tuple[BlobRef, ...]:
        return self.record.blobs if self.record is not None else ()


def read_shape(write: Any, at: str) -> tuple[Action, str, str, dict[str, Any] | None]:
    if not isinstance(write, dict):
        raise invalid(f"Expected object value type at {at}")
    kind = write.get("$type")
    action = kind.removeprefix(BATCH) if isinstance(kind, str) else ""
    if action not in WRITE_COSTS or not str(kind).startswith(BATCH):
        raise invalid(f"Expected one of the writes of a batch at {at}")
    collection = text_in(write, "collection", nsid, at)
    if action == "create":
        key = optional_text_in(write, "rkey", rkey, at) or next_rev()
        return "create", collection, key, object_in(write, "value", at)
    key = text_in(write, "rkey", rkey, at)
    if action == "update":
        return "update", collection, key, object_in(write, "value", at)
    return "delete", collection, key, None


def make_change(
    action: Action,
    collection: str,
    key: str,
    value: dict[str, Any] | None,
    *,
    validate: bool | None,
) -> Change:
    if value is None:
        return Change(action, collection, key)
    kind = value.get("$type", collection)
    if kind != collection:
        raise invalid(f"Invalid $type: expected {collection}, got {str(kind)[:80]}")
    if validate:
        raise invalid(f"Unknown lexicon type: {collection}")
    record = encode_record({**value, "$type": collection})
    return Change(action, collection, key, record, None if validate is False else "unknown")


def read_validate(call: Call) -> bool | None:
    value = call.body.get("validate")
    if value is not None and not isinstance(value, bool):
        raise invalid("Expected boolean value type at $.validate")
    return value


def object_in(body: Mapping[str, Any], name: str, at: str) -> dict[str, Any]:
    value = body.get(name)
    if name not in body:
        raise invalid(f'Missing required key "{name}" at {at}')
    if not isinstance(value, dict):
        raise invalid(f"Expected object value type at {at}.{name}")
    return value
