"""A profile over Bluesky's, and what either record may hold."""

import hashlib
from collections.abc import Sequence
from typing import Any

import pytest

from git_knotless.atproto.errors import BadAnswer
from git_knotless.storage.accounts.profile import (
    BLUESKY,
    COLLECTION,
    FIELDS,
    LARGEST_PICTURE,
    BadPicture,
    BadProfile,
    Field,
    read_profile,
    set_profile,
)
from git_knotless.storage.packs.spool import blob_cid
from git_knotless.storage.store import BlobBody, BlobRef, Write
from tests.storage.account import Account as Plain

PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)


class Account(Plain):
    """Of a host that keeps what type it is told; `keeps` is what it says that it kept."""

    keeps: BlobRef | None = None

    def upload(self, body: BlobBody, *, mime: str = "") -> BlobRef:
        data = b"".join(body.chunks())
        self.requests.append(f"upload {mime}")
        return self.keeps or BlobRef(blob_cid(hashlib.sha256(data).digest()), mime, len(data))


@pytest.fixture
def account() -> Account:
    return Account()


def blob(data: bytes = PNG, mime: str = "image/png", **changed: Any) -> dict[str, Any]:
    cid = blob_cid(hashlib.sha256(data).digest())
    whole = {"$type": "blob", "ref": {"$link": cid}, "mimeType": mime, "size": len(data)}
    return whole | changed


def hold(account: Account, collection: str, **value: Any) -> None:
    account.records[collection] = {"self": {"$type": collection, **value}}


def own(account: Account) -> dict[str, Any]:
    return account.records[COLLECTION]["self"]


def test_no_record_is_no_profile(account: Account) -> None:
    assert read_profile(account) == dict.fromkeys(FIELDS, Field(None, None))


def test_each_field_set_replaces_blueskys(account: Account) -> None:
    hold(account, BLUESKY, displayName="Blue", description="sky", avatar=blob())
    hold(account, COLLECTION, displayName="Knot", website="https://alice.example")
    profile = read_profile(account)
    assert profile["displayName"] == Field("Knot", COLLECTION)
    assert profile["description"] == Field("sky", BLUESKY)
    assert profile["avatar"] == Field(blob(), BLUESKY)
    assert profile["website"] == Field("https://alice.example", COLLECTION)
    assert profile["banner"] == Field(None, None)


@pytest.mark.parametrize(
    ("name", "held"),
    [
        ("displayName", ""),
        ("displayName", 7),
        ("displayName", "x" * 641),
        ("displayName", "two\nlines"),
        ("displayName", "red\x1b[31m"),
        ("displayName", "a\u202eb"),
        ("description", "x" * 2561),
        ("website", "javascript:alert(1)"),
        ("website", "https://"),
        ("website", "https://a b"),
        ("avatar", ""),
        ("avatar", {}),
        ("avatar", blob(mime="image/svg+xml")),
        ("avatar", blob(size=LARGEST_PICTURE + 1)),
        ("avatar", blob(size=-1)),
        ("avatar", blob(ref={"$link": "../x"})),
        ("avatar", blob(ref="x")),
    ],
)
def test_what_is_empty_or_no_such_field_shows_blueskys(
    account: Account, name: str, held: Any
) -> None:
    good: dict[str, Any] = {"avatar": blob(), "website": "https://alice.example"}
    hold(account, BLUESKY, **{name: good.get(name, "Blue")})
    hold(account, COLLECTION, **{name: held})
    assert read_profile(account)[name] == Field(good.get(name, "Blue"), BLUESKY)


def test_fields_are_set_and_unset_and_the_others_stay(account: Account) -> None:
    hold(account, COLLECTION, pronouns="she/her", description="x", new=[1])
    set_profile(account, {"displayName": "Alice 👩\u200d🚀", "description": ""}, {"avatar": PNG})
    assert own(account) == {
        "$type": COLLECTION,
        "pronouns": "she/her",
        "new": [1],
        "displayName": "Alice 👩\u200d🚀",
        "avatar": blob(),
    }
    set_profile(account, {}, {"avatar": b""})
    assert "avatar" not in own(account)


def test_what_is_so_already_is_not_written(account: Account) -> None:
    set_profile(account, {"displayName": ""}, {"banner": b""})
    hold(account, COLLECTION, displayName="Alice")
    set_profile(account, {"displayName": "Alice"}, {})
    assert "put" not in account.requests


def test_another_machine_at_the_same_time(account: Account) -> None:
    others = [lambda: set_profile(account, {"pronouns": "they"}, {})]

    def meddle(_: Sequence[Write]) -> None:
        if others:
            others.pop()()

    account.before = meddle
    set_profile(account, {"displayName": "Alice"}, {})
    assert own(account) == {"pronouns": "they", "displayName": "Alice"}


@pytest.mark.parametrize(
    ("data", "mime"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0" + bytes(20), "image/jpeg"),
        (b"RIFF\x10\0\0\0WEBPVP8 ", "image/webp"),
        (b"GIF89a" + bytes(20), "image/gif"),
        (b"GIF87a" + bytes(20), "image/gif"),
        (PNG.ljust(LARGEST_PICTURE, b"\0"), "image/png"),
    ],
)
def test_a_picture_says_itself_what_it_is(account: Account, data: bytes, mime: str) -> None:
    set_profile(account, {}, {"banner": data})
    assert own(account)["banner"] == blob(data, mime)
    assert f"upload {mime}" in account.requests


@pytest.mark.parametrize(
    "data",
    [
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        b"RIFF\x10\0\0\0WAVE",
        b"\x89PNG",
        b"x",
        PNG.ljust(LARGEST_PICTURE + 1, b"\0"),
    ],
)
def test_what_is_no_picture_is_refused_before_anything_is_sent(
    account: Account, data: bytes
) -> None:
    with pytest.raises(BadPicture, match="avatar"):
        set_profile(account, {"displayName": "x"}, {"banner": PNG, "avatar": data})
    assert account.requests == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("displayName", "é" * 321),
        ("displayName", "two\nlines"),
        ("description", "bell\x07"),
        ("pronouns", "x" * 201),
        ("website", "alice.example"),
        ("website", "ftp://alice.example"),
        ("displayName", "\udcff"),
    ],
)
def test_what_no_field_holds_is_refused(account: Account, name: str, text: str) -> None:
    with pytest.raises(BadProfile, match=name):
        set_profile(account, {name: text}, {})
    assert account.requests == []


def test_a_description_has_lines(account: Account) -> None:
    set_profile(account, {"description": "one\n\ttwo\r\nthree"}, {})
    assert own(account)["description"] == "one\n\ttwo\r\nthree"


@pytest.mark.parametrize(
    "kept",
    [
        BlobRef(blob_cid(bytes(32)), "image/png", len(PNG)),
        BlobRef(blob()["ref"]["$link"], "image/png", 1),
        BlobRef(blob()["ref"]["$link"], "text/html", len(PNG)),
    ],
)
def test_a_host_that_keeps_another_picture(account: Account, kept: BlobRef) -> None:
    account.keeps = kept
    with pytest.raises(BadAnswer):
        set_profile(account, {}, {"avatar": PNG})
    assert COLLECTION not in account.records
