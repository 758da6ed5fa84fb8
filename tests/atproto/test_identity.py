"""From names to hosts: who is asked, in which order, what is remembered, and both ways checked."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from git_knotless.atproto.errors import (
    BadAnswer,
    DidNotFound,
    HandleNotFound,
    HandleUnresolved,
    HostUnreachable,
    IdentityMismatch,
    NoPds,
)
from git_knotless.atproto.identity import Identity, IdentityCache, Resolver
from git_knotless.atproto.identity_cache import Naming
from git_knotless.atproto.syntax import Did, Handle, InvalidSyntax
from tests.atproto.fakes import DID, PDS, PLC, client_for, document, json_answer, xrpc_error

BOB = Did("did:plc:ragtjsm2j2vknwkz3zp4oxrd")
NOW = 1_800_000_000.0


@dataclass
class World:
    """A PLC directory, a PDS that resolves handles, the DNS and web hosts, and a clock."""

    documents: dict[str, Any] = field(default_factory=lambda: {DID: document()})
    handles: dict[str, Any] = field(default_factory=lambda: {"alice.test": DID})
    texts: dict[str, list[str]] = field(default_factory=dict)
    well_known: dict[str, str] = field(default_factory=dict)
    down: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)
    now: float = NOW

    def __call__(self, request: httpx.Request) -> httpx.Response:
        origin = f"{request.url.scheme}://{request.url.netloc.decode()}"
        path = request.url.path
        self.asked.append(f"{origin}{path}")
        if origin in self.down:
            raise httpx.ConnectError("connection refused")
        if path == "/.well-known/atproto-did":
            text = self.well_known.get(request.url.host)
            return httpx.Response(404) if text is None else httpx.Response(200, text=text)
        if path == "/xrpc/com.atproto.identity.resolveHandle":
            handle = request.url.params["handle"]
            if handle in self.handles:
                return json_answer({"did": self.handles[handle]})
            return xrpc_error(400, "HandleNotFound")
        did = path.removeprefix("/") if origin == PLC else f"{origin}{path}"
        found = self.documents.get(did, 404)
        return httpx.Response(found) if isinstance(found, int) else json_answer(found)

    def txt(self, name: str) -> list[str]:
        self.asked.append(f"dns:{name}")
        if "dns" in self.down:
            raise HostUnreachable("the DNS does not answer")
        return self.texts.get(name, [])

    def take(self) -> list[str]:
        asked, self.asked = self.asked, []
        return asked


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "identity.json"


@pytest.fixture
def resolver(world: World, path: Path) -> Callable[..., Resolver]:
    """A new process's resolver; all share the cache's file."""

    def make(*resolvers: str, ttl: float = 3600) -> Resolver:
        return Resolver(
            client_for(world),
            plc_url=PLC,
            handle_resolvers=resolvers or [PDS],
            cache=IdentityCache(path),
            ttl=ttl,
            txt=world.txt,
            now=lambda: world.now,
        )

    return make


RESOLVE = f"{PDS}/xrpc/com.atproto.identity.resolveHandle"
Make = Callable[..., Resolver]


def test_a_handle_leads_to_its_host(world: World, resolver: Make) -> None:
    found = resolver().resolve("Alice.TEST")
    assert found == Identity(Did(DID), Handle("alice.test"), PDS, NOW)
    assert found.name == "alice.test"
    assert world.take() == [RESOLVE, f"{PLC}/{DID}"]


def test_a_did_leads_to_its_host_and_its_handle(world: World, resolver: Make) -> None:
    assert resolver().resolve(DID) == Identity(Did(DID), Handle("alice.test"), PDS, NOW)
    assert world.take() == [f"{PLC}/{DID}", RESOLVE]


@pytest.mark.parametrize("identifier", ["alice.test", DID])
def test_what_is_known_is_not_asked_again(world: World, resolver: Make, identifier: str) -> None:
    first = resolver().resolve(identifier)
    world.take()
    world.now += 3599
    assert resolver().resolve(identifier) == first
    assert resolver().resolve("alice.test" if identifier == DID else DID) == first
    assert not world.take()
    world.now += 2
    assert resolver().resolve(identifier).checked == world.now
    assert len(world.take()) == 2


@pytest.mark.parametrize("identifier", ["alice.test", DID])
def test_a_push_reads_only_the_document_again(
    world: World, resolver: Make, identifier: str
) -> None:
    resolver().resolve(identifier)
    world.now += 59
    world.take()
    resolver().resolve(identifier, max_age=60)
    assert not world.take()
    world.now += 2
    found = resolver().resolve(identifier, max_age=60)
    assert world.take() == [f"{PLC}/{DID}"]
    assert found.checked == world.now


def test_what_is_from_the_future_is_not_believed(world: World, resolver: Make) -> None:
    resolver().resolve("alice.test")
    world.now -= 10
    world.take()
    resolver().resolve("alice.test")
    assert len(world.take()) == 2


def test_an_account_that_moved_is_found_once_it_is_forgotten(world: World, resolver: Make) -> None:
    resolver().resolve("alice.test")
    new = "https://new.example.com"
    world.documents[DID] = document(pds=f"{new}/")
    assert resolver().resolve("alice.test").pds == PDS
    resolver().forget(Did(DID))
    assert resolver().resolve("alice.test").pds == new


def test_a_handle_that_was_just_changed_is_found(world: World, resolver: Make) -> None:
    resolver().resolve("alice.test")
    world.documents[DID] = document(handle="alicia.test")
    world.handles = {"alicia.test": DID}
    assert resolver().resolve("alicia.test").handle == "alicia.test"


def test_a_handle_that_now_is_anothers_is_found(world: World, resolver: Make) -> None:
    resolver().resolve("alice.test")
    world.documents[DID] = document(handle=None)
    world.documents[BOB] = document(BOB, "alice.test")
    world.handles = {"alice.test": BOB}
    assert resolver().resolve("alice.test", max_age=0).did == BOB


# Both ways.


@pytest.mark.parametrize("claimed", ["bob.test", None, "not a handle", "handle.invalid"])
def test_a_handle_that_the_document_does_not_name(
    world: World, resolver: Make, claimed: str | None
) -> None:
    world.documents[DID] = document(handle=claimed)
    with pytest.raises(IdentityMismatch, match=f"alice.test is not valid: it leads to {DID}"):
        resolver().resolve("alice.test")
    assert resolver().resolve(DID).handle is None
    assert resolver().resolve(DID).name == DID


def test_a_handle_that_names_another_account_is_not_shown(world: World, resolver: Make) -> None:
    world.handles["alice.test"] = BOB
    assert resolver().resolve(DID).handle is None


def test_only_the_first_name_of_a_document_counts(world: World, resolver: Make) -> None:
    names = ["https://alice.example.com", 7, "at://Alice.test", "at://bob.test"]
    world.documents[DID] = {**document(), "alsoKnownAs": names}
    world.handles["bob.test"] = DID
    assert resolver().resolve("alice.test").handle == "alice.test"
    with pytest.raises(IdentityMismatch):
        resolver().resolve("bob.test")


def test_a_handle_that_cannot_be_checked_is_not_shown_and_soon_tried_again(
    world: World, resolver: Make
) -> None:
    world.down.add(PDS)
    assert resolver().resolve(DID).handle is None
    world.down.clear()
    world.take()
    world.now += 299
    assert resolver().resolve(DID).handle is None
    assert not world.take()
    assert resolver().resolve("alice.test").handle == "alice.test"
    world.now += 2
    assert resolver().resolve(DID).handle == "alice.test"


# Where handles are looked up.


def test_each_resolver_is_asked_until_one_knows(world: World, resolver: Make) -> None:
    other = "http://localhost:2584"
    del world.handles["alice.test"]
    with pytest.raises(HandleNotFound) as caught:
        resolver(PDS, other).resolve("alice.test")
    assert caught.value.message == "alice.test: no such handle"
    assert [url.partition("/xrpc")[0] for url in world.take()] == [PDS, other]


def test_nothing_under_test_is_asked_of_the_dns(world: World, resolver: Make) -> None:
    with pytest.raises(HandleNotFound):
        resolver().resolve("nobody.test")
    assert world.take() == [RESOLVE]


def test_a_resolver_that_is_down_leaves_it_open(world: World, resolver: Make) -> None:
    world.down.add(PDS)
    with pytest.raises(HandleUnresolved) as caught:
        resolver().resolve("alice.test")
    assert caught.value.message == (
        "alice.test cannot be looked up: localhost:2583 cannot be reached: connection refused"
    )


def test_a_resolver_that_is_down_does_not_matter_when_another_knows(
    world: World, resolver: Make
) -> None:
    world.down.add("http://localhost:1")
    assert resolver("http://localhost:1", PDS).resolve("alice.test").did == DID


NAME = "alice.knotless.dev"


@pytest.fixture
def public(world: World) -> World:
    """Alice has a handle of the open network."""
    world.documents[DID] = document(handle=NAME)
    return world


def test_the_dns_wins(public: World, resolver: Make) -> None:
    public.texts[f"_atproto.{NAME}"] = ["v=spf1 -all", f"did={DID}", f"did={DID}"]
    public.well_known[NAME] = BOB
    assert resolver().resolve(NAME).did == DID
    assert public.take()[:2] == [RESOLVE, f"dns:_atproto.{NAME}"]


@pytest.mark.parametrize("text", [DID, f"{DID}\n", f"  {DID}\r\n"])
def test_the_host_of_the_same_name_is_asked_last(public: World, resolver: Make, text: str) -> None:
    public.well_known[NAME] = text
    assert resolver().resolve(NAME).did == DID
    assert f"https://{NAME}/.well-known/atproto-did" in public.take()


def test_the_host_of_the_same_name_serves_where_the_dns_does_not(
    public: World, resolver: Make
) -> None:
    public.down.add("dns")
    public.well_known[NAME] = DID
    assert resolver().resolve(NAME).did == DID


@pytest.mark.parametrize("text", ["<html>parked</html>", "did:plc:x", "", "x" * 5000])
def test_a_web_site_names_nobody(public: World, resolver: Make, text: str) -> None:
    public.well_known[NAME] = text
    with pytest.raises(HandleNotFound):
        resolver().resolve(NAME)


def test_a_name_without_a_host_is_nobodys(public: World, resolver: Make) -> None:
    public.down.add(f"https://{NAME}")
    with pytest.raises(HandleNotFound):
        resolver().resolve(NAME)


def test_a_silent_dns_leaves_it_open(public: World, resolver: Make) -> None:
    public.down |= {"dns", f"https://{NAME}"}
    with pytest.raises(HandleUnresolved, match="the DNS does not answer"):
        resolver().resolve(NAME)


@pytest.mark.parametrize("texts", [[f"did={DID}", f"did={BOB}"], ["did=x"]])
def test_a_dns_that_names_no_one_account(public: World, resolver: Make, texts: list[str]) -> None:
    public.texts[f"_atproto.{NAME}"] = texts
    with pytest.raises(HandleUnresolved):
        resolver().resolve(NAME)


@pytest.mark.parametrize("answer", ["did:key:x", None, ["did"], "https://evil.example.com"])
def test_a_resolver_that_answers_anything(world: World, resolver: Make, answer: Any) -> None:
    world.handles["alice.test"] = answer
    with pytest.raises(HandleUnresolved, match="localhost:2583 names no account"):
        resolver().resolve("alice.test")


# DID documents.


@pytest.mark.parametrize(
    ("did", "url", "pds"),
    [
        ("did:web:alice.example.com", "https://alice.example.com", "https://alice.example.com"),
        ("did:web:localhost%3A8000", "http://localhost:8000", "http://localhost:8000"),
    ],
)
def test_did_web(world: World, resolver: Make, did: str, url: str, pds: str) -> None:
    world.documents[f"{url}/.well-known/did.json"] = document(did, None, pds)
    assert resolver().resolve(did) == Identity(Did(did), None, pds, NOW)


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (404, DidNotFound, f"{DID}: no such account"),
        (410, DidNotFound, f"{DID}: the account was deleted"),
        (document(pds=None), NoPds, f"{DID} has no host: the DID document names no PDS"),
        ({"id": DID}, NoPds, "names no PDS"),
        ({"id": DID, "service": [7, {"id": "#atproto_pds"}]}, NoPds, "names no PDS"),
        (document(pds="http://pds.example.com"), NoPds, "no usable host: 'http://pds.example.com'"),
        (document(pds="https://u:p@pds.example.com"), NoPds, "no usable host"),
        (document(pds="https://pds.example.com/path"), NoPds, "no usable host"),
        (
            {**document(), "service": [{**document()["service"][0], "serviceEndpoint": {}}]},
            NoPds,
            "has no usable host",
        ),
        (document(BOB), BadAnswer, "is of another account"),
        (["x"], BadAnswer, "is of another account"),
        ({"padding": "x" * 300_000}, BadAnswer, "more than 262,144 bytes"),
    ],
)
def test_documents_that_lead_nowhere(
    world: World, resolver: Make, answer: Any, kind: type[Exception], words: str
) -> None:
    world.documents[DID] = answer
    with pytest.raises(kind, match=words):
        resolver().resolve(DID)


def test_a_service_may_be_named_in_full(world: World, resolver: Make) -> None:
    found = document()
    found["service"][0]["id"] = f"{DID}#atproto_pds"
    found["service"].insert(0, {**found["service"][0], "id": "#other"})
    world.documents[DID] = found
    assert resolver().resolve(DID).pds == PDS


def test_what_is_no_name_is_not_asked_for(world: World, resolver: Make) -> None:
    for text in ("", "alice", "did:key:x", "alice.test/x"):
        with pytest.raises(InvalidSyntax):
            resolver().resolve(text)
    assert not world.take()


# The cache.


def cached(section: str, entries: dict[str, Any]) -> str:
    return json.dumps({"version": 1, section: entries})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "[" * 100_000,
        '{"version": 2, "handles": {}, "dids": {}}',
        '{"version": 1, "handles": 7, "dids": []}',
        cached("handles", {"alice.test": 7}),
        cached("dids", {DID: None}),
        cached("handles", {"alice.test": {"did": "x", "checked": NOW}}),
        cached("handles", {"alice.test": {"did": [], "checked": NOW}}),
        cached("handles", {"alice.test": {"checked": NOW}}),
        cached("handles", {"alice.test": {"did": BOB, "checked": float("nan")}}),
        cached("handles", {"alice.test": {"did": BOB, "checked": float("inf")}}),
        cached("handles", {"alice.test": {"did": BOB, "checked": True}}),
        cached("handles", {"alice.test": {"did": BOB, "checked": 10**400}}),
        cached("dids", {DID: {"pds": "http://a.example.com", "claims": None, "checked": NOW}}),
        cached("dids", {DID: {"pds": None, "claims": None, "checked": NOW}}),
        cached("dids", {DID: {"pds": PDS, "claims": "x", "checked": NOW}}),
    ],
)
def test_garbage_in_the_cache_is_as_nothing(path: Path, resolver: Make, text: str) -> None:
    path.parent.mkdir()
    path.write_text(text)
    assert resolver().resolve("alice.test").did == DID
    assert resolver().resolve("alice.test").pds == PDS


def test_a_cache_that_cannot_be_written_is_kept_in_memory(
    world: World, path: Path, resolver: Make
) -> None:
    path.parent.write_text("a file where the directory should be")
    one = resolver()
    one.resolve("alice.test")
    world.take()
    one.resolve("alice.test")
    assert not world.take()


def test_processes_share_the_cache_and_nothing_is_left_beside_it(
    world: World, path: Path, resolver: Make
) -> None:
    world.documents[BOB] = document(BOB, "bob.test")
    world.handles["bob.test"] = BOB
    one, other = resolver(), resolver()
    one.resolve("alice.test")
    other.resolve("bob.test")
    world.take()
    resolver().resolve("alice.test")
    resolver().resolve("bob.test")
    assert not world.take()
    assert [each.name for each in path.parent.iterdir()] == ["identity.json"]


def test_the_cache_stays_small(path: Path) -> None:
    cache = IdentityCache(path)
    for number in range(300):
        cache.keep_naming(Handle(f"n{number}.test"), Naming(Did(DID), float(number)))
    assert path.stat().st_size < 50_000
    assert IdentityCache(path).naming(Handle("n0.test")) is None
    assert IdentityCache(path).naming(Handle("n299.test")) == Naming(Did(DID), 299.0)


def test_only_a_directory_of_this_machine_names_hosts_of_it(world: World, path: Path) -> None:
    plc = "https://plc.example.com"

    def directory(request: httpx.Request) -> httpx.Response:
        return json_answer(document(handle=None))

    def resolver(plc_url: str) -> Resolver:
        return Resolver(client_for(directory), plc_url=plc_url, cache=IdentityCache(path))

    for _ in range(2):
        with pytest.raises(NoPds, match=f"{PDS} is a host of this machine"):
            resolver(plc).resolve(DID)
        # Nor is it believed when it has been kept.
        assert resolver(PLC).resolve(DID).pds == PDS


def test_a_did_web_names_hosts_of_this_machine_from_this_machine_only(
    world: World, resolver: Make
) -> None:
    did = "did:web:alice.example.com"
    url = "https://alice.example.com/.well-known/did.json"
    world.documents[url] = document(did, handle=None)
    with pytest.raises(NoPds, match="is a host of this machine"):
        resolver().resolve(did)


def test_only_a_resolver_of_this_machine_names_accounts_of_it(world: World, resolver: Make) -> None:
    did, handle = "did:web:localhost%3A8000", "alice.example.com"
    world.documents["http://localhost:8000/.well-known/did.json"] = document(did, handle)
    world.handles[handle] = did
    assert resolver().resolve(handle).did == did
    for base in ("https://resolver.example.com", "https://nobody.example.com"):
        world.down = {"https://nobody.example.com"}
        world.texts = {f"_atproto.{handle}": [f"did={did}"]}
        with pytest.raises(HandleUnresolved):
            resolver(base, ttl=0).resolve(handle)
    world.texts, world.well_known = {}, {handle: did}
    with pytest.raises(HandleUnresolved):
        resolver("https://nobody.example.com", ttl=0).resolve(handle)
