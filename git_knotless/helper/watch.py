"""A fetch says so where a ref is not what it was seen to be, nor anything later."""

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from git_knotless.context import Context
from git_knotless.storage.brief import brief
from git_knotless.storage.git import Git, GitError
from git_knotless.storage.repositories import Repository
from git_knotless.storage.seen import Lost, Seen, WentBack
from git_knotless.storage.snapshot import Snapshot

if TYPE_CHECKING:  # a listing waits for nothing of pushing
    from git_knotless.storage.pushing.updates import Outcome, Update

_MOST_NAMED = 20  # of the refs that were lost: more is a host that makes them up


class Watch:
    """What the repository around us has seen of one of its remotes; nothing where there is none."""

    def __init__(self, context: Context, git: Git, remote: str) -> None:
        self._context = context
        self._git = git
        self._remote = remote

    def listed(self, repository: Repository, snapshot: Snapshot) -> Snapshot:
        """`snapshot`, or one as good; raises WentBack where something was lost since the last."""
        seen = self._seen(repository, snapshot)
        if seen is None:
            return snapshot
        if seen.lost(snapshot.refs):  # by now: another fetch may have seen more meanwhile
            snapshot = repository.snapshot()
        if lost := seen.lost(snapshot.refs):
            named = "; ".join(brief([str(each) for each in lost], most=_MOST_NAMED))
            raise WentBack(
                f"{repository.url} has lost what was pushed to it: {named}",
                hint=self._way_out(seen, repository, lost[:_MOST_NAMED]),
            )
        self._check_news(seen, repository, snapshot)
        seen.listed(snapshot.refs)
        return snapshot

    def _check_news(self, seen: Seen, repository: Repository, snapshot: Snapshot) -> None:
        """Of what is here already git fetches nothing, and takes it for a branch's as it is."""
        if news := seen.news(snapshot.live):
            from git_knotless.storage.packs.pointed import check_branches

            check_branches(self._git, news, str(repository.url))

    def pushed(
        self,
        repository: Repository,
        snapshot: Snapshot,
        updates: "Sequence[Update]",
        outcomes: "Sequence[Outcome]",
    ) -> None:
        """`snapshot` is what the push went by: of a ref that has moved since, none has landed."""
        landed = {outcome.name for outcome in outcomes if outcome.error is None}
        refs = {u.name: _after(snapshot, u.name, u.new) for u in updates if u.name in landed}
        seen = self._seen(repository, snapshot) if refs else None
        if seen is not None:
            seen.pushed({name: ref for name, ref in refs.items() if ref[0]})

    def _seen(self, repository: Repository, snapshot: Snapshot) -> Seen | None:
        if "GIT_DIR" not in self._git.env:  # git runs us outside of any repository
            return None
        did = repository.store.did
        try:
            return Seen(
                self._git,
                snapshot.repo.key,
                did,
                self._context.host_of(did),
                repository.through,
            )
        except GitError:
            return None

    def _way_out(self, seen: Seen, repository: Repository, lost: Sequence[Lost]) -> str:
        """To push it again, for the owner, where it is here; else to forget that it was there."""
        kinds: Mapping[str, str | None] = self._git.types(
            each.was.target for each in lost if each.was.target is not None
        )
        if repository.store.did in self._context.sessions.dids() and None not in kinds.values():
            again = [f"{each.was.target or ''}:{each.name}" for each in lost]
            return shlex.join(["git", "push", self._remote, *again])
        return shlex.join(["rm", str(seen.path)])


def _after(snapshot: Snapshot, name: str, new: str | None) -> tuple[int, str | None]:
    """The generation, 0 of a ref that has no record, and the target."""
    ref = snapshot.refs.get(name)
    old, generation = (ref.target, ref.generation) if ref else (None, 0)
    return generation + (new != old), new
