"""Which refs are taken for what a repository has: as a host lists them, or as the account has
signed them.

What was proven of a large snapshot is kept, whatever the setting. The next reading asks for what
came after it, and takes the refs from the signed tree itself. See `proven.py`.
"""

from contextlib import suppress
from threading import Thread

from git_knotless.atproto.errors import AtprotoError
from git_knotless.errors import KnotlessError
from git_knotless.storage.proofs.large import LargeSnapshots
from git_knotless.storage.proofs.revs import Revs
from git_knotless.storage.records import RefRecord, RepoRecord
from git_knotless.storage.snapshot import read_refs
from git_knotless.storage.store import Authority, Record, RecordStore
from git_knotless.storage.url import RepoUrl

LARGE = 1_000  # refs: more take seconds to list, and their proof is worth its place on disk


class NotSigned(KnotlessError):
    """What a host says is not what the account has signed, or was not when that was asked."""


class NotProven(KnotlessError):
    """A host that was to prove what it says, and gave something else."""


class BlocksGone(NotProven):
    """A part of the proof that the host does not have any more, or withholds."""


class RolledBack(KnotlessError):
    """A host that shows what the account was before, and not what it was seen to be since."""


# What may be no more than that the account was written to while it was read.
MAY_HAVE_MOVED = (NotSigned, BlocksGone)


def needs_proof(setting: str, authority: Authority) -> bool:
    """Whether what is read is checked against the account's signed commit (`knotless.verify`)."""
    return setting == "always" or (setting != "never" and not authority.straight)


class Verified:
    """Reads refs, checked as the setting wants them."""

    def __init__(self, setting: str, revs: Revs, large: LargeSnapshots) -> None:
        self._setting = setting
        self._revs = None if setting == "never" else revs
        self._large = large

    def prepare(self) -> None:
        """What proofs take to be read with is fetched while hosts are waited for: 20 ms of it."""
        if self._setting == "always":
            Thread(target=_import_what_proves).start()

    def read(self, repo: RepoRecord, store: RecordStore, url: RepoUrl) -> dict[str, RefRecord]:
        """Raises NotSigned, NotProven, RolledBack."""
        must = needs_proof(self._setting, store.proofs.authority)
        if not (must or self._large.has(store.did, repo.key)):
            return self._listed(repo, store, url)
        from git_knotless.storage.proofs.proven import Proving

        proving = Proving(repo, store, url, self._revs, self._large)
        refs = None
        if self._large.has(store.did, repo.key):
            with suppress(AtprotoError, NotSigned):  # listed, it may be as it should be
                refs = proving.kept(must=must)
        if refs is not None:
            return refs
        return proving.listed() if must else self._listed(repo, store, url)

    def _listed(self, repo: RepoRecord, store: RecordStore, url: RepoUrl) -> dict[str, RefRecord]:
        """As the host says."""
        records = _Some()
        refs = read_refs(store, repo.key, url, heard=records.heard)
        if records.are_large:
            from git_knotless.storage.proofs.proven import Proving

            Proving(repo, store, url, self._revs, self._large).keep(records.blocks, len(refs))
        return refs


def _import_what_proves() -> None:
    import git_knotless.atproto.sync
    import git_knotless.storage.proofs.proven  # noqa: F401 - that it is there is all


class _Some:
    """Records as they are heard of: once they are many, as blocks, which take little room."""

    def __init__(self) -> None:
        self._records: list[Record] = []
        self.blocks: dict[str, bytes] = {}

    def heard(self, record: Record) -> None:
        self._records.append(record)
        if len(self._records) > LARGE or self.blocks:
            self._encode()

    @property
    def are_large(self) -> bool:
        return bool(self.blocks)

    def _encode(self) -> None:
        from git_knotless.storage.proofs.proven import block_of

        for record in self._records:
            self.blocks[record.rkey] = block_of(record.value)
        self._records.clear()
