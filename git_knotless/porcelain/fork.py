"""`git knotless fork`."""

from typing import Annotated

import typer

from git_knotless.porcelain.options import Account, Json, open_context, target
from git_knotless.porcelain.transfer import own_account, progress


def fork(
    url: Annotated[str, typer.Argument(metavar="URL", help="A URL or handle/name.")],
    *,
    name: Annotated[
        str | None, typer.Option(metavar="NEW", help="What to call it; else what it is called.")
    ] = None,
    account: Account = None,
    json: Json = False,
) -> None:
    """Make a repository of your own of what another holds, and print its URL.

    It goes its own way from then on. One that was interrupted goes on where it was.

    \b
    Examples:
      git knotless fork alice.example/notes
      git knotless fork alice.example/notes --name my-notes
    """
    from git_knotless.porcelain.output import print_json, printable
    from git_knotless.porcelain.views import repository_json
    from git_knotless.storage.forking import fork as fork_repository

    with open_context(account) as context:
        source = context.open(str(target(url)))
        store, owner = own_account(context)
        done = fork_repository(
            source,
            store,
            owner,
            name=name,
            directory=context.settings.cache_dir / "copying",
            progress=progress(),
        )
    if json:
        print_json(repository_json(done.url, store.did, done.repo))
    else:
        print(printable(str(done.url)))
