"""What a repository is at one moment: its record, then its refs."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from git_knotless import limits
from git_knotless.errors import KnotlessError
from git_knotless.storage.fields import BadRecord
from git_knotless.storage.records import REF, REPO, RefRecord, RepoRecord, prefix_of
from git_knotless.storage.refname import blocker_of, is_own
from git_knotless.storage.store import Record, RecordStore
from git_knotless.storage.url import RepoUrl
from git_knotless.value import value

# The object formats that this version reads.
_FORMATS = frozenset({"sha1"})


class NoSuchRepository(KnotlessError):
    """No repository has that name."""


class UnreadableRepository(KnotlessError):
    """A repository that this version, or anyone, cannot read."""


@value
class Snapshot:
    """A repository as it was read. `refs` holds deleted ones too; `hidden` are names left out,
    each since a shorter one stands in its way."""

    repo: RepoRecord
    refs: Mapping[str, RefRecord]
    hidden: Mapping[str, str]
    taken: float  # unix time, by the host's clock

    @property
    def targets(self) -> dict[str, str]:
        """Where each ref that is not deleted points, the hidden ones and our own included."""
        return {n: ref.target for n, ref in self.refs.items() if ref.target is not None}

    @property
    def live(self) -> dict[str, str]:
        """Ref names and their object ids as git is told, in the order of the names."""
        return {
            name: ref.target
            for name, ref in sorted(self.refs.items())
            if ref.target is not None and name not in self.hidden and not is_own(name)
        }

    @property
    def head(self) -> str | None:
        """The default branch's ref, if it is there."""
        ref = self.refs.get(self.repo.head)
        return ref.name if ref and ref.target and ref.name not in self.hidden else None


def record_named(store: RecordStore, url: RepoUrl) -> RepoRecord | None:
    """The repository's record under `url`'s name: `lookup` goes on where there is none."""
    record = store.get(REPO, url.name)
    return None if record is None else _readable(record, url)


def _readable(record: Record, url: RepoUrl) -> RepoRecord:
    try:
        repo = RepoRecord.from_record(record)
    except BadRecord as error:
        raise UnreadableRepository(f"{url}: {error.message}") from error
    check_format(repo, url)
    return repo


def check_format(repo: RepoRecord, url: RepoUrl) -> None:
    if repo.object_format not in _FORMATS:
        raise UnreadableRepository(
            f"{url}: its objects are named by {repo.object_format}, which this version cannot read",
            hint="pip install --upgrade git-knotless",
        )


def read_refs(
    store: RecordStore, key: str, url: RepoUrl, *, heard: Callable[[Record], None] | None = None
) -> dict[str, RefRecord]:
    """Every ref record that says what its key says; others are not refs of this repository.

    `heard` is given each record that is listed, before anything comes of it.
    """
    return refs_among(_heard(store.list(REF, prefix_of(key)), heard), key, url)


def refs_among(pages: Iterable[Sequence[Record]], key: str, url: RepoUrl) -> dict[str, RefRecord]:
    refs: dict[str, RefRecord] = {}
    bad = names = 0
    for page in pages:
        for record in page:
            ref = _ref(record, key)
            if ref is None:
                bad += 1
                continue
            refs[ref.name] = ref
            names += len(ref.name.encode())
        if len(refs) > limits.REFS or names > limits.REF_NAMES or bad > limits.BAD_REFS:
            raise UnreadableRepository(
                f"{url}: more refs than a repository may have ({limits.REFS})"
            )
    return refs


def _heard(
    pages: Iterable[Sequence[Record]], heard: Callable[[Record], None] | None
) -> Iterator[Sequence[Record]]:
    for page in pages:
        if heard is not None:
            for record in page:
                heard(record)
        yield page


def _ref(record: Record, key: str) -> RefRecord | None:
    try:
        ref = RefRecord.from_record(record)
    except BadRecord:
        return None
    return ref if ref.repo == key else None


def hidden_among(refs: Mapping[str, RefRecord]) -> dict[str, str]:
    """Live names that cannot stand beside a shorter live one, each with that one."""
    live = {name for name, ref in refs.items() if ref.target is not None}
    blocked = ((name, blocker_of(name, live)) for name in live)
    return {name: blocker for name, blocker in blocked if blocker is not None}
