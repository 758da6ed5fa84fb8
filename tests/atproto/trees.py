"""Merkle search trees made anew from their records, slowly and by the rules alone."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from cbrrr import CID, encode_dag_cbor
from hypothesis import strategies as st

from git_knotless.atproto import mst
from git_knotless.atproto.blocks import Blocks


def layer(key: str) -> int:
    """Pairs of zero bits that the hash begins with."""
    bits = "".join(f"{byte:08b}" for byte in sha256(key.encode()).digest())
    return len(bits.partition("1")[0]) // 2


def shared_prefix(one: str, other: str) -> int:
    return max(at for at in range(len(one) + 1) if other.startswith(one[:at]))


@dataclass
class Tree:
    """Blocks by CID, and the root's."""

    root: bytes = b""
    blocks: dict[bytes, bytes] = field(default_factory=dict)

    def store(self, value: Any) -> CID:
        block = encode_dag_cbor(value)
        cid = CID.cidv1_dag_cbor_sha256_32_from(block)
        self.blocks[bytes(cid)] = block
        return cid


def tree(records: Mapping[str, bytes]) -> Tree:
    built = Tree()
    items = sorted(records.items())
    top = max(map(layer, records), default=0)
    built.root = bytes(_node(built, items, top) or built.store({"l": None, "e": []}))
    return built


def _node(built: Tree, items: list[tuple[str, bytes]], height: int) -> CID | None:
    if not items:
        return None
    on_layer = [at for at, (key, _) in enumerate(items) if layer(key) == height]
    ends = [*on_layer, len(items)]
    entries: list[dict[str, Any]] = []
    previous = ""
    for at, end in zip(on_layer, ends[1:], strict=True):
        key, value = items[at]
        shared = shared_prefix(previous, key)
        right = _node(built, items[at + 1 : end], height - 1)
        entries.append({"p": shared, "k": key[shared:].encode(), "v": CID(value), "t": right})
        previous = key
    return built.store({"l": _node(built, items[: ends[0]], height - 1), "e": entries})


def value(number: int) -> bytes:
    """The CID of some record."""
    return bytes(CID.cidv1_dag_cbor_sha256_32_from(b"%d" % number))


def planted(records: Mapping[str, bytes], store: Blocks | None = None) -> tuple[Blocks, bytes]:
    """The tree as our own code makes it, a record after the other in the order given."""
    store = store or Blocks()
    root = mst.empty(store)
    for key, cid in records.items():
        root = mst.put(store, root, key.encode(), cid)
    return store, root


def _keys_by_layer(most: int) -> list[list[str]]:
    """A few keys of each layer: among keys drawn evenly the upper ones would be rare."""
    found: dict[int, list[str]] = {}
    for number in range(40_000):
        key = f"{'com.example.aa' if number % 3 else 'com.example.bb'}/{number:x}"
        if len(same := found.setdefault(layer(key), [])) < most:
            same.append(key)
    return [found[height] for height in sorted(found)]


KEYS = [key for same in _keys_by_layer(12) for key in same]

keys = st.sampled_from(KEYS)
records = st.dictionaries(keys, st.integers(0, 5).map(value), max_size=30)
