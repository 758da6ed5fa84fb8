"""Commits and proofs: our own, those of the reference PDS, and those of nobody."""

from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any

import pytest
from cbrrr import CID, encode_dag_cbor
from hypothesis import given, settings
from hypothesis import strategies as st

from git_knotless.atproto import dag_cbor, mst
from git_knotless.atproto.blocks import Blocks, Missing
from git_knotless.atproto.car import read_car, write_car
from git_knotless.atproto.commit import Commit, Proof, record_key, verify_proof, write_proof
from git_knotless.atproto.dag_cbor import BadData, Link, cid_of, cid_text
from git_knotless.atproto.keys import BadSignature, Curve, PrivateKey, PublicKey, signing_key
from git_knotless.atproto.syntax import Did, Nsid, Rkey, Tid
from tests.atproto.trees import planted, tree
from tests.network import Account, Network, write

DID = Did("did:plc:ewvi7nxzyoun6zhxrhs64oiz")
OTHER_DID = Did("did:plc:ewvi7nxzyoun6zhxrhs64oia")
COLLECTION = Nsid("dev.knotless.ref")
REV = Tid("3k2akcsyzdc2r")
KEY = PrivateKey.generate(Curve.K256)
OLD_KEY = PrivateKey.generate(Curve.K256)
LINKED = cid_of(b"linked")

# A byte in a block that is hashed, or of a CID, cannot be changed to any good.
FLIPS = (0x01, 0x80, 0xFF)


def a_repo(*, key: PrivateKey = KEY, records: int = 60) -> tuple[Blocks, bytes]:
    """A repo's blocks and its commit's CID."""
    store = Blocks()
    root = mst.empty(store)
    for number in range(records):
        record = {"$type": COLLECTION, "n": number, "to": Link(LINKED), "data": b"\xff\xfe"}
        name = record_key(COLLECTION, Rkey(f"r{number}"))
        root = mst.put(store, root, name, store.put(dag_cbor.encode(record)))
    return store, store.put(Commit(DID, REV, root).sign(key))


REPO, HEAD = a_repo()


def proof_of(rkey: str, store: Blocks = REPO, head: bytes = HEAD) -> bytes:
    return b"".join(write_proof(store, head, COLLECTION, Rkey(rkey)))


def verify(
    car: bytes,
    rkey: str,
    *,
    did: Did = DID,
    key: PublicKey = KEY.public,
    collection: Nsid = COLLECTION,
) -> Proof:
    return verify_proof(car, did=did, key=key, collection=collection, rkey=Rkey(rkey))


def test_a_commit_by_the_letter() -> None:
    data = cid_of(b"data")
    block = Commit(DID, REV, data).sign(KEY)
    unsigned = {"did": DID, "version": 3, "data": CID(data), "rev": REV, "prev": None}
    signature = dag_cbor.decode(block)["sig"]
    assert block == encode_dag_cbor({**unsigned, "sig": signature})
    KEY.public.verify(signature, encode_dag_cbor(unsigned))
    assert Commit.decode(block) == Commit(DID, REV, data)


@pytest.mark.parametrize("curve", Curve, ids=lambda curve: curve.name)
@pytest.mark.parametrize("prev", [None, cid_of(b"prev")])
def test_a_signed_commit_is_the_account_s(curve: Curve, prev: bytes | None) -> None:
    key = PrivateKey.generate(curve)
    commit = Commit(DID, REV, cid_of(b"data"), prev)
    block = commit.sign(key)
    assert Commit.verify(block, did=DID, key=key.public) == commit
    with pytest.raises(BadData, match="another account"):
        Commit.verify(block, did=OTHER_DID, key=key.public)
    with pytest.raises(BadSignature):
        Commit.verify(block, did=DID, key=OLD_KEY.public)


def signed(**changes: Any) -> bytes:
    """A commit's block with other fields, rightly signed; `...` leaves a field out."""
    fields = {"did": DID, "version": 3, "data": Link(LINKED), "rev": REV, "prev": None, **changes}
    fields = {name: value for name, value in fields.items() if value is not ...}
    return dag_cbor.encode({"sig": KEY.sign(dag_cbor.encode(fields)), **fields})


def test_what_else_a_commit_holds_is_signed_with_it() -> None:
    assert Commit.verify(signed(more=[1.5]), did=DID, key=KEY.public) == Commit(DID, REV, LINKED)
    fields = dag_cbor.decode(signed(more=1))
    for changed in ({**fields, "more": 2}, {**fields, "other": 1}):
        with pytest.raises(BadSignature):
            Commit.verify(dag_cbor.encode(changed), did=DID, key=KEY.public)


@pytest.mark.parametrize(
    "changes",
    [
        {"did": 1},
        {"did": "did:key:zx"},
        {"version": 2},
        {"version": 3.0},
        {"version": ...},
        {"data": ...},
        {"data": None},
        {"data": LINKED},
        {"data": Link(b"\x01\x55" + LINKED[2:])},
        {"rev": ...},
        {"rev": "3k2akcsyzdc2"},
        {"rev": 1},
        {"prev": ...},
        {"prev": b""},
        {"prev": Link(b"")},
        {"sig": None},
        {"sig": Link(LINKED)},
    ],
    ids=str,
)
def test_what_is_no_commit(changes: Mapping[str, Any]) -> None:
    for read in (Commit.decode, lambda block: Commit.verify(block, did=DID, key=KEY.public)):
        with pytest.raises(BadData):
            read(signed(**changes))
    with pytest.raises(BadData):
        Commit.decode(b"\x80")


@pytest.mark.parametrize("rkey", ["r0", "r31", "r59"])
def test_a_proof_says_what_the_record_is(rkey: str) -> None:
    found = verify(proof_of(rkey), rkey)
    assert found.value == {
        "$type": COLLECTION,
        "n": int(rkey[1:]),
        "to": {"$link": cid_text(LINKED)},
        "data": {"$bytes": "//4"},
    }
    stored = dag_cbor.encode({**found.value, "to": Link(LINKED), "data": b"\xff\xfe"})
    assert found == Proof(found.value, cid_text(cid_of(stored)), REV, cid_text(HEAD))


@pytest.mark.parametrize("rkey", ["a", "r", "r5x", "zz"])
def test_a_proof_says_that_there_is_no_record(rkey: str) -> None:
    assert verify(proof_of(rkey), rkey) == Proof(None, None, REV, cid_text(HEAD))


def test_a_proof_of_nothing_in_a_repo_of_nothing() -> None:
    store, head = a_repo(records=0)
    assert verify(proof_of("r1", store, head), "r1").value is None


def test_a_proof_is_of_its_own_key_alone() -> None:
    """It may say of a neighbour what it can, and is refused where its path leads elsewhere."""
    answers = []
    for number in range(60):
        try:
            answers.append(verify(proof_of("r31"), f"r{number}"))
        except Missing:
            answers.append(None)
    assert [answer.value["n"] for answer in answers if answer and answer.value] == [31]
    assert all(answer is None or answer.value for answer in answers)


def test_a_proof_is_of_one_account_and_by_its_key() -> None:
    with pytest.raises(BadData, match="another account"):
        verify(proof_of("r1"), "r1", did=OTHER_DID)
    for key in (OLD_KEY.public, PrivateKey.generate(Curve.P256).public):
        with pytest.raises(BadSignature):
            verify(proof_of("r1"), "r1", key=key)


def test_a_record_is_of_its_collection() -> None:
    for record in ({"$type": "com.example.other"}, {"n": 1}, [], None, "x"):
        store = Blocks()
        cid = store.put(dag_cbor.encode(record))
        root = mst.put(store, mst.empty(store), record_key(COLLECTION, Rkey("r1")), cid)
        head = store.put(Commit(DID, REV, root).sign(KEY))
        with pytest.raises(BadData, match="another type"):
            verify(proof_of("r1", store, head), "r1")


def corruptions(car: bytes) -> Iterator[bytes]:
    for at, byte in enumerate(car):
        for flip in FLIPS:
            yield car[:at] + bytes([byte ^ flip]) + car[at + 1 :]
    yield from (car[:at] for at in range(len(car)))
    yield car + b"\0"


def without_each_block(car: bytes) -> Iterator[bytes]:
    root, blocks = read_car(car, limit=len(car))
    for cid in blocks:
        left = {other: block for other, block in blocks.items() if other != cid}
        yield b"".join(write_car(root, left.items()))


def with_high_s(car: bytes, curve: Curve) -> bytes:
    """The same proof with the other signature that verifies, all CIDs made anew."""
    root, blocks = read_car(car, limit=len(car))
    fields = dag_cbor.decode(blocks.pop(root))
    high = curve.order - int.from_bytes(fields["sig"][32:], "big")
    commit = dag_cbor.encode({**fields, "sig": fields["sig"][:32] + high.to_bytes(32, "big")})
    return b"".join(write_car(cid_of(commit), [(cid_of(commit), commit), *blocks.items()]))


def refuses_what_is_broken(car: bytes, check: Callable[[bytes], Proof], curve: Curve) -> None:
    check(car)
    for broken in corruptions(car):
        with pytest.raises(BadData):
            check(broken)
    for lacking in without_each_block(car):
        with pytest.raises(Missing):
            check(lacking)
    with pytest.raises(BadSignature, match="low s"):
        check(with_high_s(car, curve))


@pytest.mark.parametrize("rkey", ["r31", "r5x"])
def test_a_broken_proof_is_refused(rkey: str) -> None:
    refuses_what_is_broken(proof_of(rkey), lambda car: verify(car, rkey), Curve.K256)


@given(st.integers(0, 59), st.integers(0, 59), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=50)
def test_blocks_of_elsewhere_prove_nothing(one: int, other: int, random: Random) -> None:
    """Any blocks of a repo, under the head of it or of another, say the truth or nothing."""
    mine, _ = REPO.blocks, HEAD
    theirs, head = a_repo(records=other)
    chosen = dict(random.sample(sorted((mine | theirs.blocks).items()), 40))
    chosen |= dict([read_car(proof_of(f"r{one}"), limit=10_000)[1].popitem()])
    car = b"".join(write_car(head, [(head, theirs.blocks[head]), *chosen.items()]))
    try:
        found = verify(car, f"r{one}")
    except Missing:
        return
    assert (found.value is not None) == (one < other)


def test_more_than_a_proof_can_be_is_refused() -> None:
    record = {"$type": COLLECTION, "data": bytes(2_000_000)}
    store = Blocks()
    cid = store.put(dag_cbor.encode(record))
    root = mst.put(store, mst.empty(store), record_key(COLLECTION, Rkey("r1")), cid)
    head = store.put(Commit(DID, REV, root).sign(KEY))
    with pytest.raises(BadData, match="at most 2000000"):
        verify(proof_of("r1", store, head), "r1")


# ---------------------------------------------------------------------------------------------
# The reference PDS.


def proof_from(account: Account, rkey: str) -> bytes:
    params = {"did": account.did, "collection": COLLECTION, "rkey": rkey}
    answer = account.host.send("GET", "com.atproto.sync.getRecord", params=params)
    assert answer.status_code == 200
    return answer.content


def random_writes(account: Account, random: Random) -> dict[str, bytes]:
    """Hundreds of records made, changed and deleted. What is there in the end, by its whole key, by
    what the host says of each write."""
    names = [f"{random.choice('abcZ~_')}{random.getrandbits(24):x}" for _ in range(450)]
    collections = [COLLECTION, "dev.knotless.pack", "app.example.x"]
    there: dict[str, bytes] = {}
    for _ in range(15):
        writes = []
        for key in random.sample([f"{each}/{name}" for each in collections for name in names], 60):
            collection, _, rkey = key.partition("/")
            value = {"n": random.getrandbits(20)}
            action = random.choice(("update", "delete", "delete")) if key in there else "create"
            writes.append(write(action, collection, rkey, None if action == "delete" else value))
        for key in random.sample(sorted(there), len(there) // 8):
            collection, _, rkey = key.partition("/")
            if not any((each["collection"], each["rkey"]) == (collection, rkey) for each in writes):
                writes.append(write("delete", collection, rkey))
        results = account.apply(*writes)["results"]
        for each, result in zip(writes, results, strict=True):
            key = f"{each['collection']}/{each['rkey']}"
            if "cid" in result:
                there[key] = bytes(CID.decode(result["cid"]))
            else:
                del there[key]
    return there


@pytest.fixture
def theirs(
    account: Callable[..., Account], network: Network
) -> tuple[Account, PublicKey, dict[str, bytes]]:
    """An account with a repo, its key and what is in the repo."""
    made = account()
    there = random_writes(made, Random(made.did))
    document = network.http.get(f"{network.plc}/{made.did}").json()
    return made, signing_key(document, made.did), there


def test_the_same_records_have_the_host_s_root(
    theirs: tuple[Account, PublicKey, dict[str, bytes]],
) -> None:
    account, key, there = theirs
    assert len(there) > 200
    answer = account.host.send("GET", "com.atproto.sync.getRepo", params={"did": account.did})
    root, blocks = read_car(answer.content, limit=10_000_000)
    latest = account.get("com.atproto.sync.getLatestCommit", did=account.did)
    commit = Commit.verify(blocks[root], did=Did(account.did), key=key)
    assert (cid_text(root), commit.rev) == (latest["cid"], latest["rev"])

    store, ours = planted(there)
    assert commit.data == ours == tree(there).root
    assert tree(there).blocks.items() <= blocks.items()
    whole = dict(mst.walk(Blocks(blocks), commit.data))
    assert whole == {key.encode(): cid for key, cid in there.items()}
    assert mst.diff(Blocks(blocks), commit.data, ours).changes == {}
    for name in there:
        ours = mst.delete(store, ours, name.encode())
    assert ours == mst.empty(store)


def test_the_host_s_proofs_verify_and_ours_are_the_same(
    theirs: tuple[Account, PublicKey, dict[str, bytes]],
) -> None:
    account, key, there = theirs
    answer = account.host.send("GET", "com.atproto.sync.getRepo", params={"did": account.did})
    head, blocks = read_car(answer.content, limit=10_000_000)
    present = [name.partition("/")[2] for name in there if name.startswith(f"{COLLECTION}/")][:15]
    for rkey in (*present, *(f"{name}x" for name in present), "0", "zzzz"):
        car = proof_from(account, rkey)
        did = Did(account.did)
        found = verify(car, rkey, did=did, key=key)
        assert found.value == account.record(COLLECTION, rkey)
        assert (found.value is None) == (rkey not in present)
        ours = b"".join(write_proof(Blocks(blocks), head, COLLECTION, Rkey(rkey)))
        assert read_car(ours, limit=len(ours)) == read_car(car, limit=len(car))


@pytest.mark.parametrize("present", [True, False])
def test_a_broken_proof_of_the_host_s_is_refused(
    theirs: tuple[Account, PublicKey, dict[str, bytes]], present: bool
) -> None:
    account, key, there = theirs
    rkey = next(name.partition("/")[2] for name in there if name.startswith(f"{COLLECTION}/"))
    rkey = rkey if present else f"{rkey}x"
    car = proof_from(account, rkey)
    did = Did(account.did)
    refuses_what_is_broken(car, lambda each: verify(each, rkey, did=did, key=key), key.curve)
    with pytest.raises(BadData, match="another account"):
        verify(car, rkey, did=DID, key=key)
    with pytest.raises(BadSignature):
        verify(car, rkey, did=did, key=KEY.public)
