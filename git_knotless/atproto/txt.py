"""TXT records of the DNS, which is where most handles say whose they are."""

from typing import TYPE_CHECKING

from git_knotless.atproto.errors import HostUnreachable

if TYPE_CHECKING:
    import dns.resolver

_SECONDS = 5.0  # for all tries at all name servers


def txt_records(name: str, resolver: "dns.resolver.Resolver | None" = None) -> list[str]:
    """The texts at `name`, none where the DNS says that there are none."""
    # Takes 80 ms, and the name of an account is in the cache mostly.
    import dns.exception
    import dns.resolver

    try:
        found = (resolver or dns.resolver.Resolver()).resolve(
            name, "TXT", lifetime=_SECONDS, search=False
        )
    except (dns.resolver.NXDOMAIN, dns.resolver.NoAnswer):
        return []
    except (dns.exception.DNSException, OSError) as error:
        raise HostUnreachable(f"the DNS does not answer for {name}") from error
    return [b"".join(record.strings).decode("ascii", "replace") for record in found]
