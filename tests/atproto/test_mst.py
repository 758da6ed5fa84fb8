"""Trees against what the rules make of the same records, and trees that somebody else made."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from cbrrr import CID, encode_dag_cbor
from hypothesis import given
from hypothesis import strategies as st

from git_knotless.atproto import mst
from git_knotless.atproto.blocks import Blocks, Missing
from git_knotless.atproto.dag_cbor import BadData, cid_text
from git_knotless.atproto.mst_node import Node, layer_of
from tests.atproto.trees import KEYS, keys, layer, planted, records, shared_prefix, tree, value

Records = dict[str, bytes]


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("", 0),
        ("asdf", 0),
        ("blue", 1),
        ("2653ae71", 0),
        ("88bfafc7", 2),
        ("2a92d355", 4),
        ("884976f5", 6),
        ("app.bsky.feed.post/454397e440ec", 4),
        ("app.bsky.feed.post/9adeb165882c", 8),
    ],
)
def test_layers_are_those_of_the_specification(key: str, expected: int) -> None:
    assert layer_of(key.encode()) == expected == layer(key)


def test_roots_are_those_of_the_specification() -> None:
    store = Blocks()
    root = mst.empty(store)
    assert cid_text(root) == "bafyreie5737gdxlw5i64vzichcalba3z2v5n6icifvx5xytvske7mr3hpm"
    one = CID.decode("bafyreie5cvv4h45feadgeuwhbcutmh6t2ceseocckahdoe6uat64zmz454")
    root = mst.put(store, root, b"com.example.record/3jqfcqzm3fo2j", bytes(one))
    assert cid_text(root) == "bafyreibj4lsc3aqnrvphp5xmrnfoorvru4wynt6lwidqbm2623a6tatzdu"


def test_the_keys_that_are_drawn_are_of_many_layers() -> None:
    assert {layer(key) for key in KEYS} >= set(range(7))


@given(records, st.randoms(use_true_random=False))
def test_the_root_follows_from_the_records_alone(some: Records, random: Random) -> None:
    order = list(some.items())
    random.shuffle(order)
    store, root = planted(dict(order))
    expected = tree(some)
    assert root == expected.root
    assert expected.blocks.items() <= store.blocks.items()


@given(records, keys, st.integers(0, 9).map(value))
def test_what_is_put_and_deleted_was_never_there(some: Records, key: str, other: bytes) -> None:
    some.pop(key, None)
    store, root = planted(some)
    added = mst.put(store, root, key.encode(), other)
    assert added != root
    assert mst.delete(store, added, key.encode()) == root
    assert mst.delete(store, root, key.encode()) == root


@given(st.lists(st.tuples(keys, st.none() | st.integers(0, 3).map(value)), max_size=30))
def test_any_changes_end_where_their_outcome_does(changes: list[tuple[str, bytes | None]]) -> None:
    store = Blocks()
    root = mst.empty(store)
    now: Records = {}
    for key, new in changes:
        if new is None:
            now.pop(key, None)
            root = mst.delete(store, root, key.encode())
        else:
            now[key] = new
            root = mst.put(store, root, key.encode(), new)
        assert root == tree(now).root
        assert mst.get(store, root, key.encode()) == new


@given(records, keys)
def test_a_path_is_what_it_takes_to_answer(some: Records, key: str) -> None:
    made = tree(some)
    path = mst.path(Blocks(made.blocks), made.root, key.encode())
    assert path[0] == made.root
    assert len(set(path)) == len(path)
    alone = {cid: made.blocks[cid] for cid in path}
    assert mst.get(Blocks(alone), made.root, key.encode()) == some.get(key)
    for cid in path:
        lacking = Blocks({other: block for other, block in alone.items() if other != cid})
        with pytest.raises(Missing, match=cid_text(cid)):
            mst.get(lacking, made.root, key.encode())


@given(records, keys | st.sampled_from(["", "com.example.aa/", "zzz"]))
def test_a_walk_is_in_order_from_a_key_on(some: Records, start: str) -> None:
    made = tree(some)
    expected = [(key.encode(), cid) for key, cid in sorted(some.items()) if key >= start]
    assert list(mst.walk(Blocks(made.blocks), made.root, start.encode())) == expected


@given(records, records, st.booleans())
def test_a_difference_is_that_of_the_records(one: Records, other: Records, near: bool) -> None:
    other = one | other if near else other
    before, after = tree(one), tree(other)
    found = mst.diff(Blocks(before.blocks | after.blocks), before.root, after.root)
    assert found.changes == {
        key.encode(): (one.get(key), other.get(key))
        for key in one.keys() | other.keys()
        if one.get(key) != other.get(key)
    }
    assert list(found.changes) == sorted(found.changes)
    assert found.added == after.blocks.keys() - before.blocks.keys()
    assert found.dropped == before.blocks.keys() - after.blocks.keys()


def test_changes_over_a_store_leave_it_alone_and_say_what_it_needs() -> None:
    some = {key: value(1) for key in KEYS[::2]}
    stored = tree(some)
    over = Blocks(below=Blocks(stored.blocks))
    root = stored.root
    for key in KEYS[::3]:
        root = mst.put(over, root, key.encode(), value(2))
    expected = tree(some | dict.fromkeys(KEYS[::3], value(2)))
    difference = mst.diff(over, stored.root, root)
    kept = {cid: block for cid, block in stored.blocks.items() if cid not in difference.dropped}
    kept |= {cid: over.blocks[cid] for cid in difference.added}
    assert (root, kept) == (expected.root, expected.blocks)


def test_only_the_nodes_on_a_path_are_read_and_written() -> None:
    class Counting(Blocks):
        reads = 0

        def get(self, cid: bytes, /) -> bytes:
            self.reads += 1
            return super().get(cid)

    made = tree({f"com.example.aa/{number}": value(number) for number in range(3000)})
    store = Counting(below=Blocks(made.blocks))
    root = mst.put(store, made.root, b"com.example.aa/1234x", value(1))
    assert store.reads <= 16
    assert len(store.blocks) <= 16
    store.reads = 0
    mst.diff(store, made.root, root)
    assert store.reads <= 32


# A key of each of the lower layers, in order within a layer.
LEAF, LEAF2, LEAF3 = sorted(key for key in KEYS if layer(key) == 0)[:3]
UPPER, UPPER2 = sorted(key for key in KEYS if layer(key) == 1 and key > LEAF3)[:2]
THIRD = min(key for key in KEYS if layer(key) == 2)


class Forged(Blocks):
    """A store of nodes that are made by hand."""

    def node(self, *entries: dict[str, Any], left: bytes | None = None, **more: Any) -> bytes:
        link = None if left is None else CID(left)
        return self.put(encode_dag_cbor({"l": link, "e": list(entries), **more}))


def entry(
    key: str | bytes, prefix: int = 0, right: bytes | None = None, **more: Any
) -> dict[str, Any]:
    rest = key.encode() if isinstance(key, str) else key
    link = None if right is None else CID(right)
    return {"p": prefix, "k": rest[prefix:], "v": CID(value(1)), "t": link, **more}


FORGED: dict[str, Callable[[Forged], bytes]] = {
    "no map": lambda s: s.put(encode_dag_cbor([])),
    "no CBOR": lambda s: s.put(b"\xff"),
    "empty": lambda s: s.put(b""),
    "lacks l": lambda s: s.put(encode_dag_cbor({"e": []})),
    "more fields": lambda s: s.node(x=1),
    "entries no list": lambda s: s.put(encode_dag_cbor({"l": None, "e": {}})),
    "entry no map": lambda s: s.put(encode_dag_cbor({"l": None, "e": [1]})),
    "entry with more": lambda s: s.node(entry(LEAF, x=1)),
    "entry with less": lambda s: s.put(encode_dag_cbor({"l": None, "e": [{"k": b"x", "p": 0}]})),
    "key text": lambda s: s.node(entry(LEAF, k=LEAF)),
    "key a link": lambda s: s.node(entry(LEAF, k=CID(LEAF.encode()))),
    "key empty": lambda s: s.node(entry("")),
    "prefix negative": lambda s: s.node(entry(LEAF, p=-1)),
    "prefix true": lambda s: s.node(entry(LEAF), entry(LEAF2, p=True)),
    "prefix too long": lambda s: s.node(entry(LEAF, p=1)),
    "prefix huge": lambda s: s.node(entry(LEAF), entry(LEAF2, p=(1 << 64) - 1)),
    "prefix too short": lambda s: s.node(entry(LEAF), entry(LEAF2, shared_prefix(LEAF, LEAF2) - 1)),
    "same key twice": lambda s: s.node(entry(LEAF), entry(LEAF, len(LEAF))),
    "out of order": lambda s: s.node(entry(LEAF2), entry(LEAF, shared_prefix(LEAF, LEAF2))),
    "key too long": lambda s: s.node(entry("c/" + "x" * 1023)),
    "value null": lambda s: s.node(entry(LEAF, v=None)),
    "value bytes": lambda s: s.node(entry(LEAF, v=value(1))),
    "value of another kind": lambda s: s.node(entry(LEAF, v=CID(b"\x01\x55" + value(1)[2:]))),
    "value too long": lambda s: s.node(entry(LEAF, v=CID(value(1) + b"x"))),
    "subtree bytes": lambda s: s.node(entry(UPPER, t=value(1))),
    "two layers in a node": lambda s: s.node(entry(LEAF), entry(UPPER, shared_prefix(LEAF, UPPER))),
    "subtree on the same layer": lambda s: s.node(entry(UPPER2), left=s.node(entry(UPPER))),
    "subtree two layers down": lambda s: s.node(entry(THIRD), left=s.node(entry(LEAF))),
    "below the lowest layer": lambda s: s.node(entry(LEAF2), left=s.node(entry(LEAF))),
    "root not trimmed": lambda s: s.node(left=s.node(entry(LEAF))),
    "empty node below": lambda s: s.node(entry(UPPER), left=s.node()),
    "empty chain below": lambda s: s.node(entry(THIRD), left=s.node(left=s.node())),
    "left too great": lambda s: s.node(entry(LEAF), left=s.node(entry(LEAF2))),
    "left equal": lambda s: s.node(entry(UPPER), left=s.node(entry(UPPER))),
}


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED)
def test_a_tree_against_the_rules_is_refused(forge: Callable[[Forged], bytes]) -> None:
    store = Forged()
    root = forge(store)
    with pytest.raises(BadData):
        list(mst.walk(store, root))
    with pytest.raises(BadData):
        mst.diff(store, mst.empty(store), root)
    with pytest.raises(BadData):
        [mst.get(store, root, key) for key in (b"", LEAF.encode(), THIRD.encode(), b"~")]


def test_a_small_node_of_huge_keys_is_refused_at_once() -> None:
    """A key of a megabyte, and some thousand that share it."""
    start = b"x" * 1_000_000
    more = [entry(bytes([1]), k=b"\1", p=len(start) + at) for at in range(10_000)]
    block = encode_dag_cbor({"l": None, "e": [entry(start), *more]})
    with pytest.raises(BadData, match="too long"):
        Node.decode(block)


@pytest.mark.parametrize("key", [b"", b"c/" + b"x" * 1023])
def test_what_is_no_key_is_not_put(key: bytes) -> None:
    store = Blocks()
    with pytest.raises(BadData, match="1 to 1024 bytes"):
        mst.put(store, mst.empty(store), key, value(1))


def test_the_longest_key_is_put() -> None:
    store = Blocks()
    key = b"c/" + b"x" * 1022
    root = mst.put(store, mst.empty(store), key, value(1))
    assert list(mst.walk(store, root)) == [(key, value(1))]


def test_a_subtree_outside_its_range_is_refused() -> None:
    store = Forged()
    below = min(key for key in KEYS if layer(key) == 0)
    above = max(key for key in KEYS if layer(key) == 0)
    assert below < UPPER < above
    for root in (
        store.node(entry(UPPER), left=store.node(entry(above))),
        store.node(entry(UPPER, right=store.node(entry(below)))),
    ):
        with pytest.raises(BadData, match="out of order"):
            [mst.get(store, root, key.encode()) for key in (below, above)]
        with pytest.raises(BadData, match="out of order"):
            list(mst.walk(store, root))


def test_one_subtree_in_two_places_is_refused() -> None:
    store = Forged()
    leaf = store.node(entry(LEAF))
    root = store.node(entry(UPPER, right=leaf), left=leaf)
    for read in (
        lambda: mst.diff(store, mst.empty(store), root),
        lambda: list(mst.walk(store, root)),
    ):
        with pytest.raises(BadData):
            read()


class Endless(Blocks):
    """Answers every CID with the same node, whose subtree has that CID: a cycle no hash allows."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        self.node = node

    def get(self, cid: bytes, /) -> bytes:
        return self.node.encode()


@pytest.mark.parametrize(
    "node",
    [
        Node(subtrees=(value(1),)),
        Node((THIRD.encode(),), (value(1),), (value(1), value(1))),
        Node((LEAF.encode(),), (value(1),), (value(1), value(1))),
    ],
)
def test_a_cycle_ends(node: Node) -> None:
    store = Endless(node)
    for key in (b"", b"~"):
        for read in (mst.get, mst.path, mst.delete, lambda *args: list(mst.walk(*args))):
            with pytest.raises(BadData):
                read(store, value(1), key)
    with pytest.raises(BadData):
        mst.diff(store, value(2), value(1))


@given(
    st.binary(max_size=60) | records.map(lambda some: max(tree(some).blocks.values(), key=len)),
    st.data(),
)
def test_a_node_has_one_encoding(block: bytes, data: st.DataObject) -> None:
    """Whatever decodes is spelt as its node is encoded."""
    if block and data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(block) - 1))
        block = block[:at] + data.draw(st.binary(max_size=2)) + block[at + 1 :]
    try:
        node = Node.decode(block)
    except BadData:
        return
    assert node.encode() == block
