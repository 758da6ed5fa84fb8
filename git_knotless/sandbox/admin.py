"""What the host's administrator does: takedowns, and deleting accounts."""

import sqlite3
from typing import Any

from git_knotless.atproto.syntax import AtUri, InvalidSyntax
from git_knotless.sandbox import accounts
from git_knotless.sandbox.call import (
    JSON_LIMIT,
    Answer,
    Call,
    Method,
    Wants,
    account_row,
    cid,
    did_text,
    text_in,
)
from git_knotless.sandbox.errors import invalid
from git_knotless.sandbox.state import now

_REPO = "com.atproto.admin.defs#repoRef"


def update_subject_status(call: Call) -> Answer:
    """Of an account, a record or a blob: taken down or not; an account is also deactivated so."""
    subject = call.body.get("subject")
    if not isinstance(subject, dict):
        raise invalid('Missing required key "subject" at $')
    takedown, deactivated = (_switch(call.body, name) for name in ("takedown", "deactivated"))
    if takedown and takedown["applied"] and deactivated and not deactivated["applied"]:
        raise invalid("Cannot activate and takedown an account at the same time")
    with call.sandbox.database.writing() as transaction:
        connection = transaction.connection
        if takedown is not None:
            ref = (takedown.get("ref") or now()) if takedown["applied"] else None
            _take_down(connection, call, subject, ref)
        if deactivated is not None and subject.get("$type") == _REPO:
            account = account_row(connection, call.host, text_in(subject, "did", did_text))
            if account is None:
                raise invalid("Account not found")
            applied = deactivated["applied"]
            accounts.set_deactivated(connection, account["id"], deactivated=applied)
    return Answer({"subject": subject, **({} if takedown is None else {"takedown": takedown})})


def delete_account(call: Call) -> Answer:
    with call.sandbox.database.writing() as transaction:
        account = account_row(transaction.connection, call.host, call.text("did", did_text))
        if account is not None:
            accounts.delete(transaction, call.sandbox, account["id"])
    return Answer()


def _take_down(
    connection: sqlite3.Connection, call: Call, subject: dict[str, Any], ref: str | None
) -> None:
    match subject.get("$type"):
        case "com.atproto.admin.defs#repoRef":
            account = account_row(connection, call.host, text_in(subject, "did", did_text))
            if account is not None:
                accounts.set_takedown(connection, account["id"], ref)
        case "com.atproto.repo.strongRef":
            _take_down_record(connection, call, text_in(subject, "uri", None), ref)
        case "com.atproto.admin.defs#repoBlobRef":
            account = account_row(connection, call.host, text_in(subject, "did", did_text))
            connection.execute(
                "UPDATE blob SET takedown = ? WHERE account = ? AND cid = ?",
                (ref, account and account["id"], text_in(subject, "cid", cid)),
            )
        case other:
            raise invalid(f"Invalid subject ({str(other)[:80]})")


def _take_down_record(
    connection: sqlite3.Connection, call: Call, text: str, ref: str | None
) -> None:
    try:
        uri = AtUri.parse(text)
    except InvalidSyntax as error:
        raise invalid(error.message) from error
    account = account_row(connection, call.host, uri.authority)
    connection.execute(
        "UPDATE record SET takedown = ? WHERE account = ? AND collection = ? AND rkey = ?",
        (ref, account and account["id"], uri.collection, uri.rkey),
    )


def _switch(body: dict[str, Any], name: str) -> dict[str, Any] | None:
    value = body.get(name)
    if value is None:
        return None
    if not isinstance(value, dict) or not isinstance(value.get("applied"), bool):
        raise invalid(f'Missing required key "applied" at $.{name}')
    if not isinstance(value.get("ref", ""), str):
        raise invalid(f"Expected string value type at $.{name}.ref")
    return value


METHODS = (
    Method(
        "com.atproto.admin.updateSubjectStatus",
        update_subject_status,
        "POST",
        Wants.ADMIN,
        body=JSON_LIMIT,
    ),
    Method("com.atproto.admin.deleteAccount", delete_account, "POST", Wants.ADMIN, body=JSON_LIMIT),
)
