"""Accounts that know of each other, in memory, and a repository that goes from one to another."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from git_knotless.atproto.errors import DidNotFound
from git_knotless.atproto.syntax import Did, Handle, Rkey, tid
from git_knotless.storage.claims import EpochRecord
from git_knotless.storage.creation import create
from git_knotless.storage.editing import edit
from git_knotless.storage.outcome import Batch, send
from git_knotless.storage.packs.packrecord import PackRecord
from git_knotless.storage.places.accepting import Accepted, accept
from git_knotless.storage.places.offers import offer
from git_knotless.storage.places.references import RepoRef
from git_knotless.storage.pushing.batches import stamp_now
from git_knotless.storage.records import CLAIM, PACK, REF, RefRecord, RepoRecord, prefix_of
from git_knotless.storage.repositories import Repository
from git_knotless.storage.store import BlobBody, BlobRef, Record, Write
from git_knotless.storage.url import RepoUrl, parse_url
from tests.storage.account import Account, cid_of
from tests.storage.packs import SILENT

ALICE, BOB, CAROL = (Did(f"did:plc:{letter * 24}") for letter in "abc")
NAMES = {ALICE: "alice.test", BOB: "bob.test", CAROL: "carol.test"}
TIME = "2026-01-02T03:04:05.678Z"


@dataclass
class Host(Account):
    """`meet` sees each request before anything of it is done, and once it is; it may raise."""

    meet: Callable[[str], None] = lambda moment: None

    def get(self, collection: str, rkey: Rkey) -> Record | None:
        self.meet("before get")
        return super().get(collection, rkey)

    def list(
        self, collection: str, prefix: str, *, newest_first: bool = False
    ) -> Iterator[Sequence[Record]]:
        self.meet("before list")
        yield from super().list(collection, prefix, newest_first=newest_first)

    def apply(self, writes: Sequence[Write]) -> Sequence[str]:
        self.meet("before apply")
        done = super().apply(writes)
        self.meet("after apply")
        return done

    def upload(self, body: BlobBody, **options: Any) -> BlobRef:
        self.meet("before upload")
        done = super().upload(body, **options)
        self.meet("after upload")
        return done

    def download(self, blob: BlobRef) -> Iterator[bytes]:
        self.meet("before download")
        yield from super().download(blob)

    def named(self, collection: str) -> dict[str, Any]:
        return self.records.get(collection, {})


@dataclass
class World:
    """`alice`, `bob` and `carol`, each with an account."""

    directory: Path
    hosts: dict[Did, Host] = field(
        default_factory=lambda: {did: Host(did=did) for did in (ALICE, BOB, CAROL)}
    )

    @property
    def alice(self) -> Host:
        return self.hosts[ALICE]

    @property
    def bob(self) -> Host:
        return self.hosts[BOB]

    @property
    def carol(self) -> Host:
        return self.hosts[CAROL]

    def open_account(self, who: Did | Handle) -> tuple[Did | Handle, Host]:
        for did, name in NAMES.items():
            if who in (did, name) and did in self.hosts:
                return Handle(name), self.hosts[did]
        raise DidNotFound(f"{who}: no such account")

    def url(self, host: Host, name: str = "repo") -> RepoUrl:
        return parse_url(f"knotless://{NAMES[host.did]}/{name}")

    def open(self, host: Host, name: str = "repo", *, follow: bool = True) -> Repository:
        accounts = self if follow else None
        return Repository(self.url(host, name), host, writable=False, accounts=accounts)

    def own(self, host: Host, name: str = "repo") -> Repository:
        return Repository(self.url(host, name), host, writable=True)

    def published(self, host: Host, name: str = "repo", **fields: Any) -> RepoRecord:
        """With a small pack, a large one in two blobs, and some refs."""
        create(host, self.url(host, name), description="A thing")
        if fields:
            edit(self.own(host, name), lambda repo: repo.changed(**fields))
        repo = self.own(host, name).record()
        put_pack(host, repo, b"small" * 20)
        put_pack(host, repo, b"one" * 30_000, b"two" * 20_000)
        for n in range(3):
            put_ref(host, repo, f"refs/heads/b{n}", str(n) * 40, generation=n + 1)
        put_ref(host, repo, "refs/heads/gone", None, generation=4)
        return repo

    def offered(self, **fields: Any) -> RepoRecord:
        """Alice's, to Bob."""
        repo = self.published(self.alice, **fields)
        offer(self.own(self.alice), BOB)
        return repo

    def accept(self, source: Host, to: Host, name: str | None = None, at: str = "repo") -> Accepted:
        opened = self.open(source, at)
        owner = Handle(NAMES[to.did])
        return accept(opened, to, owner, name=name, directory=self.directory, progress=SILENT)

    def state(self) -> dict[str, Any]:
        """Every record of everybody."""
        hosts = ((NAMES[did], host.records) for did, host in self.hosts.items())
        return {
            name: {nsid: dict(values) for nsid, values in records.items() if values}
            for name, records in hosts
        }


def put_pack(host: Host, repo: RepoRecord, *parts: bytes) -> PackRecord:
    """Of no git objects: what it holds is not looked into by who copies it."""
    number = len(host.named(PACK)) + 1
    whole = b"".join(parts)
    blobs = tuple(host_blob(host, part) for part in parts) if len(parts) > 1 else ()
    pack = PackRecord(
        rkey=Rkey(prefix_of(repo.key) + tid(number, 0)),
        repo=repo.key,
        epoch=repo.epoch,
        size=len(whole),
        objects=1,
        checksum=cid_checksum(whole),
        data=None if blobs else whole,
        blobs=blobs,
        created_at=TIME,
    )
    host.records.setdefault(PACK, {})[pack.rkey] = pack.to_json()
    return pack


def host_blob(host: Host, data: bytes) -> BlobRef:
    host.blobs[cid_of(data)] = data
    return BlobRef(cid_of(data), "application/x-git-pack", len(data))


def cid_checksum(data: bytes) -> str:
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()


def put_ref(
    host: Host, repo: RepoRecord, name: str, target: str | None, *, generation: int
) -> RefRecord:
    ref = RefRecord(repo.key, name, target, generation, TIME)
    host.records.setdefault(REF, {})[ref.rkey] = ref.to_json()
    return ref


def push(host: Host, repo: RepoRecord, name: str, target: str) -> None:
    """As a push does: under the epoch, refused once that has moved."""
    old = host.named(REF).get(RefRecord(repo.key, name, None, 1, TIME).rkey)
    generation = old["generation"] + 1 if old else 1
    ref = RefRecord(repo.key, name, target, generation, TIME)
    stamp, held = stamp_now(host), EpochRecord.of(repo)
    receipt = Write("create", CLAIM, Rkey(f"{ref.rkey}.{generation - 1}"), {"nonce": stamp.nonce})
    writes = [
        Write("update", CLAIM, held.rkey, held.to_json()),
        receipt,
        Write("update" if old else "create", REF, ref.rkey, ref.to_json()),
    ]
    send(host, Batch(writes, receipt.rkey, stamp.nonce), stale=lambda: True)


def refs_of(host: Host, key: str) -> dict[str, tuple[str | None, int]]:
    values = (value for rkey, value in host.named(REF).items() if rkey.startswith(prefix_of(key)))
    return {value["name"]: (value.get("target"), value["generation"]) for value in values}


def packs_of(host: Host, key: str) -> dict[str, bytes]:
    """What each holds, by its checksum, as the host would hand it out."""
    found = {}
    for rkey, value in host.named(PACK).items():
        if rkey.startswith(prefix_of(key)):
            pack = PackRecord.from_record(Record(Rkey(rkey), value))
            data = pack.data or b"".join(host.blobs[blob.cid] for blob in pack.blobs)
            found[pack.checksum] = data
    return found


def place(host: Host, name: str, key: str) -> dict[str, Any]:
    return RepoRef(host.did, Rkey(name), key).to_json()


class Killed(BaseException):
    """kill -9: nothing is done after it."""


def kill(host: Host, at: int, moment: str = "") -> None:
    """At the moment `at`, of those that are called so."""
    left = [at]

    def meet(now: str) -> None:
        left[0] -= moment in now
        if left[0] < 0:
            raise Killed

    host.meet = meet
