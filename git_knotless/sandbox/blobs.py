"""Blobs: taken in, referenced, let go, served.

A blob is temporary, and served to nobody, until a record references it; with the last record that
does it is gone at once.
"""

import os
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from git_knotless.sandbox.accounts import visible
from git_knotless.sandbox.call import STANDARD, Answer, Call, Method, Scope, Wants, cid, did_text
from git_knotless.sandbox.db import Transaction
from git_knotless.sandbox.errors import invalid
from git_knotless.sandbox.limits import UPLOAD
from git_knotless.sandbox.sessions import find_account, own_account
from git_knotless.sandbox.state import Sandbox
from git_knotless.sandbox.values import BlobRef, blob_cid

# Types by how a file begins, whatever its sender declares: those that the reference finds, as
# far as a forge's users are likely to upload them.
_SIGNATURES = (
    (0, b"\x1f\x8b", "application/gzip"),
    (0, b"PK\x03\x04", "application/zip"),
    (0, b"%PDF", "application/pdf"),
    (0, b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF8", "image/gif"),
    (8, b"WEBP", "image/webp"),
    (0, b"BZh", "application/x-bzip2"),
    (0, b"\xfd7zXZ\x00", "application/x-xz"),
    (0, b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (0, b"\x28\xb5\x2f\xfd", "application/zstd"),
    (0, b"\x00asm", "application/wasm"),
    (0, b"SQLite format 3\x00", "application/x-sqlite3"),
    (0, b"\x7fELF", "application/x-elf"),
    (257, b"ustar", "application/x-tar"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"OggS", "audio/ogg"),
    (0, b"fLaC", "audio/x-flac"),
    (0, b"BM", "image/bmp"),
    (0, b"MZ", "application/x-msdownload"),
)
HEAD = 512  # bytes of a file that its type is told by


def sniffed(head: bytes, declared: str) -> str:
    for at, signature, mime in _SIGNATURES:
        if head[at : at + len(signature)] == signature:
            return mime
    return declared.partition(";")[0].strip().lower()


def upload(call: Call) -> Answer:
    upload = call.upload
    assert upload is not None
    blob = BlobRef(blob_cid(upload.digest), sniffed(upload.head, upload.mime), upload.size)
    with call.sandbox.database.writing() as transaction:
        connection = transaction.connection
        account = find_account(connection, call.host, call.did, check_deactivated=False)
        _keep(connection, account["id"], blob)
        _move(upload.path, call.sandbox.blob_path(account["id"], blob.cid))
    return Answer(
        {
            "blob": {
                "$type": "blob",
                "ref": {"$link": blob.cid},
                "mimeType": blob.mime,
                "size": blob.size,
            }
        }
    )


def reference(
    connection: sqlite3.Connection,
    account: int,
    collection: str,
    rkey: str,
    blobs: Iterable[BlobRef],
) -> None:
    """Note what a record holds; the blobs may be missing still, as in a repo that moves in."""
    connection.executemany(
        "INSERT INTO record_blob VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
        [(account, blob.cid, collection, rkey) for blob in blobs],
    )


def release(connection: sqlite3.Connection, account: int, collection: str, rkey: str) -> list[str]:
    """Forget what a record held; the CIDs, which other records may hold."""
    rows = connection.execute(
        "DELETE FROM record_blob WHERE account = ? AND collection = ? AND rkey = ? RETURNING cid",
        (account, collection, rkey),
    )
    return [row["cid"] for row in rows.fetchall()]


def settle(
    transaction: Transaction,
    sandbox: Sandbox,
    account: int,
    *,
    released: Iterable[str],
    referenced: Iterable[BlobRef],
) -> None:
    """After the writes of a batch: what nothing references goes, what is referenced must be here
    and is served from now on."""
    for each in set(released):
        _drop(transaction, sandbox, account, each)
    for blob in dict.fromkeys(referenced):
        _promote(transaction.connection, account, blob)


def get_blob(call: Call) -> Answer:
    did, wanted = call.param("did", did_text), call.param("cid", cid)
    with call.sandbox.database.reading() as connection:
        account = visible(connection, call.host, did, own=call.is_of(did))
        row = connection.execute(
            "SELECT * FROM blob"
            " WHERE account = ? AND cid = ? AND takedown IS NULL AND NOT temporary",
            (account["id"], wanted),
        ).fetchone()
    try:
        if row is None:
            raise FileNotFoundError(wanted)
        # Open already: what is let go of meanwhile is still read to its end.
        file = open(call.sandbox.blob_path(account["id"], wanted), "rb")  # noqa: SIM115  app closes it
    except FileNotFoundError as error:
        raise invalid("Blob not found") from error
    headers = {
        "content-length": str(row["size"]),
        "cache-control": "private",
        "x-content-type-options": "nosniff",
        "content-disposition": f'attachment; filename="{wanted}"',
        "content-security-policy": "default-src 'none'; sandbox",
    }
    return Answer(file, row["mime"], headers)


def list_blobs(call: Call) -> Answer:
    did, limit = call.param("did", did_text), call.number("limit", 500, 1, 1000)
    since, cursor = (
        call.optional_param(name, lambda text, _: text) for name in ("since", "cursor")
    )
    with call.sandbox.database.reading() as connection:
        account = visible(connection, call.host, did, own=call.is_of(did))
        rows = connection.execute(
            "SELECT DISTINCT record_blob.cid AS cid FROM record_blob"
            " JOIN record USING (account, collection, rkey)"
            " WHERE account = ? AND record_blob.cid > ? AND record.rev > ?"
            " ORDER BY record_blob.cid LIMIT ?",
            (account["id"], cursor or "", since or "", limit),
        ).fetchall()
    cids = [row["cid"] for row in rows]
    return Answer({**_next(cids), "cids": cids})


def list_missing_blobs(call: Call) -> Answer:
    limit = call.number("limit", 500, 1, 1000)
    cursor = call.optional_param("cursor", lambda text, _: text)
    with call.sandbox.database.reading() as connection:
        account = own_account(connection, call, invalid("Repo not found", "NotFound"))
        rows = connection.execute(
            "SELECT cid, collection, rkey FROM record_blob WHERE account = ?1 AND cid > ?2"
            " AND cid NOT IN (SELECT cid FROM blob WHERE account = ?1)"
            " GROUP BY cid ORDER BY cid LIMIT ?3",
            (account["id"], cursor or "", limit),
        ).fetchall()
    missing = [
        {"cid": row["cid"], "recordUri": f"at://{call.did}/{row['collection']}/{row['rkey']}"}
        for row in rows
    ]
    return Answer({**_next([row["cid"] for row in rows]), "blobs": missing})


def _next(cids: list[str]) -> dict[str, Any]:
    return {"cursor": cids[-1]} if cids else {}


def _keep(connection: sqlite3.Connection, account: int, blob: BlobRef) -> None:
    """A row for the blob: the first type it came with counts. One that a record waits for is
    promoted, if it is what the record says."""
    row = connection.execute(
        "SELECT takedown FROM blob WHERE account = ? AND cid = ?", (account, blob.cid)
    ).fetchone()
    if row is not None and row["takedown"] is not None:
        raise invalid("Blob has been takendown, cannot re-upload")
    connection.execute(
        "INSERT INTO blob VALUES (?, ?, ?, ?, 1, NULL) ON CONFLICT DO NOTHING",
        (account, blob.cid, blob.mime, blob.size),
    )
    if connection.execute(
        "SELECT 1 FROM record_blob WHERE account = ? AND cid = ?", (account, blob.cid)
    ).fetchone():
        _promote(connection, account, blob)


def _promote(connection: sqlite3.Connection, account: int, blob: BlobRef) -> None:
    row = connection.execute(
        "SELECT * FROM blob WHERE account = ? AND cid = ? AND takedown IS NULL",
        (account, blob.cid),
    ).fetchone()
    if row is None:
        raise invalid(f"Could not find blob: {blob.cid}", "BlobNotFound")
    if not row["temporary"]:
        return
    if row["mime"] != blob.mime:
        raise invalid(
            "Referenced Mimetype does not match stored blob."
            f" Expected: {row['mime']}, Got: {blob.mime}",
            "InvalidMimeType",
        )
    if row["size"] != blob.size:
        raise invalid(
            "Referenced Size does not match stored blob."
            f" Expected: {row['size']}, Got: {blob.size}",
            "InvalidSize",
        )
    connection.execute(
        "UPDATE blob SET temporary = 0 WHERE account = ? AND cid = ?", (account, blob.cid)
    )


def _drop(transaction: Transaction, sandbox: Sandbox, account: int, cid: str) -> None:
    connection = transaction.connection
    if connection.execute(
        "SELECT 1 FROM record_blob WHERE account = ? AND cid = ?", (account, cid)
    ).fetchone():
        return
    connection.execute("DELETE FROM blob WHERE account = ? AND cid = ?", (account, cid))
    path = sandbox.blob_path(account, cid)
    transaction.afterwards.append(lambda: path.unlink(missing_ok=True))


def _move(upload: Path, place: Path) -> None:
    """Before its row is committed, and on disk: a row without its blob would be lost data."""
    place.parent.mkdir(mode=0o700, exist_ok=True)
    upload.replace(place)
    folder = os.open(place.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    # Where the transaction fails after this, the next start finds a blob that no row knows.


METHODS = (
    Method(
        "com.atproto.repo.uploadBlob",
        upload,
        "POST",
        Wants.SESSION_OR_SERVICE,
        check_takedown=True,
        body="file",
        limits=UPLOAD,
    ),
    Method("com.atproto.repo.listMissingBlobs", list_missing_blobs, wants=Wants.SESSION),
    Method(
        "com.atproto.sync.getBlob",
        get_blob,
        wants=Wants.SESSION_OR_ADMIN_OR_NOTHING,
        scopes=STANDARD | {Scope.TAKEN_DOWN},
    ),
    Method(
        "com.atproto.sync.listBlobs",
        list_blobs,
        wants=Wants.SESSION_OR_ADMIN_OR_NOTHING,
        scopes=STANDARD | {Scope.TAKEN_DOWN},
    ),
)
