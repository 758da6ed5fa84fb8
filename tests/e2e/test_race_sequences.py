"""A hundred sequences of what is done at once, by real git in processes of their own: what each
was told is what is there, all of it can be cloned, and nothing stays locked.

Five of them follow each other in one repository.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from git_knotless.context import Context
from git_knotless.storage.git import Git
from git_knotless.storage.packs.intake import take
from git_knotless.storage.pushing.push import push
from git_knotless.storage.pushing.updates import Update
from git_knotless.storage.repositories import Repository
from git_knotless.storage.url import RepoUrl, parse_target
from tests.e2e.conftest import REF
from tests.gitenv import GitEnv, Result
from tests.network import Account, Network
from tests.storage.histories import PUSHERS, Histories, commits
from tests.storage.packs import SILENT

SEEDS = tuple(range(100))
CHAIN = 5
QUICK = (45,)
MAIN, A, B, NEW = (f"refs/heads/{name}" for name in ("main", "a", "b", "new"))
BEGUN = {MAIN: "one", A: "both", B: "one"}
UP_TO_DATE, REFUSED = "=", "!"  # of `git push --porcelain`


@dataclass(frozen=True, slots=True)
class Push:
    """`moves` are refs, and commits by their names."""

    pusher: int
    moves: tuple[tuple[str, str | None], ...]
    options: tuple[str, ...] = ()

    def words(self, oids: dict[str, str]) -> list[str]:
        specs = [f"{oids[commit] if commit else ''}:{ref}" for ref, commit in self.moves]
        return ["push", "--porcelain", *self.options, "URL", *specs]


@dataclass(frozen=True, slots=True)
class Command:
    """One of ours, that writes to the repository."""

    args: tuple[str, ...]

    def words(self, _: dict[str, str]) -> list[str]:
        return ["knotless", "repo", *self.args]


Act = Push | Command
COMMANDS = (
    Command(("edit", "URL", "--description", "another")),
    Command(("edit", "URL", "--default-branch", "a")),
    Command(("compact", "URL")),
)


def drawn(seed: int) -> list[Act]:
    """Two things that are done at once, or three; one is a push at least."""
    random = Random(seed)
    acts: list[Act] = [_push(random, 0)]
    for pusher in range(1, random.choice((2, 2, 2, 3))):
        rather = random.random() < 0.7
        acts.append(_push(random, pusher) if rather else random.choice(COMMANDS))
    return acts


def _push(random: Random, pusher: int) -> Push:
    refs = random.sample((MAIN, A, B, NEW), random.choice((1, 1, 2, 3)))
    there = [*commits(pusher), None]
    moves = tuple((ref, random.choice(there)) for ref in refs)
    options = random.choice(
        ((), ("--force",), ("--force",), ("--atomic",), ("--force", "--atomic"))
    )
    return Push(pusher, moves, options)


class Town:
    """alice, and a machine with the histories of those who push."""

    def __init__(self, network: Network, root: Path) -> None:
        self.account: Account = network.account("alice")
        self.machine = GitEnv(root, network)
        self.machine.log_in(self.account)
        self.histories = Histories(root, self.machine)
        self.oids = self.histories.oids


@pytest.fixture(scope="module")
def town(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Town:
    return Town(network, tmp_path_factory.mktemp("races"))


@pytest.fixture(scope="module")
def context(town: Town) -> Iterator[Context]:
    with town.machine.knotless() as context:
        yield context


class Chain:
    """One repository, that others do not touch."""

    def __init__(self, town: Town, context: Context, name: str) -> None:
        self.town = town
        self.context = context
        self.url: RepoUrl = parse_target(f"{town.account.handle}/{name}")
        town.machine.create(str(self.url))
        self.push(BEGUN)
        self.key = self.repository().record().key
        self.before = self.refs()

    def repository(self) -> Repository:
        return self.context.open(str(self.url), to="push to")

    def push(self, moves: dict[str, str]) -> None:
        """As git would, from the repository with all histories; it is not refused."""
        repository = self.repository()
        updates = [Update(ref, self.town.oids[to], force=True) for ref, to in moves.items()]
        git = Git(self.town.histories.all, env=self.town.machine.env)
        outcomes = push(
            repository,
            git,
            repository.snapshot(),
            updates,
            progress=SILENT,
            notify=lambda line: None,
        )
        assert [outcome.error for outcome in outcomes] == [None] * len(moves)

    def refs(self) -> dict[str, tuple[str | None, int]]:
        """As the host has them: targets, and generations."""
        values = self.town.account.records(REF).values()
        mine = [value for value in values if value["repo"] == self.key]
        return {value["name"]: (value.get("target"), value["generation"]) for value in mine}

    def run(self, acts: list[Act]) -> None:
        """All of them at once, and whether what each was told is so."""
        with ThreadPoolExecutor(len(acts)) as pool:
            results = list(pool.map(self._run, acts))
        self._check(acts, results)

    def _run(self, act: Act) -> Result:
        words = [str(self.url) if word == "URL" else word for word in act.words(self.town.oids)]
        number = act.pusher if isinstance(act, Push) else 0
        return self.town.machine.git(
            *words, cwd=self.town.histories.paths[number], code=None, timeout=120
        )

    def _check(self, acts: list[Act], results: list[Result]) -> None:
        after = self.refs()
        for act, result in zip(acts, results, strict=True):
            assert isinstance(act, Push) or result.code == 0, result.err
        told = zip(acts, results, strict=True)
        pushes = [(act, said(result)) for act, result in told if isinstance(act, Push)]
        for act, flags in pushes:
            if "--atomic" in act.options and REFUSED in flags.values():
                others = {move for other, _ in pushes if other is not act for move in other.moves}
                there = {ref for ref, flag in flags.items() if flag not in (REFUSED, UP_TO_DATE)}
                assert {move for move in act.moves if move[0] in there} <= others, flags
        for ref in {ref for act, _ in pushes for ref, _ in act.moves}:
            self._check_ref(ref, pushes, after)
        self.before = after

    def _check_ref(
        self,
        ref: str,
        pushes: list[tuple[Push, dict[str, str]]],
        after: dict[str, tuple[str | None, int]],
    ) -> None:
        """It is where one of those who were not refused has it, and nowhere else."""
        was, now = (refs.get(ref, (None, 0)) for refs in (self.before, after))
        taken = [
            self.town.oids[commit] if commit else None
            for act, flags in pushes
            for at, commit in act.moves
            if at == ref and flags[ref] not in (REFUSED, UP_TO_DATE)
        ]
        assert now[0] in (taken or [was[0]])
        assert len(set(taken) - {was[0]}) <= now[1] - was[1] <= len(taken)

    def clone(self, name: str) -> None:
        """All that is there, sound and whole."""
        repository, machine = self.repository(), self.town.machine
        snapshot = repository.snapshot()
        path = machine.repository(name, commits=0, bare=True)
        git = Git(path, env=machine.env)
        wants = {oid: [ref] for ref, oid in snapshot.live.items()}
        take(git, repository.store, self.key, wants, progress=SILENT, clone=True).release()
        for oid in wants:
            assert git.run("rev-list", "--objects", "--quiet", oid) == b""
        assert snapshot.live == {ref: oid for ref, (oid, _) in self.refs().items() if oid}


def said(result: Result) -> dict[str, str]:
    """The flag of each ref, by `git push --porcelain`."""
    lines = (line.split("\t") for line in result.out.splitlines() if line.count("\t") == 2)
    flags = {names.rpartition(":")[2]: flag for flag, names, _ in lines}
    assert flags, f"{result.out}{result.err}"
    return flags


@pytest.mark.parametrize(
    "first",
    [
        seed if seed in QUICK else pytest.param(seed, marks=pytest.mark.slow)
        for seed in SEEDS[::CHAIN]
    ],
)
def test_five_sequences(first: int, town: Town, context: Context) -> None:
    chain = Chain(town, context, f"races-{first}")
    for seed in SEEDS[first : first + CHAIN]:
        chain.run(drawn(seed))
    chain.push({MAIN: "two", NEW: f"more{PUSHERS - 1}"})
    chain.clone(f"clone{first}")


def test_the_sequences_have_it_all() -> None:
    """Each command beside a push, and pushes of all kinds of the same ref."""
    acts = [drawn(seed) for seed in SEEDS]
    assert {act for each in acts for act in each if isinstance(act, Command)} == set(COMMANDS)
    pushes = [[act for act in each if isinstance(act, Push)] for each in acts]
    both = [a.options for a, *others in pushes if any(_meet(a, b) for b in others)]
    assert set(both) == {(), ("--force",), ("--atomic",), ("--force", "--atomic")}
    assert any(commit is None for each in pushes for act in each for _, commit in act.moves)


def _meet(one: Push, other: Push) -> bool:
    return bool({ref for ref, _ in one.moves} & {ref for ref, _ in other.moves})
