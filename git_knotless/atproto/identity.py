"""From a handle or a DID to the host that keeps the account, both ways checked.

https://atproto.com/specs/handle, https://atproto.com/specs/did
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from git_knotless import limits
from git_knotless.atproto.did_document import signing_method
from git_knotless.atproto.errors import (
    AtprotoError,
    AuthRefused,
    BadAnswer,
    DidNotFound,
    HandleNotFound,
    HandleUnresolved,
    IdentityMismatch,
    NoPds,
    RateLimited,
    ServerFault,
    XrpcError,
)
from git_knotless.atproto.guard import PrivateAddress
from git_knotless.atproto.hosts import host_of, is_loopback, on_loopback, origin_of, parse_origin
from git_knotless.atproto.identity_cache import Document, IdentityCache, Naming
from git_knotless.atproto.syntax import (
    Did,
    Handle,
    InvalidSyntax,
    is_did,
    parse_did,
    parse_handle,
    parse_identifier,
)
from git_knotless.atproto.txt import txt_records
from git_knotless.atproto.xrpc import Client
from git_knotless.value import value

if TYPE_CHECKING:
    from git_knotless.atproto.keys import PublicKey

__all__ = ["Identity", "IdentityCache", "Resolver"]

# A handle that did not resolve is asked for again sooner than others: somebody may be mending it.
_NOBODY_SECONDS = 300.0
_DID_TEXT = "did="  # what comes before the DID in a TXT record


@value
class Identity:
    """An account. `handle` is None unless it names the DID and the DID's document names it."""

    did: Did
    handle: Handle | None
    pds: str  # an origin, such as https://bsky.social
    checked: float  # unix time at which the DID document was read

    @property
    def name(self) -> str:
        """What to call the account when speaking to a person."""
        return self.handle or self.did


class Resolver:
    """Asks and remembers.

    Handles are looked up at `handle_resolvers` first (origins that answer `resolveHandle`), then
    in the DNS, then at the handle's own host. `ttl` is how many seconds an answer counts.
    """

    def __init__(
        self,
        client: Client,
        *,
        plc_url: str,
        handle_resolvers: Sequence[str] = (),
        cache: IdentityCache | None = None,
        ttl: float = 3600.0,
        txt: Callable[[str], list[str]] = txt_records,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._plc = parse_origin(plc_url)
        self._handle_resolvers = [parse_origin(url) for url in handle_resolvers]
        self._cache = cache or IdentityCache()
        self._ttl = ttl
        self._txt = txt
        self._now = now

    def resolve(self, identifier: str, *, max_age: float | None = None) -> Identity:
        """The account of a handle or a DID; `max_age` is for its DID document, in seconds."""
        name = parse_identifier(identifier)
        age = self._ttl if max_age is None else min(max_age, self._ttl)
        if is_did(name):
            return self._by_did(Did(name), age)
        try:
            return self._by_handle(Handle(name), self._ttl, age)
        except IdentityMismatch:
            # Perhaps only with what the cache holds from before the handle was changed.
            return self._by_handle(Handle(name), 0, 0)

    def trust(self, identifier: str) -> None:
        """A user has named it: a did:web, which is the name of a host, may be any of theirs."""
        if identifier.startswith("did:web:"):
            self._client.guard.trust(origin_of(self._document_url(parse_did(identifier))))

    def forget(self, did: Did) -> None:
        """Ask again next time: the host that was found says that the account is not there."""
        self._cache.forget(did)

    def signing_key(self, did: Did, *, fresh: bool) -> "PublicKey":
        """What signs the account's commits; `fresh`: by its DID document as it is now.

        Raises BadKey where it names none that atproto knows.
        """
        from git_knotless.atproto.keys import BadKey, PublicKey  # 30 ms: few are asked for one

        document = self._document(did, 0 if fresh else self._ttl, name=did)
        if document.key is None and not fresh:  # it may have been kept without
            document = self._document(did, 0, name=did)
        if document.key is None:
            raise BadKey(f"{did}: the DID document names no signing key")
        return PublicKey.from_suite(*document.key)

    def _by_handle(self, handle: Handle, handle_age: float, document_age: float) -> Identity:
        did = self._named_by(handle, handle_age)
        if did is None:
            raise HandleNotFound(f"{handle}: no such handle")
        document = self._document(did, document_age, name=handle)
        if document.claims != handle:
            other = f"names {document.claims}" if document.claims else "names no handle"
            raise IdentityMismatch(f"{handle} is not valid: it leads to {did}, which {other}")
        return Identity(did, handle, document.pds, document.checked)

    def _by_did(self, did: Did, age: float) -> Identity:
        document = self._document(did, age, name=did)
        handle = document.claims
        if handle is not None and not self._is_named(did, handle):
            handle = None
        return Identity(did, handle, document.pds, document.checked)

    def _is_named(self, did: Did, handle: Handle) -> bool:
        """Whether `handle` names `did`; what is only shown must not make a command fail."""
        known = self._cache.naming(handle)
        if known and known.did is None and self._is_fresh(known.checked, _NOBODY_SECONDS):
            return False
        try:
            return self._named_by(handle, self._ttl) == did
        except AtprotoError:
            self._cache.keep_naming(handle, Naming(None, self._now()))
            return False

    def _named_by(self, handle: Handle, age: float) -> Did | None:
        known = self._cache.naming(handle)
        if known and known.did and self._is_fresh(known.checked, age):
            return known.did
        found = Naming(self._look_up(handle), self._now())
        self._cache.keep_naming(handle, found)
        return found.did

    def _document(self, did: Did, age: float, *, name: str) -> Document:
        known = self._cache.document(did)
        if known and self._is_fresh(known.checked, age) and self._may_name(did, known.pds):
            return known
        found = self._read_document(did, name)
        if not self._may_name(did, found.pds):
            raise NoPds(f"{name} has no usable host: {found.pds} is a host of this machine")
        if self._client.guard.refuses(found.pds):
            where = host_of(found.pds)
            raise PrivateAddress(f"{name} has no usable host: {where} is not public", where)
        self._cache.keep_document(did, found)
        return found

    def _is_fresh(self, checked: float, age: float) -> bool:
        return 0 <= self._now() - checked < age

    def _look_up(self, handle: Handle) -> Did | None:
        """Whom `handle` names now; None when all who could know say that it names nobody."""
        failures: list[AtprotoError] = []
        for ask in self._places(handle):
            try:
                if did := ask():
                    return did
            except AtprotoError as error:
                failures.append(error)
        if failures:
            first = failures[0]
            message = f"{handle} cannot be looked up: {first.message}"
            raise HandleUnresolved(message, hint=first.hint) from first
        return None

    def _places(self, handle: Handle) -> Sequence[Callable[[], Did | None]]:
        places = [partial(self._by_resolver, base, handle) for base in self._handle_resolvers]
        # Nothing under .test is in the DNS; loopback networks use it.
        return places if handle.endswith(".test") else [*places, partial(self._by_domain, handle)]

    def _by_resolver(self, base: str, handle: Handle) -> Did | None:
        try:
            answer = self._client.get(
                base,
                "com.atproto.identity.resolveHandle",
                {"handle": handle},
                limit=limits.HANDLE,
            )
        except (ServerFault, RateLimited, AuthRefused):
            raise
        except XrpcError:
            return None
        return _did_of(answer.get("did"), base)

    def _by_domain(self, handle: Handle) -> Did | None:
        """The DNS, which wins, then the web host of the same name."""
        try:
            texts = self._txt(f"_atproto.{handle}")
        except AtprotoError:
            # Where only HTTP gets out, the web host may still answer.
            if did := self._by_well_known(handle):
                return did
            raise
        dids = {text.removeprefix(_DID_TEXT) for text in texts if text.startswith(_DID_TEXT)}
        if len(dids) > 1:
            raise HandleUnresolved(f"the DNS names {len(dids)} accounts for it")
        return _did_of(dids.pop(), handle) if dids else self._by_well_known(handle)

    def _by_well_known(self, handle: Handle) -> Did | None:
        """Most names have no such host, or a web site that answers anything with a page."""
        try:
            text = self._client.get_text(f"https://{handle}/.well-known/atproto-did").strip()
            return _did_of(text, handle) if is_did(text) else None
        except PrivateAddress:
            raise
        except AtprotoError:
            return None

    def document(self, did: Did, *, name: str | None = None) -> Any:
        """The DID document as it is now, JSON that is not looked at; `name` is for errors."""
        name = name or did
        try:
            return self._client.get_json(self._document_url(did))
        except XrpcError as error:
            if error.status == 404:
                raise DidNotFound(f"{name}: no such account") from error
            if error.status == 410:
                raise DidNotFound(f"{name}: the account was deleted") from error
            raise

    def _read_document(self, did: Did, name: str) -> Document:
        document = self.document(did, name=name)
        pds, claims = read_document(did, document, name=name)
        return Document(pds, claims, self._now(), signing_method(document, did))

    def _may_name(self, did: Did, pds: str) -> bool:
        """Only this machine's own directory has a say in where it is reached."""
        return not on_loopback(pds) or on_loopback(self._document_url(did))

    def _document_url(self, did: Did) -> str:
        if did.startswith("did:plc:"):
            return f"{self._plc}/{did}"
        host = did.removeprefix("did:web:").replace("%3A", ":")
        scheme = "http" if _is_of_this_machine(did) else "https"
        return f"{scheme}://{host}/.well-known/did.json"


def read_document(did: Did, value: Any, *, name: str) -> tuple[str, Handle | None]:
    """The PDS of a DID document, and the handle that it claims."""
    if not isinstance(value, dict) or value.get("id") != did:
        raise BadAnswer(f"{name}: the DID document is of another account")
    for service in _objects(value.get("service")):
        if (
            service.get("id") in ("#atproto_pds", f"{did}#atproto_pds")
            and service.get("type") == "AtprotoPersonalDataServer"
        ):
            return _pds_of(service.get("serviceEndpoint"), name), _claimed(value)
    raise NoPds(f"{name} has no host: the DID document names no PDS")


def _pds_of(endpoint: Any, name: str) -> str:
    try:
        return parse_origin(endpoint if isinstance(endpoint, str) else "")
    except InvalidSyntax as error:
        raise NoPds(f"{name} has no usable host: {error.message}") from error


def _claimed(document: dict[str, Any]) -> Handle | None:
    """The first `at://` of the names in it, if that is a handle."""
    names = document.get("alsoKnownAs")
    for name in names if isinstance(names, list) else ():
        if isinstance(name, str) and name.startswith("at://"):
            with suppress(InvalidSyntax):
                return parse_handle(name.removeprefix("at://"))
            return None
    return None


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _did_of(value: Any, source: str) -> Did:
    """`source` is an origin, or a handle that names it from afar."""
    named = f"{host_of(source) or source} names"
    try:
        did = parse_did(value if isinstance(value, str) else "")
    except InvalidSyntax as error:
        raise BadAnswer(f"{named} no account: {error.message}") from error
    if _is_of_this_machine(did) and not on_loopback(source):
        raise BadAnswer(f"{named} {did}, an account of this machine")
    return did


def _is_of_this_machine(did: Did) -> bool:
    method, _, host = did.removeprefix("did:").partition(":")
    return method == "web" and is_loopback(host.partition("%3A")[0])
