"""An account's repo in blocks: com.atproto.sync.

Every block that is handed on hashes to its CID, and nothing else of an answer is believed: what a
block means is for whoever knows where it stands in the signed tree.
"""

from collections.abc import Mapping, Sequence

from git_knotless.atproto.blocks import Missing
from git_knotless.atproto.car import read_blocks, read_car
from git_knotless.atproto.dag_cbor import cid_text
from git_knotless.atproto.errors import AccountNotHere, BadAnswer, RepoTakendown, XrpcError
from git_knotless.atproto.hosts import host_of
from git_knotless.atproto.syntax import Cid, Did, Nsid, Rkey, Tid, is_cid, is_tid
from git_knotless.atproto.xrpc import Client
from git_knotless.limits import BLOCKS, COMMIT, PROOF

MOST_BLOCKS = 200  # in one request: hosts that take a head of 16 KiB take 200 CIDs in it
_REFUSES_CIDS = 400  # the status where one of the blocks that were asked for is not there

Archive = tuple[bytes, dict[bytes, bytes]]  # a commit's CID, and blocks by theirs


def get_latest_commit(client: Client, host: str, did: Did) -> tuple[Cid, Tid]:
    """Its CID and its rev, as the host says: nothing is signed here."""
    answer = client.get(host, "com.atproto.sync.getLatestCommit", {"did": did}, limit=COMMIT)
    match answer:
        case {"cid": str(cid), "rev": str(rev)} if is_cid(cid) and is_tid(rev):
            return Cid(cid), Tid(rev)
    raise BadAnswer(f"{host_of(host)} answers with something else than a commit")


def get_record(client: Client, host: str, did: Did, collection: Nsid, rkey: Rkey) -> Archive:
    """The commit, the nodes on the way to the key, and the record if there is one."""
    params = {"did": did, "collection": collection, "rkey": rkey}
    car = client.get_file(host, "com.atproto.sync.getRecord", params, limit=PROOF)
    return read_car(car, limit=PROOF)


def get_blocks(client: Client, host: str, did: Did, cids: Sequence[bytes]) -> dict[bytes, bytes]:
    """Those blocks, however many; raises Missing where the host does not have one of them.

    A host keeps the blocks of an account's newest commit, so that those of the one before may go
    between two requests.
    """
    found: dict[bytes, bytes] = {}
    for at in range(0, len(cids), MOST_BLOCKS):
        some = cids[at : at + MOST_BLOCKS]
        blocks = _some_blocks(client, host, did, some)
        for cid in some:
            if cid not in blocks:
                raise Missing(f"{host_of(host)} leaves out the block {cid_text(cid)}")
            found[cid] = blocks[cid]
    return found


def _some_blocks(
    client: Client, host: str, did: Did, cids: Sequence[bytes]
) -> Mapping[bytes, bytes]:
    params: dict[str, str | list[str]] = {"did": did, "cids": [cid_text(cid) for cid in cids]}
    try:
        car = client.get_file(host, "com.atproto.sync.getBlocks", params, limit=BLOCKS)
    except (AccountNotHere, RepoTakendown):
        raise
    except XrpcError as error:
        if error.status != _REFUSES_CIDS:
            raise
        raise Missing(f"{host_of(host)} does not have all of {len(cids)} blocks") from error
    return read_blocks(car, limit=BLOCKS)


def get_repo(client: Client, host: str, did: Did, *, since: Tid, limit: int) -> Archive:
    """The newest commit's CID, and the blocks that came after the revision `since`.

    Raises BadAnswer where they are more than `limit` bytes.
    """
    params = {"did": did, "since": since}
    car = client.get_file(host, "com.atproto.sync.getRepo", params, limit=limit)
    return read_car(car, limit=limit)
