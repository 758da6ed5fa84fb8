"""Handles, and the DID document's say in where an account is."""

from typing import Any

from git_knotless.sandbox import plc
from git_knotless.sandbox.accounts import active, normal_handle, own_handle, signing_key
from git_knotless.sandbox.call import (
    FULL,
    JSON_LIMIT,
    Answer,
    Call,
    Method,
    Scope,
    Wants,
    account_row,
    anything,
)
from git_knotless.sandbox.errors import internal, invalid
from git_knotless.sandbox.limits import UPDATE_HANDLE
from git_knotless.sandbox.mail import check_token, send_token
from git_knotless.sandbox.sessions import find_account, own_account
from git_knotless.sandbox.state import Host, Sandbox

_PLC_OPERATION = "plc_operation"


def own_did(sandbox: Sandbox, host: Host, handle: str) -> str | None:
    """Of an active account of this host."""
    with sandbox.database.reading() as connection:
        account = active(connection, host, handle) if not handle.startswith("did:") else None
    return None if account is None else str(account["did"])


def resolve_handle(call: Call) -> Answer:
    handle = normal_handle(call.param("handle", anything))
    did = own_did(call.sandbox, call.host, handle)
    if did is not None:
        return Answer({"did": did})
    if handle.endswith(call.host.domain) or handle == call.host.domain.removeprefix("."):
        raise invalid("Unable to resolve handle", "HandleNotFound")
    raise invalid("Unable to resolve handle")


def update_handle(call: Call) -> Answer:
    with call.sandbox.database.writing() as transaction:
        connection = transaction.connection
        account = find_account(connection, call.host, call.did, check_deactivated=False)
        handle = own_handle(call.text("handle"), call.host, did=call.did)
        taken = account_row(connection, call.host, handle)
        if taken is not None and taken["did"] != call.did:
            raise invalid(f"Handle already taken: {handle}", "HandleNotAvailable")
        operation = _following(call, connection, lambda last: plc.with_handle(last, handle))
        _submit(connection, call.did, operation)
        connection.execute("UPDATE account SET handle = ? WHERE id = ?", (handle, account["id"]))
    return Answer()


def get_recommended_did_credentials(call: Call) -> Answer:
    with call.sandbox.database.reading() as connection:
        account = own_account(connection, call, internal())
    hidden = account["takedown"] is not None
    return Answer(
        {
            **({} if hidden else {"alsoKnownAs": [f"at://{account['handle']}"]}),
            "verificationMethods": {plc.ATPROTO: signing_key(account).public.did_key},
            "rotationKeys": [call.host.rotation_key.public.did_key],
            "services": {plc.PDS_SERVICE: {"type": plc.PDS_TYPE, "endpoint": call.host.url}},
        }
    )


def request_plc_operation_signature(call: Call) -> Answer:
    send_token(call, _PLC_OPERATION)
    return Answer()


def sign_plc_operation(call: Call) -> Answer:
    """An operation on the newest one, with the fields that the body gives."""
    if not call.body.get("token"):
        raise invalid("email confirmation token required to sign PLC operations")
    names = ("rotationKeys", "alsoKnownAs", "verificationMethods", "services")
    asked = {name: call.body[name] for name in names if call.body.get(name) is not None}
    with call.sandbox.database.writing() as transaction:
        account = own_account(transaction.connection, call, invalid("account not found"))
        check_token(transaction.connection, account["id"], _PLC_OPERATION, call.text("token"))
        operation = _following(call, transaction.connection, lambda _: asked)
    if not plc.is_operation(operation):
        raise invalid("Invalid operation")
    return Answer({"operation": operation})


def submit_plc_operation(call: Call) -> Answer:
    """Takes an operation to the directory that leaves the account on this host."""
    operation: Any = call.body.get("operation")
    if not plc.is_operation(operation) or operation["type"] != plc.OPERATION:
        raise invalid("Invalid operation")
    with call.sandbox.database.writing() as transaction:
        connection = transaction.connection
        account = own_account(connection, call, internal())
        service = operation["services"].get(plc.PDS_SERVICE, {})
        if call.host.rotation_key.public.did_key not in operation["rotationKeys"]:
            raise invalid("Rotation keys do not include server's rotation key")
        if service.get("type") != plc.PDS_TYPE:
            raise invalid("Incorrect type on atproto_pds service")
        if service.get("endpoint") != call.host.url:
            raise invalid("Incorrect endpoint on atproto_pds service")
        key = signing_key(account).public.did_key
        if operation["verificationMethods"].get(plc.ATPROTO) != key:
            raise invalid("Incorrect signing key")
        if operation["alsoKnownAs"][:1] != [f"at://{account['handle']}"]:
            raise invalid("Incorrect handle in alsoKnownAs")
        _submit(connection, call.did, operation)
    return Answer()


def _following(call: Call, connection: Any, change: Any) -> plc.Operation:
    try:
        return plc.following(connection, call.did, call.host.rotation_key, change)
    except plc.PlcError as error:
        raise invalid(error.message) from error


def _submit(connection: Any, did: str, operation: plc.Operation) -> None:
    try:
        plc.submit(connection, did, operation)
    except plc.PlcError as error:
        raise invalid(error.message) from error


METHODS = (
    Method("com.atproto.identity.resolveHandle", resolve_handle),
    Method(
        "com.atproto.identity.updateHandle",
        update_handle,
        "POST",
        Wants.SESSION,
        check_takedown=True,
        body=JSON_LIMIT,
        limits=UPDATE_HANDLE,
    ),
    Method(
        "com.atproto.identity.getRecommendedDidCredentials",
        get_recommended_did_credentials,
        wants=Wants.SESSION,
    ),
    Method(
        "com.atproto.identity.requestPlcOperationSignature",
        request_plc_operation_signature,
        "POST",
        Wants.SESSION,
        FULL | {Scope.TAKEN_DOWN},
    ),
    Method(
        "com.atproto.identity.signPlcOperation",
        sign_plc_operation,
        "POST",
        Wants.SESSION,
        FULL | {Scope.TAKEN_DOWN},
        body=JSON_LIMIT,
    ),
    Method(
        "com.atproto.identity.submitPlcOperation",
        submit_plc_operation,
        "POST",
        Wants.SESSION,
        body=JSON_LIMIT,
    ),
)
