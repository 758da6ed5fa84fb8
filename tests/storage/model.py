"""A model of what becomes of repositories, which knows no records, and what is done with them.

It says of each deed whether it is done or what it is refused for, where each repository is then
and with which refs, and which one each name was last given to.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

PEOPLE = ("alice", "bob", "carol")
NAMES = ("one", "two", "three")
REFS = tuple(f"refs/heads/{number}" for number in range(3))

Place = tuple[str, str]  # who, and the name in their account
Refs = dict[str, tuple[str | None, int]]  # targets, and generations

DONE = "done"


@dataclass(frozen=True, slots=True)
class Deed:
    """`place` is where something comes to be, or is deleted, or which place it is offered to.

    `what` is the repository that it is done with, by the number in which they were made; of a
    create it is the one that is made.
    """

    verb: str
    what: int = 0
    place: Place = ("", "")
    ref: str = ""


@dataclass(frozen=True, slots=True)
class Copy:
    """What its owner has not deleted, of a repository that has gone to another account."""

    place: Place
    refs: Refs
    offer: str | None


@dataclass(slots=True)
class Thing:
    """A repository: where it is, to whom it is offered, and the places that it came through."""

    place: Place
    refs: Refs = field(default_factory=dict)
    offer: str | None = None
    before: list[Copy | None] = field(default_factory=list)

    def copy_at(self, place: Place) -> int | None:
        return next((n for n, each in enumerate(self.before) if each and each.place == place), None)


class Model:
    """`held` is what each name in each account is a record of, old copies included.

    `loose` are those that went through an account which says no more where they went, since
    something else has their name there, or they were deleted there later: whoever has an older
    copy is led to that. `behind` are those that went back to an old copy, which lacks something.
    """

    def __init__(self, names: Sequence[str] = NAMES) -> None:
        self.names = names
        self.things: dict[int, Thing] = {}
        self.held: dict[Place, int] = {}
        self.given: dict[Place, int] = {}
        self.loose: set[int] = set()
        self.behind: set[int] = set()
        self.made = 0

    def deeds(self, verb: str) -> list[Deed]:
        """Each that can be tried now."""
        places = [(who, name) for who in PEOPLE for name in self.names]
        whats = list(self.things)
        match verb:
            case "create":
                return [Deed(verb, place=place) for place in places]
            case "push":
                return [Deed(verb, what, ref=ref) for what in whats for ref in REFS]
            case "withdraw":
                return [Deed(verb, what, self.things[what].place) for what in whats]
            case "rename":
                at = {what: self.things[what].place[0] for what in whats}
                return [Deed(verb, what, (at[what], new)) for what in whats for new in self.names]
            case "delete":  # what a name leads to that is none of a record is in no model
                held = [p for p in places if p in self.held or p not in self.given]
                return [Deed(verb, place=place) for place in held]
        return [Deed(verb, what, place) for what in whats for place in places]

    def doable(self, verb: str) -> list[Deed]:
        """Those of them that nothing is refused for."""
        return [deed for deed in self.deeds(verb) if self.says(deed) == DONE]

    def do(self, deed: Deed, target: str = "") -> str:
        """What it comes to; `target` is of what is pushed."""
        word = self.says(deed)
        if word == DONE:
            self._do(deed, target)
        return word

    def says(self, deed: Deed) -> str:
        who, _ = deed.place
        held = self.held.get(deed.place)
        match deed.verb:
            case "push":
                return DONE
            case "delete":
                return "nothing there" if held is None else self._of_delete(deed.place, held)
            case "create" | "fork":
                return "taken" if held else DONE
        thing = self.things[deed.what]
        match deed.verb:
            case "rename":
                return "same name" if deed.place == thing.place else "taken" if held else DONE
            case "offer":
                return "own account" if who == thing.place[0] else DONE
            case "withdraw":
                return "not offered" if thing.offer is None else DONE
        return self._of_accept(thing, deed)

    def _of_accept(self, thing: Thing, deed: Deed) -> str:
        who, _ = deed.place
        if thing.offer != who:
            return "not offered"
        if any(place[0] == who for place, what in self.held.items() if what == deed.what):
            return "copy there"
        return "taken" if deed.place in self.held else DONE

    def _of_delete(self, place: Place, what: int) -> str:
        thing = self.things.get(what)
        number = thing.copy_at(place) if thing else None
        copy = thing.before[number] if thing and number is not None else None
        return "lacking" if thing and copy and lacking(thing.refs, copy.refs) else DONE

    def _do(self, deed: Deed, target: str) -> None:
        match deed.verb:
            case "create" | "fork":
                self._make(deed)
            case "push":
                refs = self.things[deed.what].refs
                refs[deed.ref] = target, refs.get(deed.ref, (None, 0))[1] + 1
            case "rename":
                thing = self.things[deed.what]
                del self.held[thing.place]
                self._give(deed.what, deed.place)
            case "offer" | "withdraw":
                to = deed.place[0] if deed.verb == "offer" else None
                self.things[deed.what].offer = to
            case "accept":
                thing = self.things[deed.what]
                thing.before.append(Copy(thing.place, dict(thing.refs), thing.offer))
                thing.offer = None
                self._give(deed.what, deed.place)
            case "delete":
                self._delete(deed.place, self.held.pop(deed.place))

    def _give(self, what: int, place: Place) -> None:
        passed = self.given.get(place, what)
        if passed != what and passed in self.things and self.things[passed].place[0] != place[0]:
            self.loose.add(passed)
        self.held[place] = self.given[place] = what
        self.things[what].place = place

    def _make(self, deed: Deed) -> None:
        self.made += 1
        origin = self.things[deed.what].refs if deed.verb == "fork" else {}
        refs: Refs = {ref: (target, 1) for ref, (target, _) in origin.items() if target}
        self.things[self.made] = Thing(deed.place, refs)
        self._give(self.made, deed.place)

    def _delete(self, place: Place, what: int) -> None:
        thing = self.things.get(what)
        if thing is None:
            return
        if place == thing.place:
            self._end(what, thing)
        elif (number := thing.copy_at(place)) is not None:
            thing.before[number] = None

    def _end(self, what: int, thing: Thing) -> None:
        """The place that it came from is the repository again, if the copy is still there."""
        copy = thing.before.pop() if thing.before else None
        if any(each and each.offer == thing.place[0] for each in thing.before):
            self.loose.add(what)
        if copy is None:
            del self.things[what]
        else:
            if copy.refs != thing.refs:
                self.behind.add(what)
            thing.place, thing.refs, thing.offer = copy.place, dict(copy.refs), copy.offer


def lacking(there: Refs, here: Refs) -> list[str]:
    """What neither has the same target nor has been moved on from."""
    return [
        ref
        for ref, (target, generation) in here.items()
        if target
        and there.get(ref, ("", 0))[0] != target
        and there.get(ref, ("", 0))[1] <= generation
    ]


VERBS = (
    *("create", "rename", "rename", "push", "offer", "offer"),
    *["accept"] * 8,
    *("delete", "delete", "fork"),
)
_IN_VAIN = 0.1  # of the deeds, about, are refused


def drawn(seed: int, length: int) -> Iterator[tuple[Deed, str]]:
    """A sequence of deeds, of which most are done; and what each comes to."""
    random, model = Random(seed), Model(NAMES[:2])  # so that many are taken again
    while length:
        verb = random.choice(VERBS)
        in_vain = random.random() < _IN_VAIN
        possible = model.deeds(verb) if in_vain else model.doable(verb)
        if possible:
            deed = random.choice(possible)
            length -= 1
            yield deed, model.do(deed, "0" * 40)
