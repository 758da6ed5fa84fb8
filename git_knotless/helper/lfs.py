"""What git-lfs has to know before git runs it: which remotes are ours.

It takes a knotless:// address for one of ssh, and where nobody has told it of ours it says no more
than that there is no host `knotless`. So whoever needs that is told before.
"""

from git_knotless.helper.stderr import note, say
from git_knotless.storage.git import Git
from git_knotless.storage.lfs.config import AGENT, lead, wanted
from git_knotless.storage.snapshot import Snapshot


def keep_led(git: Git, remote: str) -> None:
    """Before git checks out what it fetches, or its hook pushes what is pushed."""
    if _is_set(git, AGENT):  # most have no LFS
        lead(git, remote)


def tell(git: Git, remote: str, objects: Git, snapshot: Snapshot) -> None:
    """Once for each remote, which is ours for git-lfs from then on. `objects` has what came."""
    tip = snapshot.live.get(snapshot.repo.head)
    if tip is None or not _is_untold(git, remote) or not _keeps_files(objects, tip):
        return
    if lead(git, remote):
        note("files of this repository are kept with Git LFS, which does not know of them here yet")
        say("hint", "git knotless lfs install")


def _is_untold(git: Git, remote: str) -> bool:
    runs = any(_is_set(git, f"filter.lfs.{each}") for each in ("process", "smudge"))
    told = _is_set(git, AGENT) or _is_set(git, "lfs.url")
    return runs and not told and any(wanted(git, remote))


def _is_set(git: Git, name: str) -> bool:
    return f"\0{name}\n".encode() in git.config


def _keeps_files(objects: Git, tip: str) -> bool:
    """And names no server of its own for them."""
    return _has(objects, tip, ":(glob)**/.gitattributes", r"^[^#].*[[:space:]]filter=lfs") and (
        not _has(objects, tip, ".lfsconfig", r"^[[:space:]]*url")
    )


def _has(objects: Git, tip: str, path: str, line: str) -> bool:
    return objects.ok("grep", "--quiet", "--basic-regexp", "-e", line, tip, "--", path)
