"""Which addresses a connection may be made to: other people's documents lead to public ones alone.

A DID document, a handle's host, a redirect or a server's metadata can name any host, and a name in
the DNS any address: this machine, the router, what a cloud hands its credentials out at. What is
checked here is the address itself, and `connecting.py` connects to the one that was checked.

What users have set or typed themselves is theirs to choose, on their own machine: directory and
handle resolvers, hosts that they are logged in at, a did:web that they name. A server is `strict`:
it takes nobody's word. Where the directory is on loopback, so is the network that it describes.
`knotless.allowHost` lifts all of it for a host.
"""

from collections.abc import Callable, Iterable, Sequence
from urllib.parse import urlsplit

from git_knotless.atproto.errors import AtprotoError
from git_knotless.atproto.hosts import is_address, is_loopback, is_public, is_public_address

_PORTS = {"http": 80, "https": 443}


class PrivateAddress(AtprotoError):
    """A host of a private network, or this machine, to which somebody else leads us."""

    def __init__(self, message: str, host: str) -> None:
        super().__init__(message, hint=f"git config --global --add knotless.allowHost {host}")


class Guard:
    """`allowed` are hosts by name, `free` origins; `own` gives further ones, asked for only where
    a connection would be refused."""

    def __init__(
        self,
        *,
        allowed: Iterable[str] = (),
        free: Iterable[str] = (),
        own: Callable[[], Iterable[str]] = tuple,
        strict: bool = False,
    ) -> None:
        self._allowed = frozenset(allowed)
        self._own = own
        self._strict = strict
        self._free: set[tuple[str, int]] = set()
        self._loopback = False
        for origin in free:
            self.trust(origin)

    def trust(self, origin: str) -> None:
        """A user has named it. One on loopback speaks for all of loopback."""
        place = _place(origin)
        self._loopback |= is_loopback(place[0])
        if not self._strict:
            self._free.add(place)

    def afar(self) -> "Guard":
        """The same for what a redirect leads to: whoever sends us there is not the user."""
        return Guard(allowed=self._allowed, strict=True)

    def may_lead_to(self, origin: str) -> bool:
        """Whether somebody else may name the host, by its name alone."""
        return is_public(origin) or self._allows(*_place(origin))

    def refuses(self, origin: str) -> bool:
        """Whether it is an address that would be refused; what a name's is, is seen later."""
        host, port = _place(origin)
        try:
            return is_address(host) and not self.usable(host, port, [host])
        except PrivateAddress:
            return True

    def usable(self, host: str, port: int, addresses: Sequence[str]) -> Sequence[str]:
        """Those of a host's addresses that may be connected to; raises PrivateAddress."""
        if self._allows(host, port) or (host, port) in self._free:
            return addresses
        if self._loopback and is_loopback(host):
            usable = [address for address in addresses if is_loopback(address)]
        else:
            usable = [address for address in addresses if is_public_address(address)]
        if usable or self._is_own(host, port):
            return usable or addresses
        where = f" is at {addresses[0]}, which" if addresses[0] != host else ""
        raise PrivateAddress(f"{host}{where} is not public: it is not asked", host)

    def _allows(self, host: str, port: int) -> bool:
        name = f"[{host}]" if ":" in host else host
        return not self._allowed.isdisjoint((host, name, f"{name}:{port}"))

    def _is_own(self, host: str, port: int) -> bool:
        return not self._strict and (host, port) in map(_place, self._own())


def _place(origin: str) -> tuple[str, int]:
    parts = urlsplit(origin)
    return parts.hostname or "", parts.port or _PORTS[parts.scheme]
