"""Uploading the Git LFS objects of a repository: blobs first, then the record that names them."""

import time
from collections.abc import Sequence
from pathlib import Path

from git_knotless.atproto.errors import BlobNotFound, RateLimited
from git_knotless.errors import KnotlessError
from git_knotless.storage.lfs.blobs import Count, Kept, part_limit, send_parts
from git_knotless.storage.lfs.landing import Landing, read_lfs
from git_knotless.storage.lfs.record import LfsRecord, lfs_rkey
from git_knotless.storage.lfs.source import ObjectDamaged, ObjectFile, Part, Source, measured
from git_knotless.storage.packs.uploads import BlobsLost
from git_knotless.storage.pushing.batches import MAX_BYTES, stamp_now
from git_knotless.storage.records import LFS
from git_knotless.storage.repositories import Repository
from git_knotless.storage.store import Action, Record

_MOST_UPLOADS = 3  # of one object after the first
# So many objects in a row that were not there: what follows most likely is not either, and is
# found out by the refusal of its record if it is.
_ENOUGH_ABSENT = 8
_WORTH_ASKING = 1 << 20  # bytes: sending more for nothing takes longer than to ask
_A_WHILE = 60.0  # seconds, where a host that takes no more does not say for how long
_BYTES_A_BLOB = 256  # of JSON, at most


class ObjectTooLarge(KnotlessError):
    """An object in more parts than a record can name."""


class LfsUploads:
    """Of one clone to one repository. `directory` keeps what waits, and what was cut."""

    def __init__(self, repository: Repository, directory: Path) -> None:
        repo = repository.record()
        if repo.archived:
            from git_knotless.storage.pushing.push import PushRefused

            hint = f"git knotless repo edit --no-archived {repository.url}"
            raise PushRefused(f"{repository.url} is archived", hint=hint)
        did = repository.store.did.replace(":", "_")
        self._repository = repository
        self._key = repo.key
        self._directory = directory / f"{repo.key}.{did}"
        self._landing = Landing(repository, repo, self._directory)
        self._absent = 0
        self._limited: tuple[RateLimited, float] | None = None

    def send(self, oid: str, size: int, path: Path, count: Count) -> None:
        """Have the object in `path` stand in the repository; nothing is sent where it does.

        `count` hears of bytes as they go out, of fewer than none where they go out again. Once
        the host takes no more for now, nothing is sent until it does.
        """
        if self._limited is not None and time.monotonic() < self._limited[1]:
            raise self._limited[0]
        try:
            self._bring(oid, size, path, count)
        except RateLimited as error:
            self._limited = error, time.monotonic() + (error.retry_after or _A_WHILE)
            raise

    def _bring(self, oid: str, size: int, path: Path, count: Count) -> None:
        action: Action = "create"
        if self._is_worth_asking(size):
            found = self._repository.store.get(LFS, lfs_rkey(self._key, oid))
            if read_lfs(found) is not None:
                self._absent = 0
                return
            self._absent += 1
            action = "create" if found is None else "update"
        with ObjectFile(path) as source:
            if source.size != size:
                raise ObjectDamaged(f"{path} has {source.size} bytes, and its object {size}")
            self._send(oid, source, path, count, action)

    def _is_worth_asking(self, size: int) -> bool:
        return self._absent < _ENOUGH_ABSENT or size >= _WORTH_ASKING

    def _send(self, oid: str, source: Source, path: Path, count: Count, action: Action) -> None:
        store = self._repository.store
        parts, kept = self._planned(oid, source, path)
        for _ in range(1 + _MOST_UPLOADS):
            blobs = send_parts(source, parts, store, kept=kept, count=count)
            at = stamp_now(store).at
            record = LfsRecord(self._key, oid, source.size, blobs, at)
            try:
                self._landing.land(_checked(record, source, path, parts), action=action)
            except BlobNotFound:
                kept.forget()
                count(-source.size)
                continue
            kept.forget()
            return
        raise BlobsLost("the host loses what is uploaded to it before it can be named")

    def _planned(self, oid: str, source: Source, path: Path) -> tuple[Sequence[Part], Kept]:
        """Its parts, and those on the host already. Raises ObjectDamaged."""
        if not source.size:
            return [], Kept()
        limit = part_limit(self._repository.store)
        if source.size * _BYTES_A_BLOB > limit * MAX_BYTES:
            raise ObjectTooLarge(f"{path} is too large for a host that takes {limit} bytes a blob")
        if source.size <= limit:
            return [Part(0, source.size)], Kept()
        found, parts = measured(source, limit)
        if found != oid:
            raise _changed(path, oid)
        return parts, Kept(self._directory / f"{oid}.parts")


def _checked(record: LfsRecord, source: Source, path: Path, parts: Sequence[Part]) -> LfsRecord:
    """What is whole in one blob has the hash that it is called by, and what was measured too."""
    cut_late = len(record.blobs) > len(parts)
    as_read = read_lfs(Record(record.rkey, record.to_json()))
    if as_read is None or (cut_late and measured(source, source.size)[0] != record.oid):
        raise _changed(path, record.oid)
    return record


def _changed(path: Path, oid: str) -> ObjectDamaged:
    return ObjectDamaged(f"{path} is not the object {oid} any more", hint="git lfs fsck")
