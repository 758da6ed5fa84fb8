"""Making a repository."""

import secrets
from functools import partial

from git_knotless.atproto.syntax import Rkey, tid
from git_knotless.errors import KnotlessError
from git_knotless.storage.claims import EpochRecord
from git_knotless.storage.editing import RacedTooOften
from git_knotless.storage.outcome import Batch, Sent, send
from git_knotless.storage.places.taking import Left, clear_name, freed, left_under
from git_knotless.storage.proving import UnsafeHost as UnsafeHost
from git_knotless.storage.proving import clear_probe, prove
from git_knotless.storage.pushing.batches import Stamp, stamp_now
from git_knotless.storage.records import CLAIM, DEFAULT_BRANCH, REPO, RepoRecord
from git_knotless.storage.refname import BRANCHES, is_ref_name
from git_knotless.storage.store import Record, RecordStore, Write
from git_knotless.storage.url import RepoUrl
from git_knotless.value import value

_FIRST_EPOCH = 1
_READINGS = 8  # of a name that others give and take at the same time
_CLOCK_IDS = 1024


class AlreadyExists(KnotlessError):
    """The name is taken."""


class BadBranch(KnotlessError):
    """A name that no branch can have."""


@value
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
    try:
        landed = _land(store, url, repo, probe)
    except BaseException:  # without the probe a batch that is under way yet cannot land either
        clear_probe(store, probe)
        raise
    if not landed:
        clear_probe(store, probe)
        raise AlreadyExists(f"{url} already exists")
    return Created(repo, guards_updates)


def _land(store: RecordStore, url: RepoUrl, repo: RepoRecord, probe: EpochRecord) -> bool:
    """Write it, and take the name from a redirect that has it. False where a repository does."""
    epoch = EpochRecord.of(repo)
    for _ in range(_READINGS):
        clear_name(store, url)
        taken = left_under(store, url.name)
        writes = [
            Write("delete", CLAIM, probe.rkey),
            Write("create", REPO, repo.rkey, repo.to_json()),
            Write("create", CLAIM, epoch.rkey, epoch.to_json()),
            *(freed(taken, repo.key, stamp_now(store)) if taken else ()),
        ]
        stale = partial(_name_moved, store, repo.rkey, taken)
        if send(store, Batch(writes, epoch.rkey, repo.nonce), stale=stale) is Sent.LANDED:
            return True
        if store.get(REPO, repo.rkey) is not None:
            return False
    raise RacedTooOften(f"others keep changing the redirect {repo.name}: try again")


def _name_moved(store: RecordStore, name: Rkey, taken: Left | None) -> bool:
    return store.get(REPO, name) is not None or left_under(store, name) != taken


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
