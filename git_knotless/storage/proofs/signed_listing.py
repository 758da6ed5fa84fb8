"""Records of a repository, listed whole and held against what the account has signed.

What goes by a listing is gone for good, so none is believed here, whatever `knotless.verify` says:
a host may list by an index that lags behind, and a cache before it may list what was. The tree is
read before and, where that differs, after the listing: pushes that land meanwhile are no lie.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from git_knotless.atproto.dag_cbor import cid_of
from git_knotless.atproto.syntax import Rkey
from git_knotless.storage.brief import brief
from git_knotless.storage.listing import WrittenToMeanwhile
from git_knotless.storage.proofs.differences import differences
from git_knotless.storage.proofs.proven import block_of, told_of
from git_knotless.storage.proofs.signed import Signed, begin, read_newest, records_under, under
from git_knotless.storage.proofs.verified import MAY_HAVE_MOVED, NotSigned
from git_knotless.storage.proofs.verify_records import KINDS
from git_knotless.storage.records import CLAIM, REF, RefRecord, prefix_of
from git_knotless.storage.snapshot import refs_among
from git_knotless.storage.store import Archive, Record, RecordStore
from git_knotless.storage.url import RepoUrl

_LISTINGS = 5  # of what is written to while it is listed


class Place(Protocol):
    """An account that holds a repository, and what to call that."""

    @property
    def store(self) -> RecordStore: ...

    @property
    def url(self) -> RepoUrl: ...


def refs_signed(place: Place, key: str) -> dict[str, RefRecord]:
    """Every ref that the account has signed, and that is listed; raises as `list_signed` does."""
    return refs_among([list_signed(place, key, [REF])[REF]], key, place.url)


def list_signed(
    place: Place, key: str, collections: Sequence[str], *, since: Rkey | None = None
) -> dict[str, list[Record]]:
    """All records under `key` of the collections, listed in that order; no older than the claim
    `since`, which stands.

    Raises NotSigned, NotProven for what a host makes of them, and WrittenToMeanwhile for one that
    cannot list them whole.
    """
    listing = _Listing(place, key, collections)
    for left in reversed(range(_LISTINGS)):
        try:
            return listing.read(since)
        except (WrittenToMeanwhile, *MAY_HAVE_MOVED):
            if not left:
                raise
    raise AssertionError("the last listing is the last")


class _Listing:
    def __init__(self, place: Place, key: str, collections: Sequence[str]) -> None:
        self._store = place.store
        self._proofs = place.store.proofs
        self._url = place.url
        self._key = key
        self._collections = collections
        self._have: dict[bytes, bytes] = {}

    def read(self, since: Rkey | None) -> dict[str, list[Record]]:
        before = self._signed()
        if since is not None and since not in records_under(CLAIM, self._key, before):
            self._refuse("shows an older state than was just written")
        listed = {each: self._listed(each) for each in self._collections}
        wrong = self._wrong(listed, [before]) and self._wrong(listed, [before, self._signed()])
        if wrong:
            self._refuse(f"lists otherwise than the account has signed: {'; '.join(brief(wrong))}")
        return listed

    def _refuse(self, why: str) -> None:
        raise NotSigned(
            f"{self._url}: {self._proofs.authority.host} {why}",
            hint=f"git knotless repo verify {self._url}",
        )

    def _signed(self) -> Signed:
        ranges = [under(each, self._key) for each in self._collections]

        def begun() -> Archive:
            return begin(self._proofs, ranges[0])

        with told_of(self._proofs.authority.host, self._url):
            return read_newest(self._proofs, self._store.did, ranges, begun, self._have)

    def _listed(self, collection: str) -> list[Record]:
        pages = self._store.list_whole(collection, prefix_of(self._key))
        return [record for page in pages for record in page]

    def _wrong(
        self, listed: Mapping[str, Sequence[Record]], states: Sequence[Signed]
    ) -> Sequence[str]:
        """What is listed as it is in none of the states, or left out and in all of them."""
        words = list[str]()
        for collection, records in listed.items():
            blocks = {record.rkey: block_of(record.value) for record in records}
            signed = [records_under(collection, self._key, each) for each in states]
            wrong = [
                rkey
                for rkey in sorted(blocks.keys() | signed[0].keys())
                if not _agrees(blocks.get(Rkey(rkey)), [each.get(rkey) for each in signed])
            ]
            unlike = {rkey: blocks[Rkey(rkey)] for rkey in wrong if rkey in blocks}
            newest = {rkey: signed[-1][rkey] for rkey in wrong if rkey in signed[-1]}
            told = differences(unlike, newest, self._proofs, kind=KINDS[collection])
            words += (f"{what} {why}" for what, why in told.values())
        return words


def _agrees(block: bytes | None, cids: Sequence[bytes | None]) -> bool:
    return None in cids if block is None else bool(block) and cid_of(block) in cids
