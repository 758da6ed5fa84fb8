"""The arguments that several commands share, and what they stand for."""

import os
from typing import TYPE_CHECKING, Annotated

import typer

from git_knotless.errors import KnotlessError

if TYPE_CHECKING:  # what commands import as they run, help does not wait for
    from git_knotless.context import Context

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Account = Annotated[
    str | None,
    typer.Option("--account", metavar="HANDLE", help="Act as this one of the accounts logged in."),
]
Repository = Annotated[
    str | None,
    typer.Argument(
        metavar="REPOSITORY",
        help="A URL or handle/name; inside a clone, its own when left out.",
        show_default=False,
    ),
]


def bare(who: str) -> str:
    """A handle or DID as people write it, the @ before it left out."""
    return who.removeprefix("@")


def open_context(account: str | None = None) -> "Context":
    """What a command works with; `account` overrides the settings."""
    from git_knotless.atproto.syntax import parse_identifier
    from git_knotless.context import Context
    from git_knotless.porcelain.output import say

    env = dict(os.environ)
    if account is not None:
        env["KNOTLESS_ACCOUNT"] = parse_identifier(bare(account))
    return Context.from_environment(env, say)


def named(repository: str | None) -> str:
    """The URL or `handle/name` meant: the one given, else that of the clone around us."""
    from git_knotless.porcelain.here import Here

    if repository is not None:
        return repository
    url = Here.find().url()
    if url is None:
        raise KnotlessError(
            "no remote of this repository is a knotless:// one",
            hint="name the repository: a URL or handle/name",
        )
    return url
