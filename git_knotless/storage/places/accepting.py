"""Accepting a repository that was offered: it is copied into the account, with its key.

From the write that brings its record on, the copy is the repository, for whoever reads the old
place too; and nothing is copied any more.
"""

from contextlib import suppress
from pathlib import Path
from typing import Any

from git_knotless.atproto.syntax import Did, Handle
from git_knotless.errors import KnotlessError
from git_knotless.storage.places.copying import Copy
from git_knotless.storage.places.holds import HoldRecord, refuse_copy
from git_knotless.storage.places.making import Making
from git_knotless.storage.places.offers import AlreadyAccepted, NotOffered, offer_to
from git_knotless.storage.places.references import RepoRef, from_places, redirects_of
from git_knotless.storage.places.taking import cut, drop, holds
from git_knotless.storage.progress import Progress
from git_knotless.storage.records import RefRecord, RepoRecord
from git_knotless.storage.remains import epochs
from git_knotless.storage.repositories import Repository
from git_knotless.storage.snapshot import NoSuchRepository, UnreadableRepository, read_refs
from git_knotless.storage.store import RecordStore
from git_knotless.storage.url import RepoUrl, check_new_name
from git_knotless.value import replace, value

# What the new owner takes over. Whom it is shared with is theirs to say, and so left out.
_TAKEN_OVER = (
    *("description", "defaultBranch", "objectFormat", "archived", "forkOf"),
    *("runners", "rules", "contribution"),
)


# Whoever has pushed a thousand times a second for a hundred millennia is short of it; what the
# new owner does comes on top, and the greatest number that hosts know is twice as large.
_MOST_MOVES = 1 << 52


@value
class Accepted:
    """`url` is where the repository is now.

    `late` are the refs that moved at the old place, where they still are, after they were copied;
    `withdrawn` is whether the offer was taken back at the last moment, and the copy could not be
    undone any more: nobody is led here.
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
    url = RepoUrl(owner, check_new_name(place.name if name is None else name))
    making = Making(source, store, url, directory=directory, progress=progress)
    refuse_copy(store, owner, repo.key)
    making.refuse_taken(holds(epochs(store, repo.key)))
    _check(repo, making, store.did)
    _refuse_numbers(making.source, repo)
    came_from = RepoRef(source.store.did, repo.rkey, repo.key)

    def fields(now: RepoRecord) -> dict[str, Any]:
        taken = {field: now.fields[field] for field in _TAKEN_OVER if field in now.fields}
        answered = replace(came_from, offer=offer_to(now, source.url, store.did).offer)
        return taken | from_places([answered, *_earlier(store, came_from)])

    made, copy = making.make(
        HoldRecord(repo.key, repo.epoch + 1, "", "", url.name, came_from),
        check=lambda now: _check(now, making, store.did),
        fields=fields,
        as_copied=lambda ref: _with_room(ref, source.url),
    )
    taken_back = _taken_back(making, made, store.did)
    if taken_back is not None and making.undo(made):
        raise taken_back
    return Accepted(made, url, _late(copy), taken_back is not None)


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


def _earlier(store: RecordStore, came_from: RepoRef) -> list[RepoRef]:
    """From where else it has come to the account before: who kept the old copy there leads here."""
    places = [each for old in redirects_of(store, came_from.key) for each in old.came_from]
    return list({each.did: each for each in places if each.did != came_from.did}.values())


def _check(repo: RepoRecord, making: Making, to: Did) -> None:
    offer_to(repo, making.source.url, to)
    if repo.epoch > _MOST_MOVES:
        raise _too_many(f"its settings have been written {repo.epoch} times", making.source.url)


def _refuse_numbers(source: Repository, repo: RepoRecord) -> None:
    """Before anything is written what the source counts is looked at, which goes on here."""
    for ref in read_refs(source.store, repo.key, source.url).values():
        _with_room(ref, source.url)


def _with_room(ref: RefRecord, url: RepoUrl) -> RefRecord:
    if ref.generation > _MOST_MOVES:
        raise _too_many(f"{ref.name} has moved {ref.generation} times", url)
    return ref


def _too_many(what: str, url: RepoUrl) -> UnreadableRepository:
    return UnreadableRepository(f"{url} cannot go on here: it says that {what}")


def _late(copy: Copy) -> list[str]:
    """As far as can be told: the old owner cannot delete what is at the old place alone."""
    with suppress(KnotlessError):
        return copy.late()
    return []


def _taken_back(making: Making, made: RepoRecord, to: Did) -> NotOffered | None:
    """As far as can be told: it is accepted, whatever cannot be read any more."""
    url = making.source.url
    try:
        offer = offer_to(making.source.record(), url, to).offer
    except NotOffered as error:
        return error
    except KnotlessError:
        return None
    if any(place.answers(making.source.store.did, offer) for place in made.came_from):
        return None
    hint = f"git knotless repo accept {url}"
    return NotOffered(f"{url} was offered anew just then", hint=hint)
