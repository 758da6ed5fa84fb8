"""A part of a tree: all that is in it and no more, a request a layer, and no block believed."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from git_knotless.atproto import dag_cbor, mst_range
from git_knotless.atproto.blocks import Missing
from git_knotless.atproto.dag_cbor import BadData, cid_of
from git_knotless.atproto.mst_range import Part, Range, read_part
from tests.atproto.trees import KEYS, keys, layer, records, tree, value

WHOLE = (b"", b"\xff")


class Asked:
    """Blocks of a host, and what was asked for, a request each."""

    def __init__(self, blocks: Mapping[bytes, bytes]) -> None:
        self.blocks = blocks
        self.requests: list[Sequence[bytes]] = []

    def __call__(self, cids: Sequence[bytes]) -> dict[bytes, bytes]:
        self.requests.append(cids)
        if lacking := [cid for cid in cids if cid not in self.blocks]:
            raise Missing(str(lacking))
        return {cid: self.blocks[cid] for cid in cids}


def within(held: Mapping[str, bytes], ranges: Sequence[Range]) -> dict[bytes, bytes]:
    found = {key.encode(): cid for key, cid in held.items()}
    return {k: cid for k, cid in found.items() if any(a <= k < b for a, b in ranges)}


ends = st.tuples(keys, keys).map(lambda pair: tuple(key.encode() for key in sorted(pair)))


@given(records, st.lists(ends, max_size=3))
@settings(max_examples=60)
def test_a_part_is_what_the_ranges_hold(held: dict[str, bytes], ranges: list[Range]) -> None:
    built = tree(held)
    host = Asked(built.blocks)
    part = read_part(host, built.root, ranges)
    assert part.entries == within(held, ranges)
    assert part.nodes.items() <= built.blocks.items()
    # Those blocks alone have the same to say.
    assert read_part(Asked(part.nodes), built.root, ranges) == part
    assert len(host.requests) <= 1 + max(map(layer, held), default=0)


def test_a_narrow_part_reads_little_of_a_large_tree() -> None:
    held = {f"com.example.aa/{n:05}": value(n) for n in range(3000)}
    built = tree(held)
    host = Asked(built.blocks)
    part = read_part(host, built.root, [(b"com.example.aa/00700", b"com.example.aa/00702")])
    assert len(part.entries) == 2
    assert len(part.nodes) < 20
    assert read_part(Asked(built.blocks), built.root, [WHOLE]).nodes == built.blocks


HELD = {key: value(n) for n, key in enumerate(KEYS[::3])}
BUILT = tree(HELD)
MIDDLE = (sorted(HELD)[8].encode(), sorted(HELD)[20].encode())


def test_no_part_is_proven_without_each_of_its_nodes() -> None:
    part = read_part(Asked(BUILT.blocks), BUILT.root, [MIDDLE])
    for cid in part.nodes:
        left = {c: block for c, block in part.nodes.items() if c != cid}
        with pytest.raises(Missing):
            read_part(Asked(left), BUILT.root, [MIDDLE])


def test_nodes_of_elsewhere_are_refused() -> None:
    """A tree whose nodes are rightly hashed, but for one that stands where it may not."""
    random = Random(1)
    nodes = {cid: dag_cbor.decode(block) for cid, block in BUILT.blocks.items()}
    below = [cid for cid in nodes if cid != BUILT.root]
    tried = 0
    for _ in range(200):
        one, other = random.sample(below, 2)
        root, blocks = swapped(nodes, BUILT.root, one, other)
        if root == BUILT.root:
            continue
        tried += 1
        try:
            part = read_part(Asked(blocks), root, [WHOLE])
        except BadData:
            continue
        pytest.fail(f"{part.entries} is no tree of these nodes")
    assert tried > 50


def swapped(
    nodes: Mapping[bytes, dict[str, Any]], root: bytes, one: bytes, other: bytes
) -> tuple[bytes, dict[bytes, bytes]]:
    """The tree with the node `other` in the place of `one`, hashed anew from there up."""
    blocks: dict[bytes, bytes] = {}

    def put(cid: bytes | None, *, below: bool) -> dag_cbor.Link | None:
        if cid is None:
            return None
        if cid == one and not below:
            return put(other, below=True)
        node = nodes[cid]
        entries = [{**each, "t": put(each["t"], below=below)} for each in node["e"]]
        block = dag_cbor.encode({"e": entries, "l": put(node["l"], below=below)})
        blocks[cid_of(block)] = block
        return dag_cbor.Link(cid_of(block))

    return put(root, below=False) or b"", blocks


def test_a_part_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mst_range, "NODES", 1000)
    with pytest.raises(BadData, match="more than 1,000 bytes"):
        read_part(Asked(BUILT.blocks), BUILT.root, [WHOLE])


def test_a_tree_of_nothing() -> None:
    built = tree({})
    assert read_part(Asked(built.blocks), built.root, [WHOLE]) == Part({}, built.blocks)
