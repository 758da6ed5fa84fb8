"""Whether a host keeps what pushes rely on, found out by writing to an account of one's own."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from git_knotless.atproto.errors import BlobNotFound, PayloadTooLarge
from git_knotless.atproto.identity import Identity, Resolver
from git_knotless.atproto.keys import signing_key
from git_knotless.atproto.syntax import Nsid
from git_knotless.atproto.xrpc import Client
from git_knotless.storage.checkup.checks import Check, Verdict, fail, ok, skipped, warn
from git_knotless.storage.checkup.hostcheck import (
    ASK_THE_OPERATOR,
    Sample,
    read_proof,
    sample_of,
    seeks,
)
from git_knotless.storage.checkup.scratch import Scratch, created, pack_bytes
from git_knotless.storage.claims import EpochRecord
from git_knotless.storage.packs.packrecord import PACK_MIME, PackRecord
from git_knotless.storage.packs.spool import blob_cid
from git_knotless.storage.proving import takes
from git_knotless.storage.records import CLAIM, PACK, prefix_of
from git_knotless.storage.store import BlobRef, Write

_LISTED = 12  # records: enough that the order of their keys is not that of their numbers
_BLOB = 64 * 1024  # bytes; a pack up to 48 KiB is no blob
_MOST_SENT = 8 * 1024 * 1024  # bytes, to see a blob limit held to: a larger one is believed
_PACKS, _DATA = 19, 36 * 1024  # 940,000 bytes of JSON, as much as a push sends in one batch
_MOVE = "tell whoever runs the host, and keep repositories on another until it is mended"
_LIMITS = "tell whoever runs the host: a proxy in front of it may take less than the host does"
_AGAIN = "try again: git knotless doctor --write removes what is left, too"


@dataclass(frozen=True, slots=True)
class _Body:
    data: bytes

    @property
    def size(self) -> int:
        return len(self.data)

    @property
    def cid(self) -> str:
        return blob_cid(hashlib.sha256(self.data).digest())

    def chunks(self) -> Iterator[bytes]:
        yield self.data


class WriteChecks:
    """In the account that `scratch` is in; each check stands for itself, the first one for all."""

    def __init__(
        self, client: Client, resolver: Resolver, identity: Identity, scratch: Scratch
    ) -> None:
        self._client = client
        self._resolver = resolver
        self._identity = identity
        self._scratch = scratch
        self._store = scratch.store
        self._probe: EpochRecord | None = None
        self._refused: list[Write] = []  # each of them alone, by this host

    def checks(self) -> Iterator[Check]:
        yield Check("writing", partial(self._watched, self._begin), _AGAIN)
        for name, look, mend in (
            ("taken key", self._taken_key, _MOVE),
            ("missing key", self._missing_key, _MOVE),
            ("missing delete", self._missing_delete, ASK_THE_OPERATOR),
            ("batch", self._batch, _MOVE),
            ("large batch", self._large_batch, _LIMITS),
            ("new listing", self._listing, ASK_THE_OPERATOR),
            ("new blob", self._blob, _MOVE),
            ("new proofs", self._proofs, _MOVE),
            ("limit held", self._limit_held, _LIMITS),
        ):
            yield Check(name, partial(self._begun, look), mend)
        yield Check("removal", partial(self._watched, self._removal), _AGAIN)

    def _begun(self, look: Callable[[EpochRecord], Verdict]) -> Verdict:
        if self._probe is None:
            return skipped("nothing could be written")
        return self._watched(partial(look, self._probe))

    def _watched(self, look: Callable[[], Verdict]) -> Verdict:
        """What a check was at when it was ended may land yet."""
        try:
            return look()
        except BaseException:
            self._scratch.unclear = True
            raise

    def _begin(self) -> Verdict:
        self._probe = self._scratch.begin()
        return ok(f"to {self._identity.name}, under the key {self._scratch.key}, no repository's")

    def _taken_key(self, probe: EpochRecord) -> Verdict:
        again = Write("create", CLAIM, probe.rkey, {**probe.to_json(), "nonce": "second"})
        if takes(self._store, again):
            return fail(
                "a create overwrites a record that exists: of two pushes at once, both may win"
            )
        there = self._store.get(CLAIM, probe.rkey)
        if there is None or there.value != probe.to_json():
            return fail("a create of a record that exists is refused, and yet changes it")
        self._refused.append(again)
        return ok("a create is refused, and changes nothing")

    def _missing_key(self, _: EpochRecord) -> Verdict:
        missing = self._scratch.epoch()
        update = Write("update", CLAIM, missing.rkey, missing.to_json())
        if takes(self._store, update):
            return fail(
                "an update makes a record that was not there: a push can land in a repository "
                "that is gone, and nothing may be pruned"
            )
        self._refused.append(update)
        return ok("an update is refused, and makes nothing")

    def _missing_delete(self, _: EpochRecord) -> Verdict:
        delete = Write("delete", CLAIM, self._scratch.epoch().rkey)
        if takes(self._store, delete):
            return warn("a delete of a record that is not there is taken, as on few hosts")
        self._refused.append(delete)
        return ok("a delete is refused")

    def _batch(self, _: EpochRecord) -> Verdict:
        if not self._refused:
            return skipped("there is no write that the host refuses")
        good = created(self._scratch.epoch())
        if takes(self._store, good, self._refused[0]):
            return fail("a batch is carried out though one of its writes is not: a push may tear")
        return ok("with one bad write in it, nothing of it is carried out")

    def _large_batch(self, _: EpochRecord) -> Verdict:
        packs = [self._scratch.pack(pack_bytes(_DATA)) for _ in range(_PACKS)]
        self._scratch.land(*map(created, packs))
        for pack in packs:
            there = self._store.get(PACK, pack.rkey)
            if there is None or PackRecord.from_record(there).data != pack.data:
                return fail("bytes in a record do not come back as they were written")
        return ok(f"{_PACKS} packs of {_DATA // 1024} KiB at once come back byte for byte")

    def _listing(self, _: EpochRecord) -> Verdict:
        written = [self._scratch.epoch() for _ in range(_LISTED)]
        self._scratch.land(*map(created, written))
        pages = self._store.list(CLAIM, prefix_of(self._scratch.key))
        listed = {record.rkey for page in pages for record in page}
        if left_out := {record.rkey for record in written} - listed:
            return fail(f"{len(left_out)} of {_LISTED} records just written are not listed", _MOVE)
        sample = sample_of(self._client, self._identity.pds, self._identity.did, Nsid(CLAIM))
        if sample is None or not seeks(self._client, self._identity.pds, sample):
            return warn("it is not in the order of keys, or does not begin where it is asked to")
        return ok("all that is there, in the order of keys, from any key on")

    def _blob(self, _: EpochRecord) -> Verdict:
        body = _Body(pack_bytes(_BLOB))
        blob = self._store.upload(body)
        early = self._serves(blob)
        self._scratch.land(created(self._scratch.pack(body.data, blob)))
        if (blob.cid, blob.size) != (body.cid, body.size):
            return fail("it is given another CID than its bytes have")
        if b"".join(self._store.download(blob)) != body.data:
            return fail("it does not come back byte for byte")
        if blob.mime != PACK_MIME:
            return fail(f"it was sent as {PACK_MIME} and is kept as {blob.mime[:100]!r}")
        if early:
            return warn("it is served before any record names it")
        return ok("it comes back byte for byte and of its kind, once a record names it")

    def _serves(self, blob: BlobRef) -> bool:
        with suppress(BlobNotFound):
            return any(self._store.download(blob))
        return False

    def _proofs(self, probe: EpochRecord) -> Verdict:
        did, host = self._identity.did, self._identity.pds
        key = signing_key(self._resolver.document(did), did)
        sample = Sample(did, Nsid(CLAIM), (probe.rkey,))
        there = self._store.get(CLAIM, probe.rkey)
        proven = read_proof(self._client, host, sample, probe.rkey, key).value
        if there is None or proven != there.value:
            return fail("the proof of a record just written is not of what was written")
        if read_proof(self._client, host, sample, sample.made_up, key).value is not None:
            return fail("the host proves a record at a key that was never written")
        return ok("of what was just written, and that another is absent, by the account's key")

    def _limit_held(self, _: EpochRecord) -> Verdict:
        limit = self._store.host().blob_limit
        if limit is None:
            return skipped("the host does not say what it takes")
        if limit > _MOST_SENT:
            return skipped(f"more than {limit:,} bytes are not sent to find out")
        body = _Body(pack_bytes(limit + 1))
        try:
            blob = self._store.upload(body)
        except PayloadTooLarge:
            return ok("a blob of one byte more is refused")
        # A blob goes when the last record that names it does.
        self._scratch.land(created(self._scratch.pack(body.data, blob)))
        return warn("the host takes a larger blob than it says")

    def _removal(self) -> Verdict:
        """Whatever the host did before: what is there is to go."""
        self._client.take_time()
        before = self._scratch.remove()
        if before:
            return ok(f"nothing is left, nor are {before} records that a check-up before had left")
        return ok("nothing is left of what was written")
