"""The records of one repository, each looked at by itself and then beside the others."""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from git_knotless.atproto.syntax import Rkey
from git_knotless.storage.claims import claim_rkey, epoch_rkey
from git_knotless.storage.fields import BadRecord, integer, text
from git_knotless.storage.lfs.record import LfsRecord
from git_knotless.storage.packs.packrecord import PackRecord
from git_knotless.storage.proofs.findings import Findings
from git_knotless.storage.records import CLAIM, LFS, PACK, REF, RefRecord, RepoRecord, ref_rkey
from git_knotless.storage.snapshot import hidden_among
from git_knotless.storage.store import Record

KINDS = {REF: "ref", CLAIM: "claim", PACK: "pack", LFS: "LFS object"}

Made = TypeVar("Made", RefRecord, PackRecord, LfsRecord)


class Contents(Protocol):
    """What looks at the bytes that records are of."""

    def take_packs(self, packs: Sequence[PackRecord]) -> None: ...

    def take_lfs(self, records: Sequence[LfsRecord]) -> None: ...


class Records:
    """`check` is given each record once."""

    def __init__(self, key: str, contents: Contents, found: Findings) -> None:
        self._key = key
        self._contents = contents
        self._found = found
        self._refs: dict[str, RefRecord] = {}
        self._moved: dict[str, int] = {}  # the newest generation claimed of each ref
        self._epochs: set[Rkey] = set()

    @property
    def targets(self) -> dict[str, str]:
        return {name: ref.target for name, ref in self._refs.items() if ref.target is not None}

    def check(self, collection: str, records: Sequence[Record]) -> None:
        counted = {REF: "refs", CLAIM: "claims", PACK: "packs", LFS: "lfsObjects"}[collection]
        self._found.counts[counted] += len(records)
        if collection == REF:
            for ref in self._good(RefRecord.from_record, records):
                self._refs[ref.name] = ref
        elif collection == CLAIM:
            for record in records:
                self._check_claim(record)
        elif collection == PACK:
            self._contents.take_packs(list(self._good(PackRecord.from_record, records)))
        elif collection == LFS:
            self._contents.take_lfs(list(self._good(LfsRecord.from_record, records)))

    def check_together(self, repo: RepoRecord) -> None:
        """What records say of one another, where all are of one moment."""
        for name, blocker in hidden_among(self._refs).items():
            self._found.add(name, f"it cannot stand beside {blocker}")
        for name, generation in self._moved.items():
            ref = self._refs.get(name)
            if ref is not None and ref.generation <= generation:
                why = f"it is at generation {ref.generation}, and was claimed at {generation}"
                self._found.add(name, why)
        if epoch_rkey(repo.key, repo.epoch) not in self._epochs:
            why = f"the claim that its epoch {repo.epoch} stands on is not there"
            self._found.add(f"repository {repo.name}", why)

    def _good(self, make: Callable[[Record], Made], records: Sequence[Record]) -> Iterator[Made]:
        for record in records:
            try:
                made = make(record)
                if made.repo != self._key:
                    raise BadRecord(f"{record.rkey}: it says that it is of another repository")
            except BadRecord as error:
                self._found.add(*_told(error, record.rkey))
            else:
                yield made

    def _check_claim(self, record: Record) -> None:
        try:
            self._take_claim(record)
        except BadRecord as error:
            self._found.add(*_told(error, f"claim {record.rkey}"))

    def _take_claim(self, record: Record) -> None:
        """Of one move of a ref, or the one that an epoch stands on."""
        fields = record.value
        repo, epoch = text(fields, "repo", limit=13), integer(fields, "epoch", least=0)
        if "ref" not in fields:
            rkey = epoch_rkey(repo, epoch)
            self._epochs.add(rkey)
        else:
            name, generation = (
                text(fields, "ref", limit=4096),
                integer(fields, "generation", least=0),
            )
            rkey = claim_rkey(ref_rkey(repo, name), generation)
            self._moved[name] = max(generation, self._moved.get(name, 0))
        if repo != self._key or rkey != record.rkey:
            raise BadRecord("its key is not that of what it says")


def _told(error: BadRecord, called: str) -> tuple[str, str]:
    """`pack 3k…: it says …` is of what comes before the colon; else it is of what is `called`."""
    what, colon, why = error.message.partition(": ")
    return (what, why) if colon else (called, error.message)
