"""Making a repository, and proving that its host keeps what pushes rely on."""

import secrets
import time
from contextlib import suppress
from functools import partial

from git_knotless.atproto.errors import AtprotoError, XrpcError
from git_knotless.atproto.syntax import Rkey, tid
from git_knotless.errors import KnotlessError
from git_knotless.storage.batches import Stamp, stamp_now
from git_knotless.storage.claims import EpochRecord
from git_knotless.storage.editing import RacedTooOften
from git_knotless.storage.outcome import Batch, Sent, send
from git_knotless.storage.records import CLAIM, DEFAULT_BRANCH, REDIRECT, REPO, RepoRecord
from git_knotless.storage.refname import BRANCHES, is_ref_name
from git_knotless.storage.remains import clear_name
from git_knotless.storage.store import Record, RecordStore, Write
from git_knotless.storage.url import RepoUrl
from git_knotless.value import value

_FIRST_EPOCH = 1
_READINGS = 8  # of a name that others give and take at the same time
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
        landed = _land(store, repo, probe)
    except BaseException:  # without the probe a batch that is under way yet cannot land either
        _clear(store, probe)
        raise
    if not landed:
        _clear(store, probe)
        raise AlreadyExists(f"{url} already exists")
    return Created(repo, guards_updates)


def _land(store: RecordStore, repo: RepoRecord, probe: EpochRecord) -> bool:
    """Write it, and take the name from a redirect that has it. False where a repository does."""
    epoch = EpochRecord.of(repo)
    for _ in range(_READINGS):
        if redirected := _is_redirect(store, repo.rkey):
            clear_name(store, repo.rkey)
            redirected = _is_redirect(store, repo.rkey)
        writes = [
            Write("delete", CLAIM, probe.rkey),
            Write("create", REPO, repo.rkey, repo.to_json()),
            Write("create", CLAIM, epoch.rkey, epoch.to_json()),
            *[Write("delete", REDIRECT, repo.rkey)] * redirected,
        ]
        stale = partial(_name_moved, store, repo.rkey, redirected=redirected)
        if send(store, Batch(writes, epoch.rkey, repo.nonce), stale=stale) is Sent.LANDED:
            return True
        if store.get(REPO, repo.rkey) is not None:
            return False
    raise RacedTooOften(f"others keep changing the redirect {repo.name}: try again")


def _name_moved(store: RecordStore, name: Rkey, *, redirected: bool) -> bool:
    return store.get(REPO, name) is not None or _is_redirect(store, name) != redirected


def _is_redirect(store: RecordStore, name: Rkey) -> bool:
    return store.get(REDIRECT, name) is not None


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
        if takes(store, Write("create", CLAIM, again.rkey, again.to_json())):
            raise UnsafeHost(
                "this host lets a record that exists be created again, so that two pushes could "
                "overwrite each other: it cannot keep a repository"
            )
        resurrects = takes(store, Write("update", CLAIM, missing.rkey, missing.to_json()))
    except BaseException:  # Ctrl-C too
        _clear(store, probe)
        raise
    if resurrects:
        _clear(store, missing)
    return probe, not resurrects


def takes(store: RecordStore, *writes: Write) -> bool:
    """Whether the host takes a batch that it should refuse, by what it says and by the record that
    the first write is of.

    Only an answer counts that is about the write: a host that is down or busy refuses anything.
    """
    first = writes[0]
    for attempt in range(_ASKINGS):
        if attempt:
            time.sleep(_PAUSE * attempt)
        try:
            store.apply(writes)
        except AtprotoError as error:
            trouble = error
        else:
            return True
        record = store.get(first.collection, first.rkey)
        if record is not None and record.value == first.value:
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
