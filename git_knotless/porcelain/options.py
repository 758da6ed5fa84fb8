"""The arguments that several commands share, and what they stand for."""

import os
from typing import TYPE_CHECKING, Annotated

import typer

from git_knotless.errors import KnotlessError
from git_knotless.porcelain.typed import with_instead, with_more

if TYPE_CHECKING:  # what commands import as they run, help does not wait for
    from git_knotless.context import Context, Deed
    from git_knotless.storage.pin import Pin
    from git_knotless.storage.repositories import Repository as OpenRepository
    from git_knotless.storage.url import RepoUrl

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Account = Annotated[
    str | None,
    typer.Option("--account", metavar="HANDLE", help="Act as this one of the accounts logged in."),
]
Owner = Annotated[
    str | None,
    typer.Option("--account", metavar="HANDLE", help="Refuse, unless this is the owner."),
]
Repository = Annotated[
    str | None,
    typer.Argument(
        metavar="REPOSITORY",
        help="A URL or handle/name; inside a clone, its own when left out.",
        show_default=False,
    ),
]

Repo = Annotated[
    str | None,
    typer.Option(
        "-R",
        "--repo",
        metavar="REPOSITORY",
        help="A URL or handle/name; inside a clone, its own when left out.",
    ),
]


class NoRemote(KnotlessError):
    """No remote of the repository around us is one of ours."""


class SeveralRemotes(KnotlessError):
    """Several are, and nothing says which one is meant."""


class NotInAccount(KnotlessError):
    """The repository named is not in the account named."""


def bare(who: str) -> str:
    """A handle or DID as people write it, the @ before it left out."""
    return who.removeprefix("@")


def open_context(account: str | None = None, *, hurried: bool = False) -> "Context":
    """What a command works with; `account` overrides the settings."""
    from git_knotless.atproto.syntax import parse_identifier
    from git_knotless.context import Context
    from git_knotless.porcelain.output import warn, working

    named = None if account is None else parse_identifier(bare(account))
    return Context.from_environment(
        os.environ, warn, working=working, account=named, hurried=hurried
    )


def open_repository(
    context: "Context",
    repository: str | None,
    command: str,
    *,
    to: "Deed | None" = None,
    moves: bool = True,
    look: bool = True,
) -> "OpenRepository":
    """The repository meant, where it is now; whoever asked for it elsewhere is told.

    Without `moves` it is that in the account asked for, and no other. Without `look` whoever
    reads it is the first to find out where it is.
    """
    from git_knotless.porcelain.output import warn, working

    url = named(repository, command)
    with working(f"looking for {url}"):
        found = context.open(url, to=to, moves=moves, pin=pin_of(repository, url))
        if to is None and look:
            found.look()
    if found.moved:
        _tell(found, url if repository is None else None)
    if found.unsure is not None:
        warn(found.unsure.message)
    return found


def open_own(
    context: "Context",
    repository: str | None,
    command: str,
    account: str | None,
    *,
    moves: bool = True,
) -> "OpenRepository":
    """With its owner's session, whoever the settings say; `account` has to be the owner."""
    own = open_repository(context, repository, command, to="change", moves=moves)
    check_account(context, own, account)
    return own


def check_account(context: "Context", own: "OpenRepository", account: str | None) -> None:
    if account is not None and context.account().did != own.store.did:
        raise NotInAccount(f"{own.url} is not in the account {bare(account)}")


def _tell(repository: "OpenRepository", url: str | None) -> None:
    """`url` is the remote's that it was read from, if it was."""
    from git_knotless.porcelain.output import say, warn
    from git_knotless.storage.places.forwarding import address, news

    new = address(repository)
    warn(news(repository))
    say(f"hint: {(url and set_url_hint(url, new)) or f'use {new}'}")


def set_url_hint(url: str, new: "RepoUrl") -> str | None:
    """The command that has the remote around us which is fetched from `url` lead to `new`."""
    from git_knotless.porcelain.here import Here
    from git_knotless.storage.places.forwarding import set_url

    here = Here.look()
    remote = here and here.remote_of(url)
    return set_url(here.git, remote, url, new) if here and remote else None


def named(repository: str | None, command: str) -> str:
    """The URL of the repository meant: the one given, else that of the clone around us.

    `command` ends with `-R` where that is what names it.
    """
    from git_knotless.porcelain.here import Here

    if repository is not None:
        return str(target(repository))
    found = Here.find().candidates()
    option = ["-R"] if command.endswith("-R") else []
    if not found:
        raise NoRemote(
            "no remote of this repository is a knotless:// one",
            hint=with_more(*option, "HANDLE/NAME"),
        )
    first, *others = found.values()
    if any(url != first for url in others):
        remotes = ", ".join(f"{name} ({url})" for name, url in found.items())
        raise SeveralRemotes(
            f"several remotes are knotless:// ones: {remotes}",
            hint=f"for example: {with_more(*option, first)}",
        )
    return first


def pin_of(repository: str | None, url: str) -> "Pin | None":
    """What keeps `url` to its repository, where it is that of the clone around us."""
    from git_knotless.porcelain.here import Here

    here = None if repository is not None else Here.look()
    return here.pin_of(url) if here else None


def target(text: str) -> "RepoUrl":
    """What a person names; where the owner is left out, a hint that has it."""
    from git_knotless.storage.url import NoOwner, parse_target

    try:
        return parse_target(text)
    except NoOwner as error:
        named = f"{_own_name()}/{text.removesuffix('/')}"
        raise NoOwner(error.message, hint=with_instead(text, named)) from error


def _own_name() -> str:
    """Of the account that commands act as, where that is plain without asking anybody."""
    with open_context() as context:
        if context.settings.account is not None:
            return context.settings.account
        stored = context.sessions.all()
    return stored[0].name if len(stored) == 1 else "HANDLE"
