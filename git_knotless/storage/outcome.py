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
from enum import Enum, auto

from git_knotless.atproto.errors import (
    AccountNotHere,
    AtprotoError,
    AuthRefused,
    BlobNotFound,
    InvalidSwap,
    NotAsked,
    PayloadTooLarge,
    RateLimited,
    RepoTakendown,
    StillMoving,
    XrpcError,
)
from git_knotless.atproto.syntax import Rkey
from git_knotless.errors import KnotlessError
from git_knotless.storage.records import CLAIM
from git_knotless.storage.store import RecordStore, Write
from git_knotless.value import value

SENDINGS = 3  # of one batch with the same claims; then everything is read again
_PAUSE = 0.3  # seconds before the second sending, doubled for the third
_LOOKS = 4  # at a receipt, while the host does not answer
REFUSALS = (
    AccountNotHere,
    AuthRefused,
    BlobNotFound,
    InvalidSwap,
    NotAsked,
    PayloadTooLarge,
    RateLimited,
    RepoTakendown,
    StillMoving,
)
_FORBIDDEN = 403
_CLIENT_FAULTS = range(400, 500)
_INTERNAL = 500


class Sent(Enum):
    LANDED = auto()
    LOST = auto()  # another writer was first


class HostOverwrites(KnotlessError):
    """A host that took a create of a record that exists: nothing can be kept safe there."""


class HostRefused(KnotlessError):
    """The host took no sending of a batch, and nothing that it rests on has moved."""


class OutcomeUnknown(KnotlessError):
    """The host took a batch and has not said since what became of it."""


@value
class Batch:
    """Writes, and the record among them that tells whether they landed: a claim by its nonce.

    Another kind of record by another `field`, if that is like no other writer's.
    """

    writes: Sequence[Write]
    receipt: Rkey
    nonce: str
    collection: str = CLAIM
    field: str = "nonce"


def send(store: RecordStore, batch: Batch, *, stale: Callable[[], bool]) -> Sent:
    """Send `batch` up to three times, until it is known what became of it.

    `stale` reads again what the batch rests on, before another sending: whether it has moved,
    so that no sending can land. A refusal that names itself is raised, unless an earlier
    sending may still be under way; whatever ends us then says that it is not known.
    """
    sending = _Sending(store, batch)
    for attempt in range(SENDINGS):
        if attempt:
            time.sleep(_PAUSE * attempt * (1 + random.random()))
        try:
            results = store.apply(batch.writes)
        except KnotlessError as error:
            sent = sending.failed(error, stale)
            if sent is not None:
                return sent
        else:
            return _checked(batch, results)
    raise sending.given_up()


class _Sending:
    """What is known of a batch between its sendings. `unclear`: one may land yet."""

    def __init__(self, store: RecordStore, batch: Batch) -> None:
        self.store = store
        self.batch = batch
        self.unclear = False
        self.error: KnotlessError | None = None

    def failed(self, error: KnotlessError, stale: Callable[[], bool]) -> Sent | None:
        """Whether the batch landed or lost, None to send it again; raises when that is no use."""
        self.error = error
        named = _is_named(error)
        if named and not self.unclear:
            raise error
        self.unclear |= _may_land_yet(error)
        try:
            sent = self._receipt_says() or self._moved(stale)
        except AtprotoError as trouble:
            raise self._unknown() from trouble
        if sent is None and (named or _is_final(error)):
            raise self.given_up()
        return sent

    def _moved(self, stale: Callable[[], bool]) -> Sent | None:
        """None where the batch can still land; else what its receipt says by then."""
        try:
            if not stale():
                return None
        except AtprotoError:
            raise
        except KnotlessError:  # it is gone, or not to be written to any more
            if self._receipt_says() is Sent.LANDED:
                return Sent.LANDED
            raise
        return self._receipt_says() or Sent.LOST

    def given_up(self) -> KnotlessError:
        if self.unclear:
            return self._unknown()
        return HostRefused(f"the host did not take the write: {self._words}")

    def _receipt_says(self) -> Sent | None:
        """None when the receipt is not there, as only the host can say."""
        for attempt in range(_LOOKS):
            try:
                record = self.store.get(self.batch.collection, self.batch.receipt)
            except AtprotoError:
                if attempt == _LOOKS - 1:
                    raise
                time.sleep(_PAUSE * 2**attempt)
                continue
            if record is None:
                return None
            ours = record.value.get(self.batch.field) == self.batch.nonce
            return Sent.LANDED if ours else Sent.LOST
        raise AssertionError("the last look returns or raises")

    def _unknown(self) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"it is not known whether the host took the write: {self._words}",
            hint="run the command again: it reads what is there first",
        )

    @property
    def _words(self) -> str:
        return self.error.message if self.error else ""


def _is_named(error: KnotlessError) -> bool:
    """A refusal that says which it is, the host's or our own: this was not carried out."""
    forbidden = isinstance(error, XrpcError) and error.status == _FORBIDDEN
    return forbidden or isinstance(error, REFUSALS) or not isinstance(error, AtprotoError)


def _is_final(error: KnotlessError) -> bool:
    """A fault of the request is the same however often it is sent."""
    return isinstance(error, XrpcError) and error.status in _CLIENT_FAULTS


def _may_land_yet(error: KnotlessError) -> bool:
    """No answer, or one by somebody in between: the host may be at it still.

    500 is the host's own word that it is done with it, as is whatever finds fault.
    """
    if isinstance(error, XrpcError):
        return error.status > _INTERNAL
    return isinstance(error, AtprotoError)


def _checked(batch: Batch, results: Sequence[str]) -> Sent:
    """A create that came back as an update overwrote a record, and so did two writers win.

    An update that came back as a create brought a record back: what guards a batch was gone.
    """
    for write, result in zip(batch.writes, results, strict=True):
        if not result.endswith(f"#{write.action}Result"):
            did = "overwrote" if write.action == "create" else "brought back"
            raise HostOverwrites(
                f"the host {did} {write.collection}/{write.rkey}, which another writer had just "
                "changed: it cannot keep a repository safe",
                hint="move the account to another host, and push again",
            )
    return Sent.LANDED
