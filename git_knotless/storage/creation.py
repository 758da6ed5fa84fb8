"""Making a repository, and proving that its host keeps what pushes rely on."""

import secrets
from dataclasses import dataclass

from git_knotless.atproto.errors import AtprotoError
from git_knotless.atproto.syntax import Rkey, tid
from git_knotless.errors import KnotlessError
from git_knotless.storage.batches import Stamp
from git_knotless.storage.outcome import Batch, Sent, send
from git_knotless.storage.records import (
    CLAIM,
    DEFAULT_BRANCH,
    REPO,
    EpochRecord,
    RepoRecord,
)
from git_knotless.storage.refname import BRANCHES, is_ref_name
from git_knotless.storage.repositories import stamp_now
from git_knotless.storage.store import Record, RecordStore, Write
from git_knotless.storage.url import RepoUrl

_FIRST_EPOCH = 1
_CLOCK_IDS = 1024


class AlreadyExists(KnotlessError):
    """The name is taken."""


class UnsafeHost(KnotlessError):
    """A host that does not keep what the compare-and-swap of every push relies on."""


class BadBranch(KnotlessError):
    """A name that no branch can have."""


@dataclass(frozen=True, slots=True)
class Created:
    """`guards_updates`: the host refuses to update a record that is gone, as pruning needs."""

    repo: RepoRecord
    guards_updates: bool


def create(
    store: RecordStore,
    url: RepoUrl,
    *,
    description: str = "",
    default_branch: str = DEFAULT_BRANCH,
) -> Created:
    """Make the repository `url`, which must be new, in the account that `store` writes to.

    Raises `AlreadyExists`, or `UnsafeHost` once nothing of it is left behind.
    """
    check_branch(default_branch)
    if store.get(REPO, url.name) is not None:
        raise AlreadyExists(f"{url} already exists")
    stamp = stamp_now(store)
    repo = _new_record(url, stamp, description, default_branch)
    epoch = EpochRecord.of(repo)
    writes = [
        Write("create", REPO, Rkey(repo.name), repo.to_json()),
        Write("create", CLAIM, epoch.rkey, epoch.to_json()),
    ]

    def taken() -> bool:
        return store.get(REPO, url.name) is not None

    if send(store, Batch(writes, epoch.rkey, stamp.nonce), stale=taken) is Sent.LOST:
        raise AlreadyExists(f"{url} already exists")
    return Created(repo, _prove(store, repo, epoch))


def check_branch(branch: str) -> None:
    """Refuse what cannot be the name of a branch."""
    if branch.startswith("-") or not is_ref_name(BRANCHES + branch) or len(branch.encode()) > 255:
        raise BadBranch(f"{branch!r} cannot be the name of a branch")


def _new_record(url: RepoUrl, stamp: Stamp, description: str, branch: str) -> RepoRecord:
    key = tid(int(stamp.time.timestamp() * 1_000_000), secrets.randbelow(_CLOCK_IDS))
    fields = {
        "key": key,
        "epoch": _FIRST_EPOCH,
        "nonce": stamp.nonce,
        "defaultBranch": branch,
        "createdAt": stamp.at,
    }
    if description:
        fields["description"] = description
    return RepoRecord.from_record(Record(url.name, fields))


def _prove(store: RecordStore, repo: RepoRecord, epoch: EpochRecord) -> bool:
    """Send what a safe host refuses. Whether it guards updates as well; `UnsafeHost` if neither."""
    again = EpochRecord(epoch.repo, epoch.epoch, "second", epoch.created_at)
    if _takes(store, Write("create", CLAIM, again.rkey, again.to_json())):
        store.apply([Write("delete", REPO, repo.rkey), Write("delete", CLAIM, epoch.rkey)])
        raise UnsafeHost(
            "this host lets a record that exists be created again, so that two pushes could "
            "overwrite each other: it cannot keep a repository",
        )
    missing = EpochRecord(epoch.repo, 0, "missing", epoch.created_at)
    if not _takes(store, Write("update", CLAIM, missing.rkey, missing.to_json())):
        return True
    store.apply([Write("delete", CLAIM, missing.rkey)])
    return False


def _takes(store: RecordStore, write: Write) -> bool:
    """Whether the host took a write that it should refuse: it says so, or the record does."""
    try:
        store.apply([write])
    except AtprotoError:
        record = store.get(write.collection, write.rkey)
        return record is not None and record.value == write.value
    return True
