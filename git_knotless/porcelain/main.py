"""`git knotless`: the commands, and the one place where their errors become words and exit codes.

Everything but typer is imported by the command that needs it: help is answered at once.
"""

import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand
from typer.main import get_command

from git_knotless.errors import KnotlessError, LoginNeeded
from git_knotless.porcelain import account, repo
from git_knotless.porcelain.clone import clone
from git_knotless.porcelain.command import Command, CommandWithGit
from git_knotless.porcelain.create import create

PROGRAM = "git knotless"
REFUSED = 1
WRONG_USAGE = 2
LOGIN_NEEDED = 4
INTERRUPTED = 130  # 128 + SIGINT, as a shell says it
OUTPUT_CLOSED = 141  # 128 + SIGPIPE


def _group(help_text: str) -> typer.Typer:
    return typer.Typer(
        help=help_text,
        rich_markup_mode=None,
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        invoke_without_command=True,
    )


app = _group("A git forge that lives in your own atproto account.")
repo_app = _group("Show, change and delete repositories.")
auth_app = _group("Log in and out.")


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


_add(app, account.login, "login")
_add(app, account.logout, "logout")
_add(app, account.whoami, "whoami")
_add(app, create, "create")
_add(app, clone, "clone", cls=CommandWithGit)
_add(repo_app, repo.list_, "list", "ls")
_add(repo_app, repo.show, "show", "view")
_add(repo_app, repo.edit, "edit")
_add(repo_app, repo.delete, "delete")
_add(repo_app, create, "create", hidden=True)
_add(repo_app, clone, "clone", hidden=True, cls=CommandWithGit)
_add(auth_app, account.login, "login")
_add(auth_app, account.logout, "logout")
_add(auth_app, account.whoami, "status")


@repo_app.callback()
@auth_app.callback()
def _help_when_bare(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help(), file=sys.stderr)
        raise typer.Exit(WRONG_USAGE)


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
app.add_typer(auth_app, name="auth", hidden=True)


def main() -> int:
    """Run the command that sys.argv says. The answer is the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what the locale cannot write is escaped
            stream.reconfigure(errors="backslashreplace")
    arguments = sys.argv[1:]
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _drop_stdout()
        return OUTPUT_CLOSED
    except Exception as error:  # noqa: BLE001 - the entry point: no traceback reaches a person
        return _report(error, as_json=_wants_json(arguments))
    return code


def _run(arguments: Sequence[str]) -> int:
    command = get_command(app)
    try:
        with command.make_context(PROGRAM, list(arguments)) as context:
            command.invoke(context)
    except typer.Exit as leave:
        return leave.exit_code
    return 0


def _report(error: Exception, *, as_json: bool) -> int:
    """Say what is wrong. The answer is the exit code."""
    from git_knotless.porcelain.output import WrongUsage, print_error

    kind, message, hint, code = type(error).__name__, str(error), None, REFUSED
    match error:
        case KnotlessError():
            message, hint = error.message, error.hint
            if isinstance(error, LoginNeeded):
                code = LOGIN_NEEDED
            elif isinstance(error, WrongUsage):
                code = WRONG_USAGE
        case typer.TyperException():
            kind, code = WrongUsage.__name__, error.exit_code
            message, hint = _usage(error)
        case OSError(filename=name) if error.strerror:
            message = f"{os.fsdecode(name)}: {error.strerror}" if name else error.strerror
        case _:
            message = f"this is a fault of git-knotless: {kind}: {message}"
            hint = "KNOTLESS_LOG=debug shows where"
            if os.environ.get("KNOTLESS_LOG") == "debug":
                _show_traceback(error)
    print_error(kind, message, hint, as_json=as_json)
    return code


def _usage(error: typer.TyperException) -> tuple[str, str | None]:
    """typer's words, as ours are: `Missing argument 'URL'.` begins small and ends without a dot."""
    message = error.format_message().rstrip(".")
    context: Any = getattr(error, "ctx", None)
    hint = f"{context.command_path} -h" if context else None
    return message[:1].lower() + message[1:], hint


def _show_traceback(error: Exception) -> None:
    import traceback

    traceback.print_exception(error)


def _wants_json(arguments: Sequence[str]) -> bool:
    """As far as can be told where they could not be parsed."""
    ours = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in ours


def _drop_stdout() -> None:
    """What is still to be written goes nowhere, or Python would complain as it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
