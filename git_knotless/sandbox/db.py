"""The one SQLite file of a sandbox. One writer at a time, behind a lock; readers each have a
connection and see one commit, whatever is written meanwhile.

WAL with synchronous=FULL: what was answered with 200 is on disk, and a kill at any moment leaves
the last commit. A file is removed only after the commit that lets go of it, so that a kill can
leave one too many (which the next start sweeps), never one too few.
"""

import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from git_knotless.sandbox.errors import SandboxError

VERSION = 1  # of the tables; a sandbox made by another version is not opened

_TABLES = """
CREATE TABLE setting (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE host (
    number INTEGER PRIMARY KEY,
    port INTEGER NOT NULL,
    secret TEXT NOT NULL,
    rotation_key BLOB NOT NULL
) STRICT;
CREATE TABLE operation (
    number INTEGER PRIMARY KEY,
    did TEXT NOT NULL,
    cid TEXT NOT NULL,
    value TEXT NOT NULL,
    nullified INTEGER NOT NULL,
    created_at TEXT NOT NULL
) STRICT;
CREATE INDEX operation_by_did ON operation (did, number);
CREATE TABLE account (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    host INTEGER NOT NULL REFERENCES host,
    did TEXT NOT NULL,
    handle TEXT NOT NULL,
    email TEXT NOT NULL,
    password TEXT NOT NULL,
    key BLOB NOT NULL,
    created_at TEXT NOT NULL,
    deactivated_at TEXT,
    takedown TEXT,
    head BLOB NOT NULL,
    data BLOB NOT NULL,
    rev TEXT NOT NULL,
    UNIQUE (host, did), UNIQUE (host, handle), UNIQUE (host, email)
) STRICT;
CREATE TABLE app_password (
    account INTEGER NOT NULL REFERENCES account ON DELETE CASCADE,
    name TEXT NOT NULL,
    password TEXT NOT NULL,
    privileged INTEGER NOT NULL,
    created_at TEXT NOT NULL,
    PRIMARY KEY (account, name)
) STRICT, WITHOUT ROWID;
CREATE TABLE refresh_token (
    id TEXT PRIMARY KEY,
    account INTEGER NOT NULL REFERENCES account ON DELETE CASCADE,
    app_password TEXT,
    expires_at REAL NOT NULL,
    next_id TEXT
) STRICT, WITHOUT ROWID;
CREATE INDEX refresh_token_by_account ON refresh_token (account);
CREATE TABLE mail_token (
    account INTEGER NOT NULL REFERENCES account ON DELETE CASCADE,
    purpose TEXT NOT NULL,
    token TEXT NOT NULL,
    requested_at REAL NOT NULL,
    PRIMARY KEY (account, purpose)
) STRICT, WITHOUT ROWID;
CREATE TABLE block (
    account INTEGER NOT NULL REFERENCES account ON DELETE CASCADE,
    cid BLOB NOT NULL,
    rev TEXT NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (account, cid)
) STRICT, WITHOUT ROWID;
CREATE TABLE record (
    account INTEGER NOT NULL REFERENCES account ON DELETE CASCADE,
    collection TEXT NOT NULL,
    rkey TEXT NOT NULL,
    cid BLOB NOT NULL,
    rev TEXT NOT NULL,
    takedown TEXT,
    value BLOB NOT NULL,
    UNIQUE (account, collection, rkey)
) STRICT;
CREATE INDEX record_by_cid ON record (account, cid);
CREATE TABLE blob (
    account INTEGER NOT NULL REFERENCES account ON DELETE CASCADE,
    cid TEXT NOT NULL,
    mime TEXT NOT NULL,
    size INTEGER NOT NULL,
    temporary INTEGER NOT NULL,
    takedown TEXT,
    PRIMARY KEY (account, cid)
) STRICT, WITHOUT ROWID;
CREATE TABLE record_blob (
    account INTEGER NOT NULL REFERENCES account ON DELETE CASCADE,
    cid TEXT NOT NULL,
    collection TEXT NOT NULL,
    rkey TEXT NOT NULL,
    PRIMARY KEY (account, cid, collection, rkey)
) STRICT, WITHOUT ROWID;
CREATE INDEX record_blob_by_record ON record_blob (account, collection, rkey);
"""


@dataclass(frozen=True, slots=True)
class Transaction:
    """One writer's; what `afterwards` holds is done once it is on disk, before the next writer."""

    connection: sqlite3.Connection
    afterwards: list[Callable[[], None]] = field(default_factory=list)


class Database:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._readers: deque[sqlite3.Connection] = deque()
        self._writer = self._connect()
        try:
            self._prepare()
        except sqlite3.OperationalError as error:  # a disk that is full, a file to read only
            self._writer.close()
            raise SandboxError(f"{path}: {error}") from error
        except sqlite3.DatabaseError as error:
            self._writer.close()
            raise SandboxError(f"{path} is not a sandbox's database") from error

    def close(self) -> None:
        with self._lock:
            while self._readers:
                self._readers.pop().close()
            self._writer.close()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection that sees one commit."""
        try:
            connection = self._readers.pop()
        except IndexError:
            connection = self._connect()
        try:
            connection.execute("BEGIN")
            yield connection
        finally:
            connection.rollback()
            self._readers.append(connection)

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        with self._lock:
            transaction = Transaction(self._writer)
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield transaction
                self._writer.commit()
            except BaseException:
                self._writer.rollback()
                raise
            for action in transaction.afterwards:
                action()

    def _connect(self) -> sqlite3.Connection:
        # Handed from thread to thread, and never in two at a time.
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        connection.row_factory = sqlite3.Row
        for pragma in ("busy_timeout = 10000", "foreign_keys = ON", "synchronous = FULL"):
            connection.execute(f"PRAGMA {pragma}")
        return connection

    def _prepare(self) -> None:
        self._writer.execute("PRAGMA journal_mode = WAL")
        # Pages, of 4 KiB: to take them over costs two more waits for the disk.
        self._writer.execute("PRAGMA wal_autocheckpoint = 4000")
        with self._lock:
            version = self._writer.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, VERSION):
                raise SandboxError(f"{self._path} was made by another version of git-knotless")
            if version == 0:
                self._writer.executescript(
                    f"BEGIN IMMEDIATE; {_TABLES} PRAGMA user_version = {VERSION}; COMMIT;"
                )


def setting(connection: sqlite3.Connection, name: str) -> str | None:
    row = connection.execute("SELECT value FROM setting WHERE name = ?", (name,)).fetchone()
    return None if row is None else str(row[0])


def set_setting(connection: sqlite3.Connection, name: str, value: str) -> None:
    connection.execute(
        "INSERT INTO setting VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value",
        (name, value),
    )
