"""`git knotless repo …`: repositories as such."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from git_knotless.errors import KnotlessError
from git_knotless.porcelain.options import (
    Account,
    Json,
    Owner,
    Repository,
    bare,
    open_context,
    open_own,
    open_repository,
)

if TYPE_CHECKING:
    from git_knotless.atproto.syntax import Did
    from git_knotless.context import Context
    from git_knotless.porcelain.edit import Change
    from git_knotless.storage.records import RepoRecord
    from git_knotless.storage.repositories import Repository as OpenRepository


_NAMED = 5  # of the branches that there are, when one that is not was named


class NoSuchBranch(KnotlessError):
    """The repository has branches, and not that one."""


class History(StrEnum):
    LINEAR = "linear"
    MERGES = "merges"


def list_(
    owner: Annotated[
        str | None, typer.Argument(metavar="OWNER", help="Whose; your own when left out.")
    ] = None,
    *,
    account: Account = None,
    json: Json = False,
) -> None:
    """List the repositories of an account.

    \b
    Examples:
      git knotless repo list
      git knotless repo list alice.example --json
    """
    from git_knotless.atproto.syntax import parse_identifier
    from git_knotless.porcelain.output import (
        on_terminal,
        print_columns,
        print_items,
        print_rows,
        working,
    )
    from git_knotless.porcelain.views import repository_json
    from git_knotless.storage.repositories import repositories
    from git_knotless.storage.url import RepoUrl

    with open_context(account) as context:
        who = parse_identifier(bare(owner)) if owner is not None else context.account().did
        with working(f"reading the repositories of {who}"):
            identity = context.identify(who)
            found = list(repositories(context.store(identity)))
    if json:
        urls = [RepoUrl(identity.handle or identity.did, repo.rkey) for repo in found]
        pairs = zip(urls, found, strict=True)
        print_items(repository_json(url, identity.did, repo) for url, repo in pairs)
        return
    marks = ["archived" if repo.archived else "" for repo in found]
    rows = [
        (repo.name, repo.description, repo.created_at, mark)
        for repo, mark in zip(found, marks, strict=True)
    ]
    if on_terminal():
        short = [
            (name, text, created.partition("T")[0], mark) for name, text, created, mark in rows
        ]
        print_columns(("name", "description", "created", ""), short, cut="description")
    else:
        print_rows(rows)


def show(repository: Repository = None, *, json: Json = False) -> None:
    """Show a repository.

    \b
    Example:
      git knotless repo show alice.example/notes
    """
    from git_knotless.porcelain.output import print_fields, print_json, working
    from git_knotless.porcelain.views import (
        place_fields,
        ref_fields,
        repository_fields,
        snapshot_json,
    )

    with open_context() as context:
        found = open_repository(context, repository, "repo show")
        with working(f"reading {found.url}"):
            snapshot = found.snapshot()
        if json:
            print_json(snapshot_json(found.url, found.store.did, snapshot))
            return
        collaborators = _names(context, snapshot.repo)
        places = place_fields(snapshot.repo, context.name_of)
    rows = repository_fields(found.url, snapshot.repo, collaborators)
    print_fields(rows + places + ref_fields(snapshot))


def edit(
    repository: Repository = None,
    *,
    description: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What it is; '' for nothing.")
    ] = None,
    default_branch: Annotated[
        str | None, typer.Option(metavar="BRANCH", help="The branch that a clone checks out.")
    ] = None,
    archived: Annotated[
        bool | None,
        typer.Option("--archived/--no-archived", help="Whether pushes are refused."),
    ] = None,
    add_collaborator: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HANDLE",
            help="Who may push, through a gateway; without one only the owner pushes.",
        ),
    ] = None,
    remove_collaborator: Annotated[
        list[str] | None, typer.Option(metavar="HANDLE", help="Who may not any more.")
    ] = None,
    protect: Annotated[
        list[str] | None,
        typer.Option(metavar="BRANCH", help="Never delete it, and move it forward only."),
    ] = None,
    history: Annotated[
        History | None,
        typer.Option(help="Whether protected branches take merge commits; not unless said."),
    ] = None,
    unprotect: Annotated[
        list[str] | None, typer.Option(metavar="BRANCH", help="Take its rule away.")
    ] = None,
    account: Owner = None,
    json: Json = False,
) -> None:
    """Change a repository's settings.

    Options that name a branch or an account may be given several times.

    \b
    Examples:
      git knotless repo edit --description "what I noticed"
      git knotless repo edit alice.example/notes --protect main --history merges
    """
    from git_knotless.porcelain.edit import Change
    from git_knotless.porcelain.output import print_fields, print_json, say
    from git_knotless.porcelain.views import repository_fields, repository_json
    from git_knotless.storage.editing import edit as edit_repository

    with open_context(account) as context:
        added, removed = _dids(context, add_collaborator), _dids(context, remove_collaborator)
        change = Change(
            description=description,
            default_branch=default_branch,
            archived=archived,
            add=tuple(added),
            remove=tuple(removed),
            protect=tuple(protect or ()),
            unprotect=tuple(unprotect or ()),
            history=history and history.value,
            names=added | removed,
        )
        own = open_own(context, repository, "repo edit", account)
        change.check(own.store.did)
        _check_branches(own, change)
        repo = edit_repository(own, change)
        if json:
            print_json(repository_json(own.url, own.store.did, repo))
            return
        collaborators = _names(context, repo)
    print_fields(repository_fields(own.url, repo, collaborators))
    if added:
        say("hint: collaborators push through a gateway; without one only the owner pushes")


def delete(
    repository: Repository = None,
    *,
    yes: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Its full name, handle/name, instead of being asked."),
    ] = None,
    rest: Annotated[
        bool,
        typer.Option("--rest", help="Only what a delete that was interrupted has left there."),
    ] = False,
    account: Owner = None,
    json: Json = False,
) -> None:
    """Delete a repository, with its refs and packs, for good.

    Asks for its full name to be typed.

    \b
    Example:
      git knotless repo delete alice.example/notes --yes alice.example/notes
    """
    from git_knotless.porcelain.output import print_json, printable, working
    from git_knotless.porcelain.views import place_json
    from git_knotless.storage.deletion import delete as delete_repository
    from git_knotless.storage.deletion import delete_rest
    from git_knotless.storage.snapshot import NoSuchRepository

    with open_context(account) as context:
        own = open_own(context, repository, "repo delete", account, moves=False)
        if not rest:
            _confirm(own, yes)
        with working(f"deleting {own.url}"):
            if not rest:
                delete_repository(own, context.accounts(write=True))
            elif not delete_rest(own):
                raise NoSuchRepository(f"{own.url}: no delete has left anything of that name")
    if json:
        print_json(place_json(own.url, own.store.did))
    else:
        print(printable(f"deleted {own.url}"))


def _check_branches(opened: "OpenRepository", change: "Change") -> None:
    """A default branch that is not there leaves clones with none; a rule may be there first."""
    from git_knotless.porcelain.output import warn
    from git_knotless.storage.refname import BRANCHES

    if change.default_branch is None and not change.protect:
        return
    live = opened.snapshot().live
    branches = [name.removeprefix(BRANCHES) for name in live if name.startswith(BRANCHES)]
    if branches and change.default_branch not in (None, *branches):
        more = f" and {len(branches) - _NAMED} more" if len(branches) > _NAMED else ""
        there = ", ".join(branches[:_NAMED]) + more
        raise NoSuchBranch(f"{opened.url} has no branch {change.default_branch}: it has {there}")
    for branch in dict.fromkeys(change.protect):
        if branch not in branches:
            warn(f"{opened.url} has no branch {branch} yet")


def _confirm(opened: "OpenRepository", yes: str | None) -> None:
    """The full name has to be given a second time."""
    from git_knotless.porcelain.output import WrongUsage
    from git_knotless.porcelain.prompts import confirm
    from git_knotless.porcelain.typed import with_instead
    from git_knotless.storage.url import RepoUrl

    url = opened.url
    full = f"{url.authority}/{url.name}"
    by_did = RepoUrl(opened.store.did, url.name)
    names = {full, str(url), f"{by_did.authority}/{by_did.name}", str(by_did)}
    if yes is None:
        confirm(
            f"{url} and all that is in it will be gone for good. Type {full} to delete it:",
            names,
            "its name",
            hint=f"git knotless repo delete {full} --yes {full}",
        )
    elif bare(yes) not in names:
        raise WrongUsage(f"--yes {yes} is not the name of {url}", hint=with_instead(yes, full))


def _dids(context: "Context", handles: list[str] | None) -> "dict[Did, str]":
    """What each was called. DIDs are taken as they are: one that is gone can still be taken out."""
    from git_knotless.atproto.syntax import is_did, parse_did, parse_identifier

    given = [bare(handle) for handle in handles or ()]
    return {
        parse_did(who)
        if is_did(who)
        else context.identify(parse_identifier(who), write=True).did: who
        for who in given
    }


def _names(context: "Context", repo: "RepoRecord") -> list[str]:
    return [context.name_of(did) for did in repo.collaborators]
