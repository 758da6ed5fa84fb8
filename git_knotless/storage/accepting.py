"""Accepting a repository that was offered: it is copied into the account, with its key.

From the write that brings its record on, the copy is the repository, for whoever reads the old
place too; and nothing is copied any more.
"""

from contextlib import suppress
from pathlib import Path
from typing import Any

from git_knotless.atproto.syntax import Did, Handle
from git_knotless.errors import KnotlessError
from git_knotless.storage.copying import Copy
from git_knotless.storage.holds import HoldRecord, refuse_copy
from git_knotless.storage.making import Making, cut, drop, holds
from git_knotless.storage.offers import NotOffered, offer_to
from git_knotless.storage.places import RepoRef
from git_knotless.storage.progress import Progress
from git_knotless.storage.records import RepoRecord
from git_knotless.storage.remains import epochs
from git_knotless.storage.repositories import Repository
from git_knotless.storage.snapshot import NoSuchRepository
from git_knotless.storage.store import RecordStore
from git_knotless.storage.url import RepoUrl, check_new_name
from git_knotless.value import value

# What the new owner takes over. Whom it is shared with is theirs to say, and so left out.
_TAKEN_OVER = (
    *("description", "defaultBranch", "objectFormat", "archived", "forkOf"),
    *("runners", "rules", "contribution"),
)


class AlreadyAccepted(KnotlessError):
    """The repository is in the account that it was offered to."""


@value
class Accepted:
    """`url` is where the repository is now.

    `late` are the refs that moved at the old place, where they still are, after they were copied;
    `withdrawn` is whether the offer was taken back at the last moment: then nobody is led here.
    """

    repo: RepoRecord
    url: RepoUrl
    late: list[str]
    withdrawn: bool


def accept(
    source: Repository,
    store: RecordStore,
    owner: Did | Handle,
    *,
    name: str | None = None,
    directory: Path,
    progress: Progress,
) -> Accepted:
    """Accept what `source` offers into the account of `store`, which URLs call `owner`.

    `directory` takes temporary files. Raises NotOffered, AlreadyAccepted, CopyExists,
    AlreadyExists or BadName with nothing written.
    """
    repo = _found(source, store, owner)
    try:
        place = offer_to(repo, source.url, store.did)
    except NotOffered:
        drop(store, owner, holds(epochs(store, repo.key)))  # of one that was cut
        raise
    url = RepoUrl(owner, check_new_name(name or place.name))
    making = Making(source, store, url, directory=directory, progress=progress)
    refuse_copy(store, owner, repo.key)
    making.refuse_taken(holds(epochs(store, repo.key)))
    came_from = RepoRef(source.store.did, repo.rkey, repo.key)

    def fields(now: RepoRecord) -> dict[str, Any]:
        taken = {field: now.fields[field] for field in _TAKEN_OVER if field in now.fields}
        return {**taken, "transferredFrom": came_from.to_json()}

    made, copy = making.make(
        HoldRecord(repo.key, repo.epoch + 1, "", "", url.name, came_from),
        check=lambda now: _check(now, making, store.did),
        fields=fields,
        as_copied=lambda ref: ref,
    )
    return Accepted(made, url, _late(copy), _is_withdrawn(making, store.did))


def _found(source: Repository, store: RecordStore, owner: Did | Handle) -> RepoRecord:
    """The record, wherever it has moved by now."""
    asked = source.store.did
    try:
        repo = source.record()
    except NoSuchRepository:
        rest = cut(store, asked)
        names = (source.asked.name, source.url.name)
        drop(store, owner, (h for h in rest if h.source.name in names and h.repo == h.source.key))
        raise
    if source.store.did == store.did != asked:
        raise AlreadyAccepted(f"{source.asked} is in your account already: it is {source.url}")
    return repo


def _check(repo: RepoRecord, making: Making, to: Did) -> None:
    offer_to(repo, making.source.url, to)


def _late(copy: Copy) -> list[str]:
    """As far as can be told: the old owner cannot delete what is at the old place alone."""
    with suppress(KnotlessError):
        return copy.late()
    return []


def _is_withdrawn(making: Making, to: Did) -> bool:
    """As far as can be told: it is accepted, whatever cannot be read any more."""
    try:
        _check(making.source.record(), making, to)
    except NotOffered:
        return True
    except KnotlessError:
        return False
    return False
