"""A part of a tree, read from the top a layer at a time: all that has keys in some ranges.

What is found is all that there is in them: a subtree is left out only where the keys beside it say
that it has none of theirs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from git_knotless.atproto.blocks import Blocks
from git_knotless.atproto.dag_cbor import BadData
from git_knotless.atproto.mst_place import Place, root_place
from git_knotless.limits import NODES
from git_knotless.value import value

Range = tuple[bytes, bytes]  # keys from the first on, up to the second and without it
# Blocks by CID, each hashed, of all that it is given. Raises for one that cannot be had.
ReadBlocks = Callable[[Sequence[bytes]], Mapping[bytes, bytes]]


@value
class Part:
    """`entries`: the values of the keys in the ranges. `nodes`: the blocks that prove it, by CID;
    of a key that is in no range they prove nothing."""

    entries: dict[bytes, bytes]
    nodes: dict[bytes, bytes]


def read_part(read: ReadBlocks, root: bytes, ranges: Sequence[Range]) -> Part:
    """Reads each layer at once. Raises BadData for what is no tree, or too much of one."""
    part, size = Part({}, {}), 0
    places: list[Place] = []
    wanted = [root]
    while wanted:
        nodes = read(wanted)
        size += sum(map(len, nodes.values()))
        if size > NODES:
            raise BadData(f"a tree with more than {NODES:,} bytes of nodes for some keys")
        part.nodes.update(nodes)
        places = list(_layer(Blocks(nodes), places or None, root, ranges, part.entries))
        wanted = [place.cid for place in places]
    return part


def _layer(
    store: Blocks,
    places: Sequence[Place] | None,
    root: bytes,
    ranges: Sequence[Range],
    entries: dict[bytes, bytes],
) -> Iterator[Place]:
    """The places below those on a layer in which the ranges go on."""
    for place in [root_place(store, root)] if places is None else places:
        node = place.read(store)
        pairs = zip(node.keys, node.values, strict=True)
        entries.update(each for each in pairs if any(a <= each[0] < b for a, b in ranges))
        for at, subtree in enumerate(node.subtrees):
            if subtree is not None:
                below = place.place_of(subtree, node, at)
                if any(below.low < end and _reaches(below, start) for start, end in ranges):
                    yield below


def _reaches(place: Place, start: bytes) -> bool:
    return place.high is None or start < place.high
