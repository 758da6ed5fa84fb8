"""Which hosts are spoken to at all, and how each is written."""

import ipaddress
import re
from functools import lru_cache
from urllib.parse import urlsplit

from git_knotless.atproto.syntax import InvalidSyntax

_NAME = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9]"
    r"(?:[a-z0-9-]{0,61}[a-z0-9])?)*"
)
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
        raise InvalidSyntax(f"{text[:80]!a} is not the address of a host") from error
    name = f"[{host}]" if ":" in host else host
    origin = f"{parts.scheme}://{name}" + ("" if port is None else f":{port}")
    # Compared with what was handed over: urlsplit drops control characters, and more.
    if text.removesuffix("/").lower() != origin or parts.scheme not in _PORTS or not _is_host(host):
        raise InvalidSyntax(f"{text[:80]!a} is not the address of a host")
    if parts.scheme == "http" and not is_loopback(host):
        raise InvalidSyntax(f"{text[:80]!a}: http is for loopback hosts only, use https")
    return origin.removesuffix(f":{_PORTS[parts.scheme]}")


def origin_of(url: str) -> str:
    """The origin that a request for `url` goes to."""
    parts = urlsplit(url)
    return parse_origin(f"{parts.scheme}://{parts.netloc}")


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


def on_loopback(origin: str) -> bool:
    return is_loopback(urlsplit(origin).hostname or "")


def _is_host(host: str) -> bool:
    if ":" in host:
        try:
            # Without "%": a zone would be part of the name, and is never needed for a host.
            return "%" not in host and bool(ipaddress.IPv6Address(host))
        except ValueError:
            return False
    return _NAME.fullmatch(host) is not None
