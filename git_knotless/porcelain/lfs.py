"""`git knotless lfs`: git-lfs told what to run for knotless:// remotes."""

import shutil
from typing import TYPE_CHECKING, Annotated

import typer

from git_knotless.porcelain.options import Json

if TYPE_CHECKING:
    from git_knotless.storage.git import Git

Local = Annotated[
    bool,
    typer.Option("--local/--global", help="In this repository only, or for all of yours."),
]


def install(local: Local = False, json: Json = False) -> None:
    """Have git-lfs keep what is large in the account too.

    It changes nothing for other remotes. To be done once; git lfs install is another thing, and
    needed too.

    \b
    Examples:
      git knotless lfs install
      git knotless lfs install --local
    """
    from git_knotless.porcelain.here import Here
    from git_knotless.porcelain.output import say
    from git_knotless.storage.lfs.config import SETTINGS, lead

    git, scope = _place(local=local)
    due = {name: text for name, text in SETTINGS.items() if _values(git, scope, name) != [text]}
    for name, text in due.items():
        git.run("config", scope, "--replace-all", name, text)
    here = Here.look()
    led = [remote for remote in here.remotes() if lead(here.git, remote)] if here else []
    _report("set", scope, sorted(due), led, json=json)
    if not json and (missing := _lacking(git)):
        say(missing)


def uninstall(local: Local = False, json: Json = False) -> None:
    """Take back what git knotless lfs install has set.

    \b
    Example:
      git knotless lfs uninstall
    """
    from git_knotless.porcelain.here import Here
    from git_knotless.storage.lfs.config import SETTINGS, let_go

    git, scope = _place(local=local)
    due = [name for name in SETTINGS if _values(git, scope, name)]
    for name in due:
        git.run("config", scope, "--unset-all", name)
    here = Here.look()
    led = [remote for remote in here.remotes() if let_go(here.git, remote)] if here else []
    _report("unset", scope, sorted(due), led, json=json)


def _place(*, local: bool) -> "tuple[Git, str]":
    """Which config, and the git that writes it."""
    import os

    from git_knotless.porcelain.here import Here
    from git_knotless.storage.git import Git

    return (Here.find().git, "--local") if local else (Git(None, env=os.environ), "--global")


def _values(git: "Git", scope: str, name: str) -> list[str]:
    from git_knotless.storage.git import GitError

    try:
        return git.run("config", scope, "--null", "--get-all", name).decode().split("\0")[:-1]
    except GitError:  # there is none
        return []


def _report(done: str, scope: str, names: list[str], remotes: list[str], *, json: bool) -> None:
    from git_knotless.porcelain.output import print_json, printable

    if json:
        print_json({"scope": scope[2:], "settings": names, "remotes": remotes})
        return
    for name in names:
        print(f"{done} {name} ({scope[2:]})")
    for remote in remotes:
        print(f"{done} remote.{printable(remote)}.lfsurl (local)")
    if not names and not remotes:
        print(f"nothing to {done}: all of it was {done}")


def _lacking(git: "Git") -> str | None:
    """What LFS needs beside this."""
    if shutil.which("git-lfs") is None:
        return "note: git-lfs is not installed: see https://git-lfs.com"
    if not git.settings(r"filter\.lfs\.process\n"):
        return "hint: git lfs install"
    return None
