"""Password sessions, and the app passwords that begin them too."""

import sqlite3
from collections.abc import Iterable
from typing import Any

from git_knotless.sandbox import accounts
from git_knotless.sandbox.call import FULL, Answer, Call, Method, Wants, account_row, procedure
from git_knotless.sandbox.errors import internal, invalid, unauthorized
from git_knotless.sandbox.limits import CREATE_SESSION
from git_knotless.sandbox.passwords import (
    LONGEST,
    app_password,
    hashed,
    is_password,
    random_password,
)
from git_knotless.sandbox.sessions import find_account, issue, revoke, rotate
from git_knotless.sandbox.state import now


def create_session(call: Call) -> Answer:
    name, password = call.text("identifier").lower(), call.text("password")
    if len(password) > LONGEST:
        raise unauthorized("Password too long. Consider resetting your password.")
    with call.sandbox.database.reading() as connection:
        account = _by_login_name(connection, call, name)
        own, app = account is not None and is_password(account, password), None
        if account is not None and not own and account["takedown"] is None:
            app = app_password(connection, account["id"], password)
    if account is None or not (own or app):
        raise unauthorized("Invalid identifier or password")
    if account["takedown"] is not None and not call.body.get("allowTakendown"):
        raise unauthorized("Account has been taken down", "AccountTakedown")
    with call.sandbox.database.writing() as transaction:
        tokens = issue(transaction.connection, call.host, account, app_password=app)
        return Answer({**tokens, **_session(account)})


def refresh_session(call: Call) -> Answer:
    with call.sandbox.database.writing() as transaction:
        account = account_row(transaction.connection, call.host, call.did)
        if account is None:
            raise invalid(f"Could not find user info for account: {call.did}")
        if account["takedown"] is not None:
            raise unauthorized("Account has been taken down", "AccountTakedown")
        tokens = rotate(transaction.connection, call.host, account, call.auth.token_id)
        return Answer({**tokens, **_session(account)})


def delete_session(call: Call) -> Answer:
    with call.sandbox.database.writing() as transaction:
        revoke(transaction.connection, call.auth.token_id)
    return Answer()


def get_session(call: Call) -> Answer:
    with call.sandbox.database.reading() as connection:
        account = account_row(connection, call.host, call.did)
        if account is None or account["takedown"] is not None:
            raise invalid(f"Could not find user info for account: {call.did}")
        return Answer(_session(account))


def create_app_password(call: Call) -> Answer:
    name, privileged = call.text("name"), bool(call.body.get("privileged"))
    password, created_at = random_password(), now()
    with call.sandbox.database.writing() as transaction:
        account = find_account(transaction.connection, call.host, call.did, check_deactivated=False)
        made = transaction.connection.execute(
            "INSERT INTO app_password VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (account["id"], name, hashed(password), privileged, created_at),
        )
        if not made.rowcount:
            raise internal()
    said = {"name": name, "password": password, "createdAt": created_at, "privileged": privileged}
    return Answer(said)


def list_app_passwords(call: Call) -> Answer:
    with call.sandbox.database.reading() as connection:
        rows = connection.execute(
            "SELECT name, privileged, app_password.created_at AS created_at FROM app_password"
            " JOIN account ON account.id = account WHERE host = ? AND did = ?"
            " ORDER BY app_password.created_at DESC",
            (call.host.number, call.did),
        ).fetchall()
    return Answer(
        {
            "passwords": [
                {
                    "name": row["name"],
                    "createdAt": row["created_at"],
                    "privileged": bool(row["privileged"]),
                }
                for row in rows
            ]
        }
    )


def revoke_app_password(call: Call) -> Answer:
    """It, and its sessions with it."""
    name = call.text("name")
    with call.sandbox.database.writing() as transaction:
        account = account_row(transaction.connection, call.host, call.did)
        place = (account and account["id"], name)
        transaction.connection.execute(
            "DELETE FROM app_password WHERE account = ? AND name = ?", place
        )
        transaction.connection.execute(
            "DELETE FROM refresh_token WHERE account = ? AND app_password = ?", place
        )
    return Answer()


def _session(account: sqlite3.Row) -> dict[str, Any]:
    """What the answers about a session say of its account."""
    return {
        "did": account["did"],
        "handle": account["handle"],
        "email": account["email"],
        "emailConfirmed": False,
        **accounts.status(account),
    }


def _by_login_name(connection: sqlite3.Connection, call: Call, name: str) -> sqlite3.Row | None:
    if "@" not in name:
        return account_row(connection, call.host, name)
    row: sqlite3.Row | None = connection.execute(
        "SELECT * FROM account WHERE host = ? AND email = ?", (call.host.number, name)
    ).fetchone()
    return row


METHODS: Iterable[Method] = (
    procedure("createSession", create_session, Wants.NOTHING, limits=CREATE_SESSION),
    procedure("refreshSession", refresh_session, Wants.REFRESH, body=None),
    procedure("deleteSession", delete_session, Wants.EXPIRED_REFRESH, body=None),
    Method("com.atproto.server.getSession", get_session, wants=Wants.SESSION),
    procedure("createAppPassword", create_app_password, scopes=FULL, check_takedown=True),
    Method("com.atproto.server.listAppPasswords", list_app_passwords, wants=Wants.SESSION),
    procedure("revokeAppPassword", revoke_app_password),
)
