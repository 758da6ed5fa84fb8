"""What of a repository is still needed: what its refs reach, and what they reached until lately.

A claim says what its ref was before, and pushes that read it then have left that out of their
packs. So the refs are listed first and the claims after them: a ref that was moved since somebody
read it has its claim by then.
"""

from collections.abc import Collection, Iterable, Mapping

from git_knotless.atproto.syntax import InvalidSyntax, Rkey, parse_time
from git_knotless.errors import KnotlessError
from git_knotless.storage.child import GitError
from git_knotless.storage.fields import BadRecord, is_sha1
from git_knotless.storage.git import Git
from git_knotless.storage.listing import WrittenToMeanwhile
from git_knotless.storage.packs.missing import MissingObjects, in_no_pack
from git_knotless.storage.proofs.signed_listing import list_signed
from git_knotless.storage.records import CLAIM, REF, RefRecord, RepoRecord
from git_knotless.storage.repositories import Repository
from git_knotless.storage.store import Record
from git_knotless.value import value

_READ = 1 << 20


class CannotPrune(KnotlessError):
    """A repository, or a host, of which it is not sure what may go."""


@value
class Claim:
    """Of the move of a ref. `at` is in seconds since 1970, None where that cannot be told."""

    rkey: Rkey
    epoch: int
    old: str | None
    at: float | None

    def holds(self, epoch: int, since: float) -> bool:
        """Whether somebody may rest on what the ref was before."""
        return self.epoch >= epoch or self.at is None or self.at > since


@value
class Roots:
    """`targets` are object ids, each with its refs; `old` what claims say that refs were."""

    targets: Mapping[str, list[str]]
    old: frozenset[str]
    outlived: tuple[Rkey, ...]  # claims that nobody rests on any more


def read_roots(
    repository: Repository, repo: RepoRecord, epoch: int, since: float, *, stands: Rkey | None
) -> Roots:
    """Claims count that carry `epoch`, or were made after `since`, in seconds since 1970.

    `stands` is the claim that what is listed is to be no older than.
    """
    listed = _whole(repository, repo.key, stands)
    targets: dict[str, list[str]] = {}
    for ref in (_ref(repository, record) for record in listed[REF]):
        if ref.repo == repo.key and ref.target is not None:
            targets.setdefault(ref.target, []).append(ref.name)
    claims = [each for each in map(_claim, listed[CLAIM]) if each is not None]
    held = [claim for claim in claims if claim.holds(epoch, since)]
    return Roots(
        targets,
        frozenset(claim.old for claim in held if claim.old is not None),
        tuple(claim.rkey for claim in claims if not claim.holds(epoch, since)),
    )


def _whole(repository: Repository, key: str, stands: Rkey | None) -> dict[str, list[Record]]:
    try:
        return list_signed(repository, key, [REF, CLAIM], since=stands)
    except WrittenToMeanwhile as error:
        raise CannotPrune(
            f"{repository.url} is written to each time that its host lists it: try again",
            hint=f"git knotless repo compact {repository.url}",
        ) from error


def _ref(repository: Repository, record: Record) -> RefRecord:
    """One that cannot be read may be read by others, who need what it reaches."""
    try:
        return RefRecord.from_record(record)
    except BadRecord as error:
        raise CannotPrune(
            f"{repository.url}: nothing can be pruned: {error.message}",
            hint=f"git knotless repo verify {repository.url}",
        ) from error


def _claim(record: Record) -> Claim | None:
    """None for the claim of an epoch, which is of no ref."""
    fields = record.value
    if "ref" not in fields:
        return None
    epoch, old = fields.get("epoch"), fields.get("old")
    try:
        at = parse_time(str(fields.get("createdAt"))).timestamp()
    except InvalidSyntax:
        at = None
    # An epoch that is no number is taken for the newest: its claim holds.
    known = epoch if isinstance(epoch, int) else 1 << 53
    return Claim(record.rkey, known, None if old is None else str(old), at)


@value
class Reached:
    """`objects` are ids as bytes, None where all there are must stay; `lacking` says why."""

    objects: frozenset[bytes] | None
    lacking: tuple[str, ...] = ()


def reached(git: Git, roots: Roots, source: str, bad: Collection[str] = ()) -> Reached:
    """What the roots reach; nothing where there are none.

    Raises MissingObjects, naming `source` and what is `bad` of it, where refs reach what is not
    here.
    What claims name may be gone: it is left out, and then nothing may be dropped, since nobody
    knows what it reached.
    """
    old = [oid for oid in roots.old if is_sha1(oid)]
    here = {oid for oid, kind in git.types(old).items() if kind is not None}
    lost = sorted(roots.old - here)
    tips = roots.targets.keys() | here
    try:
        objects = frozenset(_walk(git, tips) if tips else ())
    except GitError as error:

        def broken(oids: Iterable[str]) -> str | None:
            return git.broken_link(oids, trusting=False)

        if broken(roots.targets) is not None:
            what = in_no_pack(roots.targets, git.types(roots.targets), broken)
            raise MissingObjects(list(what), bad, source=source) from error
        return Reached(None, (f"something that a claim names reaches {error.message}",))
    if lost:
        return Reached(None, tuple(f"a claim names {oid}, which is in no pack" for oid in lost))
    return Reached(objects)


def _walk(git: Git, tips: Iterable[str]) -> Iterable[bytes]:
    args = ("rev-list", "--objects", "--no-object-names", "--stdin")
    with git.popen(*args) as child:
        for oid in tips:
            child.write(oid.encode() + b"\n")
        child.end_input()
        rest = b""
        while chunk := child.read(_READ):
            *lines, rest = (rest + chunk).split(b"\n")
            yield from (bytes.fromhex(line.decode()) for line in lines)
        child.finish()
