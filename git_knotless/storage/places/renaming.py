"""Renaming a repository, in one write, and the redirects that its old names are.

Every redirect is repointed with the record, so that an old name is one hop from the present one.
The batch moves the epoch: whatever else is done with the repository meanwhile is read again, and
what another command changed is never undone.
"""

from collections.abc import Sequence
from functools import partial

from git_knotless.atproto.syntax import Rkey, is_rkey
from git_knotless.errors import KnotlessError
from git_knotless.storage.claims import EpochRecord
from git_knotless.storage.creation import AlreadyExists
from git_knotless.storage.editing import RacedTooOften
from git_knotless.storage.outcome import Batch, Sent, send
from git_knotless.storage.places.references import (
    RedirectRecord,
    RepoRef,
    redirect_named,
    redirects_of,
)
from git_knotless.storage.places.taking import Left, clear_name, freed, left_under
from git_knotless.storage.pushing.batches import MAX_WRITES, Stamp, rewrite, stamp_now
from git_knotless.storage.records import CLAIM, REDIRECT, REPO, RepoRecord
from git_knotless.storage.remains import unnamed
from git_knotless.storage.repositories import Repository
from git_knotless.storage.store import RecordStore, Write
from git_knotless.storage.url import RepoUrl, check_new_name
from git_knotless.value import replace, value

_READINGS = 8  # of what others write to at the same time


class SameName(KnotlessError):
    """The new name is the one that it has."""


class TooManyRedirects(KnotlessError):
    """A repository with more old names than one write repoints."""


class NoSuchRedirect(KnotlessError):
    """A name that is not an old one of the repository."""


@value
class _Read:
    """What a rename rests on: the record, the names around it, and who has the new one."""

    repo: RepoRecord
    redirects: Sequence[RedirectRecord]  # to the repository, within the account, by name
    taken: bool  # the new name, by a repository
    left: bool  # whether a redirect has the old name
    under: Left | None  # what has the new one


def rename(repository: Repository, name: str) -> RepoRecord:
    """Give it another name, and leave a redirect under the one that it had.

    Raises BadName, AlreadyExists, SameName or TooManyRedirects with nothing written.
    """
    new = check_new_name(name)
    repository.look()
    clear_name(repository.store, RepoUrl(repository.url.authority, new))
    for _ in range(_READINGS):
        read, stamp = _read(repository, repository.record(), new), stamp_now(repository.store)
        _check(repository, read, new)
        renamed = replace(read.repo, name=new).next_epoch(stamp.nonce, stamp.at)
        writes = _writes(repository, read, renamed, stamp)
        batch = Batch(writes, EpochRecord.of(renamed).rkey, stamp.nonce)
        stale = partial(_moved, repository, read, new)
        if send(repository.store, batch, stale=stale) is Sent.LANDED:
            repository.url = RepoUrl(repository.url.authority, new)
            return renamed
    raise RacedTooOften(f"others keep changing {repository.url}: try again")


def _read(repository: Repository, repo: RepoRecord, new: Rkey) -> _Read:
    store = repository.store
    return _Read(
        repo,
        redirects(repository, repo),
        store.get(REPO, new) is not None,
        store.get(REDIRECT, repo.rkey) is not None,
        left_under(store, new),
    )


def _moved(repository: Repository, before: _Read, new: Rkey) -> bool:
    return _read(repository, repository.record(), new) != before


def _check(repository: Repository, read: _Read, new: Rkey) -> None:
    url = repository.url
    if read.repo.name == new:
        raise SameName(f"{url} is already named {new}")
    if read.taken:
        raise AlreadyExists(f"{RepoUrl(url.authority, new)} already exists")


def _writes(
    repository: Repository, read: _Read, renamed: RepoRecord, stamp: Stamp
) -> Sequence[Write]:
    old, new = read.repo, renamed.rkey
    place = RepoRef(repository.store.did, new, old.key)
    epoch = EpochRecord.of(renamed)
    writes = [
        Write("delete", CLAIM, EpochRecord.of(old).rkey),
        Write("create", CLAIM, epoch.rkey, epoch.to_json()),
        Write("create", REPO, new, renamed.to_json()),
        Write("delete", REPO, old.rkey),
        _written(RedirectRecord.new(old.rkey, place, stamp.at), exists=read.left),
        *(freed(read.under, old.key, stamp) if read.under else ()),
    ]
    others = [each for each in read.redirects if each.name not in (old.rkey, new)]
    _check_count(repository.url, len(others), MAX_WRITES - len(writes))
    return writes + [_written(each.leading_to(place), exists=True) for each in others]


def _check_count(url: RepoUrl, redirects: int, most: int) -> None:
    if redirects > most:
        raise TooManyRedirects(
            f"{redirects} old names lead to {url}, and one write repoints {most} at most",
            hint=f"git knotless repo redirects -R {url} --remove NAME",
        )


def _written(redirect: RedirectRecord, *, exists: bool) -> Write:
    return Write("update" if exists else "create", REDIRECT, redirect.name, redirect.to_json())


def redirects(repository: Repository, repo: RepoRecord) -> list[RedirectRecord]:
    """The old names of it that lead to it, in its account."""
    did = repository.store.did
    return [each for each in redirects_of(repository.store, repo.key) if each.repo.did == did]


def remove_redirect(repository: Repository, name: str) -> None:
    """Take back an old name. Raises NoSuchRedirect where it leads elsewhere, or nowhere.

    It moves the epoch: whoever gives the name to something else at the same time does too.
    """
    store = repository.store
    for _ in range(_READINGS):
        repo = repository.record()
        if not (is_rkey(name) and _leads_here(store, Rkey(name), repo.key)):
            hint = f"git knotless repo redirects -R {repository.url}"
            raise NoSuchRedirect(f"{name} is not an old name of {repository.url}", hint=hint)
        stamp = stamp_now(store)
        new = repo.next_epoch(stamp.nonce, stamp.at)
        writes = [*rewrite(repo, new), *unnamed(store, [Rkey(name)])]
        batch = Batch(writes, EpochRecord.of(new).rkey, stamp.nonce)
        stale = partial(repository.moved_from, repo)
        if send(store, batch, stale=stale) is Sent.LANDED:
            return
    raise RacedTooOften(f"others keep changing {repository.url}: try again")


def _leads_here(store: RecordStore, name: Rkey, key: str) -> bool:
    redirect = redirect_named(store, name)
    return redirect is not None and redirect.repo.is_to(store.did, key)
