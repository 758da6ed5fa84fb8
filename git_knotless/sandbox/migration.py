"""What moving an account takes: its repo brought in, and the states that it goes through.

As the reference does it: the new host makes the account deactivated, takes the old repo and signs
it anew at the next write, waits for the blobs that the records name, and is active once the DID
document says that the account is here.
"""

import sqlite3
from collections.abc import Mapping
from typing import Any

from git_knotless.atproto import mst
from git_knotless.atproto.blocks import Blocks
from git_knotless.atproto.car import read_car
from git_knotless.atproto.commit import Commit
from git_knotless.atproto.dag_cbor import BadData, cid_text, decode
from git_knotless.atproto.syntax import is_nsid, is_rkey
from git_knotless.sandbox import accounts
from git_knotless.sandbox.blobs import reference, release
from git_knotless.sandbox.call import FULL, JSON_LIMIT, Answer, Call, Method, Scope, Wants
from git_knotless.sandbox.commits import Stored, head_of, make_commit, store_commit
from git_knotless.sandbox.errors import Refusal, internal, invalid
from git_knotless.sandbox.sessions import find_account, own_account
from git_knotless.sandbox.values import blob_refs

_PREFIX = "com.atproto.server."
CAR_LIMIT = 256 * 1024 * 1024  # bytes; it is held in memory


def import_repo(call: Call) -> Answer:
    """The records of a repo in place of those that are here. Whose commit it is does not matter:
    it is signed anew."""
    try:
        root, blocks = read_car(call.data, limit=CAR_LIMIT)
        with call.sandbox.database.writing() as transaction:
            connection = transaction.connection
            account = find_account(connection, call.host, call.did, check_deactivated=False)
            _replace(connection, account, root, blocks)
    except BadData as error:
        raise invalid(error.message) from error
    return Answer()


def check_account_status(call: Call) -> Answer:
    with call.sandbox.database.reading() as connection:
        account = own_account(connection, call, invalid("Repo not found", "NotFound"))
        blocks, records, expected, imported = connection.execute(
            "SELECT (SELECT count(*) FROM block WHERE account = ?1)"
            " + (SELECT count(DISTINCT cid) FROM record WHERE account = ?1),"
            " (SELECT count(*) FROM record WHERE account = ?1),"
            " (SELECT count(DISTINCT cid) FROM record_blob WHERE account = ?1),"
            " (SELECT count(*) FROM blob WHERE account = ?1)",
            (account["id"],),
        ).fetchone()
        return Answer(
            {
                "activated": account["deactivated_at"] is None,
                "validDid": _has_valid_did(connection, call, account),
                "repoCommit": cid_text(account["head"]),
                "repoRev": account["rev"],
                "repoBlocks": blocks,
                "indexedRecords": records,
                "privateStateValues": 0,
                "expectedBlobs": expected,
                "importedBlobs": imported,
            }
        )


def activate_account(call: Call) -> Answer:
    with call.sandbox.database.writing() as transaction:
        account = own_account(transaction.connection, call, internal())
        accounts.check_did_document(transaction.connection, call.host, account)
        if account["takedown"] is not None:
            raise invalid("user not found", "AccountNotFound")
        accounts.set_deactivated(transaction.connection, account["id"], deactivated=False)
    return Answer()


def deactivate_account(call: Call) -> Answer:
    with call.sandbox.database.writing() as transaction:
        account = own_account(transaction.connection, call, internal())
        accounts.set_deactivated(transaction.connection, account["id"], deactivated=True)
    return Answer()


def _replace(
    connection: sqlite3.Connection,
    account: sqlite3.Row,
    root: bytes,
    imported: Mapping[bytes, bytes],
) -> None:
    blocks = Blocks(imported, below=Stored(connection, account["id"]))
    tree = Commit.decode(blocks.get(root)).data
    changes = mst.diff(blocks, account["data"], tree).changes
    commit = make_commit(
        blocks, head_of(account), tree, did=account["did"], key=accounts.signing_key(account)
    )
    for key, (_, cid) in changes.items():
        _take(connection, account["id"], commit.head.rev, key, cid, blocks)
    store_commit(connection, account["id"], commit)


def _take(
    connection: sqlite3.Connection,
    account: int,
    rev: str,
    key: bytes,
    cid: bytes | None,
    blocks: Blocks,
) -> None:
    """One record of the repo that comes in; its blobs come later."""
    collection, _, rkey = key.decode("ascii", "replace").partition("/")
    if not (is_nsid(collection) and is_rkey(rkey)):
        raise invalid(f"{key[:80]!a} is no place of a record")
    place = (account, collection, rkey)
    release(connection, *place)
    connection.execute(
        "DELETE FROM record WHERE account = ? AND collection = ? AND rkey = ?", place
    )
    if cid is None:
        return
    block = blocks.get(cid)
    try:
        record = decode(block)
        blobs = list(blob_refs(record))
    except (BadData, Refusal) as error:
        raise invalid(f"Could not parse record at '{collection}/{rkey}'") from error
    connection.execute(
        "INSERT INTO record (account, collection, rkey, cid, rev, value) VALUES (?, ?, ?, ?, ?, ?)",
        (*place, cid, rev, block),
    )
    reference(connection, *place, blobs)


def _has_valid_did(connection: sqlite3.Connection, call: Call, account: sqlite3.Row) -> bool:
    try:
        accounts.check_did_document(connection, call.host, account)
    except Refusal:
        return False
    return True


def _method(name: str, handler: Any, scopes: frozenset[Scope]) -> Method:
    return Method(_PREFIX + name, handler, "POST", Wants.SESSION, scopes, body=JSON_LIMIT)


METHODS = (
    Method(
        "com.atproto.repo.importRepo",
        import_repo,
        "POST",
        Wants.SESSION,
        FULL,
        check_takedown=True,
        body="car",
    ),
    Method(f"{_PREFIX}checkAccountStatus", check_account_status, wants=Wants.SESSION),
    Method(f"{_PREFIX}activateAccount", activate_account, "POST", Wants.SESSION, FULL),
    _method("deactivateAccount", deactivate_account, FULL | {Scope.TAKEN_DOWN}),
)
