"""The records of LFS objects on their way into an account: together, where several wait at once.

git-lfs runs several programs side by side, each with one object at a time. Each puts its record
into a folder that they share, and waits for its turn; whoever's turn it is writes what waits there
in one batch and leaves word, so that the others have nothing left to do. A batch costs the account
points of its own, and the host a commit.

A record's key is the object's hash, so the record is its own receipt: where an answer says nothing,
or another was first, what stands is looked at. Each batch holds the repository's epoch as a push
does, and is refused once the repository is gone.
"""

import fcntl
import json
import os
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from git_knotless.atproto.errors import AtprotoError, InvalidSwap, XrpcError
from git_knotless.atproto.files import read_file, replace_cache
from git_knotless.atproto.syntax import Rkey
from git_knotless.errors import KnotlessError
from git_knotless.storage.fields import BadRecord
from git_knotless.storage.lfs.record import LfsRecord, is_lfs_oid
from git_knotless.storage.outcome import (
    REFUSALS,
    SENDINGS,
    HostOverwrites,
    HostRefused,
    OutcomeUnknown,
)
from git_knotless.storage.pushing.batches import Load, hold_epoch
from git_knotless.storage.records import LFS, RepoRecord
from git_knotless.storage.repositories import Repository
from git_knotless.storage.store import Action, Record, Write
from git_knotless.value import value

_PAUSE = 0.3  # seconds before the second sending, doubled for the third
_MOST_OF_A_RECORD = 2 << 20  # bytes
_LEFT_OVER_SECONDS = 86_400.0  # nobody waits as long
_FORBIDDEN = 403
_LANDED, _ALONE = ".landed", ".alone"
_NAMED = tuple(each for each in REFUSALS if each is not InvalidSwap)


class Landing:
    """`directory` is shared by all that upload to the repository from this clone."""

    def __init__(self, repository: Repository, repo: RepoRecord, directory: Path) -> None:
        self._repository = repository
        self._repo = repo
        self._directory = directory

    def land(self, record: LfsRecord, *, action: Action = "create") -> None:
        """Have the record stand in the account: an update, where another one stands there.

        Raises BlobNotFound where a blob of it is gone.
        """
        with _Waiting(self._directory, record) as waiting, self._turn(waiting):
            if waiting.has_landed():
                return
            alone = waiting.is_alone() or action == "update"
            others = [] if alone else waiting.others(record.repo)
            if not self._together(record, others):
                self._send([record], action)

    @contextmanager
    def _turn(self, waiting: "_Waiting") -> Iterator[None]:
        """One at a time, of all that upload from this clone to this repository."""
        with open(self._directory / "turn", "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                yield
            finally:
                waiting.clear()  # before the next one sees it

    def _together(self, record: LfsRecord, others: Sequence["_Other"]) -> bool:
        """Where a batch fails, each of the others goes alone, and finds out for itself."""
        records, load = {record.oid: record}, Load([hold_epoch(self._repo), _write(record)])
        taken = []
        for other in others:
            if other.record.oid in records or load.takes([_write(other.record)]):
                records.setdefault(other.record.oid, other.record)
                taken.append(other)
        if not taken:
            return False
        try:
            self._send(list(records.values()))
        except KnotlessError:
            for other in taken:
                other.tell(_ALONE)
            return False
        for other in taken:
            other.tell(_LANDED)
        return True

    def _send(self, records: Sequence[LfsRecord], action: Action = "create") -> None:
        error: KnotlessError | None = None
        for attempt in range(SENDINGS):
            if attempt:
                time.sleep(_PAUSE * attempt * (1 + random.random()))
                self._repo = self._repository.record()
            writes = [hold_epoch(self._repo), *(_write(each, action) for each in records)]
            try:
                return _check(self._repository.store.apply(writes))
            except KnotlessError as refusal:
                if error is None and _is_named(refusal):
                    raise
                records, error = self._lacking(records), refusal
                if not records:
                    return None
                if _is_named(refusal):
                    raise
        said = error.message if error else ""
        raise HostRefused(f"the host did not take the record of an LFS object: {said}")

    def _lacking(self, records: Sequence[LfsRecord]) -> list[LfsRecord]:
        """Those that do not stand. Raises OutcomeUnknown where the host does not say."""
        store = self._repository.store
        try:
            return [each for each in records if not _same(store.get(LFS, each.rkey), each)]
        except AtprotoError as error:
            raise OutcomeUnknown(
                f"it is not known whether the host took an LFS object: {error.message}",
                hint="run the command again: it reads what is there first",
            ) from error


def read_lfs(record: Record | None) -> LfsRecord | None:
    """None too for one that is not what its key says: it counts as none."""
    try:
        return None if record is None else LfsRecord.from_record(record)
    except BadRecord:
        return None


def _same(found: Record | None, record: LfsRecord) -> bool:
    there = read_lfs(found)
    return there is not None and there.size == record.size


def _write(record: LfsRecord, action: Action = "create") -> Write:
    return Write(action, LFS, record.rkey, record.to_json())


def _check(results: Sequence[str]) -> None:
    """The epoch's record was there to be updated, or it has just been brought back."""
    if not results[0].endswith("#updateResult"):
        raise HostOverwrites(
            "the host brought back the epoch of a repository that is gone: "
            "it cannot keep a repository safe",
            hint="move the account to another host, and push again",
        )


def _is_named(error: KnotlessError) -> bool:
    """A refusal that says which it is, the host's or our own: this was not carried out."""
    forbidden = isinstance(error, XrpcError) and error.status == _FORBIDDEN
    return forbidden or isinstance(error, _NAMED) or not isinstance(error, AtprotoError)


class _Waiting:
    """A record that waits for its turn, in a file that others see, and what word they left."""

    def __init__(self, directory: Path, record: LfsRecord) -> None:
        self._directory = directory
        self._path = directory / f"{record.oid}.{os.getpid()}"
        self._text = json.dumps({"rkey": record.rkey, "value": record.to_json()})

    def __enter__(self) -> Self:
        self._directory.mkdir(parents=True, exist_ok=True)
        self.clear()  # of a process that had our number
        replace_cache(self._path, self._text.encode())
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def has_landed(self) -> bool:
        return _beside(self._path, _LANDED).exists()

    def is_alone(self) -> bool:
        return _beside(self._path, _ALONE).exists()

    def others(self, repo: str) -> "list[_Other]":
        paths = (path for path in self._directory.iterdir() if path != self._path)
        return [other for path in paths if (other := _other(path)) and other.record.repo == repo]

    def clear(self) -> None:
        for path in (self._path, _beside(self._path, _LANDED), _beside(self._path, _ALONE)):
            with suppress(OSError):
                path.unlink(missing_ok=True)


@value
class _Other:
    path: Path
    record: LfsRecord

    def tell(self, word: str) -> None:
        with suppress(OSError):  # it has been killed meanwhile
            self.path.rename(_beside(self.path, word))


def _other(path: Path) -> _Other | None:
    """What waits there; None for any other file. One that nobody waits for any more is removed."""
    oid, _, number = path.name.partition(".")
    if not is_lfs_oid(oid):
        return None
    try:
        if time.time() - path.stat().st_mtime > _LEFT_OVER_SECONDS:
            path.unlink()
        if not number.isdecimal():
            return None
        match json.loads(read_file(path, _MOST_OF_A_RECORD)):
            case {"rkey": str(rkey), "value": dict(fields)}:
                found = read_lfs(Record(Rkey(rkey), fields))
                return _Other(path, found) if found is not None else None
    except (OSError, ValueError, RecursionError):
        pass
    return None


def _beside(path: Path, word: str) -> Path:
    return path.with_name(path.name + word)
