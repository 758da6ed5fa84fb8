"""The PLC directory: signed operations, each on the one before it, the first of which is the DID.

https://web.plc.directory/spec/v0.1/did-plc
"""

import base64
import json
import re
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from git_knotless.atproto.dag_cbor import cid_of, cid_text, encode
from git_knotless.atproto.keys import BadKey, BadSignature, PrivateKey, PublicKey
from git_knotless.atproto.syntax import format_time, parse_time
from git_knotless.errors import KnotlessError

OPERATION = "plc_operation"
TOMBSTONE = "plc_tombstone"
ATPROTO = "atproto"
PDS_SERVICE = "atproto_pds"
PDS_TYPE = "AtprotoPersonalDataServer"

_RECOVERY_SECONDS = 72 * 3600  # how long a more powerful key may undo what a lesser one signed
_MOST_ROTATION_KEYS = 5
_SIGNATURE = re.compile("[A-Za-z0-9_-]{86}")  # 64 bytes, without padding
_DID_LENGTH = len("did:plc:") + 24

Operation = dict[str, Any]


class PlcError(KnotlessError):
    """What the directory answers with `{"message"}` and this status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Entry:
    """An operation in the directory's log."""

    number: int
    cid: str
    operation: Operation
    nullified: bool
    created_at: str


def sign(operation: Mapping[str, Any], key: PrivateKey) -> Operation:
    unsigned = {name: value for name, value in operation.items() if name != "sig"}
    signature = key.sign(encode(unsigned))
    return {**unsigned, "sig": base64.urlsafe_b64encode(signature).decode().rstrip("=")}


def genesis(
    key: PrivateKey, *, signing_key: str, handle: str, pds: str, rotation: Sequence[str]
) -> tuple[str, Operation]:
    """A new DID, and the operation that makes it."""
    operation = sign(
        {
            "type": OPERATION,
            "verificationMethods": {ATPROTO: signing_key},
            "rotationKeys": list(rotation),
            "alsoKnownAs": [f"at://{handle}"],
            "services": {PDS_SERVICE: {"type": PDS_TYPE, "endpoint": pds}},
            "prev": None,
        },
        key,
    )
    return did_of(operation), operation


def did_of(operation: Operation) -> str:
    digest = sha256(encode(operation)).digest()
    return "did:plc:" + base64.b32encode(digest).decode().lower()[:24]


def cid_text_of(operation: Operation) -> str:
    return cid_text(cid_of(encode(operation)))


def following(
    connection: sqlite3.Connection,
    did: str,
    key: PrivateKey,
    change: Callable[[Operation], Mapping[str, Any]],
) -> Operation:
    """A signed operation on the newest one, whose fields but `sig` and `prev` it is given."""
    last = history(connection, did)[-1]
    if last.operation["type"] == TOMBSTONE:
        raise PlcError(400, "Did is tombstoned")
    fields = {name: value for name, value in last.operation.items() if name not in ("sig", "prev")}
    return sign({**fields, **change(fields), "prev": last.cid}, key)


def with_handle(fields: Operation, handle: str) -> Operation:
    """`alsoKnownAs` with another handle, in the place of the first."""
    known = list(fields["alsoKnownAs"])
    at = next((i for i, name in enumerate(known) if name.startswith("at://")), None)
    known[slice(at or 0, 0 if at is None else at + 1)] = [f"at://{handle}"]
    return {"alsoKnownAs": known}


def submit(connection: sqlite3.Connection, did: str, operation: Any) -> None:
    """Checks an operation and takes it into the log; inside a writer's transaction."""
    if not is_operation(operation):
        raise PlcError(400, f"Not a valid operation: {json.dumps(operation)[:2000]}")
    entries = _entries(connection, did, nullified=False)
    _check_keys(operation)
    nullified = _check_order(entries, operation) if entries else _check_genesis(did, operation)
    for entry in nullified:
        connection.execute("UPDATE operation SET nullified = 1 WHERE number = ?", (entry.number,))
    connection.execute(
        "INSERT INTO operation (did, cid, value, nullified, created_at) VALUES (?, ?, ?, 0, ?)",
        (did, cid_text_of(operation), json.dumps(operation), format_time(datetime.now(UTC))),
    )


def history(connection: sqlite3.Connection, did: str, *, nullified: bool = False) -> list[Entry]:
    """The log, oldest first; 404 for a DID that is not in the directory."""
    entries = _entries(connection, did, nullified=nullified)
    if not entries:
        raise PlcError(404, f"DID not registered: {did}")
    return entries


def data(connection: sqlite3.Connection, did: str) -> dict[str, Any]:
    """What the DID says now."""
    operation = history(connection, did)[-1].operation
    if operation["type"] == TOMBSTONE:
        raise PlcError(404, f"DID not available: {did}")
    names = ("verificationMethods", "rotationKeys", "alsoKnownAs", "services")
    return {"did": did, **{name: operation[name] for name in names}}


def document(connection: sqlite3.Connection, did: str) -> dict[str, Any]:
    """The DID document, in the form of the public directory: keys as Multikey."""
    said = data(connection, did)
    return {
        "@context": [
            "https://www.w3.org/ns/did/v1",
            "https://w3id.org/security/multikey/v1",
            "https://w3id.org/security/suites/secp256k1-2019/v1",
        ],
        "id": did,
        "alsoKnownAs": said["alsoKnownAs"],
        "verificationMethod": [
            {
                "id": f"{did}#{name}",
                "type": "Multikey",
                "controller": did,
                "publicKeyMultibase": key.removeprefix("did:key:"),
            }
            for name, key in said["verificationMethods"].items()
        ],
        "service": [
            {"id": f"#{name}", "type": each["type"], "serviceEndpoint": each["endpoint"]}
            for name, each in said["services"].items()
        ],
    }


def is_operation(value: Any) -> bool:
    """By its shape; nothing is in it but text, in the fields that the directory knows."""
    match value:
        case {"type": "plc_tombstone", "prev": str(), "sig": str()}:
            return len(value) == 3
        case {
            "type": "plc_operation",
            "rotationKeys": list(rotation),
            "verificationMethods": dict(methods),
            "alsoKnownAs": list(known),
            "services": dict(services),
            "prev": str() | None,
            "sig": str(),
        }:
            texts = [*rotation, *methods.values(), *known]
            return (
                len(value) == 7
                and all(isinstance(text, str) for text in texts)
                and all(_is_service(each) for each in services.values())
            )
    return False


def _is_service(value: Any) -> bool:
    match value:
        case {"type": str(), "endpoint": str()}:
            return len(value) == 2
    return False


def _entries(connection: sqlite3.Connection, did: str, *, nullified: bool) -> list[Entry]:
    rows = connection.execute(
        "SELECT * FROM operation WHERE did = ? AND nullified <= ? ORDER BY number", (did, nullified)
    )
    return [
        Entry(
            row["number"],
            row["cid"],
            json.loads(row["value"]),
            bool(row["nullified"]),
            row["created_at"],
        )
        for row in rows
    ]


def _check_keys(operation: Operation) -> None:
    if operation["type"] == TOMBSTONE:
        return
    for key in [*operation["verificationMethods"].values(), *operation["rotationKeys"]]:
        try:
            PublicKey.from_did_key(key)
        except BadKey as error:
            raise PlcError(400, f"Unsupported key: {key[:200]!a}") from error
    count = len(operation["rotationKeys"])
    if not 1 <= count <= _MOST_ROTATION_KEYS:
        few = "need at least one rotation key" if not count else "too many rotation keys"
        raise PlcError(400, f"Improper operation: {few}")


def _check_genesis(did: str, operation: Operation) -> list[Entry]:
    if operation["type"] == TOMBSTONE:
        raise PlcError(400, "Operations not correctly ordered")
    _signer(operation["rotationKeys"], operation)
    if len(did) != _DID_LENGTH or did != did_of(operation):
        raise PlcError(400, f"Hash of genesis operation does not match DID: {did_of(operation)}")
    if operation["prev"] is not None:
        raise PlcError(400, "Improper operation: expected null prev on create")
    return []


def _check_order(entries: list[Entry], operation: Operation) -> list[Entry]:
    """The entries that the operation undoes: with a key more powerful than theirs, in time."""
    at = next((i for i, each in enumerate(entries) if each.cid == operation["prev"]), None)
    if at is None or entries[at].operation["type"] == TOMBSTONE:
        raise PlcError(400, "Operations not correctly ordered")
    keys = entries[at].operation["rotationKeys"]
    undone = entries[at + 1 :]
    if undone:
        keys = keys[: keys.index(_signer(keys, undone[0].operation))]
    _signer(keys, operation)
    if undone:
        age = time.time() - parse_time(undone[0].created_at).timestamp()
        if age > _RECOVERY_SECONDS:
            raise PlcError(
                400, "Recovery operation occurred outside of the allowed 72 hr recovery window"
            )
    return undone


def _signer(keys: Sequence[str], operation: Operation) -> str:
    """Which of the keys signed the operation."""
    unsigned = {name: value for name, value in operation.items() if name != "sig"}
    if _SIGNATURE.fullmatch(operation["sig"]):
        signature = base64.urlsafe_b64decode(operation["sig"] + "==")
        message = encode(unsigned)
        for key in keys:
            try:
                PublicKey.from_did_key(key).verify(signature, message)
            except BadSignature:
                continue
            return key
    raise PlcError(400, f"Invalid signature on op: {json.dumps(operation)[:2000]}")
