"""Packs put on an account as a push puts them there, one record for each."""

import io
from collections.abc import Sequence
from random import Random
from typing import Any

from git_knotless.atproto.syntax import Rkey, tid
from git_knotless.storage.git import Git
from git_knotless.storage.packs.outgoing import OutgoingPack
from git_knotless.storage.packs.packrecord import PackRecord
from git_knotless.storage.progress import TextProgress
from git_knotless.storage.records import PACK
from git_knotless.storage.store import Record, Write
from tests.gitenv import DATE
from tests.storage.account import Account

KEY = "3kaaaaaaaaaaa"
SILENT = TextProgress(io.StringIO(), enabled=False)


def publish(
    account: Account, git: Git, tips: Sequence[str], haves: Sequence[str] = ()
) -> PackRecord:
    """What `tips` reach and `haves` do not, as the account's newest pack."""
    pack = OutgoingPack.build(
        git,
        tips,
        haves,
        limit=lambda: account.blob_limit,
        upload=account.upload,
        progress=SILENT,
    )
    assert pack is not None
    with pack:
        return _recorded(
            account,
            size=pack.size,
            objects=pack.objects,
            checksum=pack.checksum,
            data=pack.data,
            blobs=pack.blobs,
        )


def publish_bytes(account: Account, data: bytes) -> PackRecord:
    """Any pack, whoever made it, in the record itself."""
    objects, checksum = int.from_bytes(data[8:12], "big"), data[-20:].hex()
    return _recorded(
        account, size=len(data), objects=objects, checksum=checksum, data=data, blobs=()
    )


def _recorded(account: Account, **fields: Any) -> PackRecord:
    record = PackRecord(
        rkey=Rkey(f"{KEY}.{tid(len(account.batches) + 1, 0)}"),
        repo=KEY,
        epoch=1,
        created_at="2026-01-02T03:04:05.000Z",
        **fields,
    )
    account.apply([Write("create", PACK, record.rkey, record.to_json())])
    return record


def bytes_of(account: Account, record: PackRecord) -> bytes:
    """The pack itself, as the account keeps it."""
    kept = PackRecord.from_record(Record(record.rkey, account.records[PACK][record.rkey]))
    if kept.data is not None:
        return kept.data
    return b"".join(account.blobs[blob.cid] for blob in kept.blobs)


def noise(size: int, seed: int = 1) -> bytes:
    """Bytes that do not compress."""
    return Random(seed).randbytes(size)


def replacing(commits: int) -> bytes:
    """A stream for `git fast-import`: `commits` that write two texts by turns, so that from the
    third on a push brings objects that the second one before it brought too."""
    return b"".join(
        f"commit refs/heads/main\n"
        f"committer Test Person <person@example.com> {DATE}\n"
        f"data <<END\nCommit {number}\nEND\n"
        f"M 644 inline file\n"
        f"data <<END\n{'even' if number % 2 else 'odd'} text\nEND\n\n".encode()
        for number in range(commits)
    )
