"""What an account has signed, from the host that keeps it, wherever it is by now."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from git_knotless.atproto.hosts import host_of, on_loopback
from git_knotless.atproto.syntax import Cid, Did, Nsid, Rkey, Tid
from git_knotless.atproto.xrpc import Client
from git_knotless.storage.store import Archive, Authority

if TYPE_CHECKING:  # few readings are proven
    from git_knotless.atproto.keys import PublicKey


class Keys(Protocol):
    """Who knows what accounts sign with."""

    def signing_key(self, did: Did, *, fresh: bool) -> "PublicKey": ...


class HostProofs:
    """Of the account `did`. `at` has a question asked where the account is, and `origin` says where
    that is."""

    def __init__(
        self,
        client: Client,
        did: Did,
        keys: Keys,
        at: Callable[[Callable[[str], Any]], Any],
        origin: Callable[[], str],
    ) -> None:
        self._client = client
        self._did = did
        self._keys = keys
        self._at = at
        self._origin = origin

    @property
    def authority(self) -> Authority:
        origin = self._origin()
        return Authority(host_of(origin), is_straight(origin))

    def signing_key(self, *, fresh: bool) -> "PublicKey":
        return self._keys.signing_key(self._did, fresh=fresh)

    def commit(self) -> tuple[Cid, Tid]:
        from git_knotless.atproto import sync

        found: tuple[Cid, Tid] = self._at(
            lambda host: sync.get_latest_commit(self._client, host, self._did)
        )
        return found

    def record(self, collection: Nsid, rkey: Rkey) -> Archive:
        from git_knotless.atproto import sync

        found: Archive = self._at(
            lambda host: sync.get_record(self._client, host, self._did, collection, rkey)
        )
        return found

    def blocks(self, cids: Sequence[bytes]) -> dict[bytes, bytes]:
        from git_knotless.atproto import sync

        found: dict[bytes, bytes] = self._at(
            lambda host: sync.get_blocks(self._client, host, self._did, cids)
        )
        return found

    def since(self, rev: Tid, *, limit: int) -> Archive:
        from git_knotless.atproto import sync

        found: Archive = self._at(
            lambda host: sync.get_repo(self._client, host, self._did, since=rev, limit=limit)
        )
        return found


def is_straight(origin: str) -> bool:
    """Whether an answer from the account's own host, at `origin`, is as that host has sent it.

    Redirects are followed for blobs alone, which are hashed.
    """
    return origin.startswith("https://") or on_loopback(origin)
