"""What an account's requests carry, and when one is sent again with something else."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

from git_knotless.atproto.errors import AuthRefused

if TYPE_CHECKING:
    import httpx

_T = TypeVar("_T")


class Auth(Protocol):
    """What an account's requests carry."""

    def credential(self, url: str, /) -> "httpx.Auth":
        """For one request; raises where `url` is not on the host that the login is for."""
        ...

    def renewed(self, sent: "httpx.Auth", refusal: AuthRefused, /) -> bool:
        """After `sent` was refused: whether `credential` now gives another.

        Raises what the refusal means for the person, where more is known than the host says.
        """
        ...


def authorized(send: Callable[["httpx.Auth | None"], _T], url: str, auth: Auth | None) -> _T:
    """Send with `auth`'s credential, and once more when a refusal has made it get another.

    Whatever fails in getting it is not tried again: that would use a refresh token twice.
    """
    if auth is None:
        return send(None)
    credential = auth.credential(url)
    try:
        return send(credential)
    except AuthRefused as error:
        if not auth.renewed(credential, error):
            raise
    return send(auth.credential(url))
