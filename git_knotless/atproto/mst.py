"""The Merkle search tree of a repo: record keys, sorted, each with the CID of its record.

The tree follows from its records alone: a key's layer is half the leading zero bits of its
SHA-256, a node holds neighbouring keys of one layer, and its subtrees, each one layer down, hold
the keys between them. So the same records have the same root, however they came to be there.
https://atproto.com/specs/repository#mst-structure

Nodes are read when they are needed, and none is believed: each is checked where it stands, so an
answer holds for the root that was asked, or BadData is raised.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Self

from git_knotless.atproto.blocks import BlockStore
from git_knotless.atproto.dag_cbor import BadData, cid_of
from git_knotless.atproto.mst_node import LONGEST_KEY, Node, layer_of, read_node, write_node
from git_knotless.atproto.mst_place import Place, root_place

_EMPTY = cid_of(Node().encode())


@dataclass(frozen=True, slots=True)
class Diff:
    """`changes`: the value before and after of each key that has another, in the keys' order, None
    where there is none. `added` and `dropped`: the nodes of one tree that are not in the other."""

    changes: dict[bytes, tuple[bytes | None, bytes | None]]
    added: set[bytes]
    dropped: set[bytes]


def empty(store: BlockStore) -> bytes:
    """The root of no records."""
    return store.put(Node().encode())


def get(store: BlockStore, root: bytes, key: bytes) -> bytes | None:
    _, node, at = _descend(store, root_place(store, root), key)[-1]
    return node.values[at] if node.has(key, at) else None


def path(store: BlockStore, root: bytes, key: bytes) -> list[bytes]:
    """The nodes that prove what the tree has at the key, or that it has nothing; the root first."""
    return [step.place.cid for step in _descend(store, root_place(store, root), key)]


def walk(store: BlockStore, root: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
    """Keys with their values, in order, from `start` on. A whole walk checks the whole tree."""
    waiting = _descend(store, root_place(store, root), start)
    while waiting:
        place, node, at = waiting.pop()
        if at < len(node.keys):
            yield node.keys[at], node.values[at]
            waiting.append(_Step(place, node, at + 1))
            waiting += _descend(store, place.below(node, at + 1), start)


def put(store: BlockStore, root: bytes, key: bytes, value: bytes) -> bytes:
    """The root of the tree with the value at the key, whether or not that had one."""
    if not 0 < len(key) <= LONGEST_KEY:
        raise BadData(f"a record's key has 1 to {LONGEST_KEY} bytes, not {len(key)}")
    steps = _descend(store, root_place(store, root), key)
    _, node, at = steps[-1]
    if node.has(key, at):
        return _rebuilt(store, node.with_value(at, value), steps[:-1])
    layer = layer_of(key)
    above = [step for step in steps if step.place.layer > layer]
    here = [step for step in steps if step.place.layer == layer]
    left, right = _split(store, steps[len(above) + len(here) :], layer)
    _, node, at = here[0] if here else (None, Node(), 0)
    node = node.with_entry(at, key, value, left, right)
    for _ in range(above[-1].place.layer - layer - 1 if above and not here else 0):
        node = Node(subtrees=(_save(store, node),))
    return _rebuilt(store, node, above)


def delete(store: BlockStore, root: bytes, key: bytes) -> bytes:
    """The root of the tree without the key, which need not be there."""
    *above, (place, node, at) = _descend(store, root_place(store, root), key)
    if not node.has(key, at):
        return root
    left = _descend(store, place.below(node, at), key)
    right = _descend(store, place.below(node, at + 1), key)
    return _rebuilt(store, node.without_entry(at, _join(store, left, right)), above)


def diff(store: BlockStore, old: bytes, new: bytes) -> Diff:
    """What there is to change in one tree to have the other. Subtrees that are in both are not
    read, nor checked."""
    before, after = _Side.of(store, old), _Side.of(store, new)
    while before.waiting or after.waiting:
        shared = before.waiting.keys() & after.waiting.keys()
        layer = max(layer for layer, _ in (*before.waiting, *after.waiting))
        before.descend(store, layer, shared)
        after.descend(store, layer, shared)
    keys = sorted(before.entries.keys() | after.entries.keys())
    pairs = {key: (before.entries.get(key), after.entries.get(key)) for key in keys}
    changes = {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}
    return Diff(changes, after.nodes - before.nodes, before.nodes - after.nodes)


class _Step(NamedTuple):
    """A node on the way to a key, and where the key is in it, or would be."""

    place: Place
    node: Node
    at: int


# A subtree's place, worked out when it is read: most are in both trees, and never are.
_Found = Callable[[], Place]


@dataclass(slots=True)
class _Side:
    """One of two trees, read from the top, a layer at a time."""

    waiting: dict[tuple[int, bytes], _Found]  # by layer and CID: what is not read yet
    nodes: set[bytes] = field(default_factory=set)
    entries: dict[bytes, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, store: BlockStore, root: bytes) -> Self:
        if root == _EMPTY:  # which stands nowhere else: below a root it is to be refused
            return cls({}, {root})
        place = root_place(store, root)
        return cls({(place.layer, root): lambda: place})

    def descend(self, store: BlockStore, layer: int, shared: Set[tuple[int, bytes]]) -> None:
        """Reads what waits on the layer and is not in both trees."""
        found, self.waiting = self.waiting, {}
        for name, place in found.items():
            if name[0] < layer:
                self.waiting[name] = place
            elif name not in shared:
                self._read(store, place())

    def _read(self, store: BlockStore, place: Place) -> None:
        node = place.read(store)
        self.nodes.add(place.cid)
        self.entries.update(zip(node.keys, node.values, strict=True))
        for at, subtree in enumerate(node.subtrees):
            if subtree is None:
                continue
            name = place.layer - 1, subtree
            if name in self.waiting:
                raise BadData("a tree with one subtree in two places")
            self.waiting[name] = partial(place.place_of, subtree, node, at)


def _descend(store: BlockStore, place: Place | None, key: bytes) -> list[_Step]:
    """The way to a key: it ends where the key is, or where nothing is below."""
    steps: list[_Step] = []
    while place is not None:
        node = place.read(store)
        at = bisect_left(node.keys, key)
        steps.append(_Step(place, node, at))
        place = None if node.has(key, at) else place.below(node, at)
    return steps


def _split(
    store: BlockStore, steps: Sequence[_Step], layer: int
) -> tuple[bytes | None, bytes | None]:
    """What is before and after a key, by the way to it, as two subtrees of a node on `layer`."""
    left = right = None
    for _, node, at in reversed(steps):
        before, after = node.split(at, left, right)
        left, right = _save(store, before), _save(store, after)
    for _ in range(layer - steps[0].place.layer - 1 if steps else 0):
        left, right = (_save(store, Node(subtrees=(each,))) for each in (left, right))
    return left, right


def _join(store: BlockStore, left: Sequence[_Step], right: Sequence[_Step]) -> bytes | None:
    """Two neighbouring subtrees as one, by the way down along where they meet in either."""
    meeting = list(zip(left, right, strict=False))
    longer = max(left, right, key=len)[len(meeting) :]
    between = longer[0].place.cid if longer else None
    for one, other in reversed(meeting):
        between = _save(store, one.node.joined(other.node, between))
    return between


def _rebuilt(store: BlockStore, node: Node, above: Sequence[_Step]) -> bytes:
    """The root of the tree in which the node stands where the steps above led to."""
    for _, parent, at in reversed(above):
        node = parent.with_subtree(at, _save(store, node))
    while not node.keys and (below := node.subtrees[0]) is not None:
        node = read_node(store.get(below)).node
    return store.put(write_node(node))


def _save(store: BlockStore, node: Node) -> bytes | None:
    """The node as a subtree: None where nothing is left of it."""
    return None if node.is_void else store.put(write_node(node))
