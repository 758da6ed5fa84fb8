"""Who logs people in for a host, and where: what the host and that server publish of themselves.

https://atproto.com/specs/oauth#authorization-servers, RFC 9728 and RFC 8414
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from git_knotless import limits
from git_knotless.atproto.answers import printable
from git_knotless.atproto.errors import AtprotoError, BadAnswer, XrpcError
from git_knotless.atproto.guard import Guard, PrivateAddress
from git_knotless.atproto.hosts import host_of, on_loopback, origin_of, parse_origin
from git_knotless.atproto.syntax import InvalidSyntax
from git_knotless.atproto.xrpc import Client

_RESOURCE = "/.well-known/oauth-protected-resource"
_SERVER = "/.well-known/oauth-authorization-server"
# Of the server's metadata: the list that each is in, and what we would do without it.
_NEEDED = {
    "code_challenge_methods_supported": ("S256", "no PKCE with S256"),
    "dpop_signing_alg_values_supported": ("ES256", "no DPoP with ES256"),
}


class NoOAuth(AtprotoError):
    """A host that takes passwords only."""


@dataclass(frozen=True, slots=True)
class AuthorizationServer:
    """The origin that it is known by, and its endpoints, which are all there."""

    issuer: str
    authorize: str
    push: str
    token: str
    revoke: str


def discover(client: Client, pds: str) -> AuthorizationServer:
    """The server that logs in the accounts of a host. Raises NoOAuth where there is none."""
    try:
        resource = client.get_json(pds + _RESOURCE)
    except XrpcError as error:
        if error.status in (404, 405, 501):
            raise NoOAuth(f"{host_of(pds)} takes app passwords only") from error
        raise
    return read_server(client, _issuer(resource, pds, client.guard))


def read_server(client: Client, issuer: str) -> AuthorizationServer:
    metadata = client.get_json(issuer + _SERVER)
    host = host_of(issuer)
    if not isinstance(metadata, dict):
        raise BadAnswer(f"{host} answers with something else than what it offers")
    if metadata.get("issuer") != issuer:
        raise BadAnswer(f"{host} says that it is another server, {_shown(metadata.get('issuer'))}")
    for name, (value, lacks) in _NEEDED.items():
        if value not in _list(metadata, name):
            raise BadAnswer(f"{host} offers {lacks}, without which no login is safe")
    if metadata.get("authorization_response_iss_parameter_supported") is not True:
        raise BadAnswer(f"{host} does not say who answers, without which no login is safe")
    return AuthorizationServer(
        issuer=issuer,
        authorize=_endpoint(metadata, "authorization_endpoint", issuer),
        push=_endpoint(metadata, "pushed_authorization_request_endpoint", issuer),
        token=_endpoint(metadata, "token_endpoint", issuer),
        revoke=_endpoint(metadata, "revocation_endpoint", issuer),
    )


def _issuer(resource: Any, pds: str, guard: Guard) -> str:
    host = host_of(pds)
    match resource:
        case {"authorization_servers": [str(issuer)]}:
            pass
        case _:
            raise BadAnswer(f"{host} does not name the one server that logs people in for it")
    named = resource.get("resource", pds)
    if named != pds:
        raise BadAnswer(f"{host} says that it is another host, {_shown(named)}")
    if not _is_origin(issuer):
        raise BadAnswer(f"{host} names {_shown(issuer)} to log in at, which is no server's address")
    if not (issuer == pds or guard.may_lead_to(issuer) or on_loopback(pds)):
        where = host_of(issuer)
        raise PrivateAddress(f"{host} names {where} to log in at, which is not public", where)
    return issuer


def _endpoint(metadata: Mapping[str, Any], name: str, issuer: str) -> str:
    host, url = host_of(issuer), metadata.get(name)
    if not isinstance(url, str):
        raise BadAnswer(f"{host} has no {name}")
    try:
        origin = origin_of(url)
    except InvalidSyntax as error:
        raise BadAnswer(f"{host} has a {name} that is no address: {_shown(url)}") from error
    if origin != issuer or not url.startswith(issuer + "/"):
        raise BadAnswer(f"{host} has a {name} on another origin: {_shown(url)}")
    plain = url.isascii() and url.isprintable() and not set(url) & set(" ?#\\")
    if not plain or len(url) > limits.URL:
        raise BadAnswer(f"{host} has a {name} that is no plain address: {_shown(url)}")
    return url


def _is_origin(text: str) -> bool:
    try:
        return parse_origin(text) == text
    except InvalidSyntax:
        return False


def _list(metadata: Mapping[str, Any], name: str) -> list[Any]:
    value = metadata.get(name)
    return value if isinstance(value, list) else []


def _shown(value: object) -> str:
    return printable(value)[:100] if isinstance(value, str) else "unnamed"
