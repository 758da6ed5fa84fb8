"""Passwords of accounts and of apps, hashed."""

import hashlib
import hmac
import secrets
import sqlite3

# A login of a test takes a millisecond so; whoever reads the file has every signing key anyway.
_COST = {"n": 1 << 10, "r": 8, "p": 1}
LONGEST = 512  # characters, of one that is presented
LONGEST_NEW = 256
_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"


def random_password() -> str:
    """Four groups of four, as app passwords are."""
    letters = "".join(secrets.choice(_ALPHABET) for _ in range(16))
    return "-".join(letters[at : at + 4] for at in range(0, 16, 4))


def hashed(password: str) -> str:
    salt = secrets.token_bytes(16)
    return f"{salt.hex()}:{_scrypt(password, salt).hex()}"


def matches(password: str, stored: str) -> bool:
    salt, _, digest = stored.partition(":")
    return hmac.compare_digest(_scrypt(password, bytes.fromhex(salt)), bytes.fromhex(digest))


def is_password(account: sqlite3.Row, password: str) -> bool:
    """Whether it is the account's own."""
    return bool(account["password"]) and matches(password, account["password"])


def app_password(connection: sqlite3.Connection, account: int, password: str) -> sqlite3.Row | None:
    """The app password that this is."""
    rows = connection.execute("SELECT * FROM app_password WHERE account = ?", (account,))
    return next((row for row in rows if matches(password, row["password"])), None)


def _scrypt(password: str, salt: bytes) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, dklen=32, **_COST)
