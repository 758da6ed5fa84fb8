"""What git config says to git-lfs about knotless:// remotes, and about no others.

git-lfs asks an LFS server unless `lfs.<url>.standalonetransferagent` names a program, and finds
that server by the remote's address. It makes none of a knotless:// address: it takes it for
one of ssh. So each remote of ours gets `remote.<name>.lfsurl = knotless::`, git's way of writing
an address of a remote helper, which git-lfs leaves as it is; and that one is what
`lfs.knotless::.standalonetransferagent` is for. The program asks git where the remote leads.
"""

import re
from collections.abc import Iterator
from contextlib import suppress

from git_knotless.storage.git import Git, GitError
from git_knotless.storage.url import SCHEME

LFS_URL = "knotless::"
PROGRAM = "git-knotless-lfs"
AGENT = "lfs.customtransfer.knotless.path"
SETTINGS = {AGENT: PROGRAM, f"lfs.{LFS_URL}.standalonetransferagent": "knotless"}


def lead(git: Git, remote: str) -> bool:
    """Have git-lfs ask us about `remote`, if it is one of ours; whether that was due.

    A config that cannot be written now, the next run writes.
    """
    for variable in wanted(git, remote):
        with suppress(GitError):
            git.run("config", "--local", "--replace-all", f"remote.{remote}.{variable}", LFS_URL)
            return True
    return False


def let_go(git: Git, remote: str) -> bool:
    """Undo that; whether there was anything to undo."""
    done = False
    for variable in ("lfsurl", "lfspushurl"):
        value = f"^{re.escape(LFS_URL)}$"
        with suppress(GitError):  # it says another thing, or nothing
            git.run("config", "--local", "--unset-all", f"remote.{remote}.{variable}", value)
            done = True
    return done


def wanted(git: Git, remote: str) -> Iterator[str]:
    """The variable of the remote's that is to be set and is not; none where it has one already.

    Where it is only pushed to us, what is fetched is somebody else's.
    """
    own = re.escape(f"remote.{remote}.")
    if git.settings(rf"{own}(lfsurl|lfspushurl)\n") or not git.settings(own):
        return
    if _leads_to_us(git, remote, "--push"):
        yield "lfsurl" if _leads_to_us(git, remote) else "lfspushurl"


def _leads_to_us(git: Git, remote: str, *push: str) -> bool:
    """As git would use it, `insteadOf` included."""
    try:
        return git.run("remote", "get-url", *push, "--", remote).startswith(SCHEME.encode())
    except GitError:
        return False
