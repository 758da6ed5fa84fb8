"""A `RecordStore` on an account's public records, on whichever host keeps them."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from git_knotless.atproto import repo
from git_knotless.atproto.auth import Auth
from git_knotless.atproto.errors import (
    AccountNotHere,
    AtprotoError,
    RecordNotFound,
    RepoDeactivated,
    RepoTakendown,
    StillMoving,
    XrpcError,
)
from git_knotless.atproto.hosts import host_of
from git_knotless.atproto.identity import Identity
from git_knotless.atproto.syntax import Did, Rkey
from git_knotless.atproto.xrpc import Client
from git_knotless.errors import LoginNeeded
from git_knotless.storage.hosts import HostCache
from git_knotless.storage.listing import Page, ReadPage, everything, under, whole
from git_knotless.storage.packs.packrecord import PACK_MIME
from git_knotless.storage.proofs.proofs import HostProofs
from git_knotless.storage.proofs.revs import Revs
from git_knotless.storage.records import REF
from git_knotless.storage.store import AccountMoved, BlobBody, BlobRef, HostFacts, Record, Write

if TYPE_CHECKING:
    from git_knotless.atproto.allowance import Kind, Left

if TYPE_CHECKING:  # few readings are proven
    from git_knotless.atproto.keys import PublicKey

# The account is not at this host, or no longer: it may have moved to another.
_NOT_HERE = (AccountNotHere, RepoTakendown)

Answer = TypeVar("Answer")


class Homes(Protocol):
    """Where accounts are, and what writes to them there."""

    def find_again(self, identity: Identity) -> Identity:
        """The account as it is now: it is not, or no longer, where `identity` says."""
        ...

    def writer(self, identity: Identity) -> Auth:
        """The owner's own session at that host. Raises LoginNeeded."""
        ...

    def signing_key(self, did: Did, *, fresh: bool) -> "PublicKey":
        """What signs an account's commits; `fresh`: by its DID document as it is now."""
        ...


class PublicStore:
    """Reads carry no credential; what writes needs `auth`, the owner's own.

    Where the host does not keep the account any more it is looked up again, once, and what is
    read is read at the host that it has moved to. A write goes on there with a session for that
    host, and rests on nothing that the other host said.
    """

    def __init__(
        self,
        client: Client,
        identity: Identity,
        auth: Auth | None,
        hosts: HostCache,
        homes: Homes,
        revs: Revs | None = None,
    ) -> None:
        self._client = client
        self._identity = identity
        self._auth = auth
        self._hosts = hosts
        self._homes = homes
        self._revs = revs
        self._lock = threading.Lock()
        self._looked_again = False
        self._has_read = False
        self._moved = False  # since something was read
        self._wrong_auth = False

    @property
    def did(self) -> Did:
        return self._identity.did

    @property
    def proofs(self) -> HostProofs:
        def origin() -> str:
            return self._identity.pds

        return HostProofs(self._client, self.did, self._homes, self._read, origin)

    def get(self, collection: str, rkey: Rkey) -> Record | None:
        def ask(host: str) -> Record | None:
            try:
                found = repo.get_record(self._client, host, self.did, collection, rkey)
            except RecordNotFound:
                return None
            except XrpcError as error:
                self._explain(error, host)
                raise
            return Record(found.rkey, found.value, found.cid)

        return self._read(ask)

    def list(
        self, collection: str, prefix: str, *, newest_first: bool = False
    ) -> Iterator[Sequence[Record]]:
        read, host = self._reader(collection), host_of(self._identity.pds)
        if not prefix:
            return everything(read, host=host)
        return under(prefix, read, newest_first=newest_first, host=host)

    def list_whole(self, collection: str, prefix: str) -> Iterator[Sequence[Record]]:
        host = host_of(self._identity.pds)
        return whole(prefix, self._reader(collection), self._rev, host=host)

    def _rev(self) -> str | None:
        from git_knotless.atproto.sync import get_latest_commit  # few listings have to be whole

        def ask(host: str) -> str | None:
            try:
                return get_latest_commit(self._client, host, self.did)[1]
            except AccountNotHere:
                raise
            except XrpcError:
                return None

        return self._read(ask)

    def _reader(self, collection: str) -> ReadPage:
        def read(cursor: str | None, ascending: bool) -> Page:  # noqa: FBT001 # a ReadPage
            def ask(host: str) -> Page:
                return self._page(host, collection, cursor, ascending=ascending)

            return self._read(ask)

        return read

    def _page(self, host: str, collection: str, cursor: str | None, *, ascending: bool) -> Page:
        try:
            page = repo.list_records(
                self._client, host, self.did, collection, cursor=cursor, reverse=ascending
            )
        except XrpcError as error:
            self._explain(error, host)
            raise
        return Page([Record(record.rkey, record.value) for record in page.records], page.cursor)

    def _explain(self, error: XrpcError, host: str) -> None:
        """Say so where the account is not there: a host says that of no record, only when asked.

        `getRecord` of an account that has gone is passed on to somebody else, who answers for it.
        """
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

    # --- the host, and the one after it

    def _read(self, ask: Callable[[str], Answer]) -> Answer:
        identity = self._identity
        try:
            answer = ask(identity.pds)
        except _NOT_HERE as error:
            there = self._found_again(identity, error)
            with _on_its_way(there):
                answer = ask(there.pds)
        self._has_read = True
        return answer

    def _found_again(self, identity: Identity, error: XrpcError) -> Identity:
        """The account at another host than `identity`'s; raises `error`, or what it means."""
        with self._lock:
            if self._identity.pds == identity.pds:
                self._look_again(error)
            return self._identity

    def _look_again(self, error: XrpcError) -> None:
        if self._looked_again:
            raise error
        self._looked_again = True
        try:
            now = self._homes.find_again(self._identity)
        except AtprotoError:
            raise error from None
        if now.pds == self._identity.pds:
            if isinstance(error, RepoDeactivated):
                raise _inactive(now) from error
            raise error
        self._moved, self._wrong_auth = self._has_read, self._auth is not None
        self._identity = now

    def _write(self, send: Callable[[str, Auth], Answer]) -> Answer:
        identity, auth = self._identity, self._writer()
        try:
            return send(identity.pds, auth)
        except _NOT_HERE as error:
            there, auth = self._found_again(identity, error), self._writer()
            with _on_its_way(there):
                return send(there.pds, auth)

    def _writer(self) -> Auth:
        if self._auth is None:
            name = self._identity.name
            raise LoginNeeded(f"not logged in as {name}", hint=f"git knotless login {name}")
        with self._lock:
            if self._wrong_auth:
                self._auth, self._wrong_auth = self._homes.writer(self._identity), False
            return self._auth

    # --- writing

    def apply(self, writes: Sequence[Write]) -> Sequence[str]:
        def send(host: str, auth: Auth) -> Sequence[str]:
            if self._moved:
                self._moved = False
                where = host_of(self._identity.pds)
                raise AccountMoved(
                    f"{self._identity.name} has just moved to {where}: nothing was written",
                    hint="run the command again",
                )
            done = repo.apply_writes(self._client, host, self.did, writes, auth=auth)
            self._wrote(writes, done.rev)
            return done.kinds

        return self._write(send)

    def _wrote(self, writes: Sequence[Write], rev: str | None) -> None:
        """No host is to show, of the repositories that were written to, what was before that."""
        if self._revs is not None and rev is not None:
            refs = (write.rkey for write in writes if write.collection == REF)
            for key in {rkey.partition(".")[0] for rkey in refs}:
                self._revs.saw(self.did, key, rev)

    def put(
        self, collection: str, rkey: Rkey, value: Mapping[str, Any], *, replaces: str | None
    ) -> None:
        """Raises `InvalidSwap` where another version is there than `replaces`, None is none."""

        def send(host: str, auth: Auth) -> None:
            place = (host, self.did, collection, rkey)
            repo.put_record(self._client, *place, value, replaces=replaces, auth=auth)

        self._write(send)

    def upload(self, body: BlobBody, *, mime: str = PACK_MIME) -> BlobRef:
        blob = self._write(
            lambda host, auth: repo.upload_blob(self._client, host, body, mime, auth=auth)
        )
        return BlobRef(blob.cid, blob.mime, blob.size)

    # --- blobs, and the host itself

    def download(self, blob: BlobRef) -> Iterator[bytes]:
        identity, begun = self._identity, False
        try:
            for chunk in self._blob(identity, blob):
                begun = True
                yield chunk
        except _NOT_HERE as error:
            if begun:
                raise
            identity = self._found_again(identity, error)
        else:
            return
        with _on_its_way(identity):
            yield from self._blob(identity, blob)

    def _blob(self, identity: Identity, blob: BlobRef) -> Iterator[bytes]:
        return repo.get_blob(self._client, identity.pds, self.did, blob.cid, size=blob.size)

    def host(self) -> HostFacts:
        known = self._hosts.facts(self._identity.pds)
        if known is None:
            limit = repo.describe_server(self._client, self._identity.pds).blob_limit
            known = HostFacts(limit)
            self._hosts.keep(self._identity.pds, known)
        return known

    def learn_blob_limit(self, limit: int) -> None:
        self._hosts.keep(self._identity.pds, HostFacts(limit))

    def left(self, kind: "Kind") -> "Left | None":
        known = self._client.allowances
        return None if known is None else known.left(self._identity.pds, kind, self.did)

    def clock_offset(self) -> float:
        return self._client.clock_offset(self._identity.pds) or 0.0


@contextmanager
def _on_its_way(identity: Identity) -> Iterator[None]:
    """What its not being active means at the host that an account has just been found at."""
    try:
        yield
    except RepoDeactivated as error:
        host = host_of(identity.pds)
        raise StillMoving(
            f"{identity.name} is still being moved to {host}: the account is not active there yet",
            hint="try again once the move is complete",
        ) from error


def _inactive(identity: Identity) -> StillMoving:
    """Of an account that was found at one host alone, none can tell which it is."""
    host = host_of(identity.pds)
    return StillMoving(
        f"{identity.name} is not active at {host}: it is deactivated, or still being moved there",
        hint="try again once the account is active",
    )
