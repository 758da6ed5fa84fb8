"""Run by the Python that has git_knotless installed: a repo with many more refs in it, as a CAR.

planted_refs.py BEFORE AFTER COUNT    all refs of its one repository, at the commit of the first
"""

import sys
from pathlib import Path

from git_knotless.atproto import mst
from git_knotless.atproto.blocks import Blocks
from git_knotless.atproto.car import read_car, write_car
from git_knotless.atproto.commit import Commit, record_key
from git_knotless.atproto.dag_cbor import decode_json, encode_json
from git_knotless.atproto.keys import Curve, PrivateKey
from git_knotless.atproto.mst_node import layer_of
from git_knotless.atproto.syntax import Nsid, Rkey
from git_knotless.storage.records import REF, RefRecord
from git_knotless.storage.store import Record

sys.path.insert(0, str(Path(__file__).parent))
from planted import kept, tree  # type: ignore[import-not-found] # beside us, once that is said

_LIMIT = 1 << 26  # bytes


def main() -> None:
    before, after, count = sys.argv[1:]
    root, blocks = read_car(Path(before).read_bytes(), limit=_LIMIT)
    commit = Commit.decode(blocks[root])
    records = dict(mst.walk(Blocks(blocks), commit.data))
    ((key, cid),) = ((k, cid) for k, cid in records.items() if k.startswith(f"{REF}/".encode()))
    rkey = Rkey(key.decode().partition("/")[2])
    first = RefRecord.from_record(Record(rkey, decode_json(blocks[cid])))
    made = {cid: blocks[cid] for cid in records.values()}
    for number in range(1, int(count)):
        name = f"refs/heads/topic/{number % 50}/{number}"
        ref = RefRecord(first.repo, name, first.target, 1, first.updated_at)
        block = encode_json(ref.to_json())
        records[record_key(Nsid(REF), ref.rkey)] = kept(made, block)
    items = [(key, cid, layer_of(key)) for key, cid in sorted(records.items())]
    top = tree(made, items, max(layer for _, _, layer in items))
    # Whoever imports the repo signs it anew.
    signed = Commit(commit.did, commit.rev, top).sign(PrivateKey.generate(Curve.P256))
    with open(after, "wb") as file:
        file.writelines(write_car(kept(made, signed), made.items()))


if __name__ == "__main__":
    main()
