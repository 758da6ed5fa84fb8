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
    from git_knotless.storage.places import RedirectRecord
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
    from git_knotless.porcelain.output import print_json, printable, say
    from git_knotless.porcelain.views import repository_json
    from git_knotless.storage.forwarding import address
    from git_knotless.storage.renaming import rename as rename_repository

    url = named(repository, "repo rename -R")
    with open_context(account) as context:
        own = context.open(url, to="change", pin=pin_of(repository, url))
        check_account(context, own, account)
        renamed = rename_repository(own, name)
    if json:
        print_json(repository_json(own.url, own.store.did, renamed))
    else:
        print(printable(str(own.url)))
    if hint := set_url_hint(url, address(own)):
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
    """List the names that a repository had, which lead to it.

    \b
    Examples:
      git knotless repo redirects
      git knotless repo redirects -R alice.example/field-notes --remove notes
    """
    from git_knotless.porcelain.output import on_terminal, print_items, print_rows, say
    from git_knotless.storage.renaming import redirects as redirects_to
    from git_knotless.storage.renaming import remove_redirect

    command = "repo redirects -R"
    with open_context(account) as context:
        if remove is None:
            found = open_repository(context, repository, command)
        else:
            found = open_own(context, repository, command, account)
            remove_redirect(found, remove)
        old = redirects_to(found, found.record())
    if json:
        print_items(_redirect_json(found.url, each) for each in old)
        return
    print_rows((each.name, each.created_at) for each in old)
    if not old and on_terminal():
        say(f"no other name leads to {found.url}")


def _redirect_json(url: "RepoUrl", redirect: "RedirectRecord") -> dict[str, Any]:
    old = f"knotless://{url.authority}/{redirect.name}"
    return {"name": redirect.name, "url": old, "createdAt": redirect.created_at}
