"""What a name can be, who asks, and which repository their clone is of: each answer, in a table.

The name is `work` in alice's account. `old` had it first, and has been `notes` since, or is gone;
`new` is what was made under the name after that. A clone of either has the name in its remote.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from git_knotless.storage.deletion import delete
from git_knotless.storage.places.accepting import accept
from git_knotless.storage.places.offers import offer
from git_knotless.storage.places.renaming import rename
from git_knotless.storage.progress import TextProgress
from tests.e2e.conftest import REF, REPO, Person
from tests.gitenv import Result

# What `work` is: the `record` of `new`; a `redirect` to it, which is `now`; `nothing`, with both
# deleted; `moved`, as `new` went to carol and alice has the old copy; `left`, as she deleted that.
TABLE = """
name     | who   | clone of | clone   | fetch   | push    | rename
---------|-------|----------|---------|---------|---------|--------
record   | alice | old      | new     | another | another | another
record   | alice | new      | new     | new     | new     | new
record   | bob   | old      | new     | another | another | another
record   | bob   | new      | new     | new     | theirs  | theirs
redirect | alice | old      | led     | another | another | another
redirect | alice | new      | led     | led     | led     | new
redirect | bob   | old      | led     | another | another | another
redirect | bob   | new      | led     | led     | theirs  | theirs
nothing  | alice | old      | nothing | nothing | nothing | nothing
nothing  | alice | new      | nothing | nothing | nothing | nothing
nothing  | bob   | old      | nothing | nothing | theirs  | theirs
nothing  | bob   | new      | nothing | nothing | theirs  | theirs
moved    | alice | old      | led     | another | another | another
moved    | alice | new      | led     | led     | theirs  | theirs
moved    | bob   | old      | led     | another | another | another
moved    | bob   | new      | led     | led     | theirs  | theirs
moved    | carol | old      | led     | another | another | another
moved    | carol | new      | led     | led     | led     | new
left     | alice | old      | led     | another | another | another
left     | alice | new      | led     | led     | theirs  | theirs
left     | bob   | old      | led     | another | another | another
left     | bob   | new      | led     | led     | theirs  | theirs
left     | carol | old      | led     | another | another | another
left     | carol | new      | led     | led     | led     | new
"""
DEEDS = ("clone", "fetch", "push", "rename")
NAMES = ("record", "redirect", "nothing", "moved", "left")
Refs = dict[tuple[str, str], str]


def rows(name: str) -> list[list[str]]:
    lines = [[cell.strip() for cell in line.split("|")] for line in TABLE.strip().splitlines()]
    return [cells[1:] for cells in lines[2:] if cells[0] == name]


class Scene:
    """alice's account with the name in a state, and everybody's clone of `old` and of `new`."""

    def __init__(self, name: str, alice: Person, bob: Person, carol: Person) -> None:
        self.people = {"alice": alice, "bob": bob, "carol": carol}
        self.alice, self.carol = alice, carol
        self.asked = alice.url()
        self.cloned: dict[str, Result] = {}
        self.owner, self.called = alice, "work"  # whose `new` is in the end, and its name there
        self._publish("old")
        self._own(alice, "work", delete) if name == "nothing" else self._rename("work", "notes")
        self._publish("new")
        if name == "nothing":
            self._own(alice, "work", delete)
        elif name == "redirect":
            self._rename("work", "now")
        elif name in ("moved", "left"):
            self._transfer(keep=name == "moved")

    @property
    def url(self) -> str:
        return self.owner.url(self.called)

    def writes(self) -> list[int]:
        return [who.commits() for who in self.people.values()]

    def answer(self, who: str, of: str, deed: str) -> str:
        """The word for what was answered, which is looked at to the letter."""
        before = self.writes()
        person = self.people[who]
        ran = getattr(self, f"_{deed}_")(person, person.machine.root / of)
        if ran.code == 0:
            return self._accepted(ran)
        assert self.writes() == before
        return self._refused(ran, deed)

    def _accepted(self, ran: Result) -> str:
        told = f"warning: {self.asked} is now {self.url}\n"
        assert ran.err.count(told) == ran.err.count("warning: ") <= 1, ran.err
        return "led" if told in ran.err else "new"

    def _refused(self, ran: Result, deed: str) -> str:
        do = "change" if deed == "rename" else "push to"
        only = f"only {self.owner.handle} can {do}"
        moved = self.url != self.asked
        told = f"{self.asked} is now {self.url}, and {only} it" if moved else f"{only} {self.url}"
        another = f"{self.asked} is another repository now than origin is a remote of"
        words = {
            "theirs": f"error: {told}\nhint: git knotless login {self.owner.handle}\n",
            "nothing": f"error: {self.asked}: no such repository\n",
            "another": f"error: {another}\n"
            f"hint: git remote set-url origin {self.alice.url('notes')}\n",
        }
        return next((word for word, told in words.items() if told in ran.err), ran.err)

    def _clone_(self, who: Person, _: Path) -> Result:
        """Of nobody's remote: which of the two another clone is of counts for nothing."""
        if who.handle not in self.cloned:
            path = who.machine.root / "clone"
            self.cloned[who.handle] = who.git("clone", self.asked, str(path), code=None)
            assert (path / "new").exists() is (self.cloned[who.handle].code == 0)
        return self.cloned[who.handle]

    def _fetch_(self, who: Person, work: Path) -> Result:
        ran = who.git("fetch", cwd=work, code=None)
        if ran.code == 0:
            who.git("cat-file", "-e", "origin/main:new", cwd=work)
        return ran

    def _push_(self, who: Person, work: Path) -> Result:
        """One that lands moves a branch of `new`, where it is, and no other anywhere."""
        before = self.refs()
        who.git("reset", "--quiet", "--hard", "origin/main", cwd=work)
        tip = who.machine.commit(work, who.handle, f"{len(before)}\n")
        ran = who.git("push", "origin", "main", cwd=work, code=None)
        if ran.code == 0:
            moved = dict(self.refs().items() - before.items())
            key = self.owner.account.records(REPO)[self.called]["key"]
            assert moved == {(self.owner.handle, key): tip}
        return ran

    def _rename_(self, who: Person, work: Path) -> Result:
        ran = who.git("knotless", "repo", "rename", "next", cwd=work, code=None)
        if ran.code == 0:
            assert ran.out == f"{self.owner.url('next')}\n"
            self._own(self.owner, "next", lambda own: rename(own, self.called))
        return ran

    def refs(self) -> Refs:
        """Where the branch of each repository of each person is."""
        return {
            (person.handle, value["repo"]): value["target"]
            for person in self.people.values()
            for value in person.account.records(REF).values()
        }

    def _publish(self, which: str) -> None:
        """With a clone for everybody, as it was when `work` led to it."""
        machine = self.alice.machine
        work = machine.repository(which, commits=0)
        machine.git("remote", "add", "origin", self.alice.create(), cwd=work)
        machine.commit(work, which)
        machine.push_main(work)
        for person in self.people.values():
            place = person.machine.root / which
            if place != work:
                shutil.copytree(work, place)

    def _rename(self, old: str, new: str) -> None:
        self._own(self.alice, old, lambda own: rename(own, new))
        self.called = new if new == "now" else self.called

    def _transfer(self, *, keep: bool) -> None:
        with self.carol.machine.knotless() as context:
            to = context.account()
            self._own(self.alice, "work", lambda own: offer(own, to.did, "hers"))
            accept(
                context.open(self.asked),
                context.store(context.identify(to.did), write=True),
                to.did,
                directory=self.carol.machine.root / "copying",
                progress=TextProgress(None, enabled=False),
            )
        self.owner, self.called = self.carol, "hers"
        if not keep:
            self._own(self.alice, "work", delete, moves=False)

    def _own(
        self, who: Person, name: str, deed: Callable[..., object], *, moves: bool = True
    ) -> None:
        """As the command does, for what is no part of the table."""
        with who.machine.knotless() as context:
            own = context.open(who.url(name), to="change", moves=moves)
            arguments = [own] if deed is not delete else [own, context.accounts(write=True)]
            deed(*arguments)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    # Those of one account stay in the quick loop; moves have quick tests of their own beside it.
    [
        pytest.param(name, marks=[pytest.mark.slow] if name in ("moved", "left") else [])
        for name in NAMES
    ],
)
def test_each_answer(name: str, alice: Person, person: Callable[..., Person]) -> None:
    scene = Scene(name, alice, person("bob", host=1), person("carol", host=1))
    found = [
        [who, of, *(scene.answer(who, of, deed) for deed in DEEDS)] for who, of, *_ in rows(name)
    ]
    assert found == rows(name)


def test_the_table_has_every_cell() -> None:
    for name in NAMES:
        people = ("alice", "bob", "carol") if name in ("moved", "left") else ("alice", "bob")
        cells = [(who, of) for who, of, *_ in rows(name)]
        assert cells == [(who, of) for who in people for of in ("old", "new")]
