"""The package against real hosts: logins, records, blobs, and accounts that go."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from git_knotless.atproto import repo
from git_knotless.atproto.errors import (
    AccountDeactivated,
    AccountNotFound,
    AccountTakedown,
    AuthRefused,
    BlobNotFound,
    DidNotFound,
    HandleNotFound,
    InvalidSwap,
    RecordNotFound,
    RepoDeactivated,
    RepoNotFound,
    ServerFault,
    XrpcError,
)
from git_knotless.atproto.identity import Identity, Resolver
from git_knotless.atproto.oauth import NoOAuth, begin
from git_knotless.atproto.password import LoginRefused, login_with_password
from git_knotless.atproto.session_auth import SessionAuth, end, log_out
from git_knotless.atproto.sessions import SessionStore
from git_knotless.atproto.syntax import Did, Rkey, is_tid
from git_knotless.atproto.xrpc import Client
from git_knotless.errors import LoginNeeded
from tests.atproto.fakes import jwt
from tests.network import PASSWORD, Account, Network, run_sandbox

COLLECTION = "dev.knotless.ref"
MIME = "application/x-git-pack"


@dataclass(frozen=True)
class Write:
    action: str
    rkey: Rkey
    value: dict[str, Any] | None = None
    collection: str = COLLECTION


@dataclass(frozen=True)
class Body:
    data: bytes

    @property
    def size(self) -> int:
        return len(self.data)

    def chunks(self) -> Iterator[bytes]:
        for start in range(0, self.size, 65536):
            yield self.data[start : start + 65536]


@pytest.fixture
def client() -> Iterator[Client]:
    with Client() as client:
        yield client


@pytest.fixture
def resolver(network: Network, client: Client) -> Resolver:
    urls = [host.url for host in network.hosts]
    return Resolver(client, plc_url=network.plc, handle_resolvers=urls)


@pytest.fixture
def store(tmp_path: Path) -> SessionStore:
    return SessionStore(tmp_path)


@pytest.fixture
def alice(account: Callable[..., Account]) -> Account:
    return account("alice")


@pytest.fixture
def identity(alice: Account, resolver: Resolver) -> Identity:
    return resolver.resolve(alice.did)


@pytest.fixture
def auth(client: Client, store: SessionStore, identity: Identity) -> SessionAuth:
    session = login_with_password(client, identity, PASSWORD)
    store.save(session)
    return SessionAuth(client, store, session)


def create(rkey: str, value: Any = 1) -> Write:
    return Write("create", Rkey(rkey), {"a": value})


def test_identities(account: Callable[..., Account], resolver: Resolver) -> None:
    for host in (0, 1):
        made = account("bob", host=host)
        by_handle = resolver.resolve(made.handle.upper())
        assert (by_handle.did, by_handle.handle, by_handle.pds) == (
            made.did,
            made.handle,
            made.pds,
        )
        assert resolver.resolve(made.did) == by_handle


def test_identities_that_nobody_has(resolver: Resolver) -> None:
    with pytest.raises(HandleNotFound, match="nobody.test: no such handle"):
        resolver.resolve("nobody.test")
    with pytest.raises(DidNotFound, match="no such account"):
        resolver.resolve("did:plc:aaaaaaaaaaaaaaaaaaaaaaaa")


def test_a_wrong_password(client: Client, identity: Identity) -> None:
    with pytest.raises(LoginRefused, match=f"wrong password for {identity.handle}"):
        login_with_password(client, identity, "wrong")


def test_records(client: Client, alice: Account, auth: SessionAuth) -> None:
    host, did = alice.pds, auth.did
    writes = [create(f"k.{number}", "é") for number in range(5)]
    done = repo.apply_writes(client, host, did, writes, auth=auth)
    assert done.kinds == ("com.atproto.repo.applyWrites#createResult",) * 5

    found = repo.get_record(client, host, did, COLLECTION, Rkey("k.3"))
    assert found.value == {"$type": COLLECTION, "a": "é"}
    page = repo.list_records(client, host, did, COLLECTION, limit=2, cursor="k.1", reverse=True)
    assert [record.rkey for record in page.records] == ["k.2", "k.3"]
    assert page.cursor == "k.3"
    page = repo.list_records(client, host, did, COLLECTION)
    assert [record.rkey for record in page.records] == ["k.4", "k.3", "k.2", "k.1", "k.0"]

    done = repo.apply_writes(
        client,
        host,
        did,
        [Write("update", Rkey("k.0"), {"a": 2}), Write("delete", Rkey("k.1"))],
        auth=auth,
    )
    assert [kind.partition("#")[2] for kind in done.kinds] == ["updateResult", "deleteResult"]
    with pytest.raises(RecordNotFound):
        repo.get_record(client, host, did, COLLECTION, Rkey("k.1"))
    offset = client.clock_offset(host)
    assert offset is not None
    assert abs(offset) < 2


def test_refused_writes(
    client: Client, alice: Account, auth: SessionAuth, account: Callable[..., Account]
) -> None:
    host, did = alice.pds, auth.did
    repo.apply_writes(client, host, did, [create("k")], auth=auth)
    with pytest.raises(ServerFault):
        repo.apply_writes(client, host, did, [create("k")], auth=auth)
    with pytest.raises(XrpcError, match="Invalid record key"):
        repo.apply_writes(client, host, did, [create("a b")], auth=auth)
    with pytest.raises(AuthRefused):
        repo.apply_writes(client, host, Did(account("bob").did), [create("k")], auth=auth)
    with pytest.raises(AccountNotFound):
        repo.apply_writes(client, host, Did("did:plc:" + "a" * 24), [create("k")], auth=auth)
    stale = {"repo": did, "writes": [], "swapCommit": "bafyreib" + "a" * 51}
    with pytest.raises(InvalidSwap):
        client.post(host, "com.atproto.repo.applyWrites", stale, auth=auth)


def test_blobs(client: Client, alice: Account, auth: SessionAuth) -> None:
    host, did, data = alice.pds, auth.did, b"PACK" + bytes(range(256)) * 4096
    blob = repo.upload_blob(client, host, Body(data), MIME, auth=auth)
    assert (blob.mime, blob.size) == (MIME, len(data))
    with pytest.raises(BlobNotFound):
        b"".join(repo.get_blob(client, host, did, blob.cid, size=blob.size))
    ref = {"$type": "blob", "ref": {"$link": blob.cid}, "mimeType": MIME, "size": blob.size}
    repo.apply_writes(client, host, did, [create("k", ref)], auth=auth)
    back = b"".join(repo.get_blob(client, host, did, blob.cid, size=blob.size))
    assert hashlib.sha256(back).digest() == hashlib.sha256(data).digest()

    missing = {**ref, "ref": {"$link": blob.cid.replace(blob.cid[20:30], "a" * 10)}}
    with pytest.raises(BlobNotFound):
        repo.apply_writes(client, host, did, [create("l", missing)], auth=auth)
    gzip = repo.upload_blob(client, host, Body(b"\x1f\x8b\x08\x00" + bytes(50)), MIME, auth=auth)
    assert gzip.mime == "application/gzip"


def test_a_blob_over_the_limit(client: Client, alice: Account, auth: SessionAuth) -> None:
    limit = repo.describe_server(client, alice.pds).blob_limit
    assert limit is not None
    with pytest.raises(XrpcError) as caught:
        repo.upload_blob(client, alice.pds, Body(bytes(limit + 1)), MIME, auth=auth)
    assert (caught.value.status, caught.value.name) == (413, "PayloadTooLarge")


def test_a_token_that_ended_is_renewed(
    client: Client, alice: Account, auth: SessionAuth, store: SessionStore
) -> None:
    """By the local clock, and where that does not show it, by the host's word."""
    for access in (jwt(0), "opaque"):
        store.save(replace(auth.session, access=access))
        old = SessionAuth(client, store, replace(auth.session, access=access))
        repo.apply_writes(client, alice.pds, auth.did, [create(access[:6])], auth=old)
        assert store.load(auth.did) == old.session
        assert old.session.access != access
    found = repo.get_record(client, alice.pds, auth.did, COLLECTION, Rkey("opaque"))
    assert found.value["a"] == 1


def test_a_login_that_has_ended(
    client: Client, alice: Account, auth: SessionAuth, store: SessionStore
) -> None:
    assert log_out(client, store, auth.did).trouble is None
    assert store.load(auth.did) is None
    store.save(replace(auth.session, access="opaque"))
    old = SessionAuth(client, store, replace(auth.session, access="opaque"))
    with pytest.raises(LoginNeeded, match="has ended"):
        repo.apply_writes(client, alice.pds, auth.did, [create("k")], auth=old)
    assert end(client, auth.session) is True, "it had ended already"


def test_a_deactivated_account(client: Client, alice: Account, auth: SessionAuth) -> None:
    repo.apply_writes(client, alice.pds, auth.did, [create("k")], auth=auth)
    status = repo.get_repo_status(client, alice.pds, auth.did)
    assert status.active
    assert status.rev is not None
    assert is_tid(status.rev)

    alice.post("com.atproto.server.deactivateAccount", {})
    status = repo.get_repo_status(client, alice.pds, auth.did)
    assert (status.active, status.status) == (False, "deactivated")
    with pytest.raises(RepoNotFound):
        repo.list_records(client, alice.pds, auth.did, COLLECTION)
    with pytest.raises(ServerFault) as caught:
        repo.get_record(client, alice.pds, auth.did, COLLECTION, Rkey("k"))
    assert caught.value.name == "UpstreamFailure"
    with pytest.raises(AccountDeactivated):
        repo.apply_writes(client, alice.pds, auth.did, [create("l")], auth=auth)
    with pytest.raises(RepoDeactivated):
        client.get(alice.pds, "com.atproto.sync.getLatestCommit", {"did": auth.did})


def test_an_account_taken_down(
    client: Client, network: Network, alice: Account, auth: SessionAuth
) -> None:
    subject = {"$type": "com.atproto.admin.defs#repoRef", "did": alice.did}
    takedown = {"subject": subject, "takedown": {"applied": True, "ref": "test"}}
    network.admin(alice.host, "com.atproto.admin.updateSubjectStatus", takedown)
    assert repo.get_repo_status(client, alice.pds, auth.did).status == "takendown"
    with pytest.raises(AccountTakedown):
        repo.apply_writes(client, alice.pds, auth.did, [create("k")], auth=auth)


def test_a_deleted_account(
    client: Client, network: Network, alice: Account, auth: SessionAuth, identity: Identity
) -> None:
    network.admin(alice.host, "com.atproto.admin.deleteAccount", {"did": alice.did})
    with pytest.raises(RepoNotFound):
        repo.get_repo_status(client, alice.pds, auth.did)
    with pytest.raises(AccountNotFound):
        repo.apply_writes(client, alice.pds, auth.did, [create("k")], auth=auth)
    with pytest.raises(LoginRefused):
        login_with_password(client, identity, PASSWORD)


@pytest.mark.parametrize("network", [run_sandbox], indirect=True, ids=["sandbox"])
def test_a_host_without_oauth_says_so(client: Client, identity: Identity) -> None:
    with pytest.raises(NoOAuth, match="takes app passwords only") as caught:
        begin(client, identity, "atproto", redirect_port=None)
    assert caught.value.hint == f"git knotless login {identity.handle} --password-stdin"
