"""Writing records: applyWrites, createRecord, putRecord, deleteRecord.

Writes of a batch apply in order, all or none, and make one commit, whose answer comes when it is
on disk. Batches of all accounts are done one after another.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from git_knotless.atproto import mst
from git_knotless.atproto.blocks import Blocks
from git_knotless.atproto.dag_cbor import cid_text
from git_knotless.sandbox.accounts import signing_key
from git_knotless.sandbox.blobs import reference, release, settle
from git_knotless.sandbox.call import (
    WRITES_LIMIT,
    Answer,
    Call,
    Method,
    Wants,
    cid,
    identifier,
    nsid,
    rkey,
)
from git_knotless.sandbox.commits import Stored, head_of, make_commit, next_rev, store_commit
from git_knotless.sandbox.db import Transaction
from git_knotless.sandbox.errors import Refusal, internal, invalid, unauthorized
from git_knotless.sandbox.limits import WRITE_COSTS, WRITES
from git_knotless.sandbox.sessions import find_account
from git_knotless.sandbox.state import Behaviour, Sandbox
from git_knotless.sandbox.values import cid_bytes
from git_knotless.sandbox.writes import (
    BATCH,
    Action,
    Change,
    make_change,
    object_in,
    read_shape,
    read_validate,
)

_MOST_WRITES = 200
_MOST_BYTES = 2_000_000  # of a commit's blocks: what the event stream carries


@dataclass(frozen=True, slots=True)
class Done:
    """A commit's `cid` and `rev`, and its changes as they were made."""

    commit: dict[str, str]
    changes: tuple[Change, ...]


def apply_writes(call: Call) -> Answer:
    call.text("repo", identifier)
    validate, swap = read_validate(call), call.optional_text("swapCommit", cid)
    writes = call.body.get("writes")
    if not isinstance(writes, list):
        raise invalid('Missing required key "writes" at $')
    shapes = [read_shape(write, f"$.writes[{at}]") for at, write in enumerate(writes)]
    call.charge(WRITES, sum(WRITE_COSTS[action] for action, *_ in shapes))
    _own_account(call)
    if len(shapes) > _MOST_WRITES:
        raise invalid("Too many writes. Max: 200")
    changes = [make_change(*shape, validate=validate) for shape in shapes]
    with call.sandbox.database.writing() as transaction:
        account = _own_account_now(transaction.connection, call)
        done = commit_changes(transaction, call.sandbox, account, changes, swap_commit=swap)
    results = [_result(call.did, each) for each in done.changes]
    return Answer({"commit": done.commit, "results": results})


def create_record(call: Call) -> Answer:
    change, swap = _one(call, "create"), call.optional_text("swapCommit", cid)
    with call.sandbox.database.writing() as transaction:
        account = _own_account_now(transaction.connection, call)
        done = commit_changes(transaction, call.sandbox, account, [change], swap_commit=swap)
    return Answer({**_said(call.did, change), "commit": done.commit})


def put_record(call: Call) -> Answer:
    """A record that is there already, as it is asked for, is left alone and no swap looked at."""
    change, swap = _one(call, "update"), call.optional_text("swapCommit", cid)
    with call.sandbox.database.writing() as transaction:
        account = _own_account_now(transaction.connection, call)
        current = _current(transaction.connection, account, change)
        if change.record is not None and current == change.record.cid:
            return Answer(_said(call.did, change))
        _check_swap_commit(account, swap)
        if "swapRecord" in call.body:
            _check_swap_record(call, current)
        if current is None:
            change = replace(change, action="create")
        done = commit_changes(transaction, call.sandbox, account, [change])
    return Answer({**_said(call.did, change), "commit": done.commit})


def delete_record(call: Call) -> Answer:
    """Of a record that is not there: nothing, and no error."""
    change, swap = _one(call, "delete"), call.optional_text("swapCommit", cid)
    with call.sandbox.database.writing() as transaction:
        account = _own_account_now(transaction.connection, call)
        current = _current(transaction.connection, account, change)
        if current is None:
            return Answer({})
        _check_swap_commit(account, swap)
        if call.body.get("swapRecord"):
            _check_swap_record(call, current)
        done = commit_changes(transaction, call.sandbox, account, [change])
    return Answer({"commit": done.commit})


def commit_changes(
    transaction: Transaction,
    sandbox: Sandbox,
    account: sqlite3.Row,
    changes: Sequence[Change],
    *,
    swap_commit: str | None = None,
) -> Done:
    """A `Refusal` leaves the transaction to be rolled back."""
    connection, old = transaction.connection, head_of(account)
    _check_swap_commit(account, swap_commit)
    blocks = Blocks(below=Stored(connection, account["id"]))
    root = old.data
    changes = list(_checked(connection, account, changes, sandbox.behaviour))
    for change in changes:
        root = _apply(blocks, root, change)
    commit = make_commit(blocks, old, root, did=account["did"], key=signing_key(account))
    records = sum(len(each.record.block) for each in changes if each.record is not None)
    if commit.size + records > _MOST_BYTES:
        raise invalid("Too many writes. Max event size: 2MB")
    store_commit(connection, account["id"], commit)
    released = [
        blob
        for change in changes
        for blob in _index(connection, account["id"], commit.head.rev, change)
    ]
    referenced = [blob for change in changes for blob in change.blobs]
    settle(transaction, sandbox, account["id"], released=released, referenced=referenced)
    return Done({"cid": cid_text(commit.head.head), "rev": commit.head.rev}, tuple(changes))


def _checked(
    connection: sqlite3.Connection,
    account: sqlite3.Row,
    changes: Iterable[Change],
    behaviour: Behaviour,
) -> Iterator[Change]:
    """The changes, where each finds what it needs: a create no record, the others one.

    Some hosts make an update of a create that finds one, and call it so.
    """
    there: dict[bytes, bool] = {}
    for change in changes:
        found = there.get(change.key, _current(connection, account, change) is not None)
        if change.action == "create" and found:
            if not behaviour.create_updates:
                raise _conflict("RecordAlreadyExists", change, behaviour)
            change = replace(change, action="update")
        elif change.action != "create" and not found:
            raise _conflict("RecordNotFound", change, behaviour)
        there[change.key] = change.action != "delete"
        yield change


def _apply(blocks: Blocks, root: bytes, change: Change) -> bytes:
    """The tree with a change."""
    if change.record is None:
        return mst.delete(blocks, root, change.key)
    return mst.put(blocks, root, change.key, change.record.cid)


def _conflict(name: str, change: Change, behaviour: Behaviour) -> Refusal:
    if not behaviour.clean_errors:
        return internal()
    words = "already exists" if name == "RecordAlreadyExists" else "does not exist"
    return invalid(f"Record {words}: {change.collection}/{change.rkey}", name)


def _index(connection: sqlite3.Connection, account: int, rev: str, change: Change) -> list[str]:
    """Note a change in the tables; the blobs that the record there before held."""
    place = (account, change.collection, change.rkey)
    released = release(connection, *place)
    if change.record is None:
        connection.execute(
            "DELETE FROM record WHERE account = ? AND collection = ? AND rkey = ?", place
        )
        return released
    connection.execute(
        "INSERT INTO record (account, collection, rkey, cid, rev, value) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET cid = excluded.cid, rev = excluded.rev, value = excluded.value",
        (*place, change.record.cid, rev, change.record.block),
    )
    reference(connection, *place, change.record.blobs)
    return released


def _own_account(call: Call) -> sqlite3.Row:
    with call.sandbox.database.reading() as connection:
        return _own_account_now(connection, call)


def _own_account_now(connection: sqlite3.Connection, call: Call) -> sqlite3.Row:
    """The account that `repo` names, which must be the caller's."""
    account = find_account(connection, call.host, call.text("repo"))
    if account["did"] != call.did:
        raise unauthorized()
    return account


def _one(call: Call, action: Action) -> Change:
    """The change that the body of a call about one record asks for."""
    call.text("repo", identifier)
    validate, collection = read_validate(call), call.text("collection", nsid)
    key = call.optional_text("rkey", rkey) if action == "create" else call.text("rkey", rkey)
    value = None if action == "delete" else object_in(call.body, "record", "$")
    for name in ("swapCommit", "swapRecord"):
        if call.body.get(name) is not None:
            call.text(name, cid)
    call.charge(WRITES, 2 if action == "update" else WRITE_COSTS[action])
    _own_account(call)
    return make_change(action, collection, key or next_rev(), value, validate=validate)


def _current(connection: sqlite3.Connection, account: sqlite3.Row, change: Change) -> bytes | None:
    row = connection.execute(
        "SELECT cid FROM record WHERE account = ? AND collection = ? AND rkey = ?",
        (account["id"], change.collection, change.rkey),
    ).fetchone()
    return None if row is None else bytes(row["cid"])


def _check_swap_commit(account: sqlite3.Row, wanted: str | None) -> None:
    if wanted is not None and cid_bytes(wanted) != account["head"]:
        raise invalid(f"Commit was at {cid_text(account['head'])}", "InvalidSwap")


def _check_swap_record(call: Call, current: bytes | None) -> None:
    wanted = call.body["swapRecord"]
    if (None if wanted is None else cid_bytes(wanted)) != current:
        at = "null" if current is None else cid_text(current)
        raise invalid(f"Record was at {at}", "InvalidSwap")


def _said(did: str, change: Change) -> dict[str, Any]:
    assert change.record is not None
    said = {
        "uri": f"at://{did}/{change.collection}/{change.rkey}",
        "cid": cid_text(change.record.cid),
    }
    return said if change.status is None else {**said, "validationStatus": change.status}


def _result(did: str, change: Change) -> dict[str, Any]:
    said = {} if change.record is None else _said(did, change)
    return {"$type": f"{BATCH}{change.action}Result", **said}


def _write(nsid: str, handler: Callable[[Call], Answer]) -> Method:
    return Method(f"com.atproto.repo.{nsid}", handler, "POST", Wants.SESSION, body=WRITES_LIMIT)


METHODS: Iterable[Method] = (
    _write("applyWrites", apply_writes),
    _write("createRecord", create_record),
    _write("putRecord", put_record),
    _write("deleteRecord", delete_record),
)
