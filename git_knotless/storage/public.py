"""A `RecordStore` on an account's public records, on whichever host keeps them."""

from collections.abc import Iterator, Sequence

from git_knotless.atproto import repo
from git_knotless.atproto.errors import (
    AccountNotHere,
    AtprotoError,
    RecordNotFound,
    RepoDeactivated,
    RepoTakendown,
    XrpcError,
)
from git_knotless.atproto.hosts import host_of
from git_knotless.atproto.identity import Identity
from git_knotless.atproto.syntax import Did, Rkey
from git_knotless.atproto.xrpc import Auth, Client
from git_knotless.errors import LoginNeeded
from git_knotless.storage.hosts import HostCache
from git_knotless.storage.listing import Page, everything, under
from git_knotless.storage.records import PACK_MIME
from git_knotless.storage.store import BlobBody, BlobRef, HostFacts, Record, Write


class PublicStore:
    """Reads carry no credential; what writes needs `auth`, the owner's own."""

    def __init__(
        self, client: Client, identity: Identity, auth: Auth | None, hosts: HostCache
    ) -> None:
        self._client = client
        self._identity = identity
        self._auth = auth
        self._hosts = hosts

    @property
    def did(self) -> Did:
        return self._identity.did

    def get(self, collection: str, rkey: Rkey) -> Record | None:
        try:
            found = repo.get_record(self._client, self._identity.pds, self.did, collection, rkey)
        except RecordNotFound:
            return None
        except XrpcError as error:
            self._explain(error)
            raise
        return Record(found.rkey, found.value)

    def list(
        self, collection: str, prefix: str, *, newest_first: bool = False
    ) -> Iterator[Sequence[Record]]:
        def read(cursor: str | None, ascending: bool) -> Page:  # noqa: FBT001 # a ReadPage
            return self._page(collection, cursor, ascending=ascending)

        host = host_of(self._identity.pds)
        if not prefix:
            return everything(read, host=host)
        return under(prefix, read, newest_first=newest_first, host=host)

    def _page(self, collection: str, cursor: str | None, *, ascending: bool) -> Page:
        try:
            page = repo.list_records(
                self._client,
                self._identity.pds,
                self.did,
                collection,
                cursor=cursor,
                reverse=ascending,
            )
        except XrpcError as error:
            self._explain(error)
            raise
        return Page([Record(record.rkey, record.value) for record in page.records], page.cursor)

    def _explain(self, error: XrpcError) -> None:
        """Say so where the account is not there: a host says that of no record, only when asked.

        `getRecord` of an account that has gone is passed on to somebody else, who answers for it.
        """
        host = self._identity.pds
        try:
            status = repo.get_repo_status(self._client, host, self.did)
        except AccountNotHere:
            raise
        except AtprotoError:
            return
        if not status.active:
            kind = RepoTakendown if status.status == "takendown" else RepoDeactivated
            name = status.status or "inactive"
            raise kind(error.status, name, "", nsid=error.nsid, host=error.host) from error

    def apply(self, writes: Sequence[Write]) -> Sequence[str]:
        auth = self._writer()
        return repo.apply_writes(self._client, self._identity.pds, self.did, writes, auth=auth)

    def upload(self, body: BlobBody) -> BlobRef:
        auth = self._writer()
        blob = repo.upload_blob(self._client, self._identity.pds, body, PACK_MIME, auth=auth)
        return BlobRef(blob.cid, blob.mime, blob.size)

    def download(self, blob: BlobRef) -> Iterator[bytes]:
        host = self._identity.pds
        return repo.get_blob(self._client, host, self.did, blob.cid, size=blob.size)

    def host(self) -> HostFacts:
        known = self._hosts.facts(self._identity.pds)
        if known is None:
            limit = repo.describe_server(self._client, self._identity.pds).blob_limit
            known = HostFacts(limit)
            self._hosts.keep(self._identity.pds, known)
        return known

    def learn_blob_limit(self, limit: int) -> None:
        self._hosts.keep(self._identity.pds, HostFacts(limit))

    def clock_offset(self) -> float:
        return self._client.clock_offset(self._identity.pds) or 0.0

    def _writer(self) -> Auth:
        if self._auth is None:
            name = self._identity.name
            raise LoginNeeded(f"not logged in as {name}", hint=f"git knotless login {name}")
        return self._auth
