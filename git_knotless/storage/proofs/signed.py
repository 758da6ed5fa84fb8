"""What an account has signed under some keys: a part of its tree, and the commit above it."""

from collections.abc import Callable, Mapping, Sequence

from git_knotless.atproto.blocks import Missing
from git_knotless.atproto.commit import Commit, record_key
from git_knotless.atproto.dag_cbor import cid_text
from git_knotless.atproto.keys import BadSignature
from git_knotless.atproto.mst_range import Range, read_part
from git_knotless.atproto.syntax import Did, Nsid, Rkey, Tid
from git_knotless.storage.records import REPO, prefix_of
from git_knotless.storage.store import Archive, Proofs
from git_knotless.value import value

_READINGS = 3  # of a tree whose blocks are gone, each by a newer commit


@value
class Signed:
    """`entries`: the CIDs of all records that there are under the keys, by their whole keys.
    `blocks` prove it: the commit and the nodes above them."""

    rev: Tid
    commit: bytes
    entries: Mapping[bytes, bytes]
    blocks: Mapping[bytes, bytes]


def under(collection: str, key: str) -> Range:
    """The records of a collection that are of the repository of that key."""
    start = record_key(Nsid(collection), Rkey(prefix_of(key)))
    return start, start[:-1] + bytes([start[-1] + 1])


def the_record(collection: str, rkey: str) -> Range:
    key = record_key(Nsid(collection), Rkey(rkey))
    return key, key + b"\0"


def of_repository(key: str, name: str, *collections: str) -> list[Range]:
    """Its record, by its name, and all in the collections."""
    return [the_record(REPO, name), *(under(collection, key) for collection in collections)]


def records_under(collection: str, key: str, signed: Signed) -> dict[str, bytes]:
    """The CIDs of the records of one collection, by their record keys."""
    start, end = under(collection, key)
    at = len(collection) + 1
    return {
        name[at:].decode(errors="replace"): cid
        for name, cid in signed.entries.items()
        if start <= name < end
    }


def begin(proofs: Proofs, part: Range) -> Archive:
    """The newest commit, and the nodes on the way to where a range starts: no record is there, so
    that one answer has most of what a small range takes."""
    collection, _, rkey = part[0].decode().partition("/")
    return proofs.record(Nsid(collection), Rkey(rkey))


def read_newest(
    proofs: Proofs,
    did: Did,
    ranges: Sequence[Range],
    begun: Callable[[], Archive],
    have: dict[bytes, bytes],
) -> Signed:
    """By the newest commit, which `begun` asks for, and again where the account has moved on.

    `have` are blocks that need not be asked for, and gets those that were begun with. Raises
    BadData for what is not the account's, or no tree; Missing where some of it is kept back.
    """
    for left in reversed(range(_READINGS)):
        commit, blocks = begun()
        have.update(blocks)
        try:
            return _read(proofs, did, commit, ranges, have)
        except Missing:
            if not left or proofs.commit()[0] == cid_text(commit):
                raise
    raise AssertionError("the last reading is the last")


def _read(
    proofs: Proofs,
    did: Did,
    commit: bytes,
    ranges: Sequence[Range],
    have: Mapping[bytes, bytes],
) -> Signed:
    if commit not in have:
        raise Missing("the commit is missing")
    signed = _verified(proofs, did, have[commit])

    def read(cids: Sequence[bytes]) -> dict[bytes, bytes]:
        lacking = [cid for cid in cids if cid not in have]
        found = proofs.blocks(lacking) if lacking else {}
        return {cid: found[cid] if cid in found else have[cid] for cid in cids}

    part = read_part(read, signed.data, ranges)
    return Signed(signed.rev, commit, part.entries, {commit: have[commit], **part.nodes})


def _verified(proofs: Proofs, did: Did, block: bytes) -> Commit:
    """The account may sign with another key by now than it did."""
    try:
        return Commit.verify(block, did=did, key=proofs.signing_key(fresh=False))
    except BadSignature:
        return Commit.verify(block, did=did, key=proofs.signing_key(fresh=True))
