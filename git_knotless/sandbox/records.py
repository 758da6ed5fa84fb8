"""Reading records: getRecord, listRecords, describeRepo."""

import sqlite3
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

from git_knotless.atproto.dag_cbor import cid_text
from git_knotless.sandbox import plc
from git_knotless.sandbox.accounts import active, visible
from git_knotless.sandbox.call import Answer, Call, Method, anything, cid, identifier, nsid, rkey
from git_knotless.sandbox.errors import Refusal, invalid
from git_knotless.sandbox.state import Behaviour
from git_knotless.sandbox.values import cid_bytes, record_json

_MOST_RECORDS = 100
_NOT_SOUGHT = b"after:"  # before the key in a cursor that is not one


def get_record(call: Call) -> Answer:
    repo = call.param("repo", identifier)
    collection, key = call.param("collection", nsid), call.param("rkey", rkey)
    wanted = call.optional_param("cid", cid)
    with call.sandbox.database.reading() as connection:
        account = active(connection, call.host, repo)
        if account is None:
            # A PDS asks its AppView, for whatever it does not serve; ours looks like one that is
            # down, as on a loopback network of the reference.
            raise Refusal(502, "UpstreamFailure", "Upstream service unreachable")
        row = connection.execute(
            "SELECT cid, value FROM record"
            " WHERE account = ? AND collection = ? AND rkey = ? AND takedown IS NULL",
            (account["id"], collection, key),
        ).fetchone()
    uri = f"at://{account['did']}/{collection}/{key}"
    if row is None or (wanted is not None and cid_bytes(wanted) != row["cid"]):
        raise invalid(f"Could not locate record: {uri}", "RecordNotFound")
    return Answer({"uri": uri, **_shown(row)})


def list_records(call: Call) -> Answer:
    repo, collection = call.param("repo", identifier), call.param("collection", nsid)
    limit, reverse = call.number("limit", 50, 1, _MOST_RECORDS), call.flag("reverse")
    cursor = _read_cursor(call.optional_param("cursor", anything), call.sandbox.behaviour)
    with call.sandbox.database.reading() as connection:
        account = active(connection, call.host, repo)
        if account is None:
            raise invalid(f"Could not find repo: {repo}")
        rows = _page(connection, account["id"], collection, cursor, limit, reverse=reverse)
    records = [
        {"uri": f"at://{account['did']}/{collection}/{row['rkey']}", **_shown(row)} for row in rows
    ]
    after = {"cursor": _cursor(rows[-1]["rkey"], call.sandbox.behaviour)} if rows else {}
    return Answer({"records": records, **after})


def describe_repo(call: Call) -> Answer:
    repo = call.param("repo", identifier)
    with call.sandbox.database.reading() as connection:
        account = visible(connection, call.host, repo, own=False)
        try:
            document = plc.document(connection, account["did"])
        except plc.PlcError as error:
            raise invalid(f"Could not resolve DID: {error.message}") from error
        rows = connection.execute(
            "SELECT DISTINCT collection FROM record WHERE account = ? ORDER BY collection",
            (account["id"],),
        ).fetchall()
    known = next((n for n in document["alsoKnownAs"] if n.startswith("at://")), None)
    return Answer(
        {
            "handle": account["handle"],
            "did": account["did"],
            "didDoc": document,
            "collections": [row["collection"] for row in rows],
            "handleIsCorrect": known == f"at://{account['handle']}",
        }
    )


def _page(
    connection: sqlite3.Connection,
    account: int,
    collection: str,
    cursor: str | None,
    limit: int,
    *,
    reverse: bool,
) -> list[sqlite3.Row]:
    """By descending key, or ascending if reversed, without the key that the cursor is."""
    beyond, order = (">", "ASC") if reverse else ("<", "DESC")
    start = "" if cursor is None else f" AND rkey {beyond} ?"
    return connection.execute(
        "SELECT rkey, cid, value FROM record"
        f" WHERE account = ? AND collection = ? AND takedown IS NULL{start}"
        f" ORDER BY rkey {order} LIMIT ?",
        (account, collection, *([] if cursor is None else [cursor]), limit),
    ).fetchall()


def _cursor(key: str, behaviour: Behaviour) -> str:
    if behaviour.seek:
        return key
    return urlsafe_b64encode(_NOT_SOUGHT + key.encode()).decode().rstrip("=")


def _read_cursor(cursor: str | None, behaviour: Behaviour) -> str | None:
    """The key to go on from. A host that does not seek begins anew at a cursor that is not its."""
    if not cursor or behaviour.seek:
        return cursor or None
    try:
        data = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        return data.removeprefix(_NOT_SOUGHT).decode() if data.startswith(_NOT_SOUGHT) else None
    except ValueError:
        return None


def _shown(row: sqlite3.Row) -> dict[str, Any]:
    return {"cid": cid_text(row["cid"]), "value": record_json(row["value"])}


METHODS = (
    Method("com.atproto.repo.getRecord", get_record),
    Method("com.atproto.repo.listRecords", list_records),
    Method("com.atproto.repo.describeRepo", describe_repo),
)
