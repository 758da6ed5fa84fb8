"""Sending a batch whose answer may say nothing, and finding out what became of it.

A host's answer to a lost compare-and-swap is a bare 500 on the reference PDS and something
else elsewhere, and any answer can be lost. So each batch creates one claim with a nonce of its
own, its receipt: after every answer but a success, or a refusal that names itself, the receipt
is read back. Ours: the batch landed. Another's: it lost. None: it has not landed, and unless
what it rests on has moved it is sent again with the same claims, since the first sending may
still be queued.
"""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from git_knotless.atproto.errors import (
    AtprotoError,
    AuthRefused,
    BlobNotFound,
    InvalidSwap,
    PayloadTooLarge,
    RateLimited,
    XrpcError,
)
from git_knotless.atproto.syntax import Rkey
from git_knotless.errors import KnotlessError
from git_knotless.storage.records import CLAIM
from git_knotless.storage.store import RecordStore, Write

SENDINGS = 3  # of one batch with the same claims; then everything is read again
_PAUSE = 0.3  # seconds before the second sending, doubled for the third
_LOOKS = 4  # at a receipt, while the host does not answer
REFUSALS = (AuthRefused, BlobNotFound, InvalidSwap, PayloadTooLarge, RateLimited)
_FORBIDDEN = 403
_CLIENT_FAULTS = range(400, 500)


class Sent(Enum):
    LANDED = auto()
    LOST = auto()  # another writer was first


class HostOverwrites(KnotlessError):
    """A host that took a create of a record that exists: nothing can be kept safe there."""


class HostRefused(KnotlessError):
    """The host took no sending of a batch, and nothing that it rests on has moved."""


class OutcomeUnknown(KnotlessError):
    """The host took a batch and has not said since what became of it."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Writes, and the claim among them whose nonce tells whether they landed."""

    writes: Sequence[Write]
    receipt: Rkey
    nonce: str


def send(store: RecordStore, batch: Batch, *, stale: Callable[[], bool]) -> Sent:
    """Send `batch` up to three times, until it is known what became of it.

    `stale` reads again what the batch rests on, before another sending: whether it has moved,
    so that no sending can land. Refusals that name themselves are raised.
    """
    for attempt in range(1, SENDINGS + 1):
        try:
            return _checked(batch, store.apply(batch.writes))
        except REFUSALS:
            raise
        except AtprotoError as error:
            if _forbidden(error):
                raise
            sent = _receipt_says(store, batch, error)
            if sent is not None or stale():
                return sent or Sent.LOST
            if attempt == SENDINGS or _is_final(error):
                raise HostRefused(f"the host did not take the write: {error.message}") from error
        time.sleep(_PAUSE * attempt * (1 + random.random()))
    raise AssertionError("the last sending returns or raises")


def _forbidden(error: AtprotoError) -> bool:
    return isinstance(error, XrpcError) and error.status == _FORBIDDEN


def _is_final(error: AtprotoError) -> bool:
    """A fault of the request is the same however often it is sent."""
    return isinstance(error, XrpcError) and error.status in _CLIENT_FAULTS


def _receipt_says(store: RecordStore, batch: Batch, error: AtprotoError) -> Sent | None:
    """Whether `batch` landed; None when its receipt is not there, as only the host can say."""
    for attempt in range(_LOOKS):
        try:
            record = store.get(CLAIM, batch.receipt)
        except AtprotoError:
            time.sleep(_PAUSE * 2**attempt)
            continue
        if record is None:
            return None
        return Sent.LANDED if record.value.get("nonce") == batch.nonce else Sent.LOST
    raise OutcomeUnknown(
        f"the host stopped answering, and it is not known whether it took the write: "
        f"{error.message}",
        hint="run the command again: it reads what is there first",
    ) from error


def _checked(batch: Batch, results: Sequence[str]) -> Sent:
    """A create that came back as anything else overwrote a record: two writers both won."""
    for write, result in zip(batch.writes, results, strict=True):
        if write.action == "create" and not result.endswith("#createResult"):
            raise HostOverwrites(
                f"the host overwrote {write.collection}/{write.rkey}, which another writer had "
                "just created: it cannot keep a repository safe",
                hint="move the account to another host, and push again",
            )
    return Sent.LANDED
