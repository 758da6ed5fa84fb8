"""`git knotless repo rename` and `repo redirects`: what a repository is called, and was."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from git_knotless.porcelain.options import (
    Json,
    Owner,
    Repo,
    check_account,
    named,
    open_context,
    open_own,
    open_repository,
    pin_of,
    set_url_hint,
)

if TYPE_CHECKING:
    from git_knotless.context import Context
    from git_knotless.storage.places.references import RedirectRecord
    from git_knotless.storage.repositories import Repository
    from git_knotless.storage.url import RepoUrl


def rename(
    name: Annotated[str, typer.Argument(metavar="NEW", help="The name that it gets.")],
    *,
    repository: Repo = None,
    account: Owner = None,
    json: Json = False,
) -> None:
    """Give a repository another name. The one that it had goes on leading to it.

    \b
    Examples:
      git knotless repo rename field-notes
      git knotless repo rename -R alice.example/notes field-notes
    """
    from git_knotless.porcelain.here import Here
    from git_knotless.porcelain.output import print_json, printable, say
    from git_knotless.porcelain.typed import with_instead
    from git_knotless.porcelain.views import repository_json
    from git_knotless.storage.places.forwarding import address
    from git_knotless.storage.places.renaming import rename as rename_repository
    from git_knotless.storage.url import BadName

    if "/" in name:
        alone = name.rstrip("/").rpartition("/")[2]
        raise BadName(
            f"{name!r} cannot be the name of a repository: NEW is a name alone",
            hint=with_instead(name, alone),
        )
    url = named(repository, "repo rename -R")
    with open_context(account) as context:
        own = context.open(url, to="change", pin=pin_of(repository, url))
        check_account(context, own, account)
        renamed = rename_repository(own, name)
    if json:
        print_json(repository_json(own.url, own.store.did, renamed))
    else:
        print(printable(str(own.url)))
    new = address(own)
    here = Here.look()
    if here and (remote := here.redirect(url, str(new))):
        say(f"{remote} is now {new}")
    elif hint := set_url_hint(url, new):
        say(f"hint: {hint}")


def redirects(
    *,
    repository: Repo = None,
    remove: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Take this one back: it leads nowhere then."),
    ] = None,
    account: Owner = None,
    json: Json = False,
) -> None:
    """List the old names of a repository, or take one back.

    With -R OWNER/NAME they are those in OWNER's account, also if it has moved to another since.

    \b
    Examples:
      git knotless repo redirects
      git knotless repo redirects -R alice.example/field-notes --remove notes
    """
    from git_knotless.porcelain.output import on_terminal, print_items, print_rows, say
    from git_knotless.storage.places.old_names import key_of, old_names, take_back

    with open_context(account) as context:
        found = _opened(context, repository, account, write=remove is not None)
        key = key_of(found)
        if remove is not None:
            take_back(found, key, remove)
        old = old_names(found.store, key)
        if json:
            print_items(_redirect_json(found.url, each) for each in old)
            return
        rows = [(each.name, each.created_at, _leads_to(context, each)) for each in old]
    print_rows(rows)
    if not old and on_terminal():
        say(f"no other name leads to {found.url}")


def _opened(
    context: "Context", repository: str | None, account: str | None, *, write: bool
) -> "Repository":
    """Where the account is said, its own names are meant: it is not left for where they lead."""
    from git_knotless.storage.snapshot import NoSuchRepository

    command, moves = "repo redirects -R", repository is None
    if write:
        return open_own(context, repository, command, account, moves=moves)
    try:
        return open_repository(context, repository, command, moves=moves)
    except NoSuchRepository:  # in that account, perhaps
        if moves:
            raise
        return context.open(named(repository, command), moves=False)


def _leads_to(context: "Context", redirect: "RedirectRecord") -> str:
    return f"knotless://{context.name_of(redirect.repo.did)}/{redirect.repo.name}"


def _redirect_json(url: "RepoUrl", redirect: "RedirectRecord") -> dict[str, Any]:
    return {
        "name": redirect.name,
        "url": f"knotless://{url.authority}/{redirect.name}",
        "createdAt": redirect.created_at,
        "repo": redirect.repo.to_json(),
    }
