"""Deleting a repository: in one write it is gone for every reader; its records follow.

The first batch deletes the repo record and replaces the epoch's by one that says `deleted` and
the name, so that pushes in flight are refused, and a delete that was cut is found and finished.
That record goes last. Under the name stands a redirect meanwhile, that leads nowhere: whoever
makes a repository of that name finishes the delete first.

One that has moved to another account leaves redirects into that, under each name it had. It goes
only once the new place has all that is here.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from git_knotless.errors import KnotlessError
from git_knotless.storage.brief import brief
from git_knotless.storage.claims import EpochRecord
from git_knotless.storage.outcome import Batch, Sent, send
from git_knotless.storage.places.lookup import Accounts, Found, go_on
from git_knotless.storage.places.references import RedirectRecord, RepoRef, redirects_of
from git_knotless.storage.places.taking import take_away_rest
from git_knotless.storage.pushing.batches import MAX_WRITES, Stamp, rewrite, stamp_now
from git_knotless.storage.records import CLAIM, REDIRECT, REPO, RefRecord, RepoRecord
from git_knotless.storage.remains import CannotDelete, finish
from git_knotless.storage.repositories import AnotherRepository, Repository
from git_knotless.storage.snapshot import NoSuchRepository
from git_knotless.storage.store import Record, Write
from git_knotless.storage.url import RepoUrl, without_git
from git_knotless.value import replace

_READINGS = 8  # of what others write to at the same time
# In a batch with three writes that move the epoch, or two, the record and the redirect of its name.
_MOST_NAMES = MAX_WRITES - 4


class NotAllThere(KnotlessError):
    """The place that a repository moved to lacks something that is at the old one."""


def delete(repository: Repository, accounts: Accounts | None = None) -> None:
    """Delete the repository; or where there is none, what one of that name has left.

    What is deleted is in the account of `repository`, wherever it has moved to; `accounts` are
    where that is looked for. Raises NoSuchRepository where there is neither, and NotAllThere. What
    an earlier one has left is all that is deleted, where another has its name: AnotherRepository.
    """
    url = repository.url
    try:
        repository.look()
    except NoSuchRepository:
        if not delete_rest(repository):
            raise
        return
    if delete_rest(repository):
        raise AnotherRepository(
            f"what an earlier {url} had left is gone now: the one that is there is another",
            hint=f"to delete that one: git knotless repo delete {url}",
        )
    marker = _delete_record(repository, accounts)
    with _resumable(url):
        finish(repository.store, marker)


def delete_rest(repository: Repository) -> bool:
    """What a delete or a copy that was cut has left under its name; whether there was any."""
    urls = filter(None, (repository.url, without_git(repository.url)))
    with _resumable(repository.url):
        found = [take_away_rest(repository.store, url) for url in urls]
    return any(found)


@contextmanager
def _resumable(url: RepoUrl) -> Iterator[None]:
    """Another may have the name by the time that the hint is followed: it is not to go too."""
    try:
        yield
    except CannotDelete as error:
        hint = f"git knotless repo delete --rest {url}"
        raise CannotDelete(error.message, hint=hint) from error


def _delete_record(repository: Repository, accounts: Accounts | None) -> Record:
    """From here on it is gone for everybody; one claim says so, until the rest is."""
    for _ in range(_READINGS):
        repo = repository.record()
        moved = _moved(repository, repo, accounts)
        settled = repo if moved is None else _settled(repository, repo, moved)
        marker = _deleted(repository, settled, moved) if settled is not None else None
        if marker is not None:
            return marker
    raise CannotDelete(f"others keep changing {repository.url}: try again")


def _deleted(repository: Repository, repo: RepoRecord, moved: Found | None) -> Record | None:
    """The claim that says so. None where another writer was first."""
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
    landed = send(repository.store, batch, stale=stale) is Sent.LANDED
    return Record(gone.rkey, gone.to_json()) if landed else None


def _moved(repository: Repository, repo: RepoRecord, accounts: Accounts | None) -> Found | None:
    """Where readers are led from here; None where that is nowhere else.

    Raises OfferUnsure: who it is offered to may not have all that is here.
    """
    try:
        found = go_on(repository.url, repository.store, accounts, repo)
    except NoSuchRepository:
        return None
    if found.store.did != repository.store.did:
        return found
    if found.unsure is not None:
        raise found.unsure
    return None


def _settled(repository: Repository, repo: RepoRecord, moved: Found) -> RepoRecord | None:
    """The record at an epoch in which nothing comes to be here that `moved` lacks.

    A push that is under way is refused by it, and one that reads it follows the move. Old names
    that the last write has no room for lead to the new place then. None where another writer was
    first.
    """
    _refuse_lacking(repository, repo, moved)
    settled = _rewritten(repository, repo, [])
    if settled is not None:
        _refuse_lacking(repository, settled, moved)
    while settled is not None:
        old = _old_names(repository, settled, moved)
        if len(old) <= _MOST_NAMES:
            break
        settled = _rewritten(repository, settled, old[:_MOST_NAMES])
    return settled


def _rewritten(
    repository: Repository, repo: RepoRecord, others: Sequence[Write]
) -> RepoRecord | None:
    """At its next epoch, with `others` in the same batch; None where another writer was first."""
    stamp = stamp_now(repository.store)
    new = repo.next_epoch(stamp.nonce, stamp.at)
    batch = Batch([*rewrite(repo, new), *others], EpochRecord.of(new).rkey, stamp.nonce)
    stale = partial(repository.moved_from, repo)
    return new if send(repository.store, batch, stale=stale) is Sent.LANDED else None


def _refuse_lacking(repository: Repository, repo: RepoRecord, moved: Found) -> None:
    """What has been deleted here is not lost with the rest."""
    from git_knotless.storage.proofs.signed_listing import refs_signed  # few have moved away

    here, there = refs_signed(repository, repo.key), refs_signed(moved, repo.key)
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
    place, came_from = _leading(repository, repo, moved)
    left = RedirectRecord.new(repo.rkey, place, stamp.at, came_from)
    own = repository.store.get(REDIRECT, repo.rkey) is not None
    writes = [Write("update" if own else "create", REDIRECT, repo.rkey, left.to_json())]
    return writes if moved is None else writes + _old_names(repository, repo, moved)


def _old_names(repository: Repository, repo: RepoRecord, moved: Found) -> list[Write]:
    """Of those that do not lead to the new place yet, what makes them."""
    place, came_from = _leading(repository, repo, moved)
    writes = []
    for old in redirects_of(repository.store, repo.key):
        new = RedirectRecord.new(old.name, place, old.created_at, came_from).to_json()
        if old.name != repo.rkey and new != old.to_json():
            writes.append(Write("update", REDIRECT, old.name, new))
    return writes


def _leading(
    repository: Repository, repo: RepoRecord, moved: Found | None
) -> tuple[RepoRef, list[RepoRef]]:
    """Where its names are to lead, and from where it is followed through here.

    Not from where it has gone back to.
    """
    if moved is None:
        return RepoRef(repository.store.did, repo.rkey, repo.key), []
    place = _place(repo, moved)
    return place, [each for each in repo.came_from if each.did != place.did]


def _place(repo: RepoRecord, moved: Found) -> RepoRef:
    """In the account that accepted it, wherever it has gone from there."""
    offered = repo.transfer
    if offered is None:
        return RepoRef(moved.store.did, moved.repo.rkey, repo.key)
    if offered.did == moved.store.did:
        return replace(offered, name=moved.repo.rkey)
    return offered
