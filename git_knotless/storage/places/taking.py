"""Taking a name: what is left under it goes first, and what a redirect of it led to is told.

A delete that was cut, and a copy that never came to be, have left a redirect under their name
that leads nowhere, and a claim that says so: whoever takes the name takes the rest away. A redirect
that leads to a repository goes in one write with a move of its epoch, so that whoever rewrites
the redirects of that repository at the same time does not write over what comes in its place.
"""

from collections.abc import Iterable, Sequence

from git_knotless.atproto.syntax import Did, Handle, Rkey
from git_knotless.storage.fields import BadRecord
from git_knotless.storage.places.holds import CopyExists, Hold, HoldRecord, held, let_go
from git_knotless.storage.places.references import RedirectRecord, redirect_named
from git_knotless.storage.pushing.batches import Stamp, rewrite
from git_knotless.storage.records import CLAIM, REDIRECT, REPO, RepoRecord
from git_knotless.storage.remains import epochs, finish, is_marker
from git_knotless.storage.store import Record, RecordStore, Write
from git_knotless.storage.url import RepoUrl
from git_knotless.value import value


@value
class Left:
    """A redirect that has a name, and what in the account it may lead to.

    `repo` is its repository; where that is not there, `holds` are of those that copy it.
    """

    redirect: Record
    repo: RepoRecord | None
    holds: Sequence[HoldRecord]


def left_under(store: RecordStore, name: Rkey) -> Left | None:
    record = store.get(REDIRECT, name)
    if record is None:
        return None
    try:
        key = RedirectRecord.from_record(record).repo.key
    except BadRecord:  # it leads nowhere
        return Left(record, None, ())
    repo = _repository(store, key)
    return Left(record, repo, () if repo else holds(epochs(store, key)))


def freed(left: Left, key: str, stamp: Stamp) -> list[Write]:
    """What takes its name for the repository `key`, whose own epoch moves anyway.

    Of two that do that, or write to the redirects of what it led to, one loses.
    """
    writes = [Write("delete", REDIRECT, left.redirect.rkey)]
    if left.repo is not None and left.repo.key != key:
        writes += rewrite(left.repo, left.repo.next_epoch(stamp.nonce, stamp.at))
    for hold in left.holds:
        if hold.repo != key:
            new = hold.next(stamp)
            writes.append(Write("delete", CLAIM, hold.rkey))
            writes.append(Write("create", CLAIM, new.rkey, new.to_json()))
    return writes


def clear_name(store: RecordStore, url: RepoUrl, *, spare: str | None = None) -> None:
    """Take away what is left of repositories that were to have the name of `url`, or had it.

    But not of the one of the key `spare`, which is gone on with.
    """
    redirect = redirect_named(store, url.name)
    if redirect is None:
        return
    for marker in filter(is_marker, epochs(store, redirect.repo.key)):
        finish(store, marker)
    take_away_rest(store, url, spare=spare)


def take_away_rest(store: RecordStore, url: RepoUrl, *, spare: str | None = None) -> bool:
    """The same, whatever the name leads to; whether there was any."""
    markers, cut = _rest(store, url.name)
    for marker in markers:
        finish(store, marker)
    drop(store, url.authority, (hold for hold in cut if hold.repo != spare))
    return bool(markers or cut)


def _rest(store: RecordStore, name: Rkey) -> tuple[list[Record], list[HoldRecord]]:
    claims = [record for page in store.list(CLAIM, "") for record in page]
    markers = [claim for claim in claims if claim.value.get("deleted") == name]
    return markers, [each for each in holds(claims) if each.name == name]


def cut(store: RecordStore, source: Did) -> list[HoldRecord]:
    """What in the account was to be made of the repositories of `source`, and is not."""
    claims = (record for page in store.list(CLAIM, "") for record in page)
    return [each for each in holds(claims) if each.source.did == source]


def holds(claims: Iterable[Record]) -> list[HoldRecord]:
    return [each for each in map(held, claims) if each is not None]


def drop(store: RecordStore, owner: Did | Handle, rest: Iterable[HoldRecord]) -> None:
    """Take away what nobody goes on with."""
    for each in rest:
        try:
            Hold.take(store, owner, each).discard()
        except CopyExists:  # all that is there is that repository's, but the claim
            let_go(store, each)


def _repository(store: RecordStore, key: str) -> RepoRecord | None:
    records = (record for page in store.list(REPO, "") for record in page)
    for record in records:
        if record.value.get("key") == key:
            try:
                return RepoRecord.from_record(record)
            except BadRecord:  # nothing is done with it either
                return None
    return None
