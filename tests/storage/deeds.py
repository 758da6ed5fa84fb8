"""What people do with repositories, and a model of what comes of it that knows no records.

The model says of each deed whether it is done or what it is refused for, where each repository is
then and with which refs, and which one each name was last given to.
"""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Protocol

from git_knotless.atproto.syntax import Did, Handle
from git_knotless.errors import KnotlessError
from git_knotless.storage.accepting import accept
from git_knotless.storage.creation import AlreadyExists, create
from git_knotless.storage.deletion import NotAllThere, delete
from git_knotless.storage.forking import fork
from git_knotless.storage.holds import CopyExists
from git_knotless.storage.lookup import Accounts, look_up
from git_knotless.storage.offers import NotOffered, OwnAccount, offer, withdraw
from git_knotless.storage.renaming import SameName, rename
from git_knotless.storage.repositories import Repository
from git_knotless.storage.snapshot import NoSuchRepository
from git_knotless.storage.store import RecordStore
from git_knotless.storage.url import RepoUrl
from tests.storage.packs import SILENT

PEOPLE = ("alice", "bob", "carol")
NAMES = ("one", "two", "three")
REFS = tuple(f"refs/heads/{number}" for number in range(3))

Place = tuple[str, str]  # who, and the name in their account
Refs = dict[str, tuple[str | None, int]]  # targets, and generations

DONE = "done"
REFUSALS: dict[type[KnotlessError], str] = {
    AlreadyExists: "taken",
    SameName: "same name",
    OwnAccount: "own account",
    NotOffered: "not offered",
    CopyExists: "copy there",
    NoSuchRepository: "nothing there",
    NotAllThere: "lacking",
}


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
    """`held` is what each name in each account is a record of, old copies included."""

    def __init__(self) -> None:
        self.things: dict[int, Thing] = {}
        self.held: dict[Place, int] = {}
        self.given: dict[Place, int] = {}
        self.made = 0

    def deeds(self, verb: str) -> list[Deed]:
        """Each that can be tried now."""
        places = [(who, name) for who in PEOPLE for name in NAMES]
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
                return [Deed(verb, what, (at[what], new)) for what in whats for new in NAMES]
            case "delete":  # what a name leads to that is none of a record is in no model
                held = [p for p in places if p in self.held or p not in self.given]
                return [Deed(verb, place=place) for place in held]
        return [Deed(verb, what, place) for what in whats for place in places]

    def do(self, deed: Deed, target: str = "") -> str:
        match deed.verb:
            case "create" | "fork":
                return self._make(deed)
            case "push":
                return self._push(self.things[deed.what].refs, deed.ref, target)
            case "rename":
                return self._rename(deed.what, deed.place)
            case "offer":
                return self._offer(self.things[deed.what], deed.place[0])
            case "withdraw":
                return self._withdraw(self.things[deed.what])
            case "accept":
                return self._accept(deed.what, deed.place)
        return self._delete(deed.place)

    def _give(self, what: int, place: Place) -> str:
        self.held[place] = self.given[place] = what
        return DONE

    def _make(self, deed: Deed) -> str:
        if deed.place in self.held:
            return "taken"
        self.made += 1
        origin = self.things[deed.what].refs if deed.verb == "fork" else {}
        refs: Refs = {ref: (target, 1) for ref, (target, _) in origin.items() if target}
        self.things[self.made] = Thing(deed.place, refs)
        return self._give(self.made, deed.place)

    def _push(self, refs: Refs, ref: str, target: str) -> str:
        refs[ref] = target, refs.get(ref, (None, 0))[1] + 1
        return DONE

    def _rename(self, what: int, new: Place) -> str:
        thing = self.things[what]
        if new == thing.place:
            return "same name"
        if new in self.held:
            return "taken"
        del self.held[thing.place]
        thing.place = new
        return self._give(what, new)

    def _offer(self, thing: Thing, to: str) -> str:
        if to == thing.place[0]:
            return "own account"
        thing.offer = to
        return DONE

    def _withdraw(self, thing: Thing) -> str:
        if thing.offer is None:
            return "not offered"
        thing.offer = None
        return DONE

    def _accept(self, what: int, new: Place) -> str:
        thing = self.things[what]
        if thing.offer != new[0]:
            return "not offered"
        if any(who == new[0] for (who, _), held in self.held.items() if held == what):
            return "copy there"
        if new in self.held:
            return "taken"
        thing.before.append(Copy(thing.place, dict(thing.refs), thing.offer))
        thing.place, thing.offer = new, None
        return self._give(what, new)

    def _delete(self, place: Place) -> str:
        if place not in self.held:
            return "nothing there"
        thing = self.things.get(self.held[place])
        if thing is not None and place == thing.place:
            self._end(self.held[place], thing)
        elif thing is not None and (number := thing.copy_at(place)) is not None:
            copy = thing.before[number]
            if copy and lacking(thing.refs, copy.refs):
                return "lacking"
            thing.before[number] = None
        del self.held[place]
        return DONE

    def _end(self, what: int, thing: Thing) -> None:
        """The place that it came from is the repository again, if the copy is still there."""
        copy = thing.before.pop() if thing.before else None
        if copy is None:
            del self.things[what]
        else:
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


class Ground(Protocol):
    """Where it is done: the accounts of PEOPLE."""

    directory: Path

    @property
    def accounts(self) -> Accounts: ...

    def store(self, who: str) -> RecordStore: ...

    def owner(self, who: str) -> Did | Handle: ...

    def url(self, place: Place) -> RepoUrl: ...


def own(ground: Ground, place: Place) -> Repository:
    return Repository(ground.url(place), ground.store(place[0]), writable=True)


def carry_out(ground: Ground, deed: Deed, model: Model) -> str:
    """As the commands do, of which a push is none: what `Model.do` is to say of it, before that."""
    try:
        _carry_out(ground, deed, model)
    except tuple(REFUSALS) as error:
        return REFUSALS[type(error)]
    return DONE


def _carry_out(ground: Ground, deed: Deed, model: Model) -> None:
    who, place = deed.place[0], ground.url(deed.place)
    at = model.things[deed.what].place if deed.what else deed.place
    match deed.verb:
        case "create":
            create(ground.store(who), place)
        case "rename":
            rename(own(ground, at), place.name)
        case "offer":
            offer(own(ground, at), ground.store(who).did, place.name)
        case "withdraw":
            withdraw(own(ground, at))
        case "delete":
            delete(own(ground, at), ground.accounts)
        case "accept" | "fork":
            source = Repository(
                ground.url(at), ground.store(at[0]), writable=False, accounts=ground.accounts
            )
            make = accept if deed.verb == "accept" else fork
            make(
                source,
                ground.store(who),
                ground.owner(who),
                name=place.name,
                directory=ground.directory,
                progress=SILENT,
            )


class Watch:
    """What every name that was ever given leads to, from one deed to the next."""

    def __init__(self, ground: Ground, model: Model) -> None:
        self.ground = ground
        self.model = model
        self.keys: dict[int, str] = {}
        self.led: dict[Place, int] = {}

    def look(self, *, ended: int | None = None) -> None:
        """Each leads to what it was given to, or nowhere; and nowhere only if that has `ended`,
        or it led nowhere before.
        """
        leads = {place: what for place, what in self.model.given.items() if self._leads(place)}
        for place, what in self.led.items():
            if what != ended and self.model.given[place] == what:
                assert place in leads, f"{place} leads to {what} no more"
        for what, thing in self.model.things.items():
            assert leads.get(thing.place) == what, f"{what} is not at {thing.place}"
        assert len(set(self.keys.values())) == len(self.keys)
        self.led = leads

    def _leads(self, place: Place) -> bool:
        try:
            found = look_up(self.ground.url(place), self.ground.accounts)
        except NoSuchRepository:
            return False
        what = self.model.given[place]
        key = self.keys.setdefault(what, found.repo.key)
        assert found.repo.key == key, f"{place} leads to another than {what}"
        if what in self.model.things:
            here = self.model.things[what].place
            assert found.url == self.ground.url(here), f"{place} leads to an old place of {what}"
        return True


VERBS = (
    *("create", "rename", "rename", "push", "offer", "offer"),
    *("accept", "accept", "accept", "accept", "delete", "delete", "fork"),
)
_TRIED_IN_VAIN = 0.15  # of the deeds, about: some more are refused


def drawn(seed: int, length: int) -> Iterator[tuple[Deed, str]]:
    """A sequence of deeds, of which most are done; and what each comes to."""
    random, model = Random(seed), Model()
    while length:
        possible = model.deeds(random.choice(VERBS))
        if random.random() > _TRIED_IN_VAIN:
            possible = [deed for deed in possible if deepcopy(model).do(deed) == DONE]
        if possible:
            deed = random.choice(possible)
            length -= 1
            yield deed, model.do(deed, "0" * 40)
