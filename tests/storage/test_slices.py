"""A push too large to land at once: slices of history, hidden refs, and going on from a cut one."""

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from git_knotless.atproto.allowance import Left
from git_knotless.atproto.errors import HostUnreachable, RateLimited
from git_knotless.atproto.syntax import format_time, parse_time
from git_knotless.errors import KnotlessError
from git_knotless.storage.creation import create
from git_knotless.storage.editing import edit
from git_knotless.storage.pushing import economy, slices
from git_knotless.storage.pushing.economy import PushStopped, cost
from git_knotless.storage.pushing.survey import holds_more, survey
from git_knotless.storage.records import CLAIM, PACK, REF
from git_knotless.storage.refname import PUSHES
from git_knotless.storage.store import Write
from tests.gitenv import GitEnv
from tests.storage.account import HOST, Account
from tests.storage.graphs import Watched, odd_history
from tests.storage.packs import SILENT, noise
from tests.storage.pusher import MAIN, URL, Pusher

pytestmark = pytest.mark.usefixtures("in_no_time")

KIB = 1024


@pytest.fixture
def host() -> Account:
    account = Account()
    create(account, URL)
    account.batches.clear()
    account.requests.clear()
    return account


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten kilobytes are a large push, as far as the least of them fits."""
    monkeypatch.setattr(slices, "AT_ONCE", 10 * KIB)
    monkeypatch.setattr(slices, "SLICE", 5 * KIB)


def noisy(gitenv: GitEnv, name: str = "work", *, commits: int = 8, size: int = 3 * KIB) -> Path:
    """A line of commits, each with some bytes that do not compress."""
    path = gitenv.repository(name, commits=1)
    for number in range(commits):
        gitenv.commit(path, f"file{number}", noise(size, seed=number))
    return path


@pytest.fixture
def alice(gitenv: GitEnv, host: Account, small: None) -> Pusher:
    return Pusher(gitenv, noisy(gitenv), host)


def hidden(host: Account) -> dict[str, str]:
    refs = host.records.get(REF, {}).values()
    return {ref["name"]: ref["target"] for ref in refs if ref["name"].startswith(PUSHES)}


def kinds(batch: Sequence[Write]) -> list[str]:
    return [f"{write.action} {write.collection.rpartition('.')[2]}" for write in batch]


def at_batch(number: int, error: Exception) -> Callable[[Sequence[Write]], None]:
    """Raises `error` as the batch of that number comes, and at each after it."""
    left = [number]

    def fail(_: Sequence[Write]) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise error

    return fail


def limited(seconds: float | None = 720.0) -> RateLimited:
    return RateLimited(
        429, "RateLimitExceeded", "", nsid="applyWrites", host="pds.test", retry_after=seconds
    )


def test_a_large_push_lands_in_slices(alice: Pusher, host: Account, gitenv: GitEnv) -> None:
    watched = Watched(gitenv, host)
    assert alice.push(f"main:{MAIN}") == {MAIN: None}
    assert alice.live() == {MAIN: alice.oid("main")}
    first, *middle, last = map(kinds, host.batches)
    assert first == ["update claim", "create pack", "create claim", "create ref"]
    assert middle
    assert all(b == ["update claim", "create pack", "create claim", "update ref"] for b in middle)
    assert last[:2] == ["update claim", "create pack"]
    assert sorted(last[2:]) == ["create claim", "create ref", "delete ref"]
    assert watched.own_refs() == []
    assert watched.twice() == set()
    assert f"slice 1 of {len(host.batches)} has landed" in alice.told


def test_they_are_not_listed_and_git_may_not_push_there(alice: Pusher, host: Account) -> None:
    host.before = at_batch(1, limited())
    with pytest.raises(PushStopped):
        alice.push(f"main:{MAIN}")
    (name,) = hidden(host)
    snapshot = alice.repository.snapshot()
    assert snapshot.live == {}
    assert set(snapshot.targets) == {name}
    host.before = lambda writes: None
    for spec in (f"main:{name}", f":{name}", "main:refs/knotless", "+main:refs/knotless/x"):
        (error,) = alice.push(spec).values()
        assert error == "refs/knotless/ is kept for git-knotless itself"
    assert alice.push("main:refs/knotlessly/fine") == {"refs/knotlessly/fine": None}


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 7))]
)
def test_any_history(
    gitenv: GitEnv, host: Account, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """At each batch all that refs reach is there, hidden ones too; nothing is sent twice."""
    monkeypatch.setattr(slices, "AT_ONCE", 2 * KIB)
    monkeypatch.setattr(slices, "SLICE", KIB)
    path, specs = odd_history(gitenv, "odd", seed, commits=40)
    watched = Watched(gitenv, host)
    pusher = Pusher(gitenv, path, host)
    pusher.git = pusher.git.within({"GIT_DIR": str(path)})
    assert set(pusher.push(*specs).values()) == {None}
    assert watched.slices > 4
    wanted = {spec.rpartition(":")[2]: pusher.oid(spec.rpartition(":")[0]) for spec in specs}
    assert pusher.live() == wanted
    assert watched.own_refs() == []
    assert watched.objects() == pusher.reached(*wanted.values())
    # Of what no commit leads to, git looks for it in the last few commits alone.
    assert watched.twice() <= pusher.reached("bare-blob", "bare-tree")


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 3))])
def test_any_history_cut_anywhere(
    gitenv: GitEnv, host: Account, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Each run lands one or two batches and is cut, before or after the host has taken the next;
    whoever goes on sends what has not come, and nothing else."""
    monkeypatch.setattr(slices, "AT_ONCE", 2 * KIB)
    monkeypatch.setattr(slices, "SLICE", KIB)
    path, specs = odd_history(gitenv, "odd", 100 + seed, commits=25)
    watched, chance = Watched(gitenv, host), random.Random(seed)
    for run in range(100):
        pusher = Pusher(gitenv, path, host)
        pusher.git = pusher.git.within({"GIT_DIR": str(path)})
        cut = at_batch(chance.randrange(1, 3), KeyboardInterrupt())
        host.before, host.after = (cut, watched.look) if run % 2 else (watched.look, cut)
        try:
            outcomes = pusher.push(*specs)
        except KeyboardInterrupt:
            watched.look([])
            continue
        break
    assert run > 3
    assert set(outcomes.values()) == {None}
    assert watched.own_refs() == []
    assert watched.twice() <= pusher.reached("bare-blob", "bare-tree")


def test_a_cut_push_goes_on_from_another_clone(
    alice: Pusher, host: Account, gitenv: GitEnv
) -> None:
    host.before = at_batch(2, HostUnreachable("down"))
    with pytest.raises(KnotlessError):
        alice.push(f"main:{MAIN}")
    came = len(alice.objects())
    assert came > 3
    assert len(hidden(host)) == 1
    host.before = lambda writes: None
    gitenv.git("clone", "-q", str(alice.path), "other")
    other = Pusher(gitenv, gitenv.root / "other", host)
    assert other.push(f"main:{MAIN}") == {MAIN: None}
    assert "an earlier push was cut: this one leaves out what that has brought" in other.told
    assert hidden(host) == {}
    total = sum(value["objects"] for value in host.records[PACK].values())
    assert total == len(other.objects())


def test_an_atomic_push_moves_its_refs_in_the_last_batch(alice: Pusher, host: Account) -> None:
    specs = (f"main:{MAIN}", "main~3:refs/heads/b", "main~6:refs/tags/v1")
    seen: list[dict[str, str]] = []
    host.after = lambda writes: seen.append(alice.live())
    assert set(alice.push(*specs, atomic=True).values()) == {None}
    assert len(seen) > 2
    assert set(map(len, seen[:-1])) == {0}
    assert len(seen[-1]) == 3
    assert hidden(host) == {}


def test_what_does_not_fit_beside_an_atomic_push_is_taken_away_after_it(
    alice: Pusher, host: Account
) -> None:
    host.before = at_batch(2, HostUnreachable("down"))
    with pytest.raises(KnotlessError):
        alice.push(f"main:{MAIN}")
    host.before = lambda writes: None
    host.batches.clear()
    specs = [f"main:refs/heads/b{n}" for n in range(195)]
    assert set(alice.push(*specs, atomic=True).values()) == {None}
    *_, refs, last = map(kinds, host.batches)
    assert refs.count("create ref") == 195
    assert last == ["update claim", *["create claim", "delete ref"] * 2]
    assert hidden(host) == {}


def test_an_atomic_push_of_too_many_refs_sends_nothing(alice: Pusher, host: Account) -> None:
    with pytest.raises(KnotlessError, match="do not fit in one write"):
        alice.push(*(f"main:refs/heads/b{n}" for n in range(196)), atomic=True)
    assert host.batches == []


def test_a_hidden_ref_of_another_push_stays(alice: Pusher, host: Account, gitenv: GitEnv) -> None:
    """Until nobody can be at it any more."""
    bob = Pusher(gitenv, noisy(gitenv, "bobs", commits=6, size=4 * KIB), host)
    host.before = at_batch(1, HostUnreachable("down"))
    with pytest.raises(KnotlessError):
        bob.push("main:refs/heads/bob")
    left = hidden(host)
    host.before = lambda writes: None
    alice.push(f"main:{MAIN}")
    assert hidden(host) == left
    (ref,) = [ref for ref in host.records[REF].values() if ref["name"] in left]
    then = parse_time(ref["updatedAt"])
    ref["updatedAt"] = format_time(then.replace(year=then.year - 1))
    alice.push("main~1:refs/tags/v1")
    assert hidden(host) == {}
    assert bob.push("main:refs/heads/bob") == {"refs/heads/bob": None}


def test_two_at_once(alice: Pusher, host: Account, gitenv: GitEnv) -> None:
    """Each batch of one lets the other push the same history, whole; and another history."""
    gitenv.git("clone", "-q", str(alice.path), "same")
    same = Pusher(gitenv, gitenv.root / "same", host)
    bob = Pusher(gitenv, noisy(gitenv, "bobs", commits=6, size=4 * KIB), host)
    turns: Iterator[Callable[[], object]] = iter(
        [
            lambda: bob.push("main:refs/heads/bob"),
            lambda: same.push("main:refs/heads/same"),
        ]
    )

    def meanwhile(_: Sequence[Write]) -> None:
        host.before = lambda writes: None
        if (turn := next(turns, None)) is not None:
            turn()
            host.before = meanwhile

    host.before = meanwhile
    assert alice.push(f"main:{MAIN}") == {MAIN: None}
    assert alice.live() == {
        MAIN: alice.oid("main"),
        "refs/heads/same": alice.oid("main"),
        "refs/heads/bob": bob.oid("main"),
    }
    assert hidden(host) == {}


def test_what_was_brought_and_is_taken_away_is_brought_again(alice: Pusher, host: Account) -> None:
    """Somebody prunes what a slice has brought, in the midst of the push: it is sent again."""

    def prune(_: Sequence[Write]) -> None:
        if len(host.batches) != 2:
            return
        gone = [rkey for rkey, ref in host.records[REF].items() if ref["name"] in hidden(host)]
        for rkey in gone:
            del host.records[REF][rkey]
        host.records[PACK].clear()
        host.before = lambda writes: None
        edit(alice.repository, lambda repo: repo.changed(description="pruned"))

    host.before = prune
    assert alice.push(f"main:{MAIN}") == {MAIN: None}
    packs = host.records[PACK].values()
    assert sum(value["objects"] for value in packs) == len(alice.objects())
    assert alice.objects() == alice.reached("main")
    assert hidden(host) == {}


def test_names_of_hidden_refs_are_never_used_twice(alice: Pusher, host: Account) -> None:
    for cut in (1, 2):
        host.before = at_batch(cut, HostUnreachable("down"))
        with pytest.raises(KnotlessError):
            alice.push(f"main:{MAIN}")
    host.before = lambda writes: None
    alice.push(f"main:{MAIN}")
    claims = [c for c in host.records[CLAIM].values() if c.get("ref", "").startswith(PUSHES)]
    assert len({(c["ref"], c["generation"]) for c in claims}) == len(claims)
    assert len({c["ref"] for c in claims}) > 1


# --- what a host allows


def test_it_stops_and_says_what_landed_and_when_to_go_on(alice: Pusher, host: Account) -> None:
    host.before = at_batch(2, limited())
    with pytest.raises(PushStopped) as caught:
        alice.push(f"main:{MAIN}")
    message = caught.value.message
    assert message.startswith("pds.test takes no more before ")
    assert ", in 12 minutes: slice 2 of " in message
    again = "run the same push again then"
    assert caught.value.hint == again, "git push alone pushes no tags, and maybe another branch"


def test_as_much_as_may_be_uploaded_lands(
    gitenv: GitEnv, host: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the host allows makes the slices, however large they might be."""
    host.blob_limit = 64 * KIB
    host.allowance["uploads"] = Left(2, 1000, 4e9)
    path = gitenv.repository("large", commits=1)
    for number in range(6):
        gitenv.commit(path, f"file{number}", noise(60 * KIB, seed=number))
    pusher = Pusher(gitenv, path, host)
    assert pusher.push(f"main:{MAIN}") == {MAIN: None}
    assert len(host.batches) > 2
    (told,) = [line for line in pusher.told if "uploads" in line]
    assert told.startswith("this push takes about 6 uploads, and the host has 2 left until ")
    assert told.endswith(": what fits, lands")


def test_as_many_refs_as_there_are_points_for_land(alice: Pusher, host: Account) -> None:
    """A batch that is too dear is refused whole, and takes the points all the same."""
    left = [100]

    def charge(writes: Sequence[Write]) -> None:
        left[0] -= cost(writes)
        if left[0] < 0:
            raise limited()

    alice.push("main~8:refs/tags/v0")
    host.batches.clear()
    host.before, host.allowance["writes"] = charge, Left(100, 5000, 4e9)
    got = alice.push(*(f"main~8:refs/heads/b{n:03}" for n in range(60)))
    landed = {name for name, error in got.items() if error is None}
    assert len(landed) == (100 - 2 - 3) // 3
    assert landed == alice.live().keys() - {"refs/tags/v0"}
    assert {error for error in got.values() if error} == {
        next(error for error in got.values() if error)
    }
    assert any(line.startswith("this push takes about 185 points") for line in alice.told)
    assert "run the same push again then" in alice.told


def test_the_points_that_are_told_are_those_that_it_takes(alice: Pusher, host: Account) -> None:
    alice.push(f"main~8:{MAIN}")
    host.batches.clear()
    host.allowance["writes"] = Left(1, 5000, 4e9)
    specs = [f"main~8:refs/heads/b{n}" for n in range(99)]
    alice.push(*specs, f"+main~7:{MAIN}", ":refs/heads/none")
    taken = sum(map(cost, host.batches))
    (told,) = [line for line in alice.told if "points" in line]
    assert told.startswith(f"this push takes about {taken:,} points")


def test_a_push_over_what_is_documented_says_so(
    alice: Pusher, host: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(economy, "A_HOUR", 50)
    alice.push(*(f"main~8:refs/heads/b{n}" for n in range(30)))
    (told,) = [line for line in alice.told if "points" in line]
    assert "hosts commonly take 50 an hour" in told


# --- cutting


def test_a_small_repository_is_not_gone_through(gitenv: GitEnv, host: Account) -> None:
    path = noisy(gitenv, commits=3)
    git = Pusher(gitenv, path, host).git
    assert holds_more(git, 9 * KIB)
    assert not holds_more(git, 20 * KIB)
    gitenv.git("repack", "-adq", cwd=path)
    assert holds_more(git, 9 * KIB)
    assert not holds_more(git, 20 * KIB)
    shared = gitenv.root / "shared"
    gitenv.git("clone", "-q", "--shared", str(path), str(shared))
    assert holds_more(Pusher(gitenv, shared, host).git, 1 << 40)


def test_what_gc_removes_meanwhile_is_in_nobodys_way(alice: Pusher) -> None:
    """A listing still shows it, and it has no size."""
    for gone in ("00/" + "0" * 38, "pack/pack-0.pack"):
        path = alice.path / ".git/objects" / gone
        path.parent.mkdir(exist_ok=True)
        path.symlink_to("gone")
    assert alice.push(f"main:{MAIN}") == {MAIN: None}


def test_what_is_surveyed_is_what_is_lacking(gitenv: GitEnv, host: Account) -> None:
    path = noisy(gitenv, commits=4, size=4 * KIB)
    git = Pusher(gitenv, path, host).git
    oids = gitenv.git("rev-list", "--reverse", "main", cwd=path).out.split()
    whole = survey(git, [oids[-1]], [], 4 * KIB, SILENT)
    assert whole.cuts == [(oid,) for oid in oids[:-1]]
    assert 16 * KIB < whole.size < 20 * KIB
    assert survey(git, [oids[-1]], [oids[2], "1" * 40], 4 * KIB, SILENT).cuts == [(oids[3],)]
    assert survey(git, [oids[-1]], [oids[-1]], 1, SILENT).size == 0


def test_a_cut_waits_for_a_place_with_few_heads(gitenv: GitEnv, host: Account) -> None:
    """Of a hundred branches that come together in the end, no batch could hold all the heads."""
    stream = "".join(
        f"commit refs/work/{n}\ncommitter P <p@example.com> 1 +0000\ndata 1\nx\n"
        f"M 644 inline f\ndata <<END\n{random.Random(n).randbytes(500).hex()}\nEND\n\n"
        for n in range(100)
    )
    path = gitenv.repository("many", commits=0, bare=True)
    gitenv.git("fast-import", "--quiet", cwd=path, stdin=stream)
    git = Pusher(gitenv, path, host).git.within({"GIT_DIR": str(path)})
    tips = sorted(gitenv.refs(path).values())
    found = survey(git, tips, [], 10 * KIB, SILENT)
    assert [len(cut) for cut in found.cuts] == sorted(len(cut) for cut in found.cuts)
    assert found.cuts
    assert max(map(len, found.cuts)) <= 60


def test_the_trunk_is_cut_however_many_branches_come_off_it(gitenv: GitEnv, host: Account) -> None:
    """As in a mirror of a forge, which has a ref for every request that was never merged."""
    trunk = (random.Random(n).randbytes(2000).hex() for n in range(1, 13))
    commits = [
        _commit("heads/main", f"mark :{n}", f"M 644 inline f\ndata <<END\n{noise}\nEND\n")
        for n, noise in enumerate(trunk, 1)
    ]
    pulls = [_commit(f"pull/{n}/head", f"from :{n % 12 + 1}\n") for n in range(100)]
    path = gitenv.repository("mirror", commits=0, bare=True)
    gitenv.git("fast-import", "--quiet", cwd=path, stdin="".join([*commits, *pulls]))
    git = Pusher(gitenv, path, host).git.within({"GIT_DIR": str(path)})
    found = survey(git, sorted(set(gitenv.refs(path).values())), [], 10 * KIB, SILENT)
    assert [len(cut) for cut in found.cuts[:2]] == [1, 1]


def _commit(ref: str, *lines: str) -> str:
    """In the order of fast-import, a mark before who made it and all else behind."""
    mark = [line for line in lines if line.startswith("mark")]
    rest = [line for line in lines if line not in mark]
    made = ["committer P <p@example.com> 1 +0000", "data <<END", ref, "END"]
    return "\n".join([f"commit refs/{ref}", *mark, *made, *rest, ""])


assert HOST
