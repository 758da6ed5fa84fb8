"""Who calls: password sessions, service tokens of other hosts' accounts, the administrator.

Sessions are the reference's: an access token of two hours that is believed by its signature alone,
and a refresh token of ninety days that works for two hours more once it is used.
"""

import base64
import hmac
import secrets
import sqlite3
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import jwt

from git_knotless.atproto.keys import BadKey, BadSignature, PublicKey
from git_knotless.sandbox import plc
from git_knotless.sandbox.call import Call, Credentials, Method, Scope, Wants, account_row
from git_knotless.sandbox.db import Database
from git_knotless.sandbox.errors import Refusal, forbidden, invalid, unauthorized
from git_knotless.sandbox.state import SERVICE_DID, Host, Sandbox

ACCESS_SECONDS = 2 * 3600
REFRESH_SECONDS = 90 * 24 * 3600
GRACE_SECONDS = 2 * 3600
_SERVICE_TYPES_REFUSED = frozenset(("at+jwt", "refresh+jwt", "dpop+jwt"))


def identify(
    sandbox: Sandbox, host: Host, method: Method, headers: Mapping[str, str]
) -> Credentials:
    """The caller, if the method takes such a one; a `Refusal` otherwise."""
    kind, value = _header(headers.get("authorization"))
    match method.wants:
        case Wants.NOTHING:
            return Credentials()
        case Wants.ADMIN:
            return _admin(sandbox, kind, value)
        case Wants.SERVICE_OR_NOTHING | Wants.SESSION_OR_ADMIN_OR_NOTHING if kind is None:
            return Credentials()
        case Wants.SERVICE_OR_NOTHING if kind == "bearer":
            return _service(sandbox.database, value, method.nsid)
        case Wants.SERVICE_OR_NOTHING:
            raise unauthorized("Invalid authorization header")
        case Wants.SESSION_OR_ADMIN_OR_NOTHING if kind == "basic":
            return _admin(sandbox, kind, value)
        case Wants.SESSION_OR_SERVICE if kind == "bearer" and "lxm" in _unverified(value):
            return _service(sandbox.database, value, method.nsid)
        case Wants.REFRESH | Wants.EXPIRED_REFRESH:
            expired = method.wants is Wants.EXPIRED_REFRESH
            return _refresh(host, kind, value, expired=expired)
    return _session(sandbox, host, method, kind, value)


def issue(
    connection: sqlite3.Connection,
    host: Host,
    account: sqlite3.Row,
    *,
    app_password: sqlite3.Row | None = None,
    token_id: str | None = None,
) -> dict[str, str]:
    """A new pair of tokens; `token_id` where the refresh token was promised before."""
    taken_down = account["takedown"] is not None
    token_id = token_id or base64.b64encode(secrets.token_bytes(32)).decode().rstrip("=")
    if not taken_down:
        name = None if app_password is None else app_password["name"]
        connection.execute(
            "INSERT INTO refresh_token VALUES (?, ?, ?, ?, NULL) ON CONFLICT DO NOTHING",
            (token_id, account["id"], name, time.time() + REFRESH_SECONDS),
        )
    claims = {"aud": SERVICE_DID, "sub": account["did"], "iat": int(time.time())}
    access = {**claims, "scope": _scope(app_password, taken_down=taken_down).value}
    refresh = {**claims, "scope": Scope.REFRESH.value, "jti": token_id}
    return {
        "accessJwt": _signed(host, access, "at+jwt", ACCESS_SECONDS),
        "refreshJwt": _signed(host, refresh, "refresh+jwt", REFRESH_SECONDS),
    }


def rotate(
    connection: sqlite3.Connection, host: Host, account: sqlite3.Row, token_id: str
) -> dict[str, str]:
    """The next pair. A token that was used has two hours left, and the same successor."""
    now = time.time()
    row = connection.execute(
        "SELECT * FROM refresh_token WHERE id = ? AND account = ? AND expires_at > ?",
        (token_id, account["id"], now),
    ).fetchone()
    connection.execute(
        "DELETE FROM refresh_token WHERE account = ? AND expires_at <= ?", (account["id"], now)
    )
    app_password = None
    if row is not None and row["app_password"] is not None:
        app_password = connection.execute(
            "SELECT * FROM app_password WHERE account = ? AND name = ?",
            (account["id"], row["app_password"]),
        ).fetchone()
        row = app_password and row  # without its app password it would become a full session
    if row is None:
        raise invalid("Token has been revoked", "ExpiredToken")
    next_id = row["next_id"] or base64.b64encode(secrets.token_bytes(32)).decode().rstrip("=")
    connection.execute(
        "UPDATE refresh_token SET next_id = ?, expires_at = min(expires_at, ?) WHERE id = ?",
        (next_id, now + GRACE_SECONDS, token_id),
    )
    return issue(connection, host, account, app_password=app_password, token_id=next_id)


def revoke(connection: sqlite3.Connection, token_id: str) -> None:
    connection.execute("DELETE FROM refresh_token WHERE id = ?", (token_id,))


def find_account(
    connection: sqlite3.Connection,
    host: Host,
    name: str,
    *,
    check_takedown: bool = True,
    check_deactivated: bool = True,
) -> sqlite3.Row:
    account = account_row(connection, host, name)
    if account is None:
        raise forbidden("Account not found", "AccountNotFound")
    if check_takedown and account["takedown"] is not None:
        raise unauthorized("Account has been taken down", "AccountTakedown")
    if check_deactivated and account["deactivated_at"] is not None:
        raise unauthorized("Account is deactivated", "AccountDeactivated")
    return account


def own_account(connection: sqlite3.Connection, call: Call, missing: Refusal) -> sqlite3.Row:
    """The caller's account in whatever state; `missing` where it was deleted since."""
    account = account_row(connection, call.host, call.did)
    if account is None:
        raise missing
    return account


def _header(header: str | None) -> tuple[str | None, str]:
    if not header:
        return None, ""
    parts = header.split(" ")
    if len(parts) != 2:
        raise invalid("Malformed authorization header", "InvalidToken")
    kind = parts[0].lower()
    if kind not in ("basic", "bearer", "dpop"):
        raise invalid(f"Unsupported authorization type: {parts[0][:80]}", "InvalidToken")
    return kind, parts[1]


def _session(
    sandbox: Sandbox, host: Host, method: Method, kind: str | None, token: str
) -> Credentials:
    if kind is None:
        raise unauthorized(name="AuthMissing")
    if kind != "bearer":
        raise invalid("Unexpected authorization type", "InvalidToken")
    claims = _claims(host, token, "at+jwt")
    scope = _known_scope(claims)
    allowed = method.scopes - ({Scope.TAKEN_DOWN} if method.check_takedown else set())
    if scope not in allowed:
        raise invalid("Bad token scope", "InvalidToken")
    if method.check_takedown:
        with sandbox.database.reading() as connection:
            find_account(connection, host, claims["sub"], check_deactivated=False)
    return Credentials("session", claims["sub"], scope)


def _refresh(host: Host, kind: str | None, token: str, *, expired: bool) -> Credentials:
    if kind != "bearer":
        raise unauthorized(name="AuthMissing")
    claims = _claims(host, token, "refresh+jwt", expired=expired)
    if _known_scope(claims) is not Scope.REFRESH:
        raise invalid("Bad token scope", "InvalidToken")
    if not isinstance(claims.get("jti"), str):
        raise unauthorized("Unexpected missing refresh token id", "MissingTokenId")
    return Credentials("refresh", claims["sub"], Scope.REFRESH, claims["jti"])


def _admin(sandbox: Sandbox, kind: str | None, value: str) -> Credentials:
    expected = b"admin:" + sandbox.admin_password.encode()
    try:
        given = base64.b64decode(value, validate=True) if kind == "basic" else b""
    except ValueError:
        given = b""
    if not hmac.compare_digest(given, expected):
        raise unauthorized()
    return Credentials("admin")


def _service(database: Database, token: str, nsid: str) -> Credentials:
    """The account that signed a token for this method, with the key in its DID document."""
    try:
        header = jwt.get_unverified_header(token)
        claims = _unverified(token)
    except jwt.InvalidTokenError as error:
        raise unauthorized("poorly formatted jwt", "BadJwt") from error
    if header.get("typ") in _SERVICE_TYPES_REFUSED:
        raise unauthorized(f'Invalid jwt type "{header["typ"]}"', "BadJwtType")
    exp = claims.get("exp")
    if not isinstance(exp, int) or exp < time.time():
        raise unauthorized("jwt expired", "JwtExpired")
    if claims.get("lxm") != nsid:
        raise unauthorized(
            f'bad jwt lexicon method ("lxm"). must match: {nsid}', "BadJwtLexiconMethod"
        )
    did = claims.get("iss")
    _verify_service(database, did, header.get("alg"), token)
    if claims.get("aud") != SERVICE_DID:
        raise unauthorized("jwt audience does not match service did", "BadJwtAudience")
    return Credentials("service", str(did))


def _verify_service(database: Database, did: Any, algorithm: Any, token: str) -> None:
    message, _, signature = token.rpartition(".")
    try:
        with database.reading() as connection:
            keys = plc.data(connection, str(did))["verificationMethods"]
        key = PublicKey.from_did_key(keys[plc.ATPROTO])
    except plc.PlcError as error:
        raise unauthorized("could not resolve iss did") from error
    except (KeyError, BadKey) as error:
        raise unauthorized("missing or bad key in did doc") from error
    raw = base64.urlsafe_b64decode(signature + "=" * (-len(signature) % 4))
    try:
        if algorithm != key.curve.algorithm:
            raise BadSignature("another algorithm than the key's")
        key.verify(raw, message.encode())
    except BadSignature as error:
        raise unauthorized("jwt signature does not match jwt issuer", "BadJwtSignature") from error


def _unverified(token: str) -> dict[str, Any]:
    """What a token claims, believed by nobody yet; nothing where it is no token."""
    try:
        claims: dict[str, Any] = jwt.decode(token, options={"verify_signature": False})
    except jwt.InvalidTokenError:
        return {}
    return claims


def _claims(host: Host, token: str, kind: str, *, expired: bool = False) -> Mapping[str, Any]:
    try:
        claims = _verified(host.secret, token, kind)
    except jwt.InvalidTokenError as error:
        raise invalid("Token could not be verified", "InvalidToken") from error
    if not expired and claims["exp"] <= time.time():
        raise invalid("Token has expired", "ExpiredToken")
    return claims


@lru_cache(maxsize=256)
def _verified(secret: str, token: str, kind: str) -> Mapping[str, Any]:
    """Whether or not it has expired. A client shows the same one again and again."""
    if jwt.get_unverified_header(token).get("typ") != kind:
        raise jwt.InvalidTokenError("another kind of token")
    options: Any = {"verify_exp": False, "require": ["sub", "aud", "scope", "exp"]}
    claims: dict[str, Any] = jwt.decode(
        token, secret, algorithms=["HS256"], audience=SERVICE_DID, options=options
    )
    return claims


def _known_scope(claims: Mapping[str, Any]) -> Scope:
    try:
        return Scope(claims["scope"])
    except ValueError as error:
        raise invalid("Bad token scope", "InvalidToken") from error


def _scope(app_password: sqlite3.Row | None, *, taken_down: bool) -> Scope:
    if taken_down:
        return Scope.TAKEN_DOWN
    if app_password is None:
        return Scope.ACCESS
    return Scope.PRIVILEGED if app_password["privileged"] else Scope.APP_PASSWORD


def _signed(host: Host, claims: Mapping[str, Any], kind: str, seconds: int) -> str:
    payload = {**claims, "exp": int(time.time()) + seconds}
    return jwt.encode(payload, host.secret, algorithm="HS256", headers={"typ": kind})
