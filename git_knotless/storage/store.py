"""The seam between a git repository kept in records and the account that keeps them.

A `RecordStore` is one account as seen by one reader or writer. Public repositories have one
implementation (`public.py`).
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from git_knotless.atproto.syntax import Cid, Did, Nsid, Rkey, Tid
from git_knotless.errors import KnotlessError
from git_knotless.value import value

if TYPE_CHECKING:  # few readings are proven
    from git_knotless.atproto.allowance import Kind, Left
    from git_knotless.atproto.keys import PublicKey

Action = Literal["create", "update", "delete"]
Archive = tuple[bytes, dict[bytes, bytes]]  # a commit's CID, and blocks by theirs


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


@value
class Authority:
    """Who says what is read: a host, by its name for people. `straight`: it is the account's own,
    and nobody in between could have said anything else."""

    host: str
    straight: bool


class Proofs(Protocol):
    """What an account has signed, as its host has it: blocks that hash to their CIDs, and no more
    is known of them. Raises `AtprotoError`s."""

    @property
    def authority(self) -> Authority: ...

    def signing_key(self, *, fresh: bool) -> "PublicKey":
        """`fresh`: by the account's DID document as it is now."""
        ...

    def commit(self) -> tuple[Cid, Tid]:
        """The newest one's CID and its rev, as the host says."""
        ...

    def record(self, collection: Nsid, rkey: Rkey) -> Archive:
        """The newest commit, the nodes on the way to the key, and the record if there is one."""
        ...

    def blocks(self, cids: Sequence[bytes]) -> dict[bytes, bytes]:
        """All of them; raises `Missing` where the host does not have one (any more)."""
        ...

    def since(self, rev: Tid, *, limit: int) -> Archive:
        """The newest commit's CID, and what came after the revision: of at most `limit` bytes."""
        ...


class RecordStore(Protocol):
    """Reads raise `AtprotoError`s; a record that is not there is None, and nothing else is."""

    @property
    def did(self) -> Did: ...

    @property
    def proofs(self) -> Proofs: ...

    def get(self, collection: str, rkey: Rkey) -> Record | None: ...

    def list(
        self, collection: str, prefix: str, *, newest_first: bool = False
    ) -> Iterator[Sequence[Record]]:
        """Pages of the records whose keys begin with `prefix`, in key order, no page empty."""
        ...

    def list_whole(self, collection: str, prefix: str) -> Iterator[Sequence[Record]]:
        """As `list`; raises `WrittenToMeanwhile` at its end where a record may be left out."""
        ...

    def apply(self, writes: Sequence[Write]) -> Sequence[str]:
        """All of `writes` or none, in one commit; the results' `$type`s, in their order.

        Raises `AccountMoved`, once, where they may rest on what another host said.
        """
        ...

    def upload(self, body: BlobBody, *, mime: str = ...) -> BlobRef:
        """`mime` is what it is declared as: a pack, where nothing is said."""
        ...

    def download(self, blob: BlobRef) -> Iterator[bytes]:
        """The bytes of `blob`: never more than its size; the caller checks its hash."""
        ...

    def host(self) -> HostFacts: ...

    def learn_blob_limit(self, limit: int) -> None:
        """Remember the limit found by a refusal, where the host does not say it."""
        ...

    def left(self, kind: "Kind") -> "Left | None":
        """What the host's rate limit leaves the account; None where that is not known."""
        ...

    def clock_offset(self) -> float:
        """The host's clock minus ours, in seconds, from its newest answer."""
        ...
