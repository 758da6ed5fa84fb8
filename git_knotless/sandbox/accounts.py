"""Accounts: made, found by name, deactivated, taken down, deleted."""

import re
import shutil
import sqlite3
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from git_knotless.atproto.keys import Curve, PrivateKey
from git_knotless.atproto.syntax import InvalidSyntax, parse_handle
from git_knotless.sandbox import plc
from git_knotless.sandbox.call import account_row
from git_knotless.sandbox.commits import first_commit, store_commit
from git_knotless.sandbox.db import Transaction
from git_knotless.sandbox.errors import Refusal, invalid
from git_knotless.sandbox.passwords import LONGEST_NEW, hashed
from git_knotless.sandbox.state import Host, Sandbox, now

# Names that mean a service; the reference has some hundred more.
RESERVED = frozenset(
    """
    about abuse account admin api app at atp atproto blog bluesky bsky dev did handle help info
    lex lexicon localhost login mail moderator nsid oauth official pds plc postmaster repo root
    security settings signup staff status support tid www xrpc
    """.split()  # noqa: SIM905  a list of forty lines says no more
)
_SHORTEST, _LONGEST = 3, 18
_EMAIL = re.compile(r"[^@\s]{1,64}@(?:[a-zA-Z0-9-]{1,63}\.)+[a-zA-Z]{2,63}")


def normal_handle(text: str) -> str:
    try:
        return parse_handle(text)
    except InvalidSyntax as error:
        raise invalid(f"Invalid handle (got {text[:80]!a})") from error


def own_handle(text: str, host: Host, *, did: str | None) -> str:
    """A handle that an account on the host may have; `did` where there is one already."""
    handle = normal_handle(text)
    if not handle.endswith(host.domain):
        if did is None:
            raise invalid("Not a supported handle domain", "UnsupportedDomain")
        raise invalid("External handle did not resolve to DID")
    front = handle.removesuffix(host.domain)
    if "." in front:
        raise invalid("Invalid characters in handle", "InvalidHandle")
    if len(front) < _SHORTEST:
        raise invalid("Handle too short", "InvalidHandle")
    if len(front) > _LONGEST:
        raise invalid("Handle too long", "InvalidHandle")
    if front in RESERVED:
        raise invalid("Reserved handle", "HandleNotAvailable")
    return handle


def create(
    transaction: Transaction, host: Host, wanted: Mapping[str, Any], *, did: str | None
) -> sqlite3.Row:
    """The account that createAccount's body describes: with a new DID, or deactivated with the
    one that moves in."""
    connection = transaction.connection
    password, email = wanted.get("password") or "", wanted.get("email") or ""
    if len(password) > LONGEST_NEW:
        raise invalid(f"Password too long. Maximum length is {LONGEST_NEW} characters.")
    if not email:
        raise invalid("Email is required")
    if not _EMAIL.fullmatch(email):
        raise invalid("This email address is not supported, please use a different email.")
    handle = own_handle(wanted["handle"], host, did=did)
    _check_free(connection, host, handle, email, did)
    key = PrivateKey.generate(Curve.K256)
    deactivated_at = None if did is None else now()
    if did is None:
        did = _register(connection, host, handle, key, wanted.get("recoveryKey"))
    commit = first_commit(did, key)
    head = commit.head
    connection.execute(
        "INSERT INTO account (host, did, handle, email, password, key, created_at, deactivated_at,"
        " head, data, rev) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            host.number,
            did,
            handle,
            email.lower(),
            hashed(password) if password else "",
            key.to_bytes(),
            now(),
            deactivated_at,
            head.head,
            head.data,
            head.rev,
        ),
    )
    account = account_row(connection, host, did)
    assert account is not None
    store_commit(connection, account["id"], commit)
    return account


def status(account: sqlite3.Row) -> dict[str, Any]:
    """`active`, and why not."""
    if account["takedown"] is not None:
        return {"active": False, "status": "takendown"}
    if account["deactivated_at"] is not None:
        return {"active": False, "status": "deactivated"}
    return {"active": True}


def active(connection: sqlite3.Connection, host: Host, name: str) -> sqlite3.Row | None:
    """The account, if nothing hides it."""
    account = account_row(connection, host, name)
    return account if account is not None and status(account)["active"] else None


def visible(connection: sqlite3.Connection, host: Host, name: str, *, own: bool) -> sqlite3.Row:
    """The account as the sync methods show it: a `Refusal` says why not, but to itself."""
    account = account_row(connection, host, name)
    if account is None:
        raise invalid(f"Could not find repo for DID: {name}", "RepoNotFound")
    if not own and account["takedown"] is not None:
        raise invalid(f"Repo has been takendown: {name}", "RepoTakendown")
    if not own and account["deactivated_at"] is not None:
        raise invalid(f"Repo has been deactivated: {name}", "RepoDeactivated")
    return account


def signing_key(account: sqlite3.Row) -> PrivateKey:
    return _key(account["key"])


@lru_cache(maxsize=256)
def _key(scalar: bytes) -> PrivateKey:
    """Kept: to work out its public half takes longer than to sign."""
    return PrivateKey.from_bytes(Curve.K256, scalar)


def set_takedown(connection: sqlite3.Connection, account: int, ref: str | None) -> None:
    """`ref` names the reason; None lifts it. Either ends every session."""
    connection.execute("UPDATE account SET takedown = ? WHERE id = ?", (ref, account))
    connection.execute("DELETE FROM refresh_token WHERE account = ?", (account,))


def set_deactivated(connection: sqlite3.Connection, account: int, *, deactivated: bool) -> None:
    connection.execute(
        "UPDATE account SET deactivated_at = ? WHERE id = ?",
        (now() if deactivated else None, account),
    )


def delete(transaction: Transaction, sandbox: Sandbox, account: int) -> None:
    """The account with all that is in it."""
    transaction.connection.execute("DELETE FROM account WHERE id = ?", (account,))
    place = sandbox.blob_path(account, "").parent / str(account)
    transaction.afterwards.append(lambda: shutil.rmtree(place, ignore_errors=True))


def check_did_document(connection: sqlite3.Connection, host: Host, account: sqlite3.Row) -> None:
    """Whether the directory says that the account is here: what activating it takes."""
    try:
        said = plc.data(connection, account["did"])
    except plc.PlcError as error:
        raise invalid("Could not resolve DID") from error
    if host.rotation_key.public.did_key not in said["rotationKeys"]:
        raise invalid("Server rotation key not included in PLC DID data")
    if said["services"].get(plc.PDS_SERVICE, {}).get("endpoint") != host.url:
        raise invalid("DID document atproto_pds service endpoint does not match PDS public url")
    if said["verificationMethods"].get(plc.ATPROTO) != signing_key(account).public.did_key:
        raise invalid("DID document verification method does not match expected signing key")


def _check_free(
    connection: sqlite3.Connection, host: Host, handle: str, email: str, did: str | None
) -> None:
    taken = account_row(connection, host, handle)
    if taken is not None:
        raise invalid(f"Handle already taken: {handle}")
    if connection.execute(
        "SELECT 1 FROM account WHERE host = ? AND email = ?", (host.number, email.lower())
    ).fetchone():
        raise invalid(f"Email already taken: {email}")
    if did is not None and account_row(connection, host, did) is not None:
        raise Refusal(400, "AlreadyExists", "Repo already exists")


def _register(
    connection: sqlite3.Connection, host: Host, handle: str, key: PrivateKey, recovery: Any
) -> str:
    rotation = [host.rotation_key.public.did_key]
    if recovery is not None:
        rotation.insert(0, recovery)
    did, operation = plc.genesis(
        host.rotation_key,
        signing_key=key.public.did_key,
        handle=handle,
        pds=host.url,
        rotation=rotation,
    )
    try:
        plc.submit(connection, did, operation)
    except plc.PlcError as error:
        raise invalid(error.message) from error
    return did
