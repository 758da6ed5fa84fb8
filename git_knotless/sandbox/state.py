"""A sandbox: its folder, its database, its hosts, and how it was asked to behave.

sandbox.sqlite     everything but blobs (mode 0600)
blobs/<account>/   one file a blob, named by its CID
incoming/          uploads under way; emptied at each start
mail/              the tokens that a host would mail, each in a file
passwords.json     of the accounts that the sandbox itself made (mode 0600)
lock               held while the sandbox runs
"""

import fcntl
import json
import os
import secrets
import shutil
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from git_knotless.atproto.keys import Curve, PrivateKey
from git_knotless.atproto.syntax import format_time
from git_knotless.sandbox.db import Database, set_setting, setting
from git_knotless.sandbox.errors import SandboxError

# All loopback hosts of the reference call themselves that too.
SERVICE_DID = "did:web:localhost"
DEFAULT_BLOB_LIMIT = 5 * 1024 * 1024
PLC_PORT = "plc port"  # a setting's name
_DATABASE = "sandbox.sqlite"


@dataclass(frozen=True, slots=True)
class Behaviour:
    blob_limit: int = DEFAULT_BLOB_LIMIT
    rate_limit: bool = False
    clean_errors: bool = False
    """A taken or a missing key is a 400 with a name, as proposed for the reference."""
    seek: bool = True
    """A cursor is any record key; otherwise only one that the host gave out."""
    create_updates: bool = False
    """A create of a taken key overwrites, as on some hosts."""


@dataclass(frozen=True, slots=True)
class Host:
    """One PDS."""

    number: int
    port: int
    domain: str
    secret: str
    rotation_key: PrivateKey

    @property
    def url(self) -> str:
        return url_of(self.port)


@dataclass(frozen=True, slots=True)
class Sandbox:
    folder: Path
    database: Database
    behaviour: Behaviour
    admin_password: str
    plc_port: int
    hosts: tuple[Host, ...]
    _lock: IO[bytes]

    @property
    def plc_url(self) -> str:
        return url_of(self.plc_port)

    @property
    def ports(self) -> tuple[int, ...]:
        return (self.plc_port, *(host.port for host in self.hosts))

    def blob_path(self, account: int, cid: str) -> Path:
        return self.folder / "blobs" / str(account) / cid

    def close(self) -> None:
        self.database.close()
        self._lock.close()


def url_of(port: int) -> str:
    return f"http://localhost:{port}"


def now() -> str:
    return format_time(datetime.now(UTC))


def open_sandbox(
    folder: Path, *, pds: int, new_port: Callable[[int], int], behaviour: Behaviour
) -> Sandbox:
    """The sandbox in `folder`, made there at the first time; with more hosts if `pds` is more.

    `new_port` says a port for each, the directory being number 0 and the hosts coming after it.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = _hold(folder)
    try:
        for name in ("blobs", "incoming", "mail"):
            (folder / name).mkdir(mode=0o700, exist_ok=True)
        (folder / _DATABASE).touch(mode=0o600)
        database = Database(folder / _DATABASE)
        with database.writing() as transaction:
            connection = transaction.connection
            password = _kept(connection, "admin password", lambda: secrets.token_hex(12))
            plc_port = int(_kept(connection, PLC_PORT, lambda: str(new_port(0))))
            hosts = _hosts(connection, pds, new_port)
            _sweep(folder, connection)
    except BaseException:
        lock.close()
        raise
    return Sandbox(folder, database, behaviour, password, plc_port, hosts, lock)


def write_private(path: Path, text: str) -> None:
    """Whole or not at all, and for the owner alone."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def made_passwords(folder: Path) -> dict[str, str]:
    """By handle, of the accounts that were asked for on the command line."""
    try:
        passwords: dict[str, str] = json.loads((folder / "passwords.json").read_text())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise SandboxError(f"{folder / 'passwords.json'} is not readable") from error
    return passwords


def save_passwords(folder: Path, passwords: Mapping[str, str]) -> None:
    write_private(folder / "passwords.json", json.dumps(passwords, indent=2) + "\n")


def _hold(folder: Path) -> IO[bytes]:
    lock = open(folder / "lock", "ab")  # noqa: SIM115  held until the process ends
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.close()
        raise SandboxError(f"another sandbox runs in {folder}") from error
    return lock


def _kept(connection: sqlite3.Connection, name: str, make: Callable[[], str]) -> str:
    value = setting(connection, name)
    if value is None:
        value = make()
        set_setting(connection, name, value)
    return value


def _hosts(
    connection: sqlite3.Connection, count: int, new_port: Callable[[int], int]
) -> tuple[Host, ...]:
    there = connection.execute("SELECT count(*) FROM host").fetchone()[0]
    for number in range(there, count):
        connection.execute(
            "INSERT INTO host VALUES (?, ?, ?, ?)",
            (
                number,
                new_port(1 + number),
                secrets.token_hex(32),
                PrivateKey.generate(Curve.K256).to_bytes(),
            ),
        )
    return tuple(
        Host(
            row["number"],
            row["port"],
            f".pds{row['number']}.test" if row["number"] else ".test",
            row["secret"],
            PrivateKey.from_bytes(Curve.K256, row["rotation_key"]),
        )
        for row in connection.execute("SELECT * FROM host ORDER BY number")
    )


def _sweep(folder: Path, connection: sqlite3.Connection) -> None:
    """Remove what a kill left behind: halves of uploads, and blobs that no row knows."""
    for path in (folder / "incoming").iterdir():
        path.unlink()
    for path in folder.glob(".passwords.json.*"):
        path.unlink()
    for place in (folder / "blobs").iterdir():
        rows = connection.execute("SELECT cid FROM blob WHERE account = ?", (place.name,))
        known = {row["cid"] for row in rows}
        for path in place.iterdir():
            if path.name not in known:
                path.unlink()
        if not known:
            with suppress(OSError):
                shutil.rmtree(place)
