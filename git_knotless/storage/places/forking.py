"""Forking: a repository of one's own, with a new key, that begins with what another holds."""

import secrets
from pathlib import Path

from git_knotless.atproto.syntax import Did, Handle, tid
from git_knotless.storage.places.holds import HoldRecord
from git_knotless.storage.places.making import Making
from git_knotless.storage.places.references import RepoRef
from git_knotless.storage.places.taking import cut
from git_knotless.storage.progress import Progress
from git_knotless.storage.pushing.batches import stamp_now
from git_knotless.storage.records import RefRecord, RepoRecord
from git_knotless.storage.repositories import Repository
from git_knotless.storage.store import RecordStore
from git_knotless.storage.url import RepoUrl, check_new_name
from git_knotless.value import value

_CLOCK_IDS = 1024  # of a TID: two who make one in the same microsecond
_FIRST_EPOCH = 1
_FIRST_GENERATION = 1
_TAKEN_OVER = ("description", "defaultBranch", "objectFormat")


@value
class Forked:
    repo: RepoRecord
    url: RepoUrl


def fork(
    source: Repository,
    store: RecordStore,
    owner: Did | Handle,
    *,
    name: str | None = None,
    directory: Path,
    progress: Progress,
) -> Forked:
    """Fork `source` into the account of `store`, which URLs call `owner`.

    One that was cut is gone on with. `directory` takes temporary files. Raises AlreadyExists or
    BadName with nothing written.
    """
    repo = source.record()
    url = RepoUrl(owner, check_new_name(repo.name if name is None else name))
    making = Making(source, store, url, directory=directory, progress=progress)
    origin = RepoRef(source.store.did, repo.rkey, repo.key)
    rest = [each for each in cut(store, origin.did) if each.name == url.name]
    rest = [each for each in rest if each.source.key == origin.key != each.repo]
    making.refuse_taken(rest)
    stamp = stamp_now(store)
    key = tid(int(stamp.time.timestamp() * 1_000_000), secrets.randbelow(_CLOCK_IDS))
    wanted = rest[0] if rest else HoldRecord(key, _FIRST_EPOCH, "", "", url.name, origin)

    def as_copied(ref: RefRecord) -> RefRecord | None:
        if ref.target is None:
            return None
        return RefRecord(wanted.repo, ref.name, ref.target, _FIRST_GENERATION, stamp.at)

    made, _ = making.make(
        wanted,
        check=lambda _: None,
        fields=lambda now: {
            **{field: now.fields[field] for field in _TAKEN_OVER if field in now.fields},
            "forkOf": origin.to_json(),
        },
        as_copied=as_copied,
    )
    return Forked(made, url)
