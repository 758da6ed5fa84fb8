"""What `repo edit` makes of a record, and what it refuses to make."""

from typing import Any

import pytest

from git_knotless.atproto.syntax import Did, Rkey
from git_knotless.errors import KnotlessError
from git_knotless.porcelain.edit import Change
from git_knotless.porcelain.output import WrongUsage
from git_knotless.storage.records import RepoRecord
from git_knotless.storage.store import Record

FULL_NAME = "'refs/heads/x' is the full name of a ref: name the branch: x"
OWNER, ALICE, BOB = (Did(f"did:plc:{letter * 24}") for letter in "oab")


def record(**fields: Any) -> RepoRecord:
    base = {
        "$type": "dev.knotless.repo",
        "key": "3lbbbbbbbbb22",
        "epoch": 7,
        "nonce": "n",
        "createdAt": "2026-01-02T03:04:05.678Z",
        "fromTheFuture": {"kept": True},
    }
    return RepoRecord.from_record(Record(Rkey("notes"), base | fields))


def changed(change: Change, **fields: Any) -> dict[str, Any]:
    """What differs between the record before and after; None for a field that is gone."""
    before = record(**fields)
    change.check(OWNER)
    after = change(before)
    assert after.fields["fromTheFuture"] == {"kept": True}
    names = before.fields.keys() | after.fields.keys()
    pairs = {name: (before.fields.get(name), after.fields.get(name)) for name in names}
    return {name: new for name, (old, new) in pairs.items() if old != new}


def test_texts_are_set_and_taken_away() -> None:
    assert changed(Change(description="a")) == {"description": "a"}
    assert changed(Change(description=""), description="a") == {"description": None}
    assert changed(Change(default_branch="trunk")) == {"defaultBranch": "trunk"}


def test_archived_is_set_and_taken_away() -> None:
    assert changed(Change(archived=True)) == {"archived": True}
    assert changed(Change(archived=False), archived=True) == {"archived": None}
    assert changed(Change(archived=False)) == {}


def test_collaborators_keep_their_order_and_are_there_once() -> None:
    add = Change(add=(BOB, ALICE, BOB))
    assert changed(add, collaborators=[ALICE]) == {"collaborators": [ALICE, BOB]}
    swap = Change(add=(BOB,), remove=(ALICE,))
    assert changed(swap, collaborators=[ALICE]) == {"collaborators": [BOB]}
    assert changed(Change(remove=(ALICE,)), collaborators=[ALICE]) == {"collaborators": None}


def test_a_new_rule_is_linear_without_saying_so() -> None:
    assert changed(Change(protect=("main", "main"))) == {"rules": [{"branch": "main"}]}
    merges = Change(protect=("main",), history="merges")
    assert changed(merges) == {"rules": [{"branch": "main", "history": "merges"}]}


def test_a_rule_keeps_what_it_says_beside() -> None:
    rule = {"branch": "main", "history": "merges", "queue": True, "new": [1]}
    assert changed(Change(protect=("main",)), rules=[rule]) == {}
    linear = Change(protect=("main",), history="linear")
    assert changed(linear, rules=[rule]) == {"rules": [{**rule, "history": "linear"}]}


def test_a_rule_is_taken_away_with_its_doubles() -> None:
    rules = [{"branch": "main"}, {"branch": "rel"}, {"branch": "main", "queue": True}]
    change = Change(unprotect=("main",))
    assert changed(change, rules=rules) == {"rules": [{"branch": "rel"}]}
    assert changed(change, rules=rules[:1]) == {"rules": None}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (Change(remove=(ALICE,)), f"{ALICE} is not a collaborator on notes"),
        (
            Change(remove=(ALICE,), names={ALICE: "alice.test"}),
            "alice.test is not a collaborator on notes",
        ),
        (Change(unprotect=("main",)), "no rule of notes protects main"),
        (Change(add=(OWNER,)), "the owner pushes without being a collaborator"),
        (Change(protect=("a..b",)), "'a..b' cannot be the name of a branch"),
        (Change(default_branch="a b"), "'a b' cannot be the name of a branch"),
        (Change(default_branch=""), "'' cannot be the name of a branch"),
        (Change(default_branch="refs/heads/x"), FULL_NAME),
        (Change(protect=("refs/heads/x",)), FULL_NAME),
        (Change(unprotect=("refs/heads/x",)), FULL_NAME),
    ],
)
def test_what_cannot_be_is_refused(change: Change, message: str) -> None:
    with pytest.raises(KnotlessError) as caught:
        changed(change)
    assert caught.value.message == message


def test_a_rule_of_such_a_name_can_be_taken_away() -> None:
    change = Change(unprotect=("refs/heads/x",))
    assert changed(change, rules=[{"branch": "refs/heads/x"}]) == {"rules": None}


@pytest.mark.parametrize(
    "change",
    [
        Change(),
        Change(names={ALICE: "alice.test"}),
        Change(history="linear"),
        Change(description="a", history="linear"),
        Change(add=(ALICE,), remove=(ALICE,)),
        Change(protect=("main",), unprotect=("main",)),
    ],
)
def test_options_that_do_not_go_together_are_wrong_usage(change: Change) -> None:
    with pytest.raises(WrongUsage):
        change.check(OWNER)
