"""A node of a Merkle search tree, and its one encoding.

https://atproto.com/specs/repository#mst-structure
"""

from collections.abc import Iterator, Set
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple, Self

from git_knotless.atproto import dag_cbor
from git_knotless.atproto.dag_cbor import BadData, Link, is_link

# Bytes; an NSID and a record key are 830 at most. A key is spelt by what it shares with the one
# before, so without a bound a small node could hold keys of gigabytes.
LONGEST_KEY = 1024
# Nodes that are kept as they were decoded: a commit reads those that the one before has written.
# A usual one has 4 keys and 400 bytes; a block of the largest can spell no more than 25 kB of keys.
_MOST_KEPT = 2048
_LARGEST_KEPT = 1024  # bytes


@dataclass(frozen=True, slots=True)
class Node:
    """Keys in ascending order with their values, and the subtrees before, between and after them:
    one more than keys, None where there is nothing between."""

    keys: tuple[bytes, ...] = ()
    values: tuple[bytes, ...] = ()
    subtrees: tuple[bytes | None, ...] = (None,)

    @property
    def is_void(self) -> bool:
        """Without key and subtree, as only the root of no records is."""
        return self.subtrees == (None,)

    def has(self, key: bytes, at: int) -> bool:
        return at < len(self.keys) and self.keys[at] == key

    def with_value(self, at: int, value: bytes) -> Self:
        values = (*self.values[:at], value, *self.values[at + 1 :])
        return type(self)(self.keys, values, self.subtrees)

    def with_subtree(self, at: int, subtree: bytes | None) -> Self:
        subtrees = (*self.subtrees[:at], subtree, *self.subtrees[at + 1 :])
        return type(self)(self.keys, self.values, subtrees)

    def with_entry(
        self, at: int, key: bytes, value: bytes, left: bytes | None, right: bytes | None
    ) -> Self:
        """With a key more, at `at`, whose neighbours `left` and `right` were one subtree."""
        return type(self)(
            (*self.keys[:at], key, *self.keys[at:]),
            (*self.values[:at], value, *self.values[at:]),
            (*self.subtrees[:at], left, right, *self.subtrees[at + 1 :]),
        )

    def without_entry(self, at: int, between: bytes | None) -> Self:
        """Without the key at `at`; `between` is what its two neighbours are as one subtree."""
        return type(self)(
            (*self.keys[:at], *self.keys[at + 1 :]),
            (*self.values[:at], *self.values[at + 1 :]),
            (*self.subtrees[:at], between, *self.subtrees[at + 2 :]),
        )

    def split(self, at: int, left: bytes | None, right: bytes | None) -> tuple[Self, Self]:
        """What is before and after the subtree at `at`, which is in two itself."""
        return (
            type(self)(self.keys[:at], self.values[:at], (*self.subtrees[:at], left)),
            type(self)(self.keys[at:], self.values[at:], (right, *self.subtrees[at + 1 :])),
        )

    def joined(self, other: Self, between: bytes | None) -> Self:
        """With a node of greater keys; `between` is what the subtrees that meet are as one."""
        return type(self)(
            self.keys + other.keys,
            self.values + other.values,
            (*self.subtrees[:-1], between, *other.subtrees[1:]),
        )

    def encode(self) -> bytes:
        left, *rights = (None if each is None else Link(each) for each in self.subtrees)
        entries = []
        previous = b""
        for key, value, right in zip(self.keys, self.values, rights, strict=True):
            shared = _shared_prefix(previous, key)
            entries.append({"k": key[shared:], "p": shared, "t": right, "v": Link(value)})
            previous = key
        return dag_cbor.encode({"e": entries, "l": left})

    @classmethod
    def decode(cls, block: bytes) -> Self:
        """Raises BadData; what the node's place in a tree asks of it is not looked at."""
        match dag_cbor.decode(block):
            case {"e": list(entries), "l": left, **rest} if not rest:
                keys, values, rights = (
                    zip(*_entries(entries), strict=True) if entries else ((),) * 3
                )
                return cls(keys, values, (_pointer(left), *rights))
        raise BadData("a block is no node of a tree")


class Read(NamedTuple):
    """A node, and the layers that its keys stand on: one, in a tree that is sound."""

    node: Node
    layers: Set[int]


def read_node(block: bytes) -> Read:
    """What `Node.decode` says of a block, remembered: a block is the same value for ever."""
    return _kept.get(block) or _keep(block, Node.decode(block))


def write_node(node: Node) -> bytes:
    """The block, remembered too."""
    block = node.encode()
    _keep(block, node)
    return block


@lru_cache(4 * _MOST_KEPT)
def layer_of(key: bytes) -> int:
    """How far above the leaves a key stands: 0 for three of four, each layer a quarter of the one
    below."""
    return (256 - int.from_bytes(sha256(key).digest(), "big").bit_length()) // 2


_kept: dict[bytes, Read] = {}


def _keep(block: bytes, node: Node) -> Read:
    read = Read(node, frozenset(map(layer_of, node.keys)))
    if len(block) <= _LARGEST_KEPT:
        if len(_kept) >= _MOST_KEPT:  # rarely, and read again soon: no need to know the oldest
            _kept.clear()
        _kept[block] = read
    return read


def _entries(entries: list[Any]) -> Iterator[tuple[bytes, bytes, bytes | None]]:
    previous = b""
    for entry in entries:
        match entry:
            # Exact types: True is an int as well, and a Link is bytes.
            case {"k": rest, "p": shared, "t": right, "v": value} if (
                len(entry) == 4 and type(rest) is bytes and type(shared) is int
            ):
                # The first byte that differs is the greater: so keys ascend, and share no more.
                if not (0 <= shared <= len(previous) and rest[:1] > previous[shared : shared + 1]):
                    raise BadData("a tree whose keys are not in order, or not compressed")
                if shared + len(rest) > LONGEST_KEY:
                    raise BadData("a tree with a key that is too long for a record's")
                previous = previous[:shared] + rest
                if not is_link(value):
                    raise BadData("a tree whose value is no CID")
                yield previous, value, _pointer(right)
            case _:
                raise BadData("a block is no node of a tree")


def _pointer(value: Any) -> bytes | None:
    if value is not None and not is_link(value):
        raise BadData("a tree whose subtree is no CID")
    return value


def _shared_prefix(one: bytes, other: bytes) -> int:
    shorter = min(len(one), len(other))
    differing = int.from_bytes(one[:shorter], "big") ^ int.from_bytes(other[:shorter], "big")
    return shorter - (differing.bit_length() + 7) // 8
