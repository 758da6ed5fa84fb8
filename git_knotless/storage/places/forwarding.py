"""What a person is told who asked for a repository where it is not any more."""

import shlex
from collections.abc import Iterator

from git_knotless.atproto.syntax import is_did
from git_knotless.storage.git import Git, GitError
from git_knotless.storage.repositories import Repository
from git_knotless.storage.url import RepoUrl


def news(repository: Repository) -> str:
    return f"{repository.asked} is now {address(repository)}"


def address(repository: Repository) -> RepoUrl:
    """What to ask for it by from now on: with the DID, where it was asked for by one."""
    if is_did(repository.asked.authority):
        return RepoUrl(repository.store.did, repository.url.name)
    return repository.url


def set_url(git: Git, remote: str, url: str, new: RepoUrl) -> str:
    """The command, for a shell, after which `remote` leads to `new` wherever it has `url` now."""
    commands = list(_commands(git, remote, url, new))
    # Where no value is `url`, git made it of one, as `url.<base>.insteadOf` says.
    return " && ".join(commands) or shlex.join(["git", "remote", "set-url", remote, str(new)])


def _commands(git: Git, remote: str, url: str, new: RepoUrl) -> Iterator[str]:
    for variable, options in (("url", []), ("pushurl", ["--push"])):
        urls = _values(git, f"remote.{remote}.{variable}")
        if url in urls:
            # git changes the first, unless told which; no character of an address but the dot
            # means anything in an expression, and that also means itself.
            which = [f"^{url}$"] if len(urls) > 1 else []
            words = ["git", "remote", "set-url", *options, remote, str(new), *which]
            yield shlex.join(words)


def _values(git: Git, key: str) -> list[str]:
    try:
        listed = git.run("config", "--null", "--get-all", key)
    except GitError:  # there is none
        return []
    return listed.decode("utf-8", "surrogateescape").split("\0")[:-1]
