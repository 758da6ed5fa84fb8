"""`git knotless create`."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from git_knotless.errors import KnotlessError
from git_knotless.porcelain.options import Account, Json, NotInAccount, bare, open_context

if TYPE_CHECKING:
    from git_knotless.context import Context
    from git_knotless.porcelain.here import Here
    from git_knotless.storage.store import RecordStore
    from git_knotless.storage.url import RepoUrl


class NotSupported(KnotlessError):
    """What this version does not do."""


class BadRemote(KnotlessError):
    """A name that no remote can have, or that another remote has."""


class NotPushed(KnotlessError):
    """The repository was made, and nothing was pushed to it."""


def create(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="Its name, or OWNER/NAME; the directory's when left out."
        ),
    ] = None,
    *,
    description: Annotated[str, typer.Option(metavar="TEXT", help="What it is.")] = "",
    default_branch: Annotated[
        str | None,
        typer.Option(metavar="BRANCH", help="What a clone checks out; else the first push says."),
    ] = None,
    remote: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The remote to add; origin, unless there is one."),
    ] = None,
    push: Annotated[bool, typer.Option("--push", help="Push the current branch.")] = False,
    private: Annotated[bool, typer.Option("--private", hidden=True)] = False,
    account: Account = None,
    json: Json = False,
) -> None:
    """Make a repository in your account, and print its URL.

    Inside a git repository it becomes a remote of that one. Where origin is taken, it becomes one
    only with --remote.

    \b
    Examples:
      git knotless create
      git knotless create notes --description "what I noticed" --push
    """
    from git_knotless.porcelain.here import Here
    from git_knotless.porcelain.output import print_json, printable
    from git_knotless.porcelain.transfer import by_another_name
    from git_knotless.porcelain.views import repository_json
    from git_knotless.storage.creation import create as create_repository

    if private:
        raise NotSupported("private repositories are not there yet: nothing was made")
    here = Here.find() if remote or push else Here.look()
    with open_context(account) as context:
        store, url = _place(context, _name_of(here) if name is None else name, account)
        link = _Link.plan(here, url, remote, push=push) if here else None
        chosen = {} if default_branch is None else {"default_branch": default_branch}
        with by_another_name(name):
            made = create_repository(store, url, description=description, **chosen)
    if json:
        print_json(repository_json(url, store.did, made.repo))
    else:
        print(printable(str(url)), flush=True)
    if link:
        link.make(quiet=json)
        if link.branch:
            link.push(as_json=json)


@dataclass(frozen=True, slots=True)
class _Link:
    """How the git repository that we are in is to know the new one."""

    here: "Here"
    url: "RepoUrl"
    remote: str
    taken: bool
    branch: str | None  # the one to push, by its full name

    @classmethod
    def plan(cls, here: "Here", url: "RepoUrl", remote: str | None, *, push: bool) -> "_Link":
        """Refuse what would fail once the repository is made."""
        from git_knotless.porcelain.here import DEFAULT_REMOTE
        from git_knotless.storage.refname import is_ref_name

        name = remote or DEFAULT_REMOTE
        if name.startswith("-") or not is_ref_name(f"refs/remotes/{name}/HEAD"):
            raise BadRemote(f"{name!r} cannot be the name of a remote")
        taken = name in here.remotes()
        if taken and (remote or push):
            raise BadRemote(
                f"this repository has a remote {name} already",
                hint=f"git knotless create {url.authority}/{url.name} --remote NAME",
            )
        return cls(here, url, name, taken, here.pushable() if push else None)

    def make(self, *, quiet: bool) -> None:
        from git_knotless.porcelain.output import say

        said = f"hint: to push here: git remote add knotless {self.url}"
        if not self.taken:
            self.here.add_remote(self.remote, str(self.url))
            said = f"added the remote {self.remote}"
        elif remote := self.here.remote_of(str(self.url)):
            said = f"the remote {remote} is that already"
        if not quiet:
            say(said)

    def push(self, *, as_json: bool) -> None:
        """Also of an interrupted push it is said that the repository is there."""
        from git_knotless.porcelain.output import print_error
        from git_knotless.storage.refname import BRANCHES

        branch = str(self.branch).removeprefix(BRANCHES)
        error = NotPushed(
            f"created {self.url}, but not pushed",
            hint=f"git push -u {shlex.quote(self.remote)} {shlex.quote(branch)}",
        )
        try:
            pushed = self.here.push(self.remote, str(self.branch))
        except KeyboardInterrupt:
            print_error(NotPushed.__name__, error.message, error.hint, as_json=as_json)
            raise
        if not pushed:
            raise error


def _name_of(here: "Here | None") -> str:
    """What the directory is called; a bare repository's is called `name.git`."""
    directory = here.directory() if here else Path.cwd()
    return directory.name.removesuffix(".git")


def _place(context: "Context", name: str, account: str | None) -> "tuple[RecordStore, RepoUrl]":
    """The store of the account named, and the address that the repository will have there."""
    from git_knotless.storage.url import RepoUrl, check_new_name, parse_target

    owner = None
    if "/" in name:
        target = parse_target(name)
        owner, name = target.authority, target.name
    new = check_new_name(name)
    if owner is None or account is not None:
        session = context.account()
    identity = context.identify(owner or session.did, write=True)
    if account is not None and identity.did != session.did:
        raise NotInAccount(f"{owner} is not the account {bare(account)}: nothing was made")
    return context.store(identity, write=True), RepoUrl(identity.handle or identity.did, new)
