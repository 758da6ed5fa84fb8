"""What can go wrong between us and a host, by what a caller does about it.

AtprotoError
  HostUnreachable       down, unknown to DNS, TLS refused, the connection dropped
  HostTimeout           no answer in time
    NotAsked              nor before, so that nothing was sent
  BadAnswer             not what was asked for: HTML, not JSON, too large, of another shape
  CannotSend            what was to be sent is not what a request can carry
  TransferCancelled     our own Client was closed meanwhile
  HandleNotFound        nobody has the handle
  HandleUnresolved      whether anybody has it cannot be found out now
  DidNotFound           no such account, or one that was deleted
  IdentityMismatch      the handle and the DID document do not name each other
  NoPds                 the DID document names no usable PDS
  StillMoving           the account is not whole yet at the host that it moves to
  XrpcError             the host refused, by status and XRPC error name
    AccountNotHere        the host does not (or no longer) keep the account: look it up again
      RepoNotFound  RepoDeactivated  AccountDeactivated  AccountNotFound
    RepoTakendown  AccountTakedown
    RecordNotFound  BlobNotFound
    InvalidSwap  RecordAlreadyExists
    AuthRefused           401, and 400 and 403 about the token
      ClockWrong            for a proof that this machine's clock has dated too early or too late
    PayloadTooLarge  RateLimited
    ServerFault           5xx
LoginNeeded
  ScopeMissing          the login is not for that; another one may be
NotRenewed            nothing was sent, since no token could be got to send it with
"""

import math
from typing import ClassVar

from git_knotless.errors import KnotlessError, LoginNeeded


class AtprotoError(KnotlessError):
    """Anything between us and a host."""


class HostUnreachable(AtprotoError):
    pass


class HostTimeout(AtprotoError):
    pass


class NotAsked(HostTimeout):
    pass


class BadAnswer(AtprotoError):
    pass


class CannotSend(AtprotoError):
    pass


class TransferCancelled(AtprotoError):
    pass


class ScopeMissing(LoginNeeded):
    pass


class NotRenewed(KnotlessError):
    """No `AtprotoError`: what was to be sent has not been, and to try again would renew again."""


class HandleNotFound(AtprotoError):
    pass


class HandleUnresolved(AtprotoError):
    pass


class DidNotFound(AtprotoError):
    pass


class IdentityMismatch(AtprotoError):
    pass


class NoPds(AtprotoError):
    pass


class StillMoving(AtprotoError):
    pass


class XrpcError(AtprotoError):
    """A refusal. `name` is the XRPC error name, '' where the host gave none; `text` its words."""

    says: ClassVar[str | None] = None  # in the user's terms, where the name alone tells

    def __init__(
        self,
        status: int,
        name: str,
        text: str,
        *,
        nsid: str,
        host: str,
        retry_after: float | None = None,
    ) -> None:
        self.status = status
        self.name = name
        self.text = text
        self.nsid = nsid
        self.host = host
        self.retry_after = retry_after
        super().__init__(self._message())

    def _message(self) -> str:
        if self.says is not None:
            return f"{self.host}: {self.says}"
        return f"{self.host} refused {self.nsid}: {self.text or 'no reason given'} ({self._code()})"

    def _code(self) -> str:
        return f"{self.status} {self.name}".rstrip()


class AccountNotHere(XrpcError):
    says = "the account is not there"


class RepoNotFound(AccountNotHere):
    pass


class RepoDeactivated(AccountNotHere):
    says = "the account is deactivated there, or has moved"


class AccountDeactivated(RepoDeactivated):
    pass


class AccountNotFound(AccountNotHere):
    pass


class RepoTakendown(XrpcError):
    says = "the account was taken down by the host"


class AccountTakedown(RepoTakendown):
    pass


class RecordNotFound(XrpcError):
    says = "no such record"


class BlobNotFound(XrpcError):
    says = "no such blob"


class InvalidSwap(XrpcError):
    pass


class RecordAlreadyExists(XrpcError):
    says = "the record exists already"


class AuthRefused(XrpcError):
    def _message(self) -> str:
        return f"{self.host} does not accept the login: {self.text or 'no reason given'}"


class ClockWrong(AuthRefused):
    """`off` says by how much, and which way: `7 minutes behind`."""

    def __init__(self, refusal: XrpcError, off: str) -> None:
        self.off = off
        super().__init__(
            refusal.status, refusal.name, refusal.text, nsid=refusal.nsid, host=refusal.host
        )
        self.hint = "set the clock, and try again"

    def _message(self) -> str:
        return f"this machine's clock is {self.off} {self.host}'s"


class PayloadTooLarge(XrpcError):
    says = "too large for the host"


class RateLimited(XrpcError):
    """`retry_after` is in seconds; None where the host does not say."""

    def _message(self) -> str:
        when = "later" if self.retry_after is None else f"in {how_long(self.retry_after)}"
        return f"{self.host} has had too many requests: try again {when}"


class ServerFault(XrpcError):
    def _message(self) -> str:
        text = f": {self.text}" if self.text else ""
        return f"{self.host} failed at {self.nsid}{text} ({self._code()})"


# What hosts call it, as XRPC and as OAuth name errors.
SCOPE_NAMES = frozenset({"ScopeMissingError", "InsufficientScope", "insufficient_scope"})

_BY_NAME: dict[str, type[XrpcError]] = {
    "RepoNotFound": RepoNotFound,
    "RepoDeactivated": RepoDeactivated,
    "RepoTakendown": RepoTakendown,
    "AccountDeactivated": AccountDeactivated,
    "AccountNotFound": AccountNotFound,
    "AccountTakedown": AccountTakedown,
    "RecordNotFound": RecordNotFound,
    "BlobNotFound": BlobNotFound,
    "InvalidSwap": InvalidSwap,
    "RecordAlreadyExists": RecordAlreadyExists,
    "RateLimitExceeded": RateLimited,
    "PayloadTooLarge": PayloadTooLarge,
    "PayloadTooLargeError": PayloadTooLarge,
    "AuthMissing": AuthRefused,
    "AuthenticationRequired": AuthRefused,
    "ExpiredToken": AuthRefused,
    "InvalidToken": AuthRefused,
    "invalid_token": AuthRefused,
    "invalid_dpop_proof": AuthRefused,
    **dict.fromkeys(SCOPE_NAMES, AuthRefused),
}
# Said as a plain InvalidRequest, so that only the words tell.
_BY_WORDS: tuple[tuple[str, type[XrpcError]], ...] = (
    ("Could not find repo", RepoNotFound),
    ("Blob not found", BlobNotFound),
)
_BY_STATUS: dict[int, type[XrpcError]] = {
    401: AuthRefused,
    413: PayloadTooLarge,
    429: RateLimited,
}


def refusal(status: int, name: str, text: str) -> type[XrpcError]:
    """The error that an answer of `status`, error `name` and message `text` is.

    Names count below 500 only: a proxy's failure says nothing of what the host keeps.
    """
    if status >= 500:
        return ServerFault
    if name in _BY_NAME:
        return _BY_NAME[name]
    if name == "InvalidRequest":
        for words, error in _BY_WORDS:
            if text.startswith(words):
                return error
    return _BY_STATUS.get(status, XrpcError)


def how_long(seconds: float) -> str:
    """`40 seconds`, `12 minutes`, `3 hours`, `9 days`: never less than what is meant."""
    count, unit = max(1, math.ceil(seconds)), "second"
    for larger, size in (("minute", 60), ("hour", 60), ("day", 24)):
        if count <= 120:
            break
        count, unit = math.ceil(count / size), larger
    return f"{count} {unit}{'' if count == 1 else 's'}"
