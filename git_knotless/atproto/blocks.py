"""Where blocks are kept, by their CIDs."""

from collections.abc import Mapping
from typing import Protocol

from git_knotless.atproto.dag_cbor import BadData, cid_of, cid_text


class Missing(BadData):
    """A block that the store does not have."""


class BlockStore(Protocol):
    def get(self, cid: bytes, /) -> bytes:
        """The block that was hashed to the CID; raises Missing."""

    def put(self, block: bytes, /) -> bytes:
        """Keeps a block, which may be there already, and says its CID."""


class Blocks:
    """Blocks in memory over a store, if there is one, which is read and never written.

    What a change of a tree writes stays here; `mst.diff` says what of it the new root needs. What
    was read below is not asked for again.
    """

    def __init__(
        self, blocks: Mapping[bytes, bytes] | None = None, *, below: BlockStore | None = None
    ) -> None:
        self.blocks = dict(blocks or {})
        self._below = below
        self._read: dict[bytes, bytes] = {}

    def get(self, cid: bytes, /) -> bytes:
        block = self.blocks.get(cid, self._read.get(cid))
        if block is not None:
            return block
        if self._below is None:
            raise Missing(f"the block {cid_text(cid)} is missing")
        block = self._read[cid] = self._below.get(cid)
        return block

    def put(self, block: bytes, /) -> bytes:
        cid = cid_of(block)
        self.blocks[cid] = block
        return cid
