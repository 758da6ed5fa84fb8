"""Where the nodes of a tree stand, and what that asks of each."""

from typing import NamedTuple

from git_knotless.atproto.blocks import BlockStore
from git_knotless.atproto.dag_cbor import BadData
from git_knotless.atproto.mst_node import Node, layer_of, read_node


class Place(NamedTuple):
    """Where a node stands: on a layer, and its keys between two others."""

    cid: bytes
    layer: int
    low: bytes = b""
    high: bytes | None = None

    def below(self, node: Node, at: int) -> "Place | None":
        """Where the way goes on from the node that stands here."""
        subtree = node.subtrees[at]
        return None if subtree is None else self.place_of(subtree, node, at)

    def place_of(self, subtree: bytes, node: Node, at: int) -> "Place":
        """Of a subtree of the node that stands here."""
        low = node.keys[at - 1] if at else self.low
        high = node.keys[at] if at < len(node.keys) else self.high
        return Place(subtree, self.layer - 1, low, high)

    def read(self, store: BlockStore) -> Node:
        node, layers = read_node(store.get(self.cid))
        # A root has a key or nothing at all; what is below it has one on one side, or on both.
        is_root = not self.low and self.high is None
        if not node.keys and node.is_void != is_root:
            raise BadData("a tree with an empty node, or a root that is not its highest key's")
        if self.layer < 0 or layers - {self.layer}:
            raise BadData("a tree with a key on a layer that is not its own")
        if node.keys and not self._spans(node.keys[0], node.keys[-1]):
            raise BadData("a tree with a key that is out of order")
        return node

    def _spans(self, first: bytes, last: bytes) -> bool:
        return self.low < first and (self.high is None or last < self.high)


def root_place(store: BlockStore, cid: bytes) -> Place:
    keys = read_node(store.get(cid)).node.keys
    return Place(cid, layer_of(keys[0]) if keys else 0)
