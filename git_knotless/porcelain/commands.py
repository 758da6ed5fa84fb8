"""The commands of `git knotless`, by their names.

Everything but typer is imported by the command that needs it: help is answered at once.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand
from typer.main import get_command

from git_knotless.porcelain import (
    account,
    accounts,
    compact,
    emails,
    lfs,
    names,
    profile,
    repo,
    sandbox,
    transfer,
)
from git_knotless.porcelain.clone import clone
from git_knotless.porcelain.command import Command, CommandWithGit, Group
from git_knotless.porcelain.create import create
from git_knotless.porcelain.doctor import doctor
from git_knotless.porcelain.fork import fork
from git_knotless.porcelain.login import login
from git_knotless.porcelain.typed import PROGRAM, remember
from git_knotless.porcelain.verify import verify

_NO_COMMAND = 2  # as wrong usage is


def run(arguments: Sequence[str]) -> int:
    """The exit code of a command that was not refused; WrongUsage where there is none such."""
    program = get_command(app)
    remember(arguments)
    try:
        with program.make_context(PROGRAM, list(arguments)) as context:
            program.invoke(context)
    except typer.Exit as leave:
        return leave.exit_code
    except typer.TyperException as error:
        raise _wrong_usage(error, _path(arguments)) from error
    return 0


def _wrong_usage(error: typer.TyperException, path: str) -> Exception:
    """typer's words, as ours are: `Missing argument 'URL'.` begins small and ends without a dot."""
    from git_knotless.porcelain.output import WrongUsage

    message = error.format_message().rstrip(".")
    message = message.replace("is not a valid integer range", "is not a number")
    context: Any = getattr(error, "ctx", None)
    return WrongUsage(
        message[:1].lower() + message[1:],
        hint=f"{context.command_path if context else path} -h",
    )


def _path(arguments: Sequence[str]) -> str:
    """Of the command that is asked for, as far as there is one."""
    command: Any = get_command(app)
    words = [PROGRAM]
    for word in arguments:
        command = getattr(command, "commands", {}).get(word)
        if command is None:
            break
        words.append(word)
    return " ".join(words)


def _group(help_text: str) -> typer.Typer:
    return typer.Typer(
        cls=Group,
        help=help_text,
        rich_markup_mode=None,
        add_completion=False,
        suggest_commands=False,  # Group's are of what help shows
        context_settings={"help_option_names": ["-h", "--help"]},
        invoke_without_command=True,
    )


app = _group("A git forge that lives in your own atproto account.")
repo_app = _group("Show, change and delete repositories.")
account_app = _group("The accounts that are logged in, and yours as others see it.")
email_app = _group("The addresses that git authors your commits as.")
profile_app = _group("What your page shows of you.")
auth_app = _group("Log in and out.")
lfs_app = _group("Keep what is large in the account too, with git-lfs.")
sandbox_app = _group("Try everything on this machine, without an account.")


def _help(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND", help="Which; all when left out.")
    ] = None,
) -> None:
    """Show how a command is used, as its -h does.

    \b
    Example:
      git knotless help repo edit
    """
    raise typer.Exit(run([*(command or ()), "-h"]))


def _add(
    group: typer.Typer,
    function: Callable[..., None],
    *names: str,
    hidden: bool = False,
    cls: type[TyperCommand] = Command,
) -> None:
    """The first of `names` is shown; the others are what it is called elsewhere."""
    for name in names:
        group.command(name, cls=cls, hidden=hidden or name != names[0])(function)


_add(app, login, "login")
_add(app, account.logout, "logout")
_add(app, account.whoami, "whoami")
_add(app, create, "create")
_add(app, clone, "clone", cls=CommandWithGit)
_add(app, fork, "fork")
_add(app, doctor, "doctor")
_add(app, _help, "help")
_add(repo_app, repo.list_, "list", "ls")
_add(repo_app, repo.show, "show", "view")
_add(repo_app, repo.edit, "edit")
_add(repo_app, names.rename, "rename")
_add(repo_app, names.redirects, "redirects")
_add(repo_app, transfer.transfer, "transfer")
_add(repo_app, transfer.accept, "accept")
_add(repo_app, compact.size, "size")
_add(repo_app, compact.compact, "compact")
_add(repo_app, verify, "verify")
_add(repo_app, repo.delete, "delete")
_add(repo_app, create, "create", hidden=True)
_add(repo_app, fork, "fork", hidden=True)
_add(repo_app, clone, "clone", hidden=True, cls=CommandWithGit)
_add(account_app, accounts.list_, "list", "ls")
_add(account_app, accounts.use, "use", "switch")
_add(email_app, emails.add, "add")
_add(email_app, emails.remove, "remove", "rm")
_add(email_app, emails.list_, "list", "ls")
_add(profile_app, profile.show, "show", "view")
_add(profile_app, profile.set_, "set", "edit")
_add(lfs_app, lfs.install, "install")
_add(lfs_app, lfs.uninstall, "uninstall")
_add(auth_app, login, "login")
_add(auth_app, account.logout, "logout")
_add(auth_app, account.whoami, "status")
_add(auth_app, accounts.use, "switch")
_add(sandbox_app, sandbox.start, "start")
_add(sandbox_app, sandbox.env, "env")
_add(sandbox_app, sandbox.stop, "stop")
_add(sandbox_app, sandbox.reset, "reset")


@repo_app.callback()
@account_app.callback()
@email_app.callback()
@profile_app.callback()
@lfs_app.callback()
@auth_app.callback()
@sandbox_app.callback()
def _help_when_bare(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help(), file=sys.stderr)
        raise typer.Exit(_NO_COMMAND)


@app.callback()
def _program(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    if version:
        from importlib.metadata import version as version_of  # slow, and nothing else needs it

        print(f"git-knotless {version_of('git-knotless')}")
        raise typer.Exit
    _help_when_bare(context)


app.add_typer(repo_app, name="repo")
account_app.add_typer(email_app, name="email")
account_app.add_typer(profile_app, name="profile")
app.add_typer(account_app, name="account")
app.add_typer(lfs_app, name="lfs")
app.add_typer(sandbox_app, name="sandbox")
app.add_typer(auth_app, name="auth", hidden=True)
