"""The lexicons are well formed, and what the code writes and reads is what they say."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from git_knotless import limits
from git_knotless.atproto.syntax import Did, Rkey
from git_knotless.storage import records
from git_knotless.storage.accounts import emails, profile
from git_knotless.storage.accounts.own_record import COLLECTIONS_OF_AN_ACCOUNT
from git_knotless.storage.claims import ClaimRecord, EpochRecord
from git_knotless.storage.fields import BadRecord
from git_knotless.storage.lfs.record import LfsRecord
from git_knotless.storage.packs import packrecord
from git_knotless.storage.packs.packrecord import PackRecord
from git_knotless.storage.places.references import RedirectRecord, RepoRef
from git_knotless.storage.records import RefRecord, RepoRecord
from git_knotless.storage.store import BlobRef, Record
from tests.gitenv import GitEnv
from tests.lexicon import FORMATS, Lexicons, read_all
from tests.network import Account
from tests.storage.account import Account as Records

LEXICONS = Lexicons(read_all())
KEY = "3k2akcsyzdc2r"
DID = "did:plc:ewvi7nxzyoun6zhxrhs64oiz"
NOW = "2026-01-02T03:04:05.678Z"
CID = "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy"

oids = st.text("0123456789abcdef", min_size=40, max_size=40)
dids = st.just(Did(DID))
generations = st.integers(1, 2**53 - 1)
names = st.from_regex(r"refs/heads/[a-z][a-zé]{0,40}", fullmatch=True)
small_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


def misfits(value: dict[str, Any]) -> list[str]:
    return [*LEXICONS.misfits(value), *map("unknown: {}".format, LEXICONS.unknown_fields(value))]


def read(kind: Any, rkey: str, value: dict[str, Any]) -> Any:
    return kind.from_record(Record(Rkey(rkey), value))


@pytest.mark.parametrize("nsid", sorted(LEXICONS.documents))
def test_each_file_is_a_lexicon(nsid: str) -> None:
    assert list(LEXICONS.complaints(nsid)) == []


@pytest.mark.parametrize("nsid", sorted(LEXICONS.documents))
def test_each_record_says_what_it_is(nsid: str) -> None:
    for name, schema in LEXICONS.documents[nsid]["defs"].items():
        assert schema.get("description", "").endswith("."), f"{nsid}#{name}"


def test_every_record_of_a_repository_is_on_the_one_list() -> None:
    """Delete, fork, transfer, size and verify go by the list, and would forget the others.

    A redirect is under a name, and refers to its repository: no list by keys has it.
    """
    kinds = {
        nsid: document["defs"].get("main", {}).get("record", {}).get("properties", {}).get("repo")
        for nsid, document in LEXICONS.documents.items()
    }
    with_key = {nsid for nsid, schema in kinds.items() if schema and schema["type"] == "string"}
    assert with_key == set(records.COLLECTIONS_OF_A_REPOSITORY)
    assert {nsid for nsid, schema in kinds.items() if schema} - with_key == {records.REDIRECT}


def test_every_other_record_is_of_an_account() -> None:
    """It stays when a repository goes."""
    kept = {
        nsid
        for nsid, document in LEXICONS.documents.items()
        if document["defs"].get("main", {}).get("type") == "record"
    }
    repositories = {records.REPO, records.REDIRECT, *records.COLLECTIONS_OF_A_REPOSITORY}
    assert kept - repositories == set(COLLECTIONS_OF_AN_ACCOUNT)


@st.composite
def repo_fields(draw: st.DrawFn) -> dict[str, Any]:
    rule = st.fixed_dictionaries(
        {"branch": st.sampled_from(["main", "release/1"])},
        optional={"history": st.sampled_from(["linear", "merges"]), "queue": st.booleans()},
    )
    optional = {
        "nonce": st.just("n" * 32),
        "updatedAt": st.just(NOW),
        "description": small_texts,
        "defaultBranch": st.sampled_from(["main", "é" * 127]),
        "collaborators": st.lists(dids, max_size=3),
        "rules": st.lists(rule, max_size=3),
        "archived": st.booleans(),
        "objectFormat": st.just("sha1"),
        "forkOf": st.just({"uri": f"at://{DID}/dev.knotless.repo/a", "key": KEY}),
    }
    fixed = {"$type": st.just(records.REPO), "key": st.just(KEY)}
    fixed |= {"epoch": generations, "createdAt": st.just(NOW)}
    return draw(st.fixed_dictionaries(fixed, optional=optional))


@given(repo_fields())
def test_a_repository_is_read_and_written_as_the_lexicon_says(fields: dict[str, Any]) -> None:
    assert misfits(fields) == []
    written = read(RepoRecord, "name", fields).to_json()
    assert written == fields


@given(names, st.none() | oids, generations, st.none() | dids)
def test_a_ref_is_written_as_the_lexicon_says(
    name: str, target: str | None, generation: int, pusher: Did | None
) -> None:
    ref = RefRecord(KEY, name, target, generation, NOW, pusher)
    assert misfits(ref.to_json()) == []
    again = read(RefRecord, ref.rkey, ref.to_json())
    assert (again.name, again.target, again.generation) == (name, target, generation)


@given(names, st.integers(0, 2**53 - 1), st.none() | oids, st.none() | oids, st.none() | dids)
def test_a_claim_is_written_as_the_lexicon_says(
    name: str, generation: int, old: str | None, new: str | None, pusher: Did | None
) -> None:
    claim = ClaimRecord(KEY, name, generation, 1, old, new, "n" * 26, NOW, pusher)
    assert misfits(claim.to_json()) == []


@given(generations, st.none() | st.sampled_from(["name", "a" * 100]))
def test_an_epoch_is_written_as_the_lexicon_says(epoch: int, deleted: str | None) -> None:
    assert misfits(EpochRecord(KEY, epoch, "n" * 26, NOW, deleted).to_json()) == []


@given(st.integers(0, 2**53 - 1), st.integers(0, 3))
def test_an_lfs_object_is_written_as_the_lexicon_says(size: int, blobs: int) -> None:
    parts = tuple(BlobRef(CID, mime, size) for mime in ("image/png", "text/plain", "a/b")[:blobs])
    assert misfits(LfsRecord(KEY, "a" * 64, size, parts, NOW).to_json()) == []


addresses = st.from_regex(r"[a-zé]{1,3}@[a-z]{1,3}", fullmatch=True)


@given(st.lists(addresses, max_size=5), st.lists(addresses, max_size=5))
def test_emails_are_written_as_the_lexicon_says(added: list[str], removed: list[str]) -> None:
    account = Records()
    for address in added:
        emails.add(account, address)
    for address in removed:
        emails.remove(account, address)
    for value in account.records.get(emails.COLLECTION, {}).values():
        assert misfits({"$type": emails.COLLECTION, **value}) == []


def test_a_record_takes_as_many_emails_as_the_lexicon() -> None:
    properties = LEXICONS.documents[emails.COLLECTION]["defs"]["main"]["record"]["properties"]
    assert properties["hashes"]["maxLength"] == emails.MOST


def test_the_fields_of_a_profile_are_those_of_the_lexicon() -> None:
    properties = LEXICONS.documents[profile.COLLECTION]["defs"]["main"]["record"]["properties"]
    texts = {n: each["maxLength"] for n, each in properties.items() if each["type"] == "string"}
    pictures = {
        n: (tuple(each["accept"]), each["maxSize"])
        for n, each in properties.items()
        if each["type"] == "blob"
    }
    assert texts == profile.TEXTS
    assert pictures == dict.fromkeys(profile.BLOBS, (profile.PICTURES, profile.LARGEST_PICTURE))
    assert list(properties) == list(profile.FIELDS)


def test_a_profile_on_a_host_is_as_the_lexicon_says(
    machine: Callable[[], GitEnv], account: Callable[..., Account]
) -> None:
    alice, one = account("alice"), machine()
    one.login(alice)
    (one.root / "x.gif").write_bytes(b"GIF89a" + bytes(20))
    one.git("knotless", "account", "profile", "set", "--pronouns", "she", "--banner", "x.gif")
    one.git("knotless", "account", "email", "add", "alice@example.com")
    assert left_by(alice).keys() == {profile.COLLECTION, emails.COLLECTION}


@given(st.from_regex(r"[a-z][a-z0-9._:~-]{0,99}", fullmatch=True), st.integers(0, 20))
def test_a_redirect_is_written_as_the_lexicon_says_and_read_back(name: str, places: int) -> None:
    ref = RepoRef(Did(DID), Rkey(name), KEY)
    redirect = RedirectRecord.new(Rkey("old"), ref, NOW, [ref] * places)
    assert misfits(redirect.to_json()) == []
    again = read(RedirectRecord, "old", redirect.to_json())
    assert (again.repo, again.came_from) == (ref, (ref,) * min(places, 16))


@st.composite
def packs(draw: st.DrawFn) -> PackRecord:
    data = draw(st.none() | st.binary(min_size=32, max_size=200))
    sizes = draw(st.lists(st.integers(100, 2**40), min_size=1, max_size=3))
    blobs = tuple(BlobRef(CID, packrecord.PACK_MIME, size) for size in sizes)
    tips = tuple(draw(st.lists(oids, max_size=64)))
    size = sum(sizes) if data is None else len(data)
    return PackRecord(
        rkey=Rkey(f"{KEY}.{KEY}"),
        repo=KEY,
        epoch=draw(generations),
        size=size,
        objects=draw(st.integers(0, min(2**32 - 1, size // limits.BYTES_AN_OBJECT))),
        checksum=draw(oids),
        data=data,
        blobs=blobs if data is None else (),
        created_at=NOW,
        tips=tips,
        bases=tips[:1],
    )


@given(packs())
def test_a_pack_is_written_as_the_lexicon_says_and_read_back(pack: PackRecord) -> None:
    assert misfits(pack.to_json()) == []
    assert read(PackRecord, pack.rkey, pack.to_json()) == pack


def test_all_that_a_repository_leaves_on_a_host_is_as_the_lexicons_say(
    machine: Callable[[], GitEnv], account: Callable[..., Account]
) -> None:
    alice, one = account("alice"), machine()
    one.login(alice)
    work = one.repository(commits=2)
    one.commit(work, "large", random.Random(1).randbytes(60_000))
    one.git("tag", "--annotate", "--message=One", "v1", cwd=work)

    one.git("knotless", "create", "notes", "--description", "what I noticed", cwd=work)
    one.git("push", "--quiet", "--follow-tags", "origin", "main", "main~1:refs/heads/old", cwd=work)
    one.commit(work)
    one.git("push", "--quiet", "origin", "main", ":old", cwd=work)
    one.git("knotless", "repo", "edit", "--protect", "main", "--add-collaborator", DID, cwd=work)
    assert {name: len(found) for name, found in left_by(alice).items()} == {
        records.REPO: 1,
        records.REF: 3,
        # Of the two moves, of the epoch, and of the push that made refs only.
        records.CLAIM: 4,
        records.PACK: 2,
    }

    name = f"{alice.handle}/notes"
    one.git("knotless", "repo", "delete", "--yes", name, cwd=work)
    assert left_by(alice) == {}


def left_by(account: Account) -> dict[str, dict[str, Any]]:
    """The records of the collections that have any, each held to its lexicon."""
    found = {nsid: account.records(nsid) for nsid in LEXICONS.documents}
    for values in found.values():
        assert [complaint for value in values.values() for complaint in misfits(value)] == []
    return {nsid: values for nsid, values in found.items() if values}


def without(value: dict[str, Any], name: str) -> dict[str, Any]:
    return {field: inner for field, inner in value.items() if field != name}


PACK = {
    "$type": records.PACK,
    "repo": KEY,
    "epoch": 1,
    "size": 33,
    "objects": 0,
    "checksum": "a" * 40,
    "blobs": [
        {"$type": "blob", "ref": {"$link": CID}, "mimeType": packrecord.PACK_MIME, "size": 33},
    ],
    "createdAt": NOW,
}
REF = RefRecord(KEY, "refs/heads/main", "a" * 40, 1, NOW).to_json()
REFERENCE = {"uri": f"at://{DID}/dev.knotless.repo/a", "key": KEY}
REDIRECT = {"$type": records.REDIRECT, "repo": REFERENCE, "createdAt": NOW}
REPO = {"$type": records.REPO, "key": KEY, "epoch": 1, "createdAt": NOW}

# What the lexicon refuses, the code that reads it refuses too.
HOSTILE = [
    (RepoRecord, "name", REPO, {"key": "3k2akcsyzdc2"}),
    (RepoRecord, "name", REPO, {"key": 3}),
    (RepoRecord, "name", REPO, {"epoch": 0}),
    (RepoRecord, "name", REPO, {"epoch": True}),
    (RepoRecord, "name", REPO, {"epoch": "1"}),
    (RepoRecord, "name", REPO, {"description": ["x"]}),
    (RepoRecord, "name", REPO, {"description": "é" * 2000}),
    (RepoRecord, "name", REPO, {"defaultBranch": "é" * 200}),
    (RepoRecord, "name", REPO, {"collaborators": DID}),
    (RepoRecord, "name", REPO, {"collaborators": ["alice.example"]}),
    (RepoRecord, "name", REPO, {"rules": {"branch": "main"}}),
    (RepoRecord, "name", REPO, {"rules": [{}]}),
    (RepoRecord, "name", REPO, {"rules": ["main"]}),
    (RepoRecord, "name", REPO, {"archived": 1}),
    (RedirectRecord, "old", REDIRECT, {"repo": f"at://{DID}/dev.knotless.repo/a"}),
    (RedirectRecord, "old", REDIRECT, {"repo": {"uri": "at://a.b/c", "key": KEY}}),
    (RedirectRecord, "old", REDIRECT, {"repo": REFERENCE | {"key": "3k2akcsyzdc2"}}),
    (RefRecord, records.ref_rkey(KEY, "refs/heads/main"), REF, {"generation": 0}),
    (RefRecord, records.ref_rkey(KEY, "refs/heads/main"), REF, {"target": "a" * 39}),
    (RefRecord, records.ref_rkey(KEY, "refs/heads/main"), REF, {"target": 7}),
    (RefRecord, records.ref_rkey(KEY, "refs/heads/main"), REF, {"name": 7}),
    (RefRecord, records.ref_rkey(KEY, "a" * 1001), REF, {"name": "a" * 1001}),
    (PackRecord, f"{KEY}.{KEY}", PACK, {"size": -1}),
    (PackRecord, f"{KEY}.{KEY}", PACK, {"objects": -1}),
    (PackRecord, f"{KEY}.{KEY}", PACK, {"checksum": "a" * 20}),
    (PackRecord, f"{KEY}.{KEY}", PACK, {"data": "aGVsbG8"}),
    (PackRecord, f"{KEY}.{KEY}", PACK, {"data": {"$bytes": "*"}}),
    (PackRecord, f"{KEY}.{KEY}", PACK, {"blobs": "x"}),
    (PackRecord, f"{KEY}.{KEY}", PACK, {"blobs": [{"ref": CID}]}),
]


def test_the_hostile_values_are_hostile_by_one_field() -> None:
    for value in (REPO, REDIRECT, REF, PACK):
        assert misfits(value) == []


@pytest.mark.parametrize(("kind", "rkey", "value", "bad"), HOSTILE)
def test_what_the_lexicon_refuses_is_not_read(
    kind: Any, rkey: str, value: dict[str, Any], bad: dict[str, Any]
) -> None:
    assert misfits(value | bad) != []
    with pytest.raises(BadRecord):
        read(kind, rkey, value | bad)


@pytest.mark.parametrize(
    ("kind", "rkey", "value"),
    [
        (RepoRecord, "name", REPO),
        (RedirectRecord, "old", REDIRECT),
        (RefRecord, records.ref_rkey(KEY, "refs/heads/main"), REF),
        (PackRecord, f"{KEY}.{KEY}", PACK),
    ],
)
def test_what_the_lexicon_requires_is_required(kind: Any, rkey: str, value: dict[str, Any]) -> None:
    schema = LEXICONS.documents[value["$type"]]["defs"]["main"]["record"]
    for name in set(schema["required"]) - {"createdAt"}:
        assert misfits(without(value, name)) != []
        with pytest.raises(BadRecord):
            read(kind, rkey, without(value, name))


@pytest.mark.parametrize(
    ("format_name", "good", "bad"),
    [
        ("tid", KEY, "zzzzzzzzzzzzz"),
        ("did", "did:web:localhost%3A2583", "did:plc:"),
        ("datetime", "2026-01-02T03:04:05+01:00", "2026-01-02 03:04:05Z"),
        ("at-uri", f"at://{DID}/dev.knotless.repo/a.b", f"at://{DID}/dev.knotless.repo/a/b"),
        ("record-key", "a.b~c", ".."),
        ("nsid", "dev.knotless.repo", "dev.knotless"),
        ("handle", "alice.example", "alice"),
    ],
)
def test_the_oracle_knows_its_formats(format_name: str, good: str, bad: str) -> None:
    schema = {"type": "string", "format": format_name}
    assert format_name in FORMATS
    assert list(LEXICONS._value(schema, good, "", "")) == []
    assert list(LEXICONS._value(schema, bad, "", "")) != []


def test_the_oracle_knows_the_data_model() -> None:
    assert list(LEXICONS.misfits(REPO | {"other": {"x": [1, None, "a"]}})) == []
    assert list(LEXICONS.misfits(REPO | {"other": [0.5]})) != []
    assert list(LEXICONS.misfits(REPO | {"other": 2**53})) != []
