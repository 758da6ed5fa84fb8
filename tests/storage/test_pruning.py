"""Pruning: what nothing needs goes, and nothing else, whoever writes meanwhile."""

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import Any

import pytest

from git_knotless import limits
from git_knotless.atproto.errors import HostTimeout, ServerFault
from git_knotless.atproto.syntax import Rkey
from git_knotless.errors import KnotlessError
from git_knotless.storage.claims import epoch_rkey
from git_knotless.storage.editing import edit
from git_knotless.storage.packs.missing import MissingObjects, TooManyPacks
from git_knotless.storage.packs.reached import CannotPrune
from git_knotless.storage.proofs.verified import NotSigned
from git_knotless.storage.pushing.push import push
from git_knotless.storage.pushing.updates import Update
from git_knotless.storage.records import CLAIM, PACK, REF, REPO, RefRecord
from git_knotless.storage.snapshot import Snapshot
from git_knotless.storage.store import Record, Write
from tests.gitenv import GitEnv
from tests.storage.account import Account, refusal
from tests.storage.pushing import MAIN, SILENT, commits_of
from tests.storage.test_folding import killed_at, kinds, raises
from tests.storage.yard import DAY, Met, Yard

NOW = "2026-01-02T03:04:05.000Z"
pytestmark = pytest.mark.usefixtures("in_no_time")


@pytest.fixture
def host() -> Met:
    return Met()


@pytest.fixture
def yard(gitenv: GitEnv, host: Met) -> Yard:
    """Three commits, of which the last was forced away, and one that took its place."""
    yard = Yard(gitenv, host, gitenv.repository(commits=3))
    yard.push(*commits_of(yard.git))
    gitenv.git("branch", "gone", cwd=yard.path)
    gitenv.git("reset", "-q", "--hard", "main~1", cwd=yard.path)
    yard.commit()
    yard.push("main")
    host.batches.clear()
    host.requests.clear()
    return yard


def gone(yard: Yard) -> set[str]:
    """What only what was forced away reaches."""
    return yard.reached("gone", "^main")


def test_what_was_forced_away_goes_after_the_grace(yard: Yard) -> None:
    objects, lost, size = yard.objects(), gone(yard), yard.size()
    assert lost
    pruned = yard.prune()
    assert yard.objects() == objects - lost == yard.reached("main")
    assert pruned.size - pruned.rewritten == pruned.freed == size - yard.size() > 0
    assert len(pruned.packs) == 1
    assert (pruned.held, pruned.left_out) == ((), ())
    yard.clone()


def test_nothing_goes_before(yard: Yard) -> None:
    objects = yard.objects()
    claims = len(yard.host.records[CLAIM])
    for later in (0.0, DAY / 2, DAY - 60):
        assert yard.prune(later=later).freed == 0
    assert yard.objects() == objects
    assert len(yard.host.records[CLAIM]) == claims
    yard.prune(later=DAY + 60)
    assert yard.objects() == yard.reached("main")


def test_what_it_writes(yard: Yard) -> None:
    """The epoch moves before anything is listed, and with what goes."""
    yard.prune()
    moves = ["delete claim", "create claim", "update repo"]
    first, second = map(kinds, yard.host.batches)
    assert first == moves
    assert second == [*moves, "delete pack", *["delete claim"] * 4]
    assert yard.repository().record().epoch == 3
    assert list(yard.host.records[CLAIM]) == [epoch_rkey(yard.key, 3)]


def test_they_are_listed_in_order(yard: Yard) -> None:
    yard.prune()
    listings = [each for each in yard.host.requests if each.startswith("list")]
    kinds_of = [each.rpartition(".")[2] for each in dict.fromkeys(listings)]
    assert kinds_of == ["pack", "ref", "claim"]
    assert yard.host.requests.index("apply") < yard.host.requests.index(f"list {PACK}")


def test_of_a_pack_with_both_what_stays_is_packed_anew(yard: Yard) -> None:
    yard.fold(at_least=2)
    (before,) = yard.records()
    pruned = yard.prune()
    (record,) = yard.records()
    assert pruned.packs == (before.rkey,)
    assert pruned.into == (record.rkey,)
    assert (pruned.size, pruned.rewritten) == (before.size, record.size)
    assert record.rkey > before.rkey
    assert record.epoch == yard.repository().record().epoch
    assert yard.objects() == yard.reached("main")
    yard.clone()


def test_a_pack_of_which_all_stays_is_left_as_it_is(yard: Yard) -> None:
    kept = [record for record in yard.records() if record.rkey != yard.records()[2].rkey]
    yard.prune()
    assert yard.records() == kept


def test_what_is_twice_there_is_kept_once(yard: Yard) -> None:
    (first, *_) = yard.records()
    copy = f"{first.rkey[:-1]}7"
    yard.host.records[PACK][copy] = first.to_json()
    yard.prune()
    assert yard.held() == len(yard.objects()) == len(yard.reached("main"))


def test_a_dry_run_writes_nothing_and_says_what_would_go(yard: Yard) -> None:
    yard.fold(at_least=2)
    yard.host.batches.clear()
    told = yard.prune(dry_run=True)
    assert yard.host.batches == []
    done = yard.prune()
    assert told.packs == done.packs
    assert (told.size, told.claims) == (done.size, done.claims)
    assert abs(told.rewritten - done.rewritten) <= 2
    assert yard.prune(dry_run=True).freed == 0


def test_again_it_finds_nothing(yard: Yard) -> None:
    yard.prune()
    records = yard.records()
    again = yard.prune()
    assert (again.packs, again.claims, again.freed) == ((), 0, 0)
    assert yard.records() == records


# --- what else is needed


def test_refs_of_our_own_keep_what_they_reach(yard: Yard) -> None:
    objects = yard.objects()
    ours = RefRecord(yard.key, "refs/knotless/push/x", _tip(yard, "gone"), 1, NOW)
    yard.host.records[REF][ours.rkey] = ours.to_json()
    yard.prune()
    assert yard.objects() == objects


def test_a_ref_that_another_stands_before_keeps_what_it_reaches(yard: Yard) -> None:
    objects = yard.objects()
    hidden = RefRecord(yard.key, f"{MAIN}/below", _tip(yard, "gone"), 1, NOW)
    yard.host.records[REF][hidden.rkey] = hidden.to_json()
    yard.prune()
    assert yard.objects() == objects


def test_a_deleted_ref_keeps_its_generation(yard: Yard) -> None:
    yard.push("gone", None, name="refs/heads/b")
    generation = yard.repository().snapshot().refs["refs/heads/b"].generation
    yard.prune()
    assert yard.repository().snapshot().refs["refs/heads/b"].generation == generation == 2
    assert yard.objects() == yard.reached("main")
    yard.push("gone", name="refs/heads/b")
    assert yard.repository().snapshot().refs["refs/heads/b"].generation == 3
    yard.clone()


def test_a_claim_of_which_the_time_cannot_be_told_holds(yard: Yard) -> None:
    (claim,) = [c for c in yard.host.records[CLAIM].values() if c.get("old") == _tip(yard, "gone")]
    objects = yard.objects()
    claim["createdAt"] = "once upon a time"
    yard.prune()
    assert yard.objects() == objects


def _claim(yard: Yard) -> dict[str, Any]:
    """Of the move to what came back."""
    return next(each for each in yard.host.records[CLAIM].values() if each.get("generation") == 1)


def _tip(yard: Yard, revision: str) -> str:
    return yard.gitenv.oid(yard.path, revision)


def test_what_a_claim_names_is_not_there_and_nothing_is_dropped(yard: Yard) -> None:
    young = _claim(yard)
    young["old"], young["createdAt"] = "f" * 40, "2999-01-01T00:00:00.000Z"
    packs = yard.records()
    pruned = yard.prune()
    assert yard.records() == packs
    assert pruned.held == (f"a claim names {'f' * 40}, which is in no pack",)
    assert pruned.claims == 3


def test_what_a_claim_names_reaches_what_is_not_there(yard: Yard) -> None:
    """Of a commit of which the tree is in no pack."""
    commit = f"tree {'1' * 40}\nauthor A <a@b.c> 1 +0000\ncommitter A <a@b.c> 1 +0000\n\nx\n"
    oid = yard.gitenv.git(
        "hash-object", "-t", "commit", "-w", "--stdin", cwd=yard.path, stdin=commit
    ).out.strip()
    data = yard.gitenv.run(
        "sh", "-c", f"echo {oid} | git pack-objects --stdout -q | base64", cwd=yard.path
    ).out
    (template, *_) = yard.records()
    _plant(yard, data, template.rkey)
    young = _claim(yard)
    young["old"], young["createdAt"] = oid, "2999-01-01T00:00:00.000Z"
    packs = len(yard.records())
    assert len(yard.prune().held) == 1
    assert len(yard.records()) == packs


def _plant(yard: Yard, data: str, like: Rkey) -> None:
    pack = base64.b64decode(data)
    value = yard.host.records[PACK][like] | {
        "data": {"$bytes": base64.b64encode(pack).decode().rstrip("=")},
        "size": len(pack),
        "objects": 1,
        "checksum": pack[-20:].hex(),
    }
    yard.host.records[PACK][f"{like[:-1]}6"] = value


def test_where_no_ref_is_left(gitenv: GitEnv, host: Met) -> None:
    yard = Yard(gitenv, host, gitenv.repository(commits=2))
    assert yard.prune().packs == ()  # nothing was pushed
    yard.push("main~1", "main", None)
    assert yard.prune(later=0.0).packs == ()
    assert len(yard.prune().packs) == 2
    assert yard.records() == []
    yard.push("main")
    yard.clone()


def test_too_many_packs_to_look_into(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of anybody's: one's own are put in order all the same."""
    monkeypatch.setattr(limits, "PACKS", 2)
    with pytest.raises(TooManyPacks):
        yard.prune(dry_run=True)
    assert len(yard.prune().packs) == 1


# --- where it is not sure


def test_refs_that_reach_what_is_not_there(yard: Yard) -> None:
    first, *_ = yard.records()
    del yard.host.records[PACK][first.rkey]
    packs = yard.records()
    with pytest.raises(MissingObjects, match="refs/heads/main") as caught:
        yard.prune()
    assert caught.value.hint == "git knotless repo verify knotless://alice.test/repo"
    assert yard.records() == packs


def test_refs_that_reach_what_is_in_a_bad_pack(yard: Yard) -> None:
    """Which is what is wrong, and is said."""
    first, *_ = yard.records()
    yard.host.records[PACK][first.rkey] |= {"checksum": "0" * 40}
    packs = yard.records()
    with pytest.raises(MissingObjects, match=f"pack {first.rkey}: its checksum is not"):
        yard.prune()
    assert yard.records() == packs


def test_a_ref_that_cannot_be_read(yard: Yard) -> None:
    (ref,) = yard.host.records[REF].values()
    ref["target"] = "0" * 64
    packs = yard.records()
    with pytest.raises(CannotPrune, match="not an object id"):
        yard.prune()
    assert yard.records() == packs


def test_a_bad_pack_stays(yard: Yard) -> None:
    (lost,) = [r for r in yard.records() if _tip(yard, "gone") in r.tips]
    yard.host.records[PACK][lost.rkey] |= {"checksum": "0" * 40}
    yard.host.records[CLAIM] = {
        k: v for k, v in yard.host.records[CLAIM].items() if v.get("old") != _tip(yard, "gone")
    }
    pruned = yard.prune()
    assert lost.rkey in yard.host.records[PACK]
    assert pruned.left_out == (f"pack {lost.rkey}: its checksum is not its record's",)


@pytest.mark.parametrize("kind", ["ref", "claim"])
@pytest.mark.parametrize("seeks", [True, False])
def test_a_host_that_leaves_out_what_is_signed(yard: Yard, kind: str, *, seeks: bool) -> None:
    """Of its own, or by a cache before it: what that reaches would be lost."""
    yard.push("gone", name="refs/heads/kept")
    before = {rkey: dict(pack) for rkey, pack in yard.host.records[PACK].items()}
    hidden = {"ref": "kept", "claim": "main"}[kind]

    def shown(records: Sequence[Record]) -> Sequence[Record]:
        return [
            each
            for each in records
            if f"refs/heads/{hidden}" not in (each.value.get("name"), each.value.get("ref"))
            or each.value["$type"] != f"dev.knotless.{kind}"
        ]

    yard.host.seeks, yard.host.shown = seeks, shown
    with pytest.raises(NotSigned, match="is left out, and is signed") as caught:
        yard.prune()
    assert caught.value.hint == "git knotless repo verify knotless://alice.test/repo"
    assert yard.host.records[PACK] == before
    yard.host.shown = lambda records: records
    yard.clone()


def test_a_host_that_lists_a_ref_where_it_was(yard: Yard) -> None:
    packs, was = yard.records(), _tip(yard, "main~1")

    def shown(records: Sequence[Record]) -> Sequence[Record]:
        refs = [each.value["$type"] == REF for each in records]
        return [
            Record(each.rkey, each.value | {"target": was}) if ref else each
            for each, ref in zip(records, refs, strict=True)
        ]

    yard.host.shown = shown
    with pytest.raises(NotSigned, match=f"{MAIN} is listed at {was}"):
        yard.prune()
    assert yard.records() == packs


def test_a_cache_that_shows_what_was_signed_before(yard: Yard) -> None:
    """All of it fits together, and none of it knows of a push."""
    stale = {name: dict(values) for name, values in yard.host.records.items()}
    yard.push("gone", name="refs/heads/kept")
    packs = yard.records()

    def shown(records: Sequence[Record]) -> Sequence[Record]:
        refs = [each for each in records if each.value["$type"] == REF]
        return [each for each in refs if each.rkey in stale[REF]] if refs else records

    yard.host.shown, yard.host.cached = shown, Account(records=stale)
    with pytest.raises(NotSigned, match="older state than was just written"):
        yard.prune()
    assert yard.records() == packs


def test_a_host_that_brings_back_what_is_gone(yard: Yard) -> None:
    yard.host.updates_create = True
    records = {name: dict(values) for name, values in yard.host.records.items()}
    with pytest.raises(CannotPrune, match="nothing is"):
        yard.prune()
    assert yard.host.records == records


def test_a_host_that_does_not_seek_is_written_to_meanwhile(yard: Yard) -> None:
    """Its pages may leave a ref out then: they are read again."""
    yard.host.seeks, left = False, [2]

    def meet(moment: str) -> None:
        if moment == "before list" and yard.host.requests[-1:] == [f"list {REF}"] and left[0]:
            left[0] -= 1
            _write_elsewhere(yard)

    yard.host.meet = meet
    yard.prune()
    assert left == [0]
    assert yard.objects() == yard.reached("main")


def test_a_host_that_does_not_seek_is_written_to_all_the_time(yard: Yard) -> None:
    yard.host.seeks, packs = False, yard.records()

    def meet(moment: str) -> None:
        if moment == "before list":
            _write_elsewhere(yard)

    yard.host.meet = meet
    with pytest.raises(CannotPrune, match="written to"):
        yard.prune()
    yard.host.meet = lambda moment: None
    assert yard.records() == packs


def _write_elsewhere(yard: Yard) -> None:
    yard.host.batches.append([])


# --- others at the same time


def moments(yard: Yard) -> int:
    """How many there are in a prune: each request, and after each write."""
    records = {name: dict(values) for name, values in yard.host.records.items()}
    passed = list[str]()
    yard.host.meet = passed.append
    yard.prune()
    yard.host.meet = lambda moment: None
    yard.host.records = records
    return len(passed)


def prune_meeting(yard: Yard, deeds: Mapping[int, Callable[[], object]]) -> None:
    """With something done at some of its moments, each of them without meeting the others."""
    passed = count(1)

    def meet(_: str) -> None:
        number = next(passed)
        if number in deeds:
            yard.host.meet = lambda moment: None
            deeds[number]()
            yard.host.meet = meet

    yard.host.meet = meet
    yard.prune()
    yard.host.meet = lambda moment: None


def at_each_moment(yard: Yard) -> Iterator[Callable[[Callable[[], object]], None]]:
    """Each with a function that has something done at that moment of a prune."""
    records = {name: dict(values) for name, values in yard.host.records.items()}
    for number in range(1, moments(yard) + 1):

        def pruned(do: Callable[[], object], number: int = number) -> None:
            prune_meeting(yard, {number: do})

        yield pruned
        yard.host.records = {name: dict(values) for name, values in records.items()}


@pytest.mark.slow
def test_a_push_at_any_moment_stands(yard: Yard) -> None:
    """Of what was forced away once and comes back: its pack is in no snapshot that counts."""
    for pruned in at_each_moment(yard):
        pruned(lambda: yard.push("gone", name="refs/heads/back"))
        assert yard.repository().snapshot().live["refs/heads/back"] == _tip(yard, "gone")
        yard.clone()
        yard.prune()
        yard.clone()


@pytest.mark.slow
@pytest.mark.parametrize("later", [1, 2])
def test_a_push_on_what_another_forces_away_meanwhile_stands(yard: Yard, later: int) -> None:
    """It leaves out what a ref reached as it read the refs; that is still there when it lands.

    The ref moves at one moment of a prune, and the push lands at another.
    """
    _topic(yard)
    records = {name: dict(values) for name, values in yard.host.records.items()}
    for number in range(1, moments(yard) + 1):
        read: list[Snapshot] = []

        def force_away(read: list[Snapshot] = read) -> None:
            read.append(yard.repository().snapshot())
            yard.push("main", name="refs/heads/base")

        def land(read: list[Snapshot] = read) -> None:
            _push_read(yard, read[0])

        prune_meeting(yard, {number: force_away, number + later: land})
        _push_read(yard, read[0])
        assert "refs/heads/topic" in yard.repository().snapshot().live
        yard.clone()
        yard.host.records = {name: dict(values) for name, values in records.items()}


def _topic(yard: Yard) -> None:
    """A branch here onto what was forced away, which another ref reaches again."""
    yard.gitenv.git("switch", "-q", "-c", "topic", "gone", cwd=yard.path)
    yard.commit()
    yard.gitenv.git("switch", "-q", "main", cwd=yard.path)
    yard.push("gone", name="refs/heads/base")


def _push_read(yard: Yard, read: Snapshot, grace: float = DAY) -> None:
    """It may be refused; where it is not, it stands."""
    updates = [Update("refs/heads/topic", _tip(yard, "topic"), force=True)]
    repository = yard.repository(grace=grace)
    with suppress(KnotlessError):
        push(repository, yard.git, read, updates, progress=SILENT, notify=print)


@pytest.mark.slow
def test_a_push_that_was_under_way_for_days_lands_on_nothing_that_goes(yard: Yard) -> None:
    """It was sent before the clock was set, say: no time keeps it from landing, the epoch does."""
    _topic(yard)
    read = yard.repository().snapshot()
    yard.push("main", name="refs/heads/base")
    for pruned in at_each_moment(yard):
        pruned(lambda: _push_read(yard, read, 1000 * DAY))
        assert "refs/heads/topic" in yard.repository().snapshot().live
        yard.clone()


@pytest.mark.slow
def test_a_fold_at_any_moment(yard: Yard) -> None:
    for pruned in at_each_moment(yard):
        pruned(lambda: yard.fold(at_least=2))
        assert yard.reached("main") <= yard.objects()
        yard.clone()
        yard.prune()
        assert yard.objects() == yard.reached("main")


@pytest.mark.slow
def test_another_prune_at_any_moment(yard: Yard) -> None:
    for pruned in at_each_moment(yard):
        pruned(yard.prune)
        assert yard.objects() == yard.reached("main")
        yard.clone()


@pytest.mark.slow
def test_settings_that_are_rewritten_meanwhile(yard: Yard) -> None:
    def rewrite() -> None:
        edit(yard.repository(), lambda repo: repo.changed(description="x"))

    for pruned in at_each_moment(yard):
        pruned(rewrite)
        assert yard.repository().record().description == "x"
        assert yard.objects() == yard.reached("main")


@pytest.mark.slow
def test_killed_at_each_request_it_loses_nothing_and_then_goes_on(yard: Yard) -> None:
    yard.fold(at_least=2)
    records = {name: dict(values) for name, values in yard.host.records.items()}
    number = 1
    while killed_at(yard.host, number, yard.prune):
        yard.clone()
        yard.prune()
        assert yard.objects() == yard.reached("main")
        yard.clone()
        yard.host.records = {name: dict(values) for name, values in records.items()}
        number += 1
    assert number > 8


def test_more_than_a_batch_has_room_for(yard: Yard) -> None:
    """Each batch moves the epoch; what stays is in the first, whichever is the last."""
    yard.fold(at_least=2)
    (record,) = yard.records()
    for number in range(450):
        rkey = f"{record.rkey[:-4]}{number:04}".translate(str.maketrans("0189", "abcd"))
        yard.host.records[PACK][rkey] = record.to_json()
    yard.host.batches.clear()
    epoch = yard.repository().record().epoch
    yard.prune()
    assert len(yard.records()) == 1
    batches = list(map(kinds, yard.host.batches))
    assert [len(batch) <= 200 for batch in batches] == [True] * 4
    assert ["create pack" in batch for batch in batches] == [False, True, False, False]
    assert ["update repo" in batch for batch in batches] == [True] * 4
    assert yard.repository().record().epoch == epoch + 4
    yard.clone()


# --- answers


@pytest.mark.parametrize(
    "error", [refusal(ServerFault), HostTimeout("no answer")], ids=["500", "none"]
)
@pytest.mark.parametrize("landed", [True, False])
@pytest.mark.parametrize("which", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_an_answer_that_says_nothing(
    yard: Yard, error: KnotlessError, landed: bool, which: int
) -> None:
    left = [which]

    def fail(writes: Sequence[Write]) -> None:
        left[0] -= 1
        if not left[0]:
            raises(error)()

    setattr(yard.host, "after" if landed else "before", fail)
    yard.prune()
    yard.host.after = yard.host.before = lambda writes: None
    assert yard.objects() == yard.reached("main")
    yard.clone()


def test_a_push_that_is_retried_is_known_for_as_long_as_it_may_be(yard: Yard) -> None:
    """Its claim is its receipt."""
    yard.commit()

    def lose(_: Sequence[Write]) -> None:
        yard.host.after = lambda writes: None
        yard.prune(later=0.0)
        raise refusal(ServerFault)

    yard.host.after = lose
    yard.push("main")
    assert yard.repository().snapshot().live[MAIN] == _tip(yard, "main")


@pytest.mark.slow
def test_fifty_times_the_same_file_forced(gitenv: GitEnv, host: Met) -> None:
    yard = Yard(gitenv, host, gitenv.repository(commits=1))
    size = 200_000
    for _ in range(50):
        yard.commit(size)
        yard.push("main")
        gitenv.git("reset", "-q", "--hard", "main~1", cwd=yard.path)
    gitenv.git("reset", "-q", "--hard", "HEAD@{1}", cwd=yard.path)
    assert yard.size() > 49 * size
    yard.prune()
    assert yard.size() <= 2 * size
    yard.clone()


def test_what_was_asked_of_the_repo_record_is_left(yard: Yard) -> None:
    (before,) = yard.host.records[REPO].values()
    yard.prune()
    (after,) = yard.host.records[REPO].values()
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed == {"epoch", "nonce", "updatedAt"}
