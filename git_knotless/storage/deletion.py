"""Deleting a repository: in one write it is gone for every reader; its records follow.

The first batch deletes the repo record and replaces the epoch's by one that says `deleted` and
the name, so that pushes in flight are refused, and a delete that was cut is found and finished.
That record goes last. Under the name stands a redirect meanwhile, that leads nowhere: whoever
makes a repository of that name finishes the delete first.

One that has moved to another account leaves redirects into that, under each name it had. It goes
only once the new place has all that is here.
"""

from functools import partial

from git_knotless.errors import KnotlessError
from git_knotless.storage.batches import MAX_WRITES, Stamp, rewrite, stamp_now
from git_knotless.storage.brief import brief
from git_knotless.storage.claims import EpochRecord
from git_knotless.storage.lookup import Accounts, Found, go_on
from git_knotless.storage.outcome import Batch, Sent, send
from git_knotless.storage.places import RedirectRecord, RepoRef, redirects_of
from git_knotless.storage.records import CLAIM, REDIRECT, REPO, RefRecord, RepoRecord
from git_knotless.storage.remains import CannotDelete, finish, half_deleted
from git_knotless.storage.renaming import TooManyRedirects
from git_knotless.storage.repositories import Repository
from git_knotless.storage.snapshot import NoSuchRepository, read_refs
from git_knotless.storage.store import Write

_READINGS = 8  # of what others write to at the same time
_OTHER_WRITES = 4  # of the first batch: two claims, the record, and a redirect under its name


class NotAllThere(KnotlessError):
    """The place that a repository moved to lacks something that is at the old one."""


def delete(repository: Repository, accounts: Accounts | None = None) -> None:
    """Delete the repository, and finish deleting any of that name that was cut.

    What is deleted is in the account of `repository`, wherever it has moved to; `accounts` are
    where that is looked for. Raises NoSuchRepository where there is neither, and NotAllThere.
    """
    try:
        _delete_record(repository, accounts)
    except NoSuchRepository:
        markers = half_deleted(repository.store, repository.url.name)
        if not markers:
            raise
    else:
        markers = half_deleted(repository.store, repository.url.name)
    for marker in markers:
        finish(repository.store, marker)


def _delete_record(repository: Repository, accounts: Accounts | None) -> None:
    """From here on it is gone for everybody; one claim says so, until the rest is."""
    for _ in range(_READINGS):
        repo = repository.record()
        moved = _moved(repository, repo, accounts)
        settled = repo if moved is None else _settled(repository, repo, moved)
        if settled is not None and _deleted(repository, settled, moved):
            return
    raise CannotDelete(f"others keep changing {repository.url}: try again")


def _deleted(repository: Repository, repo: RepoRecord, moved: Found | None) -> bool:
    """False where another writer was first."""
    stamp = stamp_now(repository.store)
    gone = EpochRecord(repo.key, repo.epoch + 1, stamp.nonce, stamp.at, deleted=repo.name)
    redirects = _redirects(repository, repo, moved, stamp)

    def stale() -> bool:
        now = _redirects(repository, repo, moved, stamp)
        return now != redirects or repository.moved_from(repo)

    writes = [
        Write("delete", CLAIM, EpochRecord.of(repo).rkey),
        Write("create", CLAIM, gone.rkey, gone.to_json()),
        Write("delete", REPO, repo.rkey),
        *redirects,
    ]
    batch = Batch(writes, gone.rkey, stamp.nonce)
    return send(repository.store, batch, stale=stale) is Sent.LANDED


def _moved(repository: Repository, repo: RepoRecord, accounts: Accounts | None) -> Found | None:
    """Where readers are led from here; None where that is nowhere else."""
    found = go_on(repository.url, repository.store, accounts, repo)
    return found if found.store.did != repository.store.did else None


def _settled(repository: Repository, repo: RepoRecord, moved: Found) -> RepoRecord | None:
    """The record at an epoch in which nothing comes to be here that `moved` lacks.

    A push that is under way is refused by it, and one that reads it follows the move. None where
    another writer was first.
    """
    _refuse_lacking(repository, repo, moved)
    stamp = stamp_now(repository.store)
    new = repo.next_epoch(stamp.nonce, stamp.at)
    batch = Batch(rewrite(repo, new), EpochRecord.of(new).rkey, stamp.nonce)
    stale = partial(repository.moved_from, repo)
    if send(repository.store, batch, stale=stale) is not Sent.LANDED:
        return None
    _refuse_lacking(repository, new, moved)
    return new


def _refuse_lacking(repository: Repository, repo: RepoRecord, moved: Found) -> None:
    """What has been deleted here is not lost with the rest."""
    here = read_refs(repository.store, repo.key, repository.url)
    there = read_refs(moved.store, repo.key, moved.url)
    lacking = [
        name
        for name, ref in sorted(here.items())
        if ref.target is not None and not _has(there.get(name), ref)
    ]
    if lacking:
        raise NotAllThere(
            f"{moved.url} has not what is here: {', '.join(brief(lacking))}",
            hint="what it lacks has to be pushed there before this can be deleted",
        )


def _has(there: RefRecord | None, here: RefRecord) -> bool:
    """Its target, or a later generation: that was moved on from it, or beside it, knowingly."""
    if there is None:
        return False
    return there.target == here.target or there.generation > here.generation


def _redirects(
    repository: Repository, repo: RepoRecord, moved: Found | None, stamp: Stamp
) -> list[Write]:
    """Under its own name one, and of one that has moved under its old names too."""
    if moved is None:
        place, came_from = RepoRef(repository.store.did, repo.rkey, repo.key), None
    else:
        place, came_from = _place(repo, moved), repo.transferred_from
    if came_from is not None and came_from.did == place.did:
        came_from = None  # it has gone back: nobody is led there through here
    there = {each.name: each for each in redirects_of(repository.store, repo.key)}
    old = [name for name in there if moved is not None and name != repo.rkey]
    if len(old) > MAX_WRITES - _OTHER_WRITES:
        raise TooManyRedirects(
            f"{len(old)} old names lead to {repository.url}, more than one write repoints",
            hint=f"git knotless repo redirects -R {repository.url} --remove NAME",
        )
    left = RedirectRecord.new(repo.rkey, place, stamp.at, came_from)
    own = repository.store.get(REDIRECT, repo.rkey) is not None
    writes = [Write("update" if own else "create", REDIRECT, repo.rkey, left.to_json())]
    for name in old:
        new = RedirectRecord.new(name, place, there[name].created_at, came_from)
        writes.append(Write("update", REDIRECT, name, new.to_json()))
    return writes


def _place(repo: RepoRecord, moved: Found) -> RepoRef:
    """In the account that accepted it, wherever it has gone from there."""
    offered = repo.transfer
    if offered is None or offered.did == moved.store.did:
        return RepoRef(moved.store.did, moved.repo.rkey, repo.key)
    return offered
