"""The repo as others verify it: commits, proofs, whole repos, and who is here."""

import sqlite3
from collections.abc import Iterator
from typing import Any

from git_knotless.atproto.blocks import Missing
from git_knotless.atproto.car import write_car
from git_knotless.atproto.commit import write_proof
from git_knotless.atproto.dag_cbor import cid_text
from git_knotless.atproto.syntax import Nsid, Rkey
from git_knotless.sandbox.accounts import status, visible
from git_knotless.sandbox.call import (
    STANDARD,
    Answer,
    Call,
    Method,
    Scope,
    Wants,
    anything,
    cid,
    did_text,
    nsid,
    rkey,
)
from git_knotless.sandbox.commits import Stored
from git_knotless.sandbox.errors import invalid
from git_knotless.sandbox.limits import GET_REPO
from git_knotless.sandbox.values import cid_bytes

_CAR = "application/vnd.ipld.car"
_ROWS_AT_ONCE = 500
_RECORDS = "SELECT cid, value FROM record WHERE account = ? AND cid != ? AND rev > ?"


def get_record(call: Call) -> Answer:
    """The commit, the nodes on the way to the key, and the record: or nodes that prove that there
    is none. What the host took down is here still."""
    did = call.param("did", did_text)
    collection, key = Nsid(call.param("collection", nsid)), Rkey(call.param("rkey", rkey))
    with call.sandbox.database.reading() as connection:
        account = visible(connection, call.host, did, own=call.is_of(did))
        blocks = Stored(connection, account["id"])
        proof = b"".join(write_proof(blocks, account["head"], collection, key))
    return Answer(proof, _CAR)


def get_repo(call: Call) -> Answer:
    """Everything, or what came after the revision `since`; the commit first."""
    did, since = call.param("did", did_text), call.optional_param("since", anything)
    with call.sandbox.database.reading() as connection:
        account = visible(connection, call.host, did, own=call.is_of(did))
    return Answer(_repo_car(call, account["id"], since or ""), _CAR)


def get_blocks(call: Call) -> Answer:
    did = call.param("did", did_text)
    call.param("cids", cid)
    wanted = [cid_bytes(text) for text in dict.fromkeys(call.params["cids"])]
    with call.sandbox.database.reading() as connection:
        account = visible(connection, call.host, did, own=call.is_of(did))
        store = Stored(connection, account["id"])
        found = {each: _block(store, each) for each in wanted}
    missing = [cid_text(each) for each, block in found.items() if block is None]
    if missing:
        raise invalid(f"Could not find cids: {','.join(missing)}")
    blocks = ((each, block) for each, block in found.items() if block)
    return Answer(b"".join(write_car(None, blocks)), _CAR)


def get_latest_commit(call: Call) -> Answer:
    did = call.param("did", did_text)
    with call.sandbox.database.reading() as connection:
        account = visible(connection, call.host, did, own=call.is_of(did))
    return Answer({"cid": cid_text(account["head"]), "rev": account["rev"]})


def get_repo_status(call: Call) -> Answer:
    did = call.param("did", did_text)
    with call.sandbox.database.reading() as connection:
        account = visible(connection, call.host, did, own=True)
    said = status(account)
    return Answer({"did": did, **said, **({"rev": account["rev"]} if said["active"] else {})})


def list_repos(call: Call) -> Answer:
    limit, cursor = call.number("limit", 500, 1, 1000), call.optional_param("cursor", anything)
    created_at, _, did = (cursor or "").partition("::")
    if cursor is not None and not (created_at and did):
        raise invalid("Malformed cursor")
    with call.sandbox.database.reading() as connection:
        rows = connection.execute(
            "SELECT * FROM account WHERE host = ? AND (created_at, did) > (?, ?)"
            " ORDER BY created_at, did LIMIT ?",
            (call.host.number, created_at, did, limit),
        ).fetchall()
    repos = [
        {"did": row["did"], "head": cid_text(row["head"]), "rev": row["rev"], **status(row)}
        for row in rows
    ]
    after = {"cursor": f"{rows[-1]['created_at']}::{rows[-1]['did']}"} if rows else {}
    return Answer({**after, "repos": repos})


def _repo_car(call: Call, account: int, since: str) -> Iterator[bytes]:
    """One commit's blocks, as long as it takes to send them."""
    with call.sandbox.database.reading() as connection:
        row = connection.execute(
            "SELECT head, rev FROM account WHERE id = ?", (account,)
        ).fetchone()
        if row is None:  # deleted just now
            return
        head = row["head"]
        yield from write_car(head, _repo_blocks(connection, account, head, since))


def _repo_blocks(
    connection: sqlite3.Connection, account: int, head: bytes, since: str
) -> Iterator[tuple[bytes, bytes]]:
    queries = (
        ("SELECT cid, data FROM block WHERE account = ? AND cid = ? AND rev > ?", head),
        ("SELECT cid, data FROM block WHERE account = ? AND cid != ? AND rev > ?", head),
        # A value that stands at several keys is one block.
        (f"{_RECORDS} GROUP BY cid", head),
    )
    for query, besides in queries:
        cursor = connection.execute(query, (account, besides, since))
        while rows := cursor.fetchmany(_ROWS_AT_ONCE):
            yield from ((bytes(row[0]), bytes(row[1])) for row in rows)


def _block(store: Stored, cid: bytes) -> bytes | None:
    try:
        return store.get(cid)
    except Missing:
        return None


def _method(name: str, handler: Any, *, taken_down: bool = False, limits: Any = ()) -> Method:
    scopes = STANDARD | {Scope.TAKEN_DOWN} if taken_down else STANDARD
    wants = Wants.SESSION_OR_ADMIN_OR_NOTHING
    return Method(f"com.atproto.sync.{name}", handler, wants=wants, scopes=scopes, limits=limits)


METHODS = (
    _method("getRecord", get_record),
    _method("getRepo", get_repo, taken_down=True, limits=GET_REPO),
    _method("getBlocks", get_blocks),
    _method("getLatestCommit", get_latest_commit),
    Method("com.atproto.sync.getRepoStatus", get_repo_status),
    Method("com.atproto.sync.listRepos", list_repos),
)
