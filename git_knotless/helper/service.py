"""What the helper does, on the account that the address names and the repository git is in."""

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from git_knotless.atproto.syntax import Did
from git_knotless.context import Context
from git_knotless.errors import KnotlessError
from git_knotless.helper import lfs
from git_knotless.helper.ahead import prepare_push
from git_knotless.helper.connect import is_partial
from git_knotless.helper.hangup import ended_with_git
from git_knotless.helper.options import Options
from git_knotless.helper.stderr import note, progress, say, warn
from git_knotless.helper.watch import Watch
from git_knotless.storage.fields import is_oid
from git_knotless.storage.git import Git, GitError
from git_knotless.storage.pin import Pin
from git_knotless.storage.repositories import Repository
from git_knotless.storage.snapshot import NoSuchRepository, Snapshot
from git_knotless.value import value

if TYPE_CHECKING:  # a listing is all that most fetches ask for: it waits for nothing else
    from git_knotless.helper.claim import FirstClaim
    from git_knotless.helper.connect import Server
    from git_knotless.storage.packs.intake import Taken
    from git_knotless.storage.pushing.updates import Outcome, Update


class OtherObjectFormat(KnotlessError):
    """A fetch of objects that this repository cannot hold."""


_KINDS = frozenset({"commit", "tag", "tree", "blob"})
_CLOCKS_APART = 300.0  # seconds that go unsaid


@value
class Reading:
    """`for_push`: of the account as it is, with the session that may write to it."""

    repository: Repository
    snapshot: Snapshot
    for_push: bool


class Remote:
    """One remote for one run of git. Leaving it gives back what `fetch` holds on to.

    `name` is its own, or the address once more.
    """

    def __init__(
        self, context: Context, name: str, url: str, git: Git, env: Mapping[str, str]
    ) -> None:
        self.context = context
        self.name = name
        self.url = url
        self.git = git
        self.env = env
        self._reading: Reading | None = None
        self._watch = Watch(context, git, name)
        self._told = False
        self._keeps: list[Path] = []
        self._claim: FirstClaim | None = None
        self._pushed: tuple[Reading, Options] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # git has moved its refs before it lets us go, or has left before it was told.
        for keep in self._keeps:
            keep.unlink(missing_ok=True)
        if self._claim is not None:
            self._claim.landed &= error is None
            self._claim.end()
        if self._pushed is not None and error is None:
            from git_knotless.helper.autofold import AutoFold

            reading, options = self._pushed
            key = reading.snapshot.repo.key
            folding = AutoFold(self.context, self.git, self.name, self.url, key)
            folding.begin(reading.repository, options, self.env)

    def snapshot(self, *, for_push: bool) -> Snapshot:
        return self._read(for_push=for_push).snapshot

    def _read(self, *, for_push: bool) -> Reading:
        if self._reading is None or (for_push and not self._reading.for_push):
            self._reading = self._read_now(for_push=for_push)
        return self._reading

    def _read_now(self, *, for_push: bool) -> Reading:
        pin = Pin(self.git, self.name, self.url, note)
        repository = self.context.open(self.url, to="push to" if for_push else None, pin=pin)
        if for_push:
            prepare_push(self.git)
        try:
            snapshot = repository.snapshot()
        except NoSuchRepository as error:
            if not for_push or error.hint is not None:
                raise
            raise NoSuchRepository(error.message, hint=_creation(repository, pin)) from error
        if not for_push:  # which is what mends it
            snapshot = self._watch.listed(repository, snapshot)
        reading = Reading(repository, snapshot, for_push)
        self._tell_where(reading)
        lfs.keep_led(self.git, self.name)
        return reading

    def _tell_where(self, reading: Reading) -> None:
        """Once a run: that it is not where it was asked for, and that it may not stay there."""
        repository = reading.repository
        if repository.moved and not self._told:
            from git_knotless.storage.places.forwarding import address, news, set_url

            self._told = True
            new = address(repository)
            named = self.name != self.url
            warn(news(repository))
            say("hint", set_url(self.git, self.name, self.url, new) if named else f"use {new}")
        if repository.unsure is not None and not self._told:
            self._told = True
            warn(repository.unsure.message)
        offered = repository.offered(reading.snapshot.repo)
        if reading.for_push and offered is not None:
            to = self.context.name_of(offered.did)
            note(
                f"{repository.url} is offered to {to}: what is pushed moves along once they accept"
            )

    def fetch(self, wants: Sequence[str], options: Options) -> "Taken":
        from git_knotless.storage.packs.intake import take

        reading = self._read(for_push=False)
        self._check_format(reading)
        with ended_with_git():
            taken = take(
                self.git,
                reading.repository.store,
                reading.snapshot.repo.key,
                called(wants, reading.snapshot),
                progress=progress(options),
                clone=options.cloning,
                unshallow=options.unshallow,
                source=str(reading.repository.url),
            )
            self._keeps += taken.keeps
        lfs.tell(self.git, self.name, self.git, reading.snapshot)
        return taken

    def _check_format(self, reading: Reading) -> None:
        """The listing said which it is, and git goes on to fetch all the same."""
        theirs, ours = reading.snapshot.repo.object_format, self.git.object_format()
        if theirs != ours:
            raise OtherObjectFormat(
                f"{reading.repository.url} names its objects by {theirs}, "
                f"and this repository by {ours}"
            )

    def is_shallow(self) -> bool:
        return self.git.is_shallow()

    def is_partial(self) -> bool:
        return is_partial(self.git)

    def resolve(self, sources: Sequence[str]) -> Mapping[str, str | None]:
        """In one process with what a push will ask of the remote's own objects."""
        there = self._read(for_push=True).snapshot.targets
        return revisions(self.git, sources, also=tuple(set(there.values())))

    def push(self, updates: "Sequence[Update]", options: Options) -> "Sequence[Outcome]":
        from git_knotless.storage.pushing.push import push

        reading = self._read(for_push=True)
        self._reading = None  # whatever comes of it, the refs are not those any more
        self._mind_clock(reading.repository.store.clock_offset())
        with ended_with_git():
            outcomes = push(
                reading.repository,
                self.git,
                reading.snapshot,
                updates,
                atomic=options.atomic,
                dry_run=options.dry_run,
                progress=progress(options),
                notify=note if options.verbosity > 0 else _say_nothing,
                sending=partial(self._begin_claim, reading.repository.store.did),
            )
        if not options.dry_run:
            self._watch.pushed(reading.repository, reading.snapshot, updates, outcomes)
            self._pushed = reading, options
        if self._claim is not None:
            self._claim.landed |= any(outcome.error is None for outcome in outcomes)
        return outcomes

    def _begin_claim(self, did: Did) -> None:
        """Unless the account was looked up on this machine: most pushes go no further."""
        from git_knotless.storage.accounts.looked_up import LookedUp

        looked_up = LookedUp(self.context.settings.cache_dir / "emails.json")
        if self._claim is None and did not in looked_up:
            from git_knotless.helper.claim import FirstClaim

            self._claim = FirstClaim(self.context.settings, self.git, did, looked_up)

    def _mind_clock(self, offset: float) -> None:
        """Times are taken from the host; whoever reads them here should know."""
        if abs(offset) > _CLOCKS_APART:
            minutes = round(abs(offset) / 60)
            self.warn(f"this machine's clock and the host's are {minutes} minutes apart")

    def upload_pack(self, options: Options) -> "AbstractContextManager[Server]":
        from git_knotless.helper.mirrored import Mirrored
        from git_knotless.storage.mirrors.mirrors import Mirrors

        settings = self.context.settings
        mirrors = Mirrors(settings.cache_dir / "mirrors", settings.cache_size, self.env)
        read = partial(self._read, for_push=False)
        tell = partial(lfs.tell, self.git, self.name)
        return Mirrored(mirrors, options, self.env, read, self._place_before(), tell)

    def _place_before(self) -> tuple[Did, str] | None:
        """Where the repository was, for git that fetches what it misses of a partial clone.

        It is told by a setting that git makes for itself then (promisor-remote.c): it negotiates
        nothing, and names the objects. Whatever else is set so is served as well.
        """
        negotiates = self.git.settings(r"fetch\.negotiationalgorithm\n", scopes=("command",))
        if negotiates[-1:] != [("fetch.negotiationalgorithm", "noop")]:
            return None
        return Pin(self.git, self.name, self.url, note).place

    def warn(self, text: str) -> None:
        warn(text)


def _say_nothing(_: str) -> None:
    pass


def _creation(repository: Repository, pin: Pin) -> str:
    """What a push needs where there is none, and the remote may have been one of another."""
    create = f"git knotless create {repository.url.authority}/{repository.url.name}"
    return " && ".join(filter(None, [create, pin.letting_go()]))


def called(wants: Sequence[str], snapshot: Snapshot) -> dict[str, list[str]]:
    """Each of `wants` with the refs that point to it."""
    refs: dict[str, list[str]] = {oid: [] for oid in wants}
    for name, oid in snapshot.live.items():
        if oid in refs:
            refs[oid].append(name)
    return refs


def revisions(git: Git, names: Sequence[str], also: Sequence[str] = ()) -> dict[str, str | None]:
    """The object id of each, tags not peeled; one process for any number of them.

    The types of these, and of the object ids in `also`, are known to `git` from then on.
    """
    try:
        answers = _described(git, [*names, *also])
    except GitError:  # of a partial clone, where git would have all of them
        if not git.is_partial:
            raise
        git.types(also)
        answers = _described(git.fetching(), names)
    # The line of one that is not here, or that says too little, is its name and that.
    words = (answer.rpartition(" ") for answer in answers)
    found = [(oid, kind) if is_oid(oid) and kind in _KINDS else None for oid, _, kind in words]
    git.learn_types(dict(filter(None, found)))
    oids = [None if each is None else each[0] for each in found]
    return dict(zip(names, oids[: len(names)], strict=True))


def _described(git: Git, names: Iterable[str]) -> list[str]:
    lines = b"".join(os.fsencode(name) + b"\n" for name in names)
    check = "--batch-check=%(objectname) %(objecttype)"
    return git.run("cat-file", check, input=lines).decode(errors="replace").splitlines()
