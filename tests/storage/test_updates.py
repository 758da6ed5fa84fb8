"""Which updates may go ahead, in git's own words; the objects are real."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from git_knotless.atproto.syntax import Rkey
from git_knotless.storage.git import Git
from git_knotless.storage.pushing.updates import Lease, Update, judge
from git_knotless.storage.records import RefRecord, RepoRecord
from git_knotless.storage.snapshot import Snapshot, hidden_among
from git_knotless.storage.store import Record
from tests.gitenv import GitEnv

KEY = "3k2akcsyzdc2r"
NOW = "2026-01-02T03:04:05.678Z"
MAIN, TAG = "refs/heads/main", "refs/tags/v1"
ELSEWHERE = "e" * 40  # an object that is not here


@pytest.fixture
def repo(gitenv: GitEnv) -> Path:
    """main: 1-2-3; side: 1-2-4; merged: a merge of both; v1, v2: tags; a tree, a blob."""
    path = gitenv.repository(commits=3)
    gitenv.git("checkout", "-q", "-b", "side", "HEAD~1", cwd=path)
    gitenv.commit(path, "side")
    gitenv.git("tag", "-a", "-m", "one", "v1", "main", cwd=path)
    gitenv.git("tag", "-a", "-m", "two", "v2", "main~1", cwd=path)
    gitenv.git("tag", "-a", "-m", "tree", "of-tree", "main^{tree}", cwd=path)
    gitenv.git("merge", "-q", "--no-ff", "-m", "merge", "main", cwd=path)
    gitenv.git("branch", "merged", cwd=path)
    gitenv.git("reset", "-q", "--hard", "HEAD^1", cwd=path)
    return path


class World:
    def __init__(self, gitenv: GitEnv, path: Path) -> None:
        self.gitenv, self.path = gitenv, path
        self.git = Git(path / ".git", env=gitenv.env)

    def oid(self, revision: str) -> str:
        return revision if len(revision) == 40 else self.gitenv.oid(self.path, revision)

    def error(self, refs: Mapping[str, str], update: Update, **repo: Any) -> str | None:
        moves, outcomes = self.judged(refs, [update], **repo)
        assert moves == ([] if outcomes else [update.name])
        return outcomes.get(update.name)

    def judged(
        self, refs: Mapping[str, str], updates: list[Update], **repo: Any
    ) -> tuple[list[str], dict[str, str | None]]:
        moves, outcomes = judge(self.snapshot(refs, **repo), updates, self.git)
        return [move.name for move in moves], {o.name: o.error for o in outcomes}

    def snapshot(self, refs: Mapping[str, str], **repo: Any) -> Snapshot:
        records = {name: RefRecord(KEY, name, self.oid(at), 1, NOW) for name, at in refs.items()}
        fields = {"key": KEY, "epoch": 1, "createdAt": NOW, **repo}
        record = RepoRecord.from_record(Record(Rkey("repo"), fields))
        return Snapshot(record, records, hidden_among(records), 0)

    def update(self, name: str, new: str | None, **options: Any) -> Update:
        return Update(name, None if new is None else self.oid(new), **options)


@pytest.fixture
def world(gitenv: GitEnv, repo: Path) -> World:
    return World(gitenv, repo)


@pytest.mark.parametrize(
    ("name", "old", "new", "error"),
    [
        (MAIN, "main~1", "main", None),
        (MAIN, "main", "side", "non-fast forward"),
        (MAIN, "main", "main~1", "non-fast forward"),
        (MAIN, ELSEWHERE, "main", "fetch first"),
        (MAIN, "main", "merged", None),
        (MAIN, None, "main", None),
        (MAIN, "main", None, None),
        (MAIN, None, "v1", "trying to write non-commit object {new} to a branch"),
        (MAIN, None, "main^{tree}", "trying to write non-commit object {new} to a branch"),
        (MAIN, None, ELSEWHERE, "{new} is not here"),
        (TAG, "v1", "v2", "already exists"),
        (TAG, "main~1", "main", "already exists"),
        (TAG, None, "of-tree", None),
        (TAG, None, "main:file1", None),
        ("refs/notes/commits", "main~1", "main", None),
        ("refs/x/tags", "v2", "v1", None),
        ("refs/x/tags", "v1", "v2", "non-fast forward"),
        ("refs/x/tree", "main^{tree}", "main:file1", "needs force"),
        ("refs/stash", None, "main", None),
        ("HEAD", None, "main", "funny refname"),
        ("refs/heads/a..b", None, "main", "funny refname"),
        ("refs/heads/\udcff", None, "main", "funny refname"),
    ],
)
def test_without_force(
    world: World, name: str, old: str | None, new: str | None, error: str | None
) -> None:
    update = world.update(name, new)
    expected = error and error.format(new=update.new)
    assert world.error({name: old} if old else {}, update) == expected


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [(MAIN, "main", "side"), (MAIN, ELSEWHERE, "main"), (TAG, "v1", "v2")],
)
def test_with_force(world: World, name: str, old: str, new: str) -> None:
    assert world.error({name: old}, world.update(name, new, force=True)) is None


def test_a_lease_that_holds_forces(world: World) -> None:
    lease = world.oid("main")
    assert world.error({MAIN: "main"}, world.update(MAIN, "side", lease=lease)) is None
    assert world.error({}, world.update(MAIN, "side", lease=None)) is None


def test_a_lease_that_does_not_hold(world: World) -> None:
    stale = world.update(MAIN, "main", lease=world.oid("side"), force=True)
    assert world.error({MAIN: "main~1"}, stale) == "stale info"
    assert world.error({}, stale) == "stale info"
    new = world.update(MAIN, "main", lease=None)
    assert world.error({MAIN: "main~1"}, new) == "stale info"
    assert world.update(MAIN, "main").lease is Lease.NONE


def test_what_is_there_already_is_no_move(world: World) -> None:
    for update in (world.update(MAIN, "main"), world.update("refs/heads/gone", None)):
        assert world.judged({MAIN: "main"}, [update]) == ([], {update.name: None})


def test_names_that_cannot_stand_side_by_side(world: World) -> None:
    def error(refs: dict[str, str], *names: str, deleted: str | None = None) -> Any:
        updates = [world.update(name, "main") for name in names]
        updates += [world.update(deleted, None)] if deleted else []
        return world.judged(refs, updates)[1]

    a, ab = "refs/heads/a", "refs/heads/a/b"
    assert error({a: "main"}, ab) == {ab: f"'{a}' exists; cannot create '{ab}'"}
    assert error({ab: "main"}, a) == {a: f"'{ab}' exists; cannot create '{a}'"}
    assert error({}, a, ab) == {ab: f"'{a}' exists; cannot create '{ab}'"}
    assert error({a: "main"}, ab, deleted=a) == {}
    assert error({ab: "main"}, a, deleted=ab) == {}


LINEAR, MERGES = {"branch": "main"}, {"branch": "main", "history": "merges"}
NO_MERGES = "protected branch: no merge commits; squash or rebase"


@pytest.mark.parametrize(
    ("rule", "old", "new", "error"),
    [
        (LINEAR, "main~1", "main", None),
        (LINEAR, "main", "side", "protected branch: it only moves forward"),
        (LINEAR, "main", None, "protected branch: it is not deleted"),
        (LINEAR, "main", "merged", NO_MERGES),
        (LINEAR, None, "merged", NO_MERGES),
        (LINEAR, None, "main", None),
        (LINEAR, ELSEWHERE, "main", "fetch first"),
        (MERGES, "main", "merged", None),
        (MERGES, "main", "side", "protected branch: it only moves forward"),
        ({"branch": "main", "history": "later"}, "main", "merged", NO_MERGES),
        ({**MERGES, "later": True}, "main", "merged", NO_MERGES),
        ({**MERGES, "queue": True, "reviews": {"approvals": 1}}, "main", "merged", None),
        ({"branch": "other"}, "main", "side", None),
    ],
)
def test_a_rule_holds_the_owner_even_with_force(
    world: World, rule: dict[str, Any], old: str | None, new: str | None, error: str | None
) -> None:
    update = world.update(MAIN, new, force=True)
    assert world.error({MAIN: old} if old else {}, update, rules=[rule]) == error


def test_of_two_rules_the_stricter_holds(world: World) -> None:
    update = world.update(MAIN, "merged", force=True)
    assert world.error({MAIN: "main"}, update, rules=[MERGES, LINEAR]) == NO_MERGES
