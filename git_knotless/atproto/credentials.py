"""What stands in a request for a login: one token, for one origin."""

from collections.abc import Generator
from dataclasses import dataclass

import httpx

from git_knotless.atproto.errors import AtprotoError, AuthRefused
from git_knotless.atproto.hosts import host_of, origin_of


class OtherHost(AtprotoError):
    """A request that would carry a login to a host that it is not for."""


class Credential(httpx.Auth):
    """A token that no other origin than its own gets to see, not even its name."""

    def __init__(self, origin: str, token: str) -> None:
        self.origin = origin
        self.token = token

    def check(self, request: httpx.Request) -> None:
        """Raises OtherHost."""
        if origin_of(str(request.url)) != self.origin:
            raise OtherHost(f"a login at {host_of(self.origin)} is not for {request.url.host}")


class Bearer(Credential):
    """Whoever has the token may use it."""

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        self.check(request)
        request.headers["Authorization"] = f"Bearer {self.token}"
        yield request


@dataclass(frozen=True, slots=True)
class Once:
    """An `Auth` of one credential, after which there is no other."""

    one: Credential

    def credential(self, _url: str, /) -> httpx.Auth:
        return self.one

    def renewed(self, _sent: httpx.Auth, _refusal: AuthRefused, /) -> bool:
        return False
