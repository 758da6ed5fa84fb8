"""The tokens that a host mails to prove that whoever asks reads the account's mail.

Here they are files, `mail/<account's DID>.<purpose>`, which the account's owner can read.
"""

import secrets
import sqlite3
import time
from pathlib import Path

from git_knotless.sandbox.call import Call
from git_knotless.sandbox.errors import invalid
from git_knotless.sandbox.sessions import own_account
from git_knotless.sandbox.state import Sandbox, write_private

_SECONDS = 15 * 60
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"


def send_token(call: Call, purpose: str) -> None:
    token = "-".join("".join(secrets.choice(_ALPHABET) for _ in range(5)) for _ in range(2))
    with call.sandbox.database.writing() as transaction:
        account = own_account(transaction.connection, call, invalid("account not found"))
        transaction.connection.execute(
            "INSERT INTO mail_token VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE"
            " SET token = excluded.token, requested_at = excluded.requested_at",
            (account["id"], purpose, token, time.time()),
        )
    write_private(mail_path(call.sandbox, call.host.number, call.did, purpose), token + "\n")


def mail_path(sandbox: Sandbox, host: int, did: str, purpose: str) -> Path:
    return sandbox.folder / "mail" / f"pds{host}.{did.replace(':', '_')}.{purpose}"


def check_token(connection: sqlite3.Connection, account: int, purpose: str, token: str) -> None:
    """A token works once, for a quarter of an hour."""
    row = connection.execute(
        "DELETE FROM mail_token WHERE account = ? AND purpose = ? AND token = ?"
        " RETURNING requested_at",
        (account, purpose, token.upper()),
    ).fetchone()
    if row is None:
        raise invalid("Token is invalid", "InvalidToken")
    if time.time() - row["requested_at"] > _SECONDS:
        raise invalid("Token is expired", "ExpiredToken")
