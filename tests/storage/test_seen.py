"""What a clone has seen of refs, and how one is noticed that goes back."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from git_knotless.atproto.syntax import Did
from git_knotless.storage.git import Git
from git_knotless.storage.records import RefRecord
from git_knotless.storage.seen import Seen
from tests.gitenv import GitEnv
from tests.storage.account import DID

KEY = "3k2akcsyzdc2r"
MAIN, TOPIC = "refs/heads/main", "refs/heads/topic"
A, B, C = ("a" * 40, "b" * 40, "c" * 40)
BOB = Did("did:plc:" + "b" * 24)


class Clone:
    """Each time it looks, it is another process."""

    def __init__(self, git: Git) -> None:
        self.git = git

    def seen(self, host: str = "old.example", did: Did = DID, through: Sequence[Did] = ()) -> Seen:
        return Seen(self.git, KEY, did, host, through)

    def lists(
        self,
        host: str = "old.example",
        did: Did = DID,
        through: Sequence[Did] = (),
        **refs: tuple[int, Any],
    ) -> list[str]:
        """`refs` by the last part of their names; what was lost, else nothing and it is kept."""
        records = {record.name: record for record in map(record_of, refs.items())}
        seen = self.seen(host, did, through)
        lost = [str(each) for each in seen.lost(records)]
        if not lost:
            seen.listed(records)
        return lost


def record_of(ref: tuple[str, tuple[int, str | None]]) -> RefRecord:
    name, (generation, target) = ref
    return RefRecord(KEY, f"refs/heads/{name}", target, generation, "2026-01-02T03:04:05.678Z")


@pytest.fixture
def clone(gitenv: GitEnv) -> Clone:
    work = gitenv.repository(commits=0)
    return Clone(Git(work / ".git", env=gitenv.env))


def test_what_goes_on_is_not_worth_a_word(clone: Clone) -> None:
    assert clone.lists(main=(1, A)) == []
    assert clone.lists(main=(1, A)) == []
    assert clone.lists(main=(2, B), topic=(1, A)) == []
    assert clone.lists("new.example", main=(2, B), topic=(2, None)) == []


def test_a_generation_that_goes_back_is_lost_until_it_is_there_again(clone: Clone) -> None:
    clone.lists(main=(3, B), topic=(1, A))
    lost = (
        f"{MAIN} went back from generation 3 ({B}) at old.example "
        f"to generation 2 ({A}) at new.example"
    )
    for _ in range(2):
        assert clone.lists("new.example", main=(2, A), topic=(1, A)) == [lost]
    changed = (
        f"{MAIN} was changed from generation 3 ({B}) at old.example "
        f"to generation 3 ({C}) at new.example"
    )
    assert clone.lists("new.example", main=(3, C), topic=(1, A)) == [changed]
    assert clone.lists("new.example", main=(4, C), topic=(1, A)) == []
    assert clone.lists("old.example", main=(2, A), topic=(1, A)) != []


def test_one_generation_of_a_ref_is_one_target(clone: Clone) -> None:
    """Whoever says it: a push that landed on one of two hosts is gone on the other."""
    clone.lists(main=(3, B), topic=(2, None))
    assert clone.lists("new.example", main=(3, B), topic=(2, None)) == []
    for changed in ({"main": (3, A)}, {"main": (3, None)}, {"topic": (2, C)}):
        (lost,) = clone.lists(**{"main": (3, B), "topic": (2, None), **changed})
        assert "was changed from" in lost


def test_a_ref_that_is_not_there_any_more_is_lost(clone: Clone) -> None:
    clone.lists(main=(1, A), topic=(2, B))
    (lost,) = clone.lists("new.example", main=(1, A))
    assert lost.endswith(
        f"generation 2 ({B}) at old.example to generation 0 (not there) at new.example"
    )
    clone.lists(main=(1, A), topic=(3, None))
    assert "(deleted)" in clone.lists("new.example", main=(1, A), topic=(2, B))[0]
    assert clone.lists("new.example", main=(1, A)) == [], "it was deleted, and is not there"


def test_what_points_where_it_pointed_was_pushed_again(clone: Clone) -> None:
    """Of two pushes that were lost, one brings back what both had."""
    clone.lists(main=(5, B))
    assert clone.lists("new.example", main=(4, B)) == []


def test_what_was_just_pushed_counts_whatever_was_seen(clone: Clone) -> None:
    clone.lists(main=(9, B), topic=(9, B))
    clone.seen("new.example").pushed({MAIN: (5, C)})
    (lost,) = clone.lists("new.example", main=(5, C), topic=(4, A))
    assert lost.startswith(f"{TOPIC} went back from generation 9 ({B}) at old.example")
    clone.seen("new.example").pushed({TOPIC: (5, C)})
    assert clone.lists("new.example", main=(5, C), topic=(5, C)) == []
    assert clone.lists("new.example", main=(4, A), topic=(5, C)) != []


def test_each_account_speaks_for_itself(clone: Clone) -> None:
    """Whoever says that they have the repository's key cannot make its owner's refs go back."""
    clone.lists(main=(3, A))
    assert clone.lists("evil.example", BOB, main=(9, B)) == []
    assert clone.lists(main=(3, A)) == []


def test_an_account_that_takes_over_is_held_to_what_the_one_before_said(clone: Clone) -> None:
    clone.lists(main=(3, B))
    assert clone.lists("bobs.example", BOB, [DID], main=(2, A)) != []
    assert clone.lists("bobs.example", BOB, [DID], main=(3, B)) == []


def test_an_account_that_has_it_again_is_held_to_what_the_one_after_said(clone: Clone) -> None:
    """Whoever had accepted it has deleted it, and what is left is the old copy."""
    clone.lists(main=(3, B))
    clone.lists("bobs.example", BOB, [DID], main=(4, A))
    lost = "refs/heads/main went back from generation 4"
    assert [each.startswith(lost) for each in clone.lists(main=(3, B))] == [True]
    assert clone.lists(main=(5, B)) == []


def test_an_account_that_has_something_of_that_key_tells_nothing_of_it(clone: Clone) -> None:
    clone.lists("bobs.example", BOB, main=(100, A), other=(100, A))
    assert clone.lists(main=(3, B)) == []
    assert clone.lists("bobs.example", BOB, main=(100, A), other=(100, A)) == []
    assert clone.lists(main=(4, B)) == []


def test_nothing_is_written_where_nothing_has_changed(clone: Clone) -> None:
    clone.lists(main=(1, A))
    before = clone.seen().path.stat()
    clone.lists(main=(1, A))
    after = clone.seen().path.stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


GARBAGE = [
    "",
    "{",
    "[]",
    "7",
    "[" * 100_000,
    '{"version": 2}',
    '{"version": 1}',
    '{"version": 1, "accounts": 7}',
    '{"version": 1, "accounts": {"did:web:x": {"x": {"refs/heads/main": [9]}}}, "through": 7}',
    '{"version": 1, "through": {"did:web:x": 7}}',
    json.dumps({"version": 1, "accounts": {DID: {"x": {MAIN: [9]}}}}),
    json.dumps({"version": 1, "accounts": {DID: {"x": {MAIN: [None, A]}}}}),
    json.dumps({"version": 1, "accounts": {DID: {"x": {MAIN: [9.5, A]}}}}),
    json.dumps({"version": 1, "accounts": {DID: {"x": {MAIN: [9, 7]}}}}),
    json.dumps({"version": 1, "accounts": {DID: {"x": {MAIN: [9, "--force"]}}}}),
    json.dumps({"version": 1, "accounts": {DID: {"x": {"--force": [9, B]}}}}),
    json.dumps({"version": 1, "accounts": {DID: {"x": []}, "y": 1}}),
]


@pytest.mark.parametrize("garbage", GARBAGE, ids=range(len(GARBAGE)))
def test_garbage_is_as_nothing(clone: Clone, garbage: str) -> None:
    path = clone.seen().path
    path.parent.mkdir(exist_ok=True)
    path.write_text(garbage)
    assert clone.lists(main=(1, A)) == []
    path.write_bytes(b"\xff\0" + garbage.encode())
    assert clone.lists(main=(2, A)) == []
    assert clone.lists(main=(1, B)) != [], "it is written anew"


def test_what_cannot_be_remembered_stops_nothing(clone: Clone, gitenv: GitEnv) -> None:
    path = clone.seen().path.parent
    path.write_text("a file")
    assert clone.lists(main=(1, A)) == []


def test_work_trees_have_one_memory(clone: Clone, gitenv: GitEnv) -> None:
    work = gitenv.root / "work"
    gitenv.git("commit", "--quiet", "--allow-empty", "--message=first", cwd=work)
    gitenv.git("worktree", "add", "--quiet", "../other", cwd=work)
    within = Path(gitenv.git("rev-parse", "--git-dir", cwd=gitenv.root / "other").out.strip())
    assert Git(within, env=gitenv.env).common_dir == work / ".git"
    assert Seen(Git(within, env=gitenv.env), KEY, DID, "x").path == clone.seen().path
