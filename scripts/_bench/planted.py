"""Run by the Python that has git_knotless installed: a repo of many records, as a CAR.

planted.py COLLECTION COUNT FILE    its keys are 0, 1, …, of seven digits
"""

import sys
from pathlib import Path

from git_knotless.atproto.car import write_car
from git_knotless.atproto.commit import Commit, record_key
from git_knotless.atproto.dag_cbor import cid_of, encode
from git_knotless.atproto.keys import Curve, PrivateKey
from git_knotless.atproto.mst_node import Node, layer_of
from git_knotless.atproto.syntax import Did, Nsid, Rkey, Tid

_DID = Did("did:plc:ewvi7nxzyoun6zhxrhs64oiz")  # whoever imports the repo signs it anew
_REV = Tid("3jzfcijpj2z2a")

Item = tuple[bytes, bytes, int]  # a key, its value, its layer


def main() -> None:
    collection, count, place = sys.argv[1:]
    blocks: dict[bytes, bytes] = {}
    items: list[Item] = []
    for number in range(int(count)):
        key = record_key(Nsid(collection), Rkey(f"{number:07}"))
        value = kept(blocks, encode({"$type": collection, "number": number}))
        items.append((key, value, layer_of(key)))
    root = tree(blocks, items, max(layer for _, _, layer in items))
    assert root is not None
    commit = Commit(_DID, _REV, root).sign(PrivateKey.generate(Curve.P256))
    with open(Path(place), "wb") as file:
        file.writelines(write_car(kept(blocks, commit), blocks.items()))


def tree(blocks: dict[bytes, bytes], items: list[Item], layer: int) -> bytes | None:
    """The subtree on the layer that has just these keys, all at once."""
    if not items:
        return None
    here = [at for at, item in enumerate(items) if item[2] == layer]
    bounds = zip([-1, *here], [*here, len(items)], strict=True)
    subtrees = tuple(tree(blocks, items[low + 1 : high], layer - 1) for low, high in bounds)
    node = Node(tuple(items[at][0] for at in here), tuple(items[at][1] for at in here), subtrees)
    return kept(blocks, node.encode())


def kept(blocks: dict[bytes, bytes], block: bytes) -> bytes:
    cid = cid_of(block)
    blocks[cid] = block
    return cid


if __name__ == "__main__":
    main()
