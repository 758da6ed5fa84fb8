"""The calls on an account's records and blobs, their answers checked for shape.

`host` is the origin of the account's PDS. Nothing here knows what the records mean.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from git_knotless import limits
from git_knotless.atproto.answers import printable
from git_knotless.atproto.auth import Auth
from git_knotless.atproto.blob_wire import BlobBody
from git_knotless.atproto.errors import BadAnswer
from git_knotless.atproto.hosts import host_of
from git_knotless.atproto.syntax import AtUri, Cid, Did, InvalidSyntax, Rkey, is_cid, is_tid
from git_knotless.atproto.xrpc import Client
from git_knotless.value import value

MOST_RECORDS = 100  # in one page
_LARGEST_BLOB = 1 << 40  # a host that says more is not telling its limit


class Write(Protocol):
    """One write of a batch; `action` is create, update or delete, which has no `value`."""

    @property
    def action(self) -> str: ...
    @property
    def collection(self) -> str: ...
    @property
    def rkey(self) -> Rkey: ...
    @property
    def value(self) -> Mapping[str, Any] | None: ...


@value
class StoredRecord:
    rkey: Rkey
    value: dict[str, Any]
    cid: str | None = None  # of this version of it, where one alone is read and the host says


@value
class Page:
    """`cursor` is None on the last page; a page may be empty, and is not the last for that."""

    records: tuple[StoredRecord, ...]
    cursor: str | None


@value
class UploadedBlob:
    """As a record must name it: the host may have made another type of it than was declared."""

    cid: Cid
    mime: str
    size: int


@value
class Applied:
    """A batch: the `$type`s of its results, and the revision that it made if the host says."""

    kinds: tuple[str, ...]
    rev: str | None


@value
class HostDescription:
    blob_limit: int | None  # bytes; None where the host does not say


@value
class RepoStatus:
    active: bool
    status: str | None  # why it is not active
    rev: str | None


def get_record(
    client: Client, host: str, did: Did, collection: str, rkey: Rkey, *, auth: Auth | None = None
) -> StoredRecord:
    """Raises `RecordNotFound` where the host says that there is none."""
    params = {"repo": did, "collection": collection, "rkey": rkey}
    answer = client.get(host, "com.atproto.repo.getRecord", params, auth=auth, limit=limits.RECORD)
    record = _record(answer, host, did, collection)
    if record.rkey != rkey:
        raise BadAnswer(f"{host_of(host)} answers with another record than was asked for")
    cid = answer.get("cid")
    return StoredRecord(rkey, record.value, cid if isinstance(cid, str) and is_cid(cid) else None)


def list_records(
    client: Client,
    host: str,
    did: Did,
    collection: str,
    *,
    cursor: str | None = None,
    limit: int = MOST_RECORDS,
    reverse: bool = False,
    auth: Auth | None = None,
) -> Page:
    """One page, by descending key; `reverse` is ascending."""
    params = {
        "repo": did,
        "collection": collection,
        "limit": limit,
        "cursor": cursor,
        "reverse": reverse or None,
    }
    answer = client.get(host, "com.atproto.repo.listRecords", params, auth=auth, limit=limits.PAGE)
    records = answer.get("records")
    if not isinstance(records, list) or len(records) > limit:
        raise _misshapen(host, "a listing")
    return Page(
        tuple(_record(record, host, did, collection) for record in records),
        _cursor(answer.get("cursor"), host),
    )


def apply_writes(
    client: Client, host: str, did: Did, writes: Sequence[Write], *, auth: Auth
) -> Applied:
    """All or none, in one commit.

    Sent once, see the claims of a push; again only where the host has refused to look at it yet.
    """
    answer = client.post(
        host,
        "com.atproto.repo.applyWrites",
        {"repo": did, "writes": [_write(write) for write in writes]},
        auth=auth,
        answer_within=limits.WRITE_ANSWER,
        patient=True,
    )
    results = answer.get("results")
    if not isinstance(results, list) or len(results) != len(writes):
        raise _misshapen(host, "the results of a batch")
    match answer.get("commit"):
        case {"rev": str(said)} if is_tid(said):
            rev: str | None = said
        case _:
            rev = None
    return Applied(tuple(_kind(result, host) for result in results), rev)


def put_record(
    client: Client,
    host: str,
    did: Did,
    collection: str,
    rkey: Rkey,
    value: Mapping[str, Any],
    *,
    replaces: str | None,
    auth: Auth,
) -> None:
    """In place of the version whose CID is `replaces`, None of no record.

    Sent as a batch is. Raises `InvalidSwap` where something else is there.
    """
    client.post(
        host,
        "com.atproto.repo.putRecord",
        {
            "repo": did,
            "collection": collection,
            "rkey": rkey,
            "record": {"$type": collection, **value},
            "swapRecord": replaces,
        },
        auth=auth,
        answer_within=limits.WRITE_ANSWER,
        patient=True,
    )


def upload_blob(
    client: Client, host: str, body: BlobBody, mime: str, *, auth: Auth
) -> UploadedBlob:
    """The blob lives on only if a record names it within the hour."""
    return read_blob(client.upload(host, body, mime, auth=auth).get("blob"), host)


def get_blob(client: Client, host: str, did: Did, cid: str, *, size: int) -> Iterator[bytes]:
    """The blob as it comes, never more than `size` bytes; the caller checks size and hash."""
    if not is_cid(cid):
        raise BadAnswer(f"{cid[:80]!a} is not the CID of a blob")
    return client.download(host, did, cid, limit=size)


def describe_server(client: Client, host: str) -> HostDescription:
    limit = client.get(host, "com.atproto.server.describeServer").get("blobUploadLimit")
    says = isinstance(limit, int) and not isinstance(limit, bool) and 0 < limit <= _LARGEST_BLOB
    return HostDescription(limit if says else None)


def get_repo_status(client: Client, host: str, did: Did) -> RepoStatus:
    """Raises `RepoNotFound` for an account that is not, or no longer, there."""
    answer = client.get(host, "com.atproto.sync.getRepoStatus", {"did": did})
    active, status, rev = (answer.get(key) for key in ("active", "status", "rev"))
    if answer.get("did") != did or not isinstance(active, bool):
        raise _misshapen(host, "the status of an account")
    return RepoStatus(
        active,
        printable(status) if isinstance(status, str) else None,
        rev if isinstance(rev, str) and is_tid(rev) else None,
    )


def read_blob(value: Any, host: str) -> UploadedBlob:
    """A blob object, as `uploadBlob` answers it."""
    match value:
        case {
            "$type": "blob",
            "ref": {"$link": str(cid)},
            "mimeType": str(mime),
            "size": int(size),
        } if is_cid(cid) and size >= 0:
            return UploadedBlob(Cid(cid), mime, size)
    raise _misshapen(host, "a blob")


def _write(write: Write) -> dict[str, Any]:
    value = {} if write.value is None else {"value": write.value}
    return {
        "$type": f"com.atproto.repo.applyWrites#{write.action}",
        "collection": write.collection,
        "rkey": write.rkey,
        **value,
    }


def _kind(result: Any, host: str) -> str:
    match result:
        case {"$type": str(kind)}:
            return kind
    raise _misshapen(host, "the results of a batch")


def _record(answer: Any, host: str, did: Did, collection: str) -> StoredRecord:
    match answer:
        case {"uri": str(text), "value": dict(value)}:
            try:
                uri = AtUri.parse(text)
            except InvalidSyntax as error:
                raise _misshapen(host, "a record") from error
            if uri.authority == did and uri.collection == collection and uri.rkey is not None:
                return StoredRecord(uri.rkey, value)
    raise _misshapen(host, "a record")


def _cursor(value: Any, host: str) -> str | None:
    if value is None or value == "":
        return None
    if not isinstance(value, str) or len(value) > limits.CURSOR:
        raise _misshapen(host, "a cursor")
    return value


def _misshapen(host: str, what: str) -> BadAnswer:
    return BadAnswer(f"{host_of(host)} answers with something else than {what}")
