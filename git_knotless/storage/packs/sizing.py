"""What a repository takes on its host: its records, as they are stored, and the blobs they name."""

from collections.abc import Iterator, Mapping
from typing import Any

from git_knotless.storage.fields import BadRecord
from git_knotless.storage.packs.packrecord import blob_from
from git_knotless.storage.places.references import redirects_of
from git_knotless.storage.records import (
    COLLECTIONS_OF_A_REPOSITORY,
    REDIRECT,
    REPO,
    RepoRecord,
    prefix_of,
)
from git_knotless.storage.repositories import Repository
from git_knotless.storage.store import Record, RecordStore
from git_knotless.value import value


@value
class Part:
    """Records of one collection, and the blobs that they name: how many, and their bytes."""

    collection: str
    records: int
    record_bytes: int
    blobs: int
    blob_bytes: int

    @property
    def size(self) -> int:
        return self.record_bytes + self.blob_bytes


def measure(repository: Repository) -> list[Part]:
    """By collection; those without a record too. What other records name counts there too."""
    store = repository.store
    repo = repository.record()
    return [
        _part(REPO, iter([Record(repo.rkey, repo.to_json())])),
        *(_part(each, _under(store, each, repo)) for each in COLLECTIONS_OF_A_REPOSITORY),
        _part(REDIRECT, _redirects(store, repo)),
    ]


def _under(store: RecordStore, collection: str, repo: RepoRecord) -> Iterator[Record]:
    return (record for page in store.list(collection, prefix_of(repo.key)) for record in page)


def _redirects(store: RecordStore, repo: RepoRecord) -> Iterator[Record]:
    return (Record(each.name, each.to_json()) for each in redirects_of(store, repo.key))


def _part(collection: str, records: Iterator[Record]) -> Part:
    """A blob that is named twice is stored once."""
    from git_knotless.atproto.dag_cbor import encode_json  # whoever measures waits for cbrrr

    count = size = 0
    blobs: dict[str, int] = {}
    for record in records:
        count += 1
        size += len(encode_json(record.value))
        blobs |= dict(_blobs(record.value))
    return Part(collection, count, size, len(blobs), sum(blobs.values()))


def _blobs(fields: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    named = fields.get("blobs")
    for each in named if isinstance(named, list) else ():
        try:
            blob = blob_from(each, "a record")
        except BadRecord:
            continue  # no host takes it for a blob either
        yield blob.cid, blob.size
