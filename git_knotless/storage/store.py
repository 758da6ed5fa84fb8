"""The seam between a git repository kept in records and the account that keeps them.

A `RecordStore` is one account as seen by one reader or writer. Public repositories have one
implementation (`public.py`).
"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal, Protocol

from git_knotless.atproto.syntax import Did, Rkey
from git_knotless.errors import KnotlessError
from git_knotless.value import value

Action = Literal["create", "update", "delete"]


class AccountMoved(KnotlessError):
    """The account is at another host than what was read was read from: nothing was written."""


@value
class BlobRef:
    """A blob as a record names it. `mime` is what the host made of it, not what was declared."""

    cid: str
    mime: str
    size: int


class BlobBody(Protocol):
    """Bytes that can be sent more than once, each time from their beginning."""

    @property
    def size(self) -> int: ...

    def chunks(self) -> Iterator[bytes]: ...


@value
class Record:
    """One record: its key and its value, as JSON gave it (`{"$bytes": …}`, `{"$link": …}`)."""

    rkey: Rkey
    value: dict[str, Any]
    cid: str | None = None  # of this version of it, where one alone is read and the host says


@value
class Write:
    """One write of a batch. `value` is absent for a delete."""

    action: Action
    collection: str
    rkey: Rkey
    value: dict[str, Any] | None = None


@value
class HostFacts:
    """What a host says of itself."""

    blob_limit: int | None  # bytes in one blob; None where the host does not say


class RecordStore(Protocol):
    """Reads raise `AtprotoError`s; a record that is not there is None, and nothing else is."""

    @property
    def did(self) -> Did: ...

    def get(self, collection: str, rkey: Rkey) -> Record | None: ...

    def list(
        self, collection: str, prefix: str, *, newest_first: bool = False
    ) -> Iterator[Sequence[Record]]:
        """Pages of the records whose keys begin with `prefix`, in key order, no page empty."""
        ...

    def apply(self, writes: Sequence[Write]) -> Sequence[str]:
        """All of `writes` or none, in one commit; the results' `$type`s, in their order.

        Raises `AccountMoved`, once, where they may rest on what another host said.
        """
        ...

    def upload(self, body: BlobBody) -> BlobRef: ...

    def download(self, blob: BlobRef) -> Iterator[bytes]:
        """The bytes of `blob`: never more than its size; the caller checks its hash."""
        ...

    def host(self) -> HostFacts: ...

    def learn_blob_limit(self, limit: int) -> None:
        """Remember the limit found by a refusal, where the host does not say it."""
        ...

    def clock_offset(self) -> float:
        """The host's clock minus ours, in seconds, from its newest answer."""
        ...
