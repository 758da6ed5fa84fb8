"""`git knotless repo transfer` and `repo accept`: a repository goes to another account."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from git_knotless.porcelain.options import (
    Account,
    Json,
    Owner,
    Repo,
    bare,
    open_context,
    open_own,
    open_repository,
    set_url_hint,
    target,
)
from git_knotless.porcelain.typed import with_instead, with_more

if TYPE_CHECKING:
    from git_knotless.atproto.syntax import Did, Handle
    from git_knotless.context import Context
    from git_knotless.storage.places.accepting import Accepted
    from git_knotless.storage.progress import Progress
    from git_knotless.storage.repositories import Repository as OpenRepository
    from git_knotless.storage.store import RecordStore


def transfer(
    to: Annotated[
        str | None,
        typer.Argument(metavar="TO", help="The account, or account/name for another name."),
    ] = None,
    *,
    repository: Repo = None,
    withdraw: Annotated[
        bool, typer.Option("--withdraw", help="Take the offer back, as long as it stands.")
    ] = False,
    account: Owner = None,
    json: Json = False,
) -> None:
    """Offer a repository to another account. It stays with you until they accept it.

    \b
    Examples:
      git knotless repo transfer bob.example
      git knotless repo transfer -R alice.example/notes bob.example/field-notes
      git knotless repo transfer --withdraw
    """
    from git_knotless.porcelain.output import WrongUsage, print_json, printable, say
    from git_knotless.porcelain.views import repository_json
    from git_knotless.storage.places import offers

    if (to is None) is not withdraw:
        raise WrongUsage("to whom it is offered has to be said, or --withdraw, and not both")
    with open_context(account) as context:
        # What was accepted is not followed: it is in another account, and the offer was here.
        own = open_own(context, repository, "repo transfer -R", account, moves=not withdraw)
        if to is None:
            repo = offers.withdraw(own, context.accounts(write=True))
            said = f"{own.url} is not offered to anyone any more"
        else:
            did, called, name = _recipient(context, to)
            repo = offers.offer(own, did, name)
            said = f"offered {own.url} to {called}"
    if json:
        print_json(repository_json(own.url, own.store.did, repo))
        return
    print(printable(said))
    if to is not None:
        say(f"hint: they accept it: git knotless repo accept {own.url}")


def accept(
    url: Annotated[str, typer.Argument(metavar="URL", help="The one offered, as handle/name too.")],
    *,
    name: Annotated[
        str | None, typer.Option(metavar="NEW", help="What to call it; else what was offered.")
    ] = None,
    account: Account = None,
    json: Json = False,
) -> None:
    """Accept a repository that was offered to you.

    Prints its new URL. It comes with its history, and whoever knows its old URL is led to the new
    one. One that was interrupted goes on where it was.

    \b
    Example:
      git knotless repo accept alice.example/notes
    """
    from git_knotless.atproto.syntax import is_did
    from git_knotless.porcelain.output import print_json, printable, say
    from git_knotless.porcelain.views import repository_json
    from git_knotless.storage.places.accepting import accept as accept_repository
    from git_knotless.storage.url import RepoUrl

    with open_context(account) as context:
        source = open_repository(context, url, "repo accept", look=False)
        store, owner = own_account(context)
        with _as_whom_it_is_for(context, account), by_another_name(name, "--name"):
            done = accept_repository(
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
    _tell(source, done)
    by_did = RepoUrl(store.did, done.url.name)
    new = by_did if is_did(source.asked.authority) else done.url
    if hint := set_url_hint(str(source.asked), new):
        say(f"hint: {hint}")


@contextmanager
def by_another_name(given: str | None, *option: str) -> Iterator[None]:
    """Where the name is taken, hint at the same command with another in the place of `given`."""
    from git_knotless.storage.creation import AlreadyExists

    try:
        yield
    except AlreadyExists as error:
        if given is None:
            hint = with_more(*option, "NEW")
        else:
            hint = with_instead(given, "/".join([*given.rstrip("/").split("/")[:-1], "NEW"]))
        raise AlreadyExists(error.message, hint=hint) from error


@contextmanager
def _as_whom_it_is_for(context: "Context", account: str | None) -> Iterator[None]:
    """Where that is another who is logged in here too, hint at the same command as that one."""
    from git_knotless.storage.places.offers import NotOffered

    try:
        yield
    except NotOffered as error:
        if error.to is None or error.to not in context.sessions.dids():
            raise
        meant = context.name_of(error.to)
        hint = with_instead(account, meant) if account else with_more("--account", meant)
        raise NotOffered(error.message, to=error.to, hint=hint) from error


def own_account(context: "Context") -> "tuple[RecordStore, Did | Handle]":
    """The account that commands act as, to write to, and what its URLs call it."""
    identity = context.identify(context.account().did, write=True)
    return context.store(identity, write=True), identity.handle or identity.did


def progress() -> "Progress":
    """Of what takes long, on a terminal."""
    import sys

    from git_knotless.storage.progress import TextProgress

    return TextProgress(sys.stderr, enabled=sys.stderr.isatty())


def _recipient(context: "Context", to: str) -> "tuple[Did, str, str | None]":
    """The account, which there must be, what it is called, and the name that was said."""
    from git_knotless.atproto.syntax import parse_identifier

    if "/" in to:
        place = target(to)
        who, name = place.authority, place.name
    else:
        who, name = parse_identifier(bare(to)), None
    identity = context.identify(who, write=True)
    return identity.did, identity.name, name


def _tell(source: "OpenRepository", done: "Accepted") -> None:
    from git_knotless.porcelain.output import warn
    from git_knotless.storage.brief import brief

    if done.withdrawn:
        warn(f"the offer was taken back just then: {source.asked} does not lead to {done.url}")
    if done.late:
        late = ", ".join(brief(done.late))
        warn(f"pushed to the old place after it was copied, and still there alone: {late}")
