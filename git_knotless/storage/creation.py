"""Making a repository, and proving that its host keeps what pushes rely on."""

import secrets
import time
from contextlib import suppress
from dataclasses import dataclass

from git_knotless.atproto.errors import AtprotoError, XrpcError
from git_knotless.atproto.syntax import tid
from git_knotless.errors import KnotlessError
from git_knotless.storage.batches import Stamp, stamp_now
from git_knotless.storage.outcome import Batch, Sent, send
from git_knotless.storage.records import (
    CLAIM,
    DEFAULT_BRANCH,
    REPO,
    EpochRecord,
    RepoRecord,
)
from git_knotless.storage.refname import BRANCHES, is_ref_name
from git_knotless.storage.store import Record, RecordStore, Write
from git_knotless.storage.url import RepoUrl

_FIRST_EPOCH = 1
_CLOCK_IDS = 1024
_ASKINGS = 3
_PAUSE = 0.5  # seconds before a write is asked about again, longer each time
# Refusals of a write for what it is; 401, 403, 429 and 502 and up say nothing of it.
_ABOUT_THE_WRITE = frozenset({400, 409, 412, 422, 500})


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

    Raises `AlreadyExists`, or `UnsafeHost`; nothing of it is left behind then.
    """
    check_branch(default_branch)
    if store.get(REPO, url.name) is not None:
        raise AlreadyExists(f"{url} already exists")
    stamp = stamp_now(store)
    repo = _new_record(url, stamp, description, default_branch)
    probe, guards_updates = prove(store, repo.key, stamp)
    epoch = EpochRecord.of(repo)
    writes = [
        Write("delete", CLAIM, probe.rkey),
        Write("create", REPO, repo.rkey, repo.to_json()),
        Write("create", CLAIM, epoch.rkey, epoch.to_json()),
    ]

    def taken() -> bool:
        return store.get(REPO, url.name) is not None

    try:
        sent = send(store, Batch(writes, epoch.rkey, stamp.nonce), stale=taken)
    except BaseException:  # without the probe a batch that is under way yet cannot land either
        _clear(store, probe)
        raise
    if sent is Sent.LOST:
        _clear(store, probe)
        raise AlreadyExists(f"{url} already exists")
    return Created(repo, guards_updates)


def check_branch(branch: str) -> None:
    """Refuse what cannot be the name of a branch, and what git would take for another's."""
    if branch.startswith(BRANCHES):
        short = branch.removeprefix(BRANCHES)
        raise BadBranch(f"{branch!r} is the full name of a ref: name the branch: {short}")
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


def prove(store: RecordStore, key: str, stamp: Stamp) -> tuple[EpochRecord, bool]:
    """Have the host refuse what every push relies on its refusing, under a key nobody knows yet.

    The record that is left, for the caller to delete, and whether the host also refuses to
    update a record that is not there. Raises `UnsafeHost`, leaving nothing.
    """
    probe = EpochRecord(key, 0, stamp.nonce, stamp.at)
    again = EpochRecord(key, 0, "second", stamp.at)
    missing = EpochRecord(key, -1, "missing", stamp.at)
    first = Write("create", CLAIM, probe.rkey, probe.to_json())
    try:
        send(store, Batch([first], probe.rkey, probe.nonce), stale=lambda: False)
        if _takes(store, Write("create", CLAIM, again.rkey, again.to_json())):
            raise UnsafeHost(
                "this host lets a record that exists be created again, so that two pushes could "
                "overwrite each other: it cannot keep a repository"
            )
        resurrects = _takes(store, Write("update", CLAIM, missing.rkey, missing.to_json()))
    except BaseException:  # Ctrl-C too
        _clear(store, probe)
        raise
    if resurrects:
        _clear(store, missing)
    return probe, not resurrects


def _takes(store: RecordStore, write: Write) -> bool:
    """Whether the host takes a write that it should refuse, by what it says and by the record.

    Only an answer counts that is about the write: a host that is down or busy refuses anything.
    """
    for attempt in range(_ASKINGS):
        if attempt:
            time.sleep(_PAUSE * attempt)
        try:
            store.apply([write])
        except AtprotoError as error:
            trouble = error
        else:
            return True
        record = store.get(write.collection, write.rkey)
        if record is not None and record.value == write.value:
            return True
        if isinstance(trouble, XrpcError) and trouble.status in _ABOUT_THE_WRITE:
            return False
    raise UnsafeHost(
        f"it could not be found out whether this host can keep a repository: {trouble.message}",
        hint="try again",
    ) from trouble


def _clear(store: RecordStore, record: EpochRecord) -> None:
    """What cannot be deleted now is a record that nobody reads."""
    with suppress(KnotlessError):
        store.apply([Write("delete", CLAIM, record.rkey)])
