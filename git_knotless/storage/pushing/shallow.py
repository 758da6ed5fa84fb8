"""Pushing from a shallow clone: fine, unless it would leave a hole that nobody could clone."""

from collections.abc import Iterable, Sequence

from git_knotless.errors import KnotlessError
from git_knotless.storage.git import Git


class WouldLeaveHole(KnotlessError):
    """The commits to send have parents that neither they nor the remote's refs hold."""


def refuse_holes(git: Git, tips: Sequence[str], haves: frozenset[str]) -> None:
    """Refuse a push that would send a commit at this clone's boundary, without its parents."""
    if not tips or not git.is_shallow():
        return
    sent = _commits(git, tips, haves)
    for boundary in git.shallow_commits() & sent:
        if not _parents(git, boundary) <= haves | sent:
            raise WouldLeaveHole(
                "this clone is shallow, and what it would push leaves out the history before "
                f"{boundary}",
                hint="git fetch --unshallow",
            )


def _commits(git: Git, tips: Iterable[str], haves: Iterable[str]) -> set[str]:
    known = [oid for oid, kind in git.types(list(haves)).items() if kind is not None]
    lines = [*tips, *(f"^{oid}" for oid in known)]
    answer = git.run("rev-list", "--stdin", input="\n".join([*lines, ""]).encode())
    return set(answer.decode().split())


def _parents(git: Git, commit: str) -> set[str]:
    """The parents that the commit itself names, whatever the shallow file hides."""
    header = git.run("cat-file", "commit", commit).partition(b"\n\n")[0].decode(errors="replace")
    fields = (line.split(" ") for line in header.splitlines())
    return {words[1] for words in fields if words[0] == "parent"}
