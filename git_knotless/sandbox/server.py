"""Accounts that come and go, their tokens for other services, and what the host says of itself."""

import base64
import re
import secrets
import sqlite3
import time
from collections.abc import Iterable
from typing import Any

from git_knotless.atproto.syntax import is_did
from git_knotless.sandbox import accounts, plc
from git_knotless.sandbox.call import (
    FULL,
    STANDARD,
    Answer,
    Call,
    Method,
    Scope,
    Wants,
    account_row,
    anything,
    did_text,
    nsid,
    procedure,
)
from git_knotless.sandbox.errors import internal, invalid, unauthorized
from git_knotless.sandbox.limits import CREATE_ACCOUNT, DELETE_ACCOUNT
from git_knotless.sandbox.mail import check_token, send_token
from git_knotless.sandbox.passwords import LONGEST, is_password
from git_knotless.sandbox.sessions import issue
from git_knotless.sandbox.state import SERVICE_DID
from git_knotless.sandbox.values import to_json

_DELETE_ACCOUNT = "delete_account"
_MINUTE, _HOUR = 60, 3600
_PREFIX = "com.atproto.server."
# What only the account itself may do, whatever token it hands out.
_PROTECTED = frozenset(
    f"com.atproto.{name}"
    for name in (
        "admin.sendEmail",
        "identity.requestPlcOperationSignature",
        "identity.signPlcOperation",
        "identity.updateHandle",
        "server.activateAccount",
        "server.confirmEmail",
        "server.createAppPassword",
        "server.deactivateAccount",
        "server.getAccountInviteCodes",
        "server.getSession",
        "server.listAppPasswords",
        "server.requestAccountDelete",
        "server.requestEmailConfirmation",
        "server.requestEmailUpdate",
        "server.revokeAppPassword",
        "server.updateEmail",
    )
)
_CREATE_ACCOUNT = f"{_PREFIX}createAccount"
_SERVICE = re.compile(r"#[A-Za-z][A-Za-z0-9_-]{0,63}")


def describe_server(call: Call) -> Answer:
    return Answer(
        {
            "did": SERVICE_DID,
            "availableUserDomains": [call.host.domain],
            "inviteCodeRequired": False,
            "blobUploadLimit": call.sandbox.behaviour.blob_limit,
            "links": {},
            "contact": {},
        }
    )


def create_account(call: Call) -> Answer:
    """A new account; or, asked with a service token of its DID, one that moves in: deactivated."""
    did = call.optional_text("did", did_text)
    call.text("handle", anything)
    for name in ("email", "password", "recoveryKey"):
        call.optional_text(name)
    if call.body.get("plcOp") is not None:
        raise invalid('Unsupported input: "plcOp"')
    if did is not None and did != call.did:
        raise unauthorized(f"Missing auth to create account with did: {did}")
    with call.sandbox.database.writing() as transaction:
        connection = transaction.connection
        account = accounts.create(transaction, call.host, call.body, did=did)
        tokens = issue(connection, call.host, account)
        document = plc.document(connection, account["did"])
    return Answer(
        {"handle": account["handle"], "did": account["did"], "didDoc": document, **tokens}
    )


def get_service_auth(call: Call) -> Answer:
    """A token that proves to another service who asks, signed with the account's own key."""
    aud, lxm = call.param("aud", _audience), call.optional_param("lxm", nsid)
    exp = call.number("exp", 0, 0, 10**12)
    if call.auth.scope is Scope.TAKEN_DOWN and lxm != _CREATE_ACCOUNT:
        raise invalid("Bad token scope", "InvalidToken")
    if call.auth.scope is Scope.APP_PASSWORD and lxm is not None and _is_privileged(lxm):
        raise invalid(
            f"insufficient access to request a service auth token for the following method: {lxm}"
        )
    _check_expiration(exp, lxm)
    if lxm in _PROTECTED:
        raise invalid(
            f"cannot request a service auth token for the following protected method: {lxm}"
        )
    with call.sandbox.database.reading() as connection:
        account = account_row(connection, call.host, call.did)
    if account is None:
        raise internal()
    claims: dict[str, Any] = {"iat": int(time.time()), "iss": call.did, "aud": aud}
    claims |= {"exp": exp or claims["iat"] + _MINUTE, "jti": secrets.token_hex(16)}
    if lxm is not None:
        claims["lxm"] = lxm
    return Answer({"token": _service_token(account, claims)})


def request_account_delete(call: Call) -> Answer:
    send_token(call, _DELETE_ACCOUNT)
    return Answer()


def delete_account(call: Call) -> Answer:
    did, password, token = call.text("did", did_text), call.text("password"), call.text("token")
    with call.sandbox.database.writing() as transaction:
        account = account_row(transaction.connection, call.host, did)
        if account is None:
            raise invalid("account not found")
        if len(password) > LONGEST or not is_password(account, password):
            raise unauthorized("Invalid did or password")
        check_token(transaction.connection, account["id"], _DELETE_ACCOUNT, token)
        accounts.delete(transaction, call.sandbox, account["id"])
    return Answer()


def _audience(text: str, _: str) -> str:
    did, hash_, service = text.partition("#")
    if not is_did(did) or (hash_ and not _SERVICE.fullmatch(hash_ + service)):
        raise invalid("aud must be a valid atproto DID or did#serviceId reference")
    return text


def _is_privileged(lxm: str) -> bool:
    return lxm.startswith("chat.bsky.") or lxm == _CREATE_ACCOUNT


def _check_expiration(exp: int, lxm: str | None) -> None:
    ahead = exp - time.time() if exp else 0
    if ahead < 0:
        raise invalid("expiration is in past", "BadExpiration")
    if ahead > _HOUR:
        raise invalid(
            "cannot request a token with an expiration more than an hour in the future",
            "BadExpiration",
        )
    if lxm is None and ahead > _MINUTE:
        raise invalid(
            "cannot request a method-less token with an expiration more than a minute"
            " in the future",
            "BadExpiration",
        )


def _service_token(account: sqlite3.Row, claims: dict[str, Any]) -> str:
    key = accounts.signing_key(account)
    header = {"typ": "JWT", "alg": key.curve.algorithm}
    message = b".".join(_base64url(to_json(part)) for part in (header, claims))
    return (message + b"." + _base64url(key.sign(message))).decode()


def _base64url(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


METHODS: Iterable[Method] = (
    Method(f"{_PREFIX}describeServer", describe_server),
    procedure("createAccount", create_account, Wants.SERVICE_OR_NOTHING, limits=CREATE_ACCOUNT),
    Method(
        f"{_PREFIX}getServiceAuth",
        get_service_auth,
        wants=Wants.SESSION,
        scopes=STANDARD | {Scope.TAKEN_DOWN},
    ),
    procedure(
        "requestAccountDelete", request_account_delete, scopes=FULL, check_takedown=True, body=None
    ),
    procedure("deleteAccount", delete_account, Wants.NOTHING, limits=DELETE_ACCOUNT),
)
