"""A hundred sequences of what is done with repositories, and real git by each URL handed out.

The deeds are drawn from what tests/storage/test_moves_at_random.py does without hosts, and its
model says what each comes to. Clones have the URL that their repository was made under.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest

from git_knotless.atproto.syntax import Did, Handle, parse_handle
from git_knotless.context import Context
from git_knotless.storage.places.lookup import Accounts
from git_knotless.storage.store import RecordStore
from git_knotless.storage.url import RepoUrl, parse_target
from tests.gitenv import GitEnv, Result
from tests.network import Account, Network
from tests.storage.deeds import Watch, carry_out
from tests.storage.model import DONE, PEOPLE, Deed, Model, Place, drawn

DEEDS = 9  # in a sequence
SEEDS = tuple(range(100))
QUICK = (3, 29, 70)
REFUSED = 128


@dataclass
class Town:
    """alice, bob on another host, and carol, all of them logged in on one machine."""

    machine: GitEnv
    people: dict[str, Account]

    @classmethod
    def on(cls, network: Network, root: Path) -> "Town":
        hosts = {"alice": 0, "bob": 1, "carol": 0}
        town = cls(GitEnv(root, network), {w: network.account(w, host=h) for w, h in hosts.items()})
        for account in town.people.values():
            town.machine.log_in(account)
        return town


@dataclass
class Quarter:
    """The names of one sequence in the town: no other has them. Satisfies `Ground`."""

    town: Town
    context: Context
    number: int
    stores: dict[str, RecordStore] = field(default_factory=dict)

    @property
    def directory(self) -> Path:
        return self.town.machine.root / "copying"

    @property
    def accounts(self) -> Accounts:
        return self.context.accounts()

    def store(self, who: str) -> RecordStore:
        if who not in self.stores:
            identity = self.context.identify(parse_handle(self.owner(who)), write=True)
            self.stores[who] = self.context.store(identity, write=True)
        return self.stores[who]

    def owner(self, who: str) -> Did | Handle:
        return parse_handle(self.town.people[who].handle)

    def url(self, place: Place) -> RepoUrl:
        return parse_target(f"{self.owner(place[0])}/{place[1]}-{self.number}")


class Sequence:
    def __init__(self, quarter: Quarter) -> None:
        self.quarter = quarter
        self.machine = quarter.town.machine
        self.model = Model()
        self.watch = Watch(quarter, self.model)
        self.clones: dict[int, tuple[Path, Place]] = {}
        self.handed: set[Place] = set()
        self.pushes = count(1)

    def do(self, deed: Deed, word: str) -> None:
        present = {thing.place: what for what, thing in self.model.things.items()}
        ended = present.get(deed.place) if deed.verb == "delete" else None
        if deed.verb == "push":
            self._push(deed.what, deed.ref)
        else:
            assert (word, carry_out(self.quarter, deed, self.model)) == (word, self.model.do(deed))
        self.watch.look(ended=ended)
        if deed.verb in ("create", "fork") and word == DONE:
            self._begin(self.model.made, deed)
        self.handed |= self.watch.led.keys()

    def _begin(self, what: int, deed: Deed) -> None:
        """Its clone; one that is made of nothing gets what no other has."""
        path = self.machine.root / f"{self.quarter.number}-{what}"
        self.clones[what] = path, deed.place
        url = str(self.quarter.url(deed.place))
        if deed.verb == "fork":
            self._git("clone", "--quiet", url, str(path))
            return
        self.machine.repository(path.name, commits=0)
        self._git("remote", "add", "origin", url, cwd=path)
        self._push(what, "refs/heads/main")

    def _push(self, what: int, ref: str) -> None:
        """By the old URL, and where that is refused, as after what is printed then."""
        if what in self.model.loose:  # the old URL may lead to an old copy
            self._at_present(what)
        path, place = self.clones[what]
        tip = self.machine.commit(path, f"file{what}", f"{next(self.pushes)}\n")
        pushed = self._try("push", "--quiet", "origin", f"+HEAD:{ref}", cwd=path)
        led = self.watch.led.get(place, what) == what
        assert (pushed.code == 0) is led, f"{pushed.code} {pushed.err}"
        if not led:
            self._at_present(what)
            self._git("push", "--quiet", "origin", f"+HEAD:{ref}", cwd=path)
        self.model.do(Deed("push", what, ref=ref), tip)

    def _at_present(self, what: int) -> None:
        path, _ = self.clones[what]
        place = self.model.things[what].place
        self._git("remote", "set-url", "origin", str(self.quarter.url(place)), cwd=path)
        self.clones[what] = path, place

    def check(self) -> None:
        """Each URL has the branches of what it leads to, and no clone meets another's."""
        for place in self.handed - {place for _, place in self.clones.values()}:
            ran = self._try("ls-remote", "--heads", str(self.quarter.url(place)))
            if place not in self.watch.led:
                assert ran.code == REFUSED, ran.err
            elif self.watch.led[place] not in self.model.loose:
                found = {name: oid for oid, name in map(str.split, ran.out.splitlines())}
                assert found == self._branches(self.watch.led[place])
        for what, (path, place) in self.clones.items():
            ran = self._try("fetch", "--quiet", "origin", "+refs/heads/*:refs/seen/*", cwd=path)
            if self.watch.led.get(place) != what:
                assert ran.code == REFUSED, ran.err
                assert not any(name.startswith("refs/seen/") for name in self.machine.refs(path))
            elif what in self.model.behind and ran.code == REFUSED:
                assert "has lost what was pushed to it: refs/heads/" in ran.err
            elif what not in self.model.loose:
                assert ran.code == 0, ran.err
                assert self._seen(path) == self._branches(what)

    def _branches(self, what: int) -> dict[str, str]:
        refs = self.model.things[what].refs
        return {ref: target for ref, (target, _) in refs.items() if target}

    def _seen(self, path: Path) -> dict[str, str]:
        refs = self.machine.refs(path).items()
        seen, heads = "refs/seen/", "refs/heads/"
        return {name.replace(seen, heads): oid for name, oid in refs if name.startswith(seen)}

    def _git(self, *args: str, cwd: Path | None = None) -> Result:
        return self.machine.git(*args, cwd=cwd or self.machine.root)

    def _try(self, *args: str, cwd: Path | None = None) -> Result:
        return self.machine.git(*args, cwd=cwd or self.machine.root, code=None)


@pytest.fixture(scope="module")
def town(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Town:
    return Town.on(network, tmp_path_factory.mktemp("town"))


@pytest.fixture
def quarter(town: Town, request: pytest.FixtureRequest) -> Iterator[Quarter]:
    with ExitStack() as stack:
        context = stack.enter_context(town.machine.knotless())
        yield Quarter(town, context, request.getfixturevalue("seed"))


@pytest.mark.parametrize(
    "seed",
    [seed if seed in QUICK else pytest.param(seed, marks=pytest.mark.slow) for seed in SEEDS],
)
def test_a_sequence(seed: int, quarter: Quarter) -> None:
    sequence = Sequence(quarter)
    for deed, word in drawn(seed, DEEDS):
        sequence.do(deed, word)
    sequence.check()


def test_the_sequences_do_it_all() -> None:
    """Each deed is done, and refused where it can be."""
    found = {(deed.verb, word) for seed in SEEDS for deed, word in drawn(seed, DEEDS)}
    done = {verb for verb, word in found if word == DONE}
    assert done == {"create", "rename", "push", "offer", "accept", "delete", "fork"}
    refused = {word for _, word in found} - {DONE}
    assert refused >= {"taken", "same name", "own account", "not offered", "nothing there"}
    people = {deed.place[0] for seed in SEEDS for deed, _ in drawn(seed, DEEDS) if deed.place[0]}
    assert people == set(PEOPLE)
