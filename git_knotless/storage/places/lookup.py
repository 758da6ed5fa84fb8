"""Which repository an address leads to: by its record, by redirects, and by moves.

A redirect within an account is an old name: it is followed to a record of its key, and to no
other. Into another account a repository has moved only if both sides say so: the old place by
the `transfer` of its record, or by the redirect that was left when that was deleted; the new
place by `transferredFrom`, of its record or of the redirect that it left in turn. Whatever is
short of that leads nowhere: never to another repository.

A host that could not be asked may hold the new place. Where a repository is only offered to an
account of it, the place that offers it is found, and said to be unsure: it can be read, and a
push is not to land there. Where nothing else is left of it, that is an error.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Protocol

from git_knotless import limits
from git_knotless.atproto.errors import AtprotoError, DidNotFound, RepoNotFound, RepoTakendown
from git_knotless.atproto.syntax import Did, Handle, Rkey
from git_knotless.errors import KnotlessError
from git_knotless.storage.fields import BadRecord
from git_knotless.storage.listing import UnreadableListing
from git_knotless.storage.places.references import (
    RedirectRecord,
    RepoRef,
    redirect_named,
    redirects_in,
    redirects_of,
)
from git_knotless.storage.records import REDIRECT, REPO, RepoRecord
from git_knotless.storage.snapshot import NoSuchRepository, check_format, record_named
from git_knotless.storage.store import Record, RecordStore
from git_knotless.storage.url import RepoUrl, without_git
from git_knotless.value import value

_READINGS = 2  # of a redirect: what is renamed to and fro in between is not there for the first
# What of another account is looked through for a repository that may have come there.
_MOST_PAGES = 100
_MOST_SECONDS = 20.0
# An account that is gone, or that its host shows to nobody, holds nothing.
_GONE = (DidNotFound, RepoNotFound, RepoTakendown)


class OfferUnsure(KnotlessError):
    """Whether a repository was accepted by whom it is offered to could not be found out."""


class Accounts(Protocol):
    """Where other accounts are found."""

    def open_account(self, who: Did | Handle) -> tuple[Did | Handle, RecordStore]:
        """What its URLs are to call it, and its records to read."""
        ...


@value
class Found:
    """`url` is the canonical one. `moved`: another name, or another account, than asked for.

    `through` are the accounts that lead to this one, from the one asked on. `unsure` is why it
    may not be the place any more.
    """

    repo: RepoRecord
    url: RepoUrl
    store: RecordStore
    moved: bool
    through: tuple[Did, ...]
    unsure: OfferUnsure | None


def look_up(url: RepoUrl, accounts: Accounts) -> Found:
    """The repository that `url` leads to. Raises NoSuchRepository."""
    authority, store = accounts.open_account(url.authority)
    canonical = RepoUrl(authority, url.name)
    return go_on(canonical, store, accounts, record_named(store, canonical))


def go_on(
    url: RepoUrl, store: RecordStore, accounts: Accounts | None, repo: RepoRecord | None
) -> Found:
    """Where a look-up leads from what was read under `url`, a canonical one: `repo`, or nothing.

    Without `accounts` none but its own is looked into, and all others are as if they were gone.
    """
    passed = [_Place(url.authority, store, repo or _by_redirect(store, url))]
    for _ in range(limits.MOVES + 1):
        try:
            onward = _moved_to(passed[-1], accounts)
        except OfferUnsure as error:
            return _found(passed, url, error)
        if onward is None:
            return _found(passed, url)
        if isinstance(onward.held, RepoRecord) and (round_ := _from(onward, passed)):
            return _found([*passed, _present(round_, url)], url)
        passed.append(onward)
    raise _none(url)


def of_key(
    authority: Did | Handle, store: RecordStore, accounts: Accounts | None, key: str
) -> Found | None:
    """The repository of `key`, by whatever name the account has it or leads to it."""
    named = [(repo.rkey, repo) for repo in _repositories(store.list(REPO, "")) if repo.key == key]
    old = [(redirect.name, None) for redirect in redirects_of(store, key)]
    for name, repo in [*named, *old]:
        with suppress(NoSuchRepository):
            found = go_on(RepoUrl(authority, name), store, accounts, repo)
            if found.repo.key == key:
                return found
    return None


def _from(place: "_Place", passed: list["_Place"]) -> list["_Place"]:
    """What was passed from there on, if it was: a way that leads round.

    It can where some offer has no name by which it would be told from an earlier one: what a
    place offers that leads back to it is not accepted yet. Each accept goes beyond the epoch of
    what it copies, so the present place has the last.
    """
    passed = [each for each in passed if isinstance(each.held, RepoRecord)]
    dids = [each.store.did for each in passed]
    return passed[dids.index(place.store.did) :] if place.store.did in dids else []


# What an account holds of a repository; a redirect is one that leads into another account.
_Held = RepoRecord | RedirectRecord


@value
class _Place:
    authority: Did | Handle
    store: RecordStore
    held: _Held | None


def _found(passed: Sequence[_Place], asked: RepoUrl, unsure: OfferUnsure | None = None) -> Found:
    place = passed[-1]
    if not isinstance(place.held, RepoRecord):
        raise _none(asked)
    url = RepoUrl(place.authority, place.held.rkey)
    check_format(place.held, url)
    moved = url.authority != asked.authority or url.name not in _names(asked)
    dids = dict.fromkeys(each.store.did for each in passed)
    through = tuple(did for did in dids if did != place.store.did)
    return Found(place.held, url, place.store, moved, through, unsure)


def _none(url: RepoUrl) -> NoSuchRepository:
    return NoSuchRepository(f"{url}: no such repository")


def _present(places: Sequence[_Place], url: RepoUrl) -> _Place:
    """The one with the last epoch."""
    epochs = [place.held.epoch for place in places if isinstance(place.held, RepoRecord)]
    if epochs.count(max(epochs)) > 1:
        raise _none(url)
    return places[epochs.index(max(epochs))]


def _names(url: RepoUrl) -> list[Rkey]:
    return [each.name for each in (url, without_git(url)) if each is not None]


def _by_redirect(store: RecordStore, url: RepoUrl) -> _Held | None:
    """What has the name without `.git` comes after what had the whole of it."""
    for _ in range(_READINGS):
        redirect = redirect_named(store, url.name)
        if redirect is None:
            short = without_git(url)
            if short is None:
                return record_named(store, url)  # it may have been given the name back meanwhile
            return record_named(store, short) or _by_redirect(store, short)
        held = _followed(store, redirect)
        if held is not None:
            return held
    return None


def _followed(store: RecordStore, redirect: RedirectRecord) -> _Held | None:
    """Where it leads within the account; itself, or the last of several, where that is out."""
    key = redirect.repo.key
    following: RedirectRecord | None = redirect
    for _ in range(limits.RENAMES):
        if following is None or following.repo.key != key:
            return None
        if following.repo.did != store.did:
            return following
        repo = _read(store.get(REPO, following.repo.name))
        if repo is not None:
            return repo if repo.key == key else None
        following = redirect_named(store, following.repo.name)
    return None


def _read(record: Record | None) -> RepoRecord | None:
    try:
        return None if record is None else RepoRecord.from_record(record)
    except BadRecord:
        return None


def _moved_to(old: _Place, accounts: Accounts | None) -> _Place | None:
    """The place in another account that `old` leads to, if that says so too."""
    match old.held:
        case RepoRecord():
            new = old.held.transfer
        case RedirectRecord():
            new = old.held.repo
        case None:
            return None
    if new is None or new.did == old.store.did or accounts is None:
        return None
    authority: Did | Handle = new.did
    try:
        authority, store = accounts.open_account(new.did)
        held = _accepted(_held(store, new), old.store.did, new.offer)
    except _GONE:
        return None
    except (AtprotoError, UnreadableListing) as error:
        if isinstance(old.held, RepoRecord):
            raise _unsure(RepoUrl(old.authority, old.held.rkey), authority, error) from error
        raise
    return None if held is None else _Place(authority, store, held)


def _unsure(url: RepoUrl, to: Did | Handle, error: KnotlessError) -> OfferUnsure:
    return OfferUnsure(
        f"{url} is offered to {to}, whose host does not say whether they accepted it: "
        f"{error.message}",
        hint=f"to take the offer back: git knotless repo transfer -R {url} --withdraw",
    )


def _accepted(candidates: Iterator[_Held], old: Did, offer: str | None) -> _Held | None:
    """The one that says that it came from `old`, by that offer."""
    for held in candidates:
        if any(place.answers(old, offer) for place in held.came_from):
            return held
    return None


def _held(store: RecordStore, new: RepoRef) -> Iterator[_Held]:
    """What an account holds of a repository that was to come there: likeliest first."""
    named: _Held | None = _read(store.get(REPO, new.name))
    if named is None and (redirect := redirect_named(store, new.name)) is not None:
        named = _followed(store, redirect)
    if named and _key(named) == new.key:
        yield named
    ends = time.monotonic() + _MOST_SECONDS
    repos = _repositories(_until(ends, store.list(REPO, "")))
    yield from (repo for repo in repos if repo.key == new.key)
    redirects = redirects_in(_until(ends, store.list(REDIRECT, "")), new.key)
    yield from (each for each in redirects if each.repo.did != store.did)


def _until(ends: float, pages: Iterable[Sequence[Record]]) -> Iterator[Sequence[Record]]:
    """`ends` is of time.monotonic()."""
    for count, page in enumerate(pages):
        if count == _MOST_PAGES or time.monotonic() > ends:
            raise UnreadableListing("it lists more than can be looked through")
        yield page


def _key(held: _Held) -> str:
    return held.key if isinstance(held, RepoRecord) else held.repo.key


def _repositories(pages: Iterable[Sequence[Record]]) -> Iterator[RepoRecord]:
    yield from filter(None, (_read(record) for page in pages for record in page))
