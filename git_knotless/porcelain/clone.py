"""`git knotless clone`."""

from typing import Annotated

import typer

from git_knotless.porcelain.command import for_git
from git_knotless.porcelain.options import target

# Of a submodule's address git runs no remote helper, unless its user says that it may.
_ALLOWED = ("-c", "protocol.knotless.allow=always")
_RECURSE = ("--recurse-submodules", "--recursive")


def clone(
    context: typer.Context,
    url: Annotated[str, typer.Argument(metavar="URL", help="A URL or handle/name.")],
    directory: Annotated[
        str | None,
        typer.Argument(metavar="DIR", help="Where to; the repository's name when left out."),
    ] = None,
    *,
    recurse_submodules: Annotated[
        bool,
        typer.Option("--recurse-submodules", help="Clone its submodules too, and theirs."),
    ] = False,
) -> None:
    """Clone a repository, as `git clone` does.

    What follows -- is handed to `git clone`. With submodules, git may follow knotless:// addresses
    that it finds in the repository, as long as this command runs.

    \b
    Examples:
      git knotless clone alice.example/notes
      git knotless clone --recurse-submodules alice.example/app
      git knotless clone knotless://alice.example/notes there -- --branch draft
    """
    from git_knotless.porcelain.here import become_git

    options = [*["--recurse-submodules"] * recurse_submodules, *for_git(context)]
    allowed = _ALLOWED if any(map(_recurses, options)) else ()
    where = [] if directory is None else [directory]
    become_git(*allowed, "clone", *options, "--", str(target(url)), *where)


def _recurses(option: str) -> bool:
    """git takes any beginning of a long option that is one option's alone."""
    name = option.partition("=")[0]
    return len(name) > len("--re") and any(full.startswith(name) for full in _RECURSE)
