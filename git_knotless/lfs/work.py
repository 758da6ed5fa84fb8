"""What the agent carries out, on the repository that a remote leads to."""

import shlex
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from git_knotless.context import Context
from git_knotless.errors import KnotlessError
from git_knotless.lfs.agent import Direction, Request, Work, printable
from git_knotless.storage.git import Git, GitError
from git_knotless.storage.pin import Pin
from git_knotless.storage.url import SCHEME

if TYPE_CHECKING:
    from git_knotless.storage.lfs.download import LfsDownloads
    from git_knotless.storage.lfs.upload import LfsUploads


class NotOurs(KnotlessError):
    """A remote that leads elsewhere."""


class Upload:
    def __init__(self, uploads: "LfsUploads") -> None:
        self._uploads = uploads

    def carry_out(self, request: Request, count: Callable[[int], None]) -> str | None:
        self._uploads.send(request.oid, request.size, Path(request.path), count)
        return None


class Download:
    def __init__(self, downloads: "LfsDownloads") -> None:
        self._downloads = downloads

    def carry_out(self, request: Request, count: Callable[[int], None]) -> str | None:
        return str(self._downloads.fetch(request.oid, request.size, count))


def begin(stack: ExitStack, direction: Direction, remote: str, env: Mapping[str, str]) -> Work:
    """Look the repository up, by its owner's session where it is written to."""
    git = Git(None, env=env)
    url = address(git, remote, push=direction == "upload")
    context = stack.enter_context(Context.from_environment(env, tell, git))
    pin = Pin(git, remote, url, tell)
    if direction == "upload":
        from git_knotless.storage.lfs.upload import LfsUploads
        from git_knotless.storage.scope import of_lfs

        repository = context.open(url, to="push to", pin=pin)
        if (auth := context.session_for(repository.store.did)) is not None:
            context.logins.check_scope(auth.session, of_lfs())
        return Upload(LfsUploads(repository, git.common_dir / "knotless" / "lfs"))
    from git_knotless.storage.lfs.download import LfsDownloads

    repository = context.open(url, pin=pin)
    repository.look()
    host = context.host_of(repository.store.did)
    return Download(LfsDownloads(repository, host, _storage(git) / "incomplete"))


def address(git: Git, remote: str, *, push: bool) -> str:
    """Where the remote leads, or the address that stands for one. Raises NotOurs."""
    if remote.startswith(SCHEME):
        return remote
    which = ["--push"] if push else []
    try:
        listed = git.run("remote", "get-url", *which, "--", remote)
    except GitError as error:
        raise NotOurs(f"{remote} is no remote of this repository") from error
    url = listed.decode(errors="replace").removesuffix("\n")
    if not url.startswith(SCHEME):
        hint = shlex.join(["git", "config", "--unset", f"remote.{remote}.lfsurl"])
        raise NotOurs(f"{remote} leads to {url}, which is no {SCHEME} address", hint=hint)
    return url


def _storage(git: Git) -> Path:
    """Where git-lfs keeps objects: what it moves there is to be on the same disk."""
    places = [text for _, text in git.settings(r"lfs\.storage(\n|$)")]
    return git.common_dir / (places[-1] if places else "lfs")


def tell(text: str) -> None:
    """stderr, which git-lfs puts into its trace."""
    sys.stderr.write(f"{printable(text)}\n")
