"""`git knotless clone`."""

from typing import Annotated

import typer

from git_knotless.porcelain.command import for_git
from git_knotless.porcelain.options import target


def clone(
    context: typer.Context,
    url: Annotated[str, typer.Argument(metavar="URL", help="A URL or handle/name.")],
    directory: Annotated[
        str | None,
        typer.Argument(metavar="DIR", help="Where to; the repository's name when left out."),
    ] = None,
) -> None:
    """Clone a repository, as `git clone` does.

    What follows -- is handed to `git clone`.

    \b
    Examples:
      git knotless clone alice.example/notes
      git knotless clone knotless://alice.example/notes there -- --branch draft
    """
    from git_knotless.porcelain.here import become_git

    where = [] if directory is None else [directory]
    become_git("clone", *for_git(context), "--", str(target(url)), *where)
