"""Which hosts are spoken to at all, and how each is written."""

import ipaddress
import re
from functools import lru_cache
from urllib.parse import SplitResult, urljoin, urlsplit

from git_knotless.atproto.syntax import InvalidSyntax, is_handle

_NAME = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9]"
    r"(?:[a-z0-9-]{0,61}[a-z0-9])?)*"
)
# What C libraries read as an IPv4 address, of one to four parts: 127.1, 2130706433, 0x7f.1
_NUMBER = re.compile("[0-9]+|0x[0-9a-f]*")
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")  # RFC 6052: how a network without IPv4 reaches it
# Which a Python that is not of the newest takes for public; clouds have services in the first.
_SET_ASIDE = tuple(map(ipaddress.ip_network, ("192.0.0.0/24", "192.88.99.0/24", "3fff::/20")))
_PORTS = {"http": 80, "https": 443}


@lru_cache(maxsize=256)
def parse_origin(text: str) -> str:
    """`https://host[:port]` in its one spelling; http is for loopback hosts only.

    A trailing slash is dropped. A path, a query or user info is refused, since an origin is
    what credentials are bound to.
    """
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise _no_address(text) from error
    name = f"[{host}]" if ":" in host else host
    origin = f"{parts.scheme}://{name}" + ("" if port is None else f":{port}")
    # Compared with what was handed over: urlsplit drops control characters, and more.
    if text.removesuffix("/").lower() != origin or parts.scheme not in _PORTS or not _is_host(host):
        raise _no_address(text)
    if parts.scheme == "http" and not is_loopback(host):
        raise InvalidSyntax(f"{text[:80]!a}: http is for loopback hosts only, use https")
    return origin.removesuffix(f":{_PORTS[parts.scheme]}")


def origin_of(url: str) -> str:
    """The origin that a request for `url` goes to."""
    return _origin(_split(url))


def redirected(url: str, location: str) -> str:
    """Where an answer of `url` leads to, by its Location."""
    try:
        target = urlsplit(urljoin(url, location))
    except ValueError as error:
        raise _no_address(location) from error
    _origin(target)
    return target._replace(fragment="").geturl()


def host_of(origin: str) -> str:
    """A host as a person reads it: `bsky.social`, `localhost:2583`."""
    return origin.partition("://")[2]


def is_loopback(host: str) -> bool:
    """Whether `host`, without a port, is this machine by its very name."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def on_loopback(url: str) -> bool:
    return is_loopback(_split(url).hostname or "")


def is_public(origin: str) -> bool:
    """Whether all of the internet may know the host by this name or address."""
    host = _split(origin).hostname or ""
    if is_address(host):
        return is_public_address(host)
    return is_handle(host)  # which keeps out `router`, `printer.local` and their like


def is_public_address(text: str) -> bool:
    """Whether an address is one host's in all of the internet, and no other way to a private one.

    What the registries set aside is not: private, shared and link-local networks, loopback,
    multicast, documentation. Of IPv6 only global unicast is; of what carries an IPv4 address, that
    one counts where networks are made so (NAT64, 6to4), and a mapped one belongs in no answer.
    """
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address):
        carried = address.sixtofour
        if address in _NAT64:
            carried = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if carried is None:
            return address in _GLOBAL_UNICAST and _is_global(address) and address.scope_id is None
        address = carried
    return _is_global(address) and not address.is_multicast


def _is_global(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    return address.is_global and not any(address in network for network in _SET_ASIDE)


def is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError as error:
        raise _no_address(url) from error


def _origin(parts: SplitResult) -> str:
    return parse_origin(f"{parts.scheme}://{parts.netloc}")


def _is_host(host: str) -> bool:
    if ":" in host:
        return _is_ipv6(host)
    if _NUMBER.fullmatch(host.rpartition(".")[2]):
        return _is_ipv4(host)
    # What a name under .localhost leads to is for each machine to say.
    return _NAME.fullmatch(host) is not None and not host.endswith(".localhost")


def _is_ipv4(host: str) -> bool:
    """Four decimal numbers; not 0.0.0.0, which is this machine too."""
    try:
        return not ipaddress.IPv4Address(host).is_unspecified
    except ValueError:
        return False


def _is_ipv6(host: str) -> bool:
    """In its shortest spelling, and no IPv4 address in disguise.

    A zone would be part of the name, and is never needed for a host.
    """
    try:
        address = ipaddress.IPv6Address(host)
    except ValueError:
        return False
    plain = address.ipv4_mapped is None and address.scope_id is None
    return plain and not address.is_unspecified and str(address) == host


def _no_address(text: str) -> InvalidSyntax:
    return InvalidSyntax(f"{text[:80]!a} is not the address of a host")
