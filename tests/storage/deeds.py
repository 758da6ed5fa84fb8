"""The deeds of the model, carried out; and what each name leads to after it."""

from pathlib import Path
from typing import Protocol

from git_knotless.atproto.syntax import Did, Handle
from git_knotless.errors import KnotlessError
from git_knotless.storage.creation import AlreadyExists, create
from git_knotless.storage.deletion import NotAllThere, delete
from git_knotless.storage.places.accepting import accept
from git_knotless.storage.places.forking import fork
from git_knotless.storage.places.holds import CopyExists
from git_knotless.storage.places.lookup import Accounts, look_up
from git_knotless.storage.places.offers import NotOffered, OwnAccount, offer, withdraw
from git_knotless.storage.places.renaming import SameName, rename
from git_knotless.storage.repositories import Repository
from git_knotless.storage.snapshot import NoSuchRepository
from git_knotless.storage.store import RecordStore
from git_knotless.storage.url import RepoUrl
from tests.storage.model import DONE, Deed, Model, Place
from tests.storage.packs import SILENT

REFUSALS: dict[type[KnotlessError], str] = {
    AlreadyExists: "taken",
    SameName: "same name",
    OwnAccount: "own account",
    NotOffered: "not offered",
    CopyExists: "copy there",
    NoSuchRepository: "nothing there",
    NotAllThere: "lacking",
}


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
            kept = self.model.given[place] == what and what not in self.model.loose
            if kept and what != ended:
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
        if what in self.model.things and what not in self.model.loose:
            here = self.model.things[what].place
            assert found.url == self.ground.url(here), f"{place} leads to an old place of {what}"
        return True
