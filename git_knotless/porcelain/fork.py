"""`git knotless fork`."""

from typing import Annotated

import typer

from git_knotless.porcelain.options import Account, Json, open_context, open_repository
from git_knotless.porcelain.transfer import by_another_name, own_account, progress


def fork(
    url: Annotated[str, typer.Argument(metavar="URL", help="A URL or handle/name.")],
    *,
    name: Annotated[
        str | None, typer.Option(metavar="NEW", help="What to call it; else what it is called.")
    ] = None,
    account: Account = None,
    json: Json = False,
) -> None:
    """Make a repository of your own from another one.

    Prints its URL. It goes its own way from then on. One that was interrupted goes on where it was.

    \b
    Examples:
      git knotless fork alice.example/notes
      git knotless fork alice.example/notes --name my-notes
    """
    from git_knotless.porcelain.output import print_json, printable, say
    from git_knotless.porcelain.views import repository_json
    from git_knotless.storage.places.forking import fork as fork_repository

    with open_context(account) as context:
        source = open_repository(context, url, "fork")
        store, owner = own_account(context)
        with by_another_name(name, "--name"):
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
        say(f"hint: git clone {done.url}")
