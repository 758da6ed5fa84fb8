"""Logging in with OAuth, as a client of this machine: in the browser, with no password of ours.

`begin` gives an address to open in a browser. What the browser brings back, on the listener of
`callback.py` or pasted by hand, `Authorization.finish` makes a session of, which the caller saves.
https://atproto.com/specs/oauth
"""

import hmac
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from git_knotless.atproto.answers import printable
from git_knotless.atproto.dpop import DpopKey, digest
from git_knotless.atproto.errors import AtprotoError, BadAnswer, XrpcError
from git_knotless.atproto.hosts import host_of
from git_knotless.atproto.identity import Identity
from git_knotless.atproto.oauth_metadata import (
    AuthorizationServer,
    NoOAuth,
    discover,
)
from git_knotless.atproto.oauth_tokens import Tokens, post, request_tokens
from git_knotless.atproto.password import LoginRefused
from git_knotless.atproto.session import Session
from git_knotless.atproto.syntax import Did, is_did
from git_knotless.atproto.xrpc import Client

__all__ = ["Authorization", "BadRedirect", "LoginRefused", "NoOAuth", "WrongAccount", "begin"]

# Registered without a port, so that any may be listened on.
_REDIRECT = "http://127.0.0.1/callback"
_LONGEST_REDIRECT = 8192
_LONGEST_CODE = 4096
_PASSWORD_HINT = "git knotless login {} --password-stdin"


class BadRedirect(AtprotoError):
    """What the browser brought back is not the answer to this login."""


class WrongAccount(AtprotoError):
    """Somebody else approved the login."""


@dataclass(frozen=True, slots=True)
class Authorization:
    """A login that waits for a person to approve it at `url`."""

    url: str
    redirect_uri: str
    state: str
    identity: Identity
    client_id: str
    server: AuthorizationServer
    key: DpopKey = field(repr=False)
    verifier: str = field(repr=False)

    def finish(
        self,
        client: Client,
        answer: Mapping[str, str] | str,
        *,
        name_of: Callable[[Did], str] = str,
    ) -> Session:
        """`answer` is the query that came back, or the whole address that has it; `name_of` says
        what another account is called, which approved it.

        Raises BadRedirect, LoginRefused or WrongAccount, and then nothing of the login is left.
        """
        query = _query(answer) if isinstance(answer, str) else answer
        tokens = self._exchanged(client, self._code(query))
        if tokens.sub != self.identity.did:
            self._give_back(client, tokens)
            raise self._wrong(tokens.sub, name_of(Did(tokens.sub)) if is_did(tokens.sub) else "")
        if "atproto" not in tokens.scope.split():
            self._give_back(client, tokens)
            raise LoginRefused(f"{self._host} lets {self.identity.name} in for nothing")
        return Session(
            did=self.identity.did,
            handle=self.identity.handle,
            pds=self.identity.pds,
            access=tokens.access,
            refresh=tokens.refresh,
            kind="oauth",
            expires_at=tokens.expires_at,
            issuer=self.server.issuer,
            client_id=self.client_id,
            scope=tokens.scope,
            dpop_key=self.key.to_jwk(),
        )

    def _code(self, query: Mapping[str, str]) -> str:
        """The code, if it is the answer to our question and from whom we asked."""
        state = query.get("state", "").encode(errors="replace")  # as a terminal may have it
        if not hmac.compare_digest(state, self.state.encode()):
            raise BadRedirect("the browser brought the answer to another login: try again")
        if query.get("iss") != self.server.issuer:
            raise BadRedirect(f"the browser brought an answer that is not from {self._host}")
        if error := query.get("error"):
            raise self._refused(error, query.get("error_description", ""))
        code = query.get("code", "")
        if not 0 < len(code) <= _LONGEST_CODE:
            raise BadRedirect(f"{self._host} answers with neither a code nor an error")
        return code

    def _wrong(self, did: str, called: str) -> WrongAccount:
        name = self.identity.name
        who = did if called in ("", name) else called  # of the same name is one who has it now
        return WrongAccount(
            f"{printable(who)} approved the login; it was asked of {name}",
            hint=f"sign out at {self._host} in that browser, then: git knotless login {name}",
        )

    def _refused(self, error: str, description: str) -> LoginRefused:
        why = printable(description or error)
        if error == "access_denied":
            return LoginRefused(f"the login of {self.identity.name} was denied: {why}")
        return LoginRefused(f"{self._host} does not log {self.identity.name} in: {why}")

    def _exchanged(self, client: Client, code: str) -> Tokens:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.redirect_uri,
            "code_verifier": self.verifier,
            "client_id": self.client_id,
        }
        try:
            return request_tokens(client, self.server.token, self.key, form)
        except XrpcError as error:
            if error.name != "invalid_grant":
                raise
            raise LoginRefused(
                f"{self._host} does not take the browser's answer, which was used or is too old",
                hint=f"git knotless login {self.identity.name}",
            ) from error

    def _give_back(self, client: Client, tokens: Tokens) -> None:
        """To the host alone: what we do not keep nobody is to use."""
        form = {"client_id": self.client_id, "token": tokens.refresh}
        with suppress(AtprotoError):
            post(client, self.server.revoke, self.key, form)

    @property
    def _host(self) -> str:
        return host_of(self.server.issuer)


def begin(
    client: Client, identity: Identity, scope: str, *, redirect_port: int | None
) -> Authorization:
    """Ask the account's server for a login; without a port, a person carries the answer back.

    Raises NoOAuth where the host takes app passwords only.
    """
    try:
        server = discover(client, identity.pds)
    except NoOAuth as error:
        raise NoOAuth(error.message, hint=_PASSWORD_HINT.format(identity.name)) from error
    port = "" if redirect_port is None else f":{redirect_port}"
    redirect_uri = _REDIRECT.replace("127.0.0.1", f"127.0.0.1{port}")
    client_id = client_id_for(scope)
    state, verifier, key = secrets.token_urlsafe(32), secrets.token_urlsafe(48), DpopKey.generate()
    form = {
        "client_id": client_id,
        "response_type": "code",
        "redirect_uri": redirect_uri,
        "scope": scope,
        "state": state,
        "code_challenge": digest(verifier),
        "code_challenge_method": "S256",
        "login_hint": identity.name,
    }
    request = {"client_id": client_id, "request_uri": _pushed(client, server, key, form)}
    url = f"{server.authorize}?{urlencode(request)}"
    return Authorization(url, redirect_uri, state, identity, client_id, server, key, verifier)


def client_id_for(scope: str) -> str:
    """A client of this machine has no metadata to host: all of it is in its name."""
    query = {"redirect_uri": _REDIRECT, "scope": scope}
    return f"http://localhost?{urlencode(query, quote_via=quote)}"


def _pushed(
    client: Client, server: AuthorizationServer, key: DpopKey, form: Mapping[str, str]
) -> str:
    """The name under which the server keeps the request."""
    host = host_of(server.issuer)
    try:
        answer = post(client, server.push, key, form)
    except XrpcError as error:
        if error.status != 400 or type(error) is not XrpcError:  # others say what is wrong
            raise
        raise LoginRefused(
            f"{host} does not begin the login: {error.text or error.name}"
        ) from error
    name = answer.get("request_uri")
    if not isinstance(name, str) or not name.isascii() or not 0 < len(name) <= _LONGEST_CODE:
        raise BadAnswer(f"{host} answers with something else than a login that was begun")
    return name


def _query(address: str) -> dict[str, str]:
    """The query of an address as a person pastes it."""
    text = address.strip()
    try:
        if len(text) > _LONGEST_REDIRECT:
            raise ValueError("too long")
        pairs = parse_qsl(urlsplit(text).query, strict_parsing=True, max_num_fields=20)
        if not pairs:
            raise ValueError("no query")
    except ValueError as error:
        raise BadRedirect("that is not the address that the browser was sent to") from error
    if len(dict(pairs)) != len(pairs):
        raise BadRedirect("that address says something twice")
    return dict(pairs)
