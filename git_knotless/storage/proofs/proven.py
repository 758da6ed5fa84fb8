"""Refs as the account has signed them.

A listing is compared with the tree under the account's signed commit, all of the part of it that
has the repository's refs: so none was changed, added or left out. The commit is read while the
refs are listed. A push that lands between the two makes them differ, which is no lie: whoever
reads reads again, see `Repository.snapshot`.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from git_knotless.atproto.blocks import Missing
from git_knotless.atproto.commit import Commit, record_key
from git_knotless.atproto.dag_cbor import BadData, cid_of, decode_json, encode_json
from git_knotless.atproto.errors import AtprotoError, BadAnswer
from git_knotless.atproto.syntax import Nsid, Rkey, Tid
from git_knotless.limits import SINCE
from git_knotless.storage.brief import brief
from git_knotless.storage.proofs.beside import Beside
from git_knotless.storage.proofs.differences import differences
from git_knotless.storage.proofs.large import LargeSnapshots
from git_knotless.storage.proofs.revs import Revs
from git_knotless.storage.proofs.signed import (
    Signed,
    begin,
    of_repository,
    read_newest,
    records_under,
    under,
)
from git_knotless.storage.proofs.verified import LARGE, BlocksGone, NotProven, NotSigned, RolledBack
from git_knotless.storage.records import REF, REPO, RefRecord, RepoRecord
from git_knotless.storage.snapshot import read_refs, refs_among
from git_knotless.storage.store import Archive, Record, RecordStore
from git_knotless.storage.url import RepoUrl

_PAGE = 500  # records that come from no listing
_NO_BLOCK = b""  # of a value that no block can hold, and so of none that is signed


class Proving:
    """One reading of one repository's refs. `revs` None: whatever is shown counts."""

    def __init__(
        self,
        repo: RepoRecord,
        store: RecordStore,
        url: RepoUrl,
        revs: Revs | None,
        large: LargeSnapshots,
    ) -> None:
        self._repo = repo
        self._store = store
        self._proofs = store.proofs
        self._url = url
        self._revs = revs
        self._large = large
        self._place = (store.did, repo.key)
        # Of before anything is asked: what another process sees meanwhile may be newer.
        self._newest = revs.newest(*self._place) if revs else None

    def listed(self) -> dict[str, RefRecord]:
        """As the host lists them, if that is what is signed, and the repository's record too."""
        blocks: dict[str, bytes] = {}

        def heard(record: Record) -> None:
            blocks[record.rkey] = block_of(record.value)

        beside = Beside(self._newly_signed)
        refs = read_refs(self._store, self._repo.key, self._url, heard=heard)
        with told_of(self._proofs.authority.host, self._url):
            signed = beside.result()
        self._compare(blocks, signed)
        self._compare_record(signed)
        self._saw(signed, blocks, len(refs))
        return refs

    def keep(self, blocks: Mapping[str, bytes], count: int) -> None:
        """What was listed, if the host can prove it: it is the next reading that gains by it."""
        try:
            signed = self._newly_signed()
            self._compare(blocks, signed)
        except (AtprotoError, NotSigned):
            return
        self._saw(signed, blocks, count)

    def kept(self, *, must: bool) -> dict[str, RefRecord] | None:
        """By what was kept and what came after it; None where nothing was that is of use.

        `must`: the repository's record is compared too.
        """
        archive = self._large.load(*self._place)
        rev = None if archive is None else _rev_of(archive)
        if archive is None or rev is None:
            self._large.drop(*self._place)
            return None
        commit, have = archive
        signed = self._signed(lambda: self._since(rev, have), have)
        if must:
            self._compare_record(signed)
        blocks = self._values(records_under(REF, self._repo.key, signed), have)
        refs = refs_among(_pages(blocks), self._repo.key, self._url)
        if signed.commit != commit or len(refs) <= LARGE:
            self._saw(signed, blocks, len(refs))
        return refs

    # --- the signed tree

    def _newly_signed(self) -> Signed:
        return self._signed(self._begin, {})

    def _signed(self, begun: Callable[[], Archive], have: dict[bytes, bytes]) -> Signed:
        """Raises RolledBack for a commit that is older than was seen."""
        ranges = of_repository(self._repo.key, self._repo.name, REF)
        signed = read_newest(self._proofs, self._store.did, ranges, begun, have)
        check_rev(signed.rev, self._newest, self._proofs.authority.host, self._url)
        return signed

    def _begin(self) -> Archive:
        return begin(self._proofs, under(REF, self._repo.key))

    def _since(self, rev: Tid, have: Mapping[bytes, bytes]) -> Archive:
        """What came after, or where to look for it: at the host's commit."""
        try:
            commit, blocks = self._proofs.since(rev, limit=SINCE)
        except BadAnswer:  # such as more than that
            return self._begin()
        return (commit, blocks) if commit in blocks or commit in have else self._begin()

    def _values(
        self, records: Mapping[str, bytes], have: Mapping[bytes, bytes]
    ) -> dict[str, bytes]:
        """The records' blocks, by their keys."""
        lacking = [cid for cid in records.values() if cid not in have]
        if len(lacking) > LARGE:
            raise Missing("too much of what was kept is not there any more")
        found = self._proofs.blocks(lacking) if lacking else {}
        return {rkey: found[c] if c in found else have[c] for rkey, c in records.items()}

    # --- what it says

    def _compare(self, blocks: Mapping[str, bytes], signed: Signed) -> None:
        wrong = differences(blocks, records_under(REF, self._repo.key, signed), self._proofs)
        if wrong:
            words = brief([f"{what} {why}" for what, why in wrong.values()])
            host = self._proofs.authority.host
            raise NotSigned(
                f"{self._url}: {host} lists refs otherwise than the account has signed them: "
                f"{'; '.join(words)}",
                hint=f"git knotless repo verify {self._url}",
            )

    def _compare_record(self, signed: Signed) -> None:
        key = record_key(Nsid(REPO), self._repo.rkey)
        block = block_of(self._repo.fields)
        if not block or signed.entries.get(key) != cid_of(block):
            host = self._proofs.authority.host
            raise NotSigned(
                f"{self._url}: {host} shows the repository's own record otherwise than the account "
                "has signed it",
                hint=f"git knotless repo verify {self._url}",
            )

    def _saw(self, signed: Signed, blocks: Mapping[str, bytes], refs: int) -> None:
        if self._revs is not None:
            self._revs.saw(*self._place, signed.rev)
        if refs > LARGE:
            records = {cid_of(block): block for block in blocks.values()}
            self._large.keep(*self._place, signed.commit, {**signed.blocks, **records})
        elif self._large.has(*self._place):
            self._large.drop(*self._place)


def check_rev(rev: str, newest: str | None, host: str, url: RepoUrl) -> None:
    """`newest` is the latest that was seen before `rev` was asked for."""
    if newest is not None and rev < newest:
        raise RolledBack(
            f"{url}: the host shows an older state than before: {host} is at the revision {rev}, "
            f"and {newest} was seen",
            hint=f"git knotless repo verify --accept-rollback {url}",
        )


@contextmanager
def told_of(host: str, url: RepoUrl) -> Iterator[None]:
    """What is no proof, by who gave it."""
    hint = f"git knotless repo verify {url}"
    try:
        yield
    except Missing as error:
        why = f"{url}: {host} keeps back a part of its proof: {error.message}"
        raise BlocksGone(why, hint=hint) from error
    except BadData as error:
        why = f"{url}: {host} does not prove what it lists: {error.message}"
        raise NotProven(why, hint=hint) from error


def block_of(value: Mapping[str, object]) -> bytes:
    """Of a record as a host's JSON has it."""
    try:
        return encode_json(value)
    except BadData:
        return _NO_BLOCK


def _rev_of(archive: Archive) -> Tid | None:
    commit, blocks = archive
    try:
        return Commit.decode(blocks.get(commit, b"")).rev
    except BadData:
        return None


def _pages(blocks: Mapping[str, bytes]) -> Iterator[list[Record]]:
    page: list[Record] = []
    for rkey, block in blocks.items():
        value = decode_json(block)
        if isinstance(value, dict):
            page.append(Record(Rkey(rkey), value))
        if len(page) == _PAGE:
            yield page
            page = []
    yield page
