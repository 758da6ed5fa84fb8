"""An account's repo: its tree as nodes in the database, and signed commits over it.

Only the nodes of the newest tree are kept; a commit reads and writes those on its records' paths.
"""

import secrets
import sqlite3
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from git_knotless.atproto import mst
from git_knotless.atproto.blocks import Blocks, Missing
from git_knotless.atproto.commit import Commit
from git_knotless.atproto.dag_cbor import cid_of, cid_text
from git_knotless.atproto.keys import PrivateKey
from git_knotless.atproto.syntax import Did, Tid, tid, tid_microseconds

_CLOCK_ID = secrets.randbelow(1024)


class Stored:
    """The blocks of one account: its commit, the nodes of its tree, its records."""

    def __init__(self, connection: sqlite3.Connection, account: int) -> None:
        self._connection = connection
        self._account = account

    def get(self, cid: bytes, /) -> bytes:
        row = self._connection.execute(
            "SELECT data FROM block WHERE account = ?1 AND cid = ?2"
            " UNION ALL SELECT value FROM record WHERE account = ?1 AND cid = ?2 LIMIT 1",
            (self._account, cid),
        ).fetchone()
        if row is None:
            raise Missing(f"the block {cid_text(cid)} is missing")
        data: bytes = row["data"]
        return data

    def put(self, _: bytes, /) -> bytes:
        raise TypeError("blocks are stored with their commit")


@dataclass(frozen=True, slots=True)
class Head:
    """A commit by what is needed to build on it."""

    head: bytes
    data: bytes
    rev: Tid


@dataclass(frozen=True, slots=True)
class NewCommit:
    head: Head
    block: bytes
    added: Mapping[bytes, bytes]
    dropped: frozenset[bytes]

    @property
    def size(self) -> int:
        """Of the blocks that it brings, but for records."""
        return len(self.block) + sum(len(block) for block in self.added.values())


def head_of(account: sqlite3.Row) -> Head:
    return Head(account["head"], account["data"], Tid(account["rev"]))


def next_rev(last: str = "") -> Tid:
    """Now; later than the last one, whatever the clock does."""
    moment = time.time_ns() // 1000
    if last:
        moment = max(moment, tid_microseconds(Tid(last)) + 1)
    return tid(moment, _CLOCK_ID)


def make_commit(blocks: Blocks, old: Head, root: bytes, *, did: str, key: PrivateKey) -> NewCommit:
    """A commit of the tree `root`, which was made in `blocks` out of the old one."""
    diff = mst.diff(blocks, old.data, root)
    added = {cid: blocks.get(cid) for cid in diff.added}
    rev = next_rev(old.rev)
    block = Commit(Did(did), rev, root).sign(key)
    head = Head(cid_of(block), root, rev)
    return NewCommit(head, block, added, frozenset(diff.dropped | {old.head}))


def first_commit(did: str, key: PrivateKey) -> NewCommit:
    blocks = Blocks()
    root = mst.empty(blocks)
    rev = next_rev()
    block = Commit(Did(did), rev, root).sign(key)
    return NewCommit(Head(cid_of(block), root, rev), block, dict(blocks.blocks), frozenset())


def store_commit(connection: sqlite3.Connection, account: int, commit: NewCommit) -> None:
    head = commit.head
    connection.executemany(
        "DELETE FROM block WHERE account = ? AND cid = ?",
        [(account, cid) for cid in commit.dropped],
    )
    added: Iterable[tuple[bytes, bytes]] = [*commit.added.items(), (head.head, commit.block)]
    connection.executemany(
        "INSERT INTO block VALUES (?, ?, ?, ?)",
        [(account, cid, head.rev, block) for cid, block in added],
    )
    connection.execute(
        "UPDATE account SET head = ?, data = ?, rev = ? WHERE id = ?",
        (head.head, head.data, head.rev, account),
    )
