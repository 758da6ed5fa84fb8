"""`git knotless account email` and `profile` against real hosts: records first, then words."""

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.gitenv import GitEnv, Result
from tests.marks import sandbox_only
from tests.network import Account

EMAILS, PROFILE = "dev.knotless.emails", "dev.knotless.profile"
BLUESKY = "app.bsky.actor.profile"
ADDRESS = "alice@example.com"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(60)
PAGE = Path(__file__).parents[2] / "docs/profile.md"


def run(machine: GitEnv, *arguments: str, **options: Any) -> Result:
    return machine.git("knotless", "account", *arguments, **options)


def as_json(machine: GitEnv, *arguments: str) -> dict[str, Any]:
    result = run(machine, *arguments, "--json")
    assert not result.err
    document: dict[str, Any] = json.loads(result.out)
    return document


def hashes(account: Account) -> Any:
    record = account.record(EMAILS, "self")
    return record and record["hashes"]


def shapes_on_the_page() -> list[dict[str, Any]]:
    blocks = re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return [json.loads(block) for block in blocks]


def test_an_address_is_added_and_taken_back(one: GitEnv, alice: Account) -> None:
    claimed = hashlib.sha256(f"{alice.did}\n{ADDRESS}".encode()).hexdigest()
    assert run(one, "email", "add", " Alice@Example.com ").out == f"claimed: {ADDRESS}\n"
    assert hashes(alice) == [claimed]
    assert run(one, "email", "add", ADDRESS).out == f"already claimed: {ADDRESS}\n"
    assert run(one, "email", "list").out == f"{alice.handle} claims 1 address\n"
    assert run(one, "email", "remove", ADDRESS).out == f"taken back: {ADDRESS}\n"
    assert hashes(alice) == []
    assert run(one, "email", "remove", ADDRESS).out == f"not claimed: {ADDRESS}\n"
    assert run(one, "email", "list").out == f"{alice.handle} claims 0 addresses\n"


def test_emails_in_json_say_how_many_and_never_which(one: GitEnv, alice: Account) -> None:
    shape, *_ = shapes_on_the_page()
    who = {"handle": alice.handle, "did": alice.did}
    assert as_json(one, "email", "list") == {**who, "count": 0}
    added = as_json(one, "email", "add", ADDRESS)
    assert added == {**who, "count": 1, "changed": True}
    assert list(added) == list(shape)
    assert as_json(one, "email", "add", ADDRESS) == {**who, "count": 1, "changed": False}
    assert as_json(one, "email", "remove", ADDRESS) == {**who, "count": 0, "changed": True}


@sandbox_only
@pytest.mark.parametrize(
    ("address", "error"),
    [
        ("alice", "error: 'alice' is not an address: it takes one @ between two names"),
        ("a b@example.com", "error: 'a b@example.com' holds what no address does"),
    ],
)
def test_what_is_no_address_is_one_line(
    one: GitEnv, alice: Account, address: str, error: str
) -> None:
    assert run(one, "email", "add", address, code=1).err == f"{error}\n"
    assert hashes(alice) is None


def test_emails_need_a_login(machine: Callable[[], GitEnv]) -> None:
    assert run(machine(), "email", "list", code=4).err.startswith("error: nobody is logged in\n")


def test_a_record_that_another_client_wrote_is_kept(one: GitEnv, alice: Account) -> None:
    alice.put(EMAILS, "self", {"hashes": ["a" * 64], "new": {"x": [1]}})
    run(one, "email", "add", ADDRESS)
    record = alice.record(EMAILS, "self")
    assert record is not None
    assert record["new"] == {"x": [1]}
    assert len(record["hashes"]) == 2


def test_a_profile_over_blueskys(one: GitEnv, alice: Account) -> None:
    alice.put(BLUESKY, "self", {"displayName": "Blue", "description": "one\ntwo"})
    run(one, "profile", "set", "--display-name", "Knot", "--website", "https://alice.example")
    assert alice.record(PROFILE, "self") == {
        "$type": PROFILE,
        "displayName": "Knot",
        "website": "https://alice.example",
    }
    assert run(one, "profile", "show").out.splitlines() == [
        f"account       {alice.handle}",
        "display name  Knot",
        "description   one\\ntwo (Bluesky's)",
        "website       https://alice.example",
    ]
    run(one, "profile", "set", "--display-name", "")
    assert alice.record(PROFILE, "self") == {"$type": PROFILE, "website": "https://alice.example"}
    shown = as_json(one, "profile", "show")
    assert (shown["displayName"], shown["from"]["displayName"]) == ("Blue", BLUESKY)


def test_a_picture_is_uploaded_and_named(one: GitEnv, alice: Account) -> None:
    (one.root / "me.png").write_bytes(PNG)
    shown = as_json(one, "profile", "set", "--avatar", str(one.root / "me.png"))
    record = alice.record(PROFILE, "self")
    assert record is not None
    assert alice.blob(record["avatar"]["ref"]["$link"]) == PNG
    cid = record["avatar"]["ref"]["$link"]
    assert shown["avatar"] == {"cid": cid, "mimeType": "image/png", "size": len(PNG)}
    assert shown["from"]["avatar"] == PROFILE
    assert f"avatar   image/png, {len(PNG)} bytes\n" in run(one, "profile", "show").out
    run(one, "profile", "set", "--avatar", "")
    assert alice.record(PROFILE, "self") == {"$type": PROFILE}


def test_anybodys_profile_is_shown_without_a_login(
    machine: Callable[[], GitEnv], alice: Account
) -> None:
    alice.put(BLUESKY, "self", {"displayName": "Blue"})
    alice.put(PROFILE, "self", {"displayName": "", "avatar": "x", "extra": [1]})
    _, shape, *_ = shapes_on_the_page()
    shown = as_json(machine(), "profile", "show", f"@{alice.handle}")
    assert list(shown) == list(shape)
    assert list(shown["from"]) == list(shape["from"])
    assert shown["displayName"] == "Blue"
    assert shown["avatar"] is None
    assert run(machine(), "profile", "show", code=4).err.startswith("error: nobody is logged in\n")


@sandbox_only
def test_what_cannot_be_set_is_one_line_and_changes_nothing(one: GitEnv, alice: Account) -> None:
    text = one.root / "text.png"
    text.write_text("no picture")
    empty = one.root / "empty.png"
    empty.touch()
    for arguments, code, error in [
        ((), 2, "nothing to set: give at least one option"),
        (("--avatar", str(text)), 1, "avatar: it is no PNG, JPEG, WebP or GIF"),
        (("--avatar", str(empty)), 1, f"{empty} is empty"),
        (("--banner", "/nowhere.png"), 1, "/nowhere.png: No such file or directory"),
        (
            ("--website", "alice.example"),
            1,
            "website: 'alice.example' is not an address that begins with https:// or http://",
        ),
    ]:
        assert run(one, "profile", "set", *arguments, code=code).err == f"error: {error}\n"
    assert alice.record(PROFILE, "self") is None
