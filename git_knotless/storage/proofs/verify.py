"""A repository, checked from the account's signature down to each git object.

Every record of it is compared with the account's signed commit, the whole of its part of the
tree: so none was changed, added or left out. Every pack and LFS object is downloaded, and the
objects are looked at as git does it, in a repository that goes again. What is wrong is told by its
name and goes nowhere: nothing of it is written, on the host or here.
"""

from collections.abc import Mapping
from pathlib import Path

from git_knotless.atproto.commit import record_key
from git_knotless.atproto.dag_cbor import cid_of, cid_text
from git_knotless.atproto.syntax import Nsid
from git_knotless.storage.progress import Progress
from git_knotless.storage.proofs.differences import differences
from git_knotless.storage.proofs.findings import Findings
from git_knotless.storage.proofs.proven import block_of, check_rev, told_of
from git_knotless.storage.proofs.revs import Revs
from git_knotless.storage.proofs.signed import (
    Signed,
    begin,
    of_repository,
    read_newest,
    records_under,
    under,
)
from git_knotless.storage.proofs.verify_objects import Objects
from git_knotless.storage.proofs.verify_records import KINDS, Records
from git_knotless.storage.records import (
    COLLECTIONS_OF_A_REPOSITORY,
    REF,
    REPO,
    RepoRecord,
    prefix_of,
)
from git_knotless.storage.repositories import Repository
from git_knotless.storage.store import Archive
from git_knotless.value import value

_READINGS = 3  # of a collection that is written to while it is read
_LARGEST_SHOWN = 8 << 10  # bytes: of a ref's record, which is told of; a pack's is not looked at


@value
class Verification:
    """`rev` and `commit` are what the account had signed; `before` the later revision that was
    seen before, where an older one was accepted."""

    repo: RepoRecord
    host: str
    rev: str
    commit: str
    before: str | None
    found: Findings


def verify(
    repository: Repository,
    revs: Revs,
    folder: Path,
    env: Mapping[str, str],
    *,
    progress: Progress,
    accept: bool = False,
) -> Verification:
    """`folder` is empty, and its owner's to remove; `env` is of the git commands.

    `accept`: an older state than was seen counts from here on. Raises RolledBack without, and
    NotProven where the host cannot prove anything.
    """
    return _Verifying(repository, revs, folder, env, progress).verify(accept=accept)


class _Verifying:
    def __init__(
        self,
        repository: Repository,
        revs: Revs,
        folder: Path,
        env: Mapping[str, str],
        progress: Progress,
    ) -> None:
        self._repository = repository
        self._revs = revs
        self._progress = progress
        self._found = Findings()
        self._repo = repository.record()
        self._store = repository.store
        self._proofs = repository.store.proofs
        self._place = (self._store.did, self._repo.key)
        self._newest = revs.newest(*self._place)
        source = str(repository.url)
        self._objects = Objects(self._store, folder, env, progress, self._found, source)
        self._records = Records(self._repo.key, self._objects, self._found)

    def verify(self, *, accept: bool) -> Verification:
        first = signed = self._check_record(self._signed(accept=accept))
        with self._objects:
            for collection in COLLECTIONS_OF_A_REPOSITORY:
                signed = self._check_collection(collection, signed)
            if signed.commit == first.commit:  # else they are of more than one moment
                self._records.check_together(self._repo)
            self._objects.finish(self._records.targets)
        self._revs.saw(*self._place, signed.rev)
        before = self._newest if self._newest and first.rev < self._newest else None
        host, commit = self._proofs.authority.host, cid_text(signed.commit)
        return Verification(self._repo, host, signed.rev, commit, before, self._found)

    def _signed(self, *, accept: bool = False) -> Signed:
        ranges = of_repository(self._repo.key, self._repo.name, *COLLECTIONS_OF_A_REPOSITORY)
        host, url = self._proofs.authority.host, self._repository.url

        def begun() -> Archive:
            return begin(self._proofs, under(REF, self._repo.key))

        with told_of(host, url):
            signed = read_newest(self._proofs, self._store.did, ranges, begun, {})
        if accept:
            self._revs.accept(*self._place, signed.rev)
        else:
            check_rev(signed.rev, self._revs.newest(*self._place), host, url)
        return signed

    def _check_record(self, signed: Signed) -> Signed:
        """It may have been rewritten since it was read."""
        for left in reversed(range(_READINGS)):
            cid = signed.entries.get(record_key(Nsid(REPO), self._repo.rkey))
            if cid == cid_of(block_of(self._repo.fields)):
                return signed
            if left:
                self._repo = self._repository.record()
                signed = self._signed()
        self._found.add(
            f"repository {self._repo.name}", "its record is shown otherwise than it is signed"
        )
        return signed

    def _check_collection(self, collection: str, signed: Signed) -> Signed:
        """By the newest commit that agrees with what is listed, if any does."""
        looked_at: set[tuple[str, bytes]] = set()
        for left in reversed(range(_READINGS)):
            expected = records_under(collection, self._repo.key, signed)
            unlike, missing = self._go_through(collection, expected, looked_at)
            if not (unlike or missing):
                return signed
            if left:
                signed = self._signed()
        concerned = {rkey: expected[rkey] for rkey in expected if rkey in unlike.keys() | missing}
        wrong = differences(unlike, concerned, self._proofs, kind=KINDS[collection])
        for what, why in wrong.values():
            self._found.add(what, why)
        return signed

    def _go_through(
        self, collection: str, expected: Mapping[str, bytes], looked_at: set[tuple[str, bytes]]
    ) -> tuple[dict[str, bytes], set[str]]:
        """What is listed otherwise than expected, and what is not listed; the rest is checked."""
        unlike: dict[str, bytes] = {}
        missing = set(expected)
        with self._progress.meter(f"Checking {KINDS[collection]}s", len(expected)) as meter:
            for page in self._store.list(collection, prefix_of(self._repo.key)):
                good = []
                for record in page:
                    missing.discard(record.rkey)
                    block = block_of(record.value)
                    name = record.rkey, cid_of(block)
                    if not block or expected.get(record.rkey) != name[1]:
                        unlike[record.rkey] = block if len(block) <= _LARGEST_SHOWN else b""
                    elif name not in looked_at:
                        looked_at.add(name)
                        good.append(record)
                self._records.check(collection, good)
                meter.advance(len(page))
        return unlike, missing
