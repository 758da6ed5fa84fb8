"""How a command parses what is typed, where typer's way is not ours."""

from difflib import get_close_matches
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

_FOR_GIT = "git_knotless.for_git"

# typer types its own copy of click's Context, which it keeps private: hence Any below.


class Group(TyperGroup):
    """Of a name that is misspelt it suggests what help shows, never what is hidden."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except typer.TyperException as error:
            shown = [name for name, command in self.commands.items() if not command.hidden]
            if near := get_close_matches(args[0], shown, n=1):
                error.message = f"{error.message.rstrip('.')}, did you mean {near[0]!r}?"
            raise


class Command(TyperCommand):
    """Its usage line says `URL [DIR]`, as git's do, and not `{URL} [DIR]`."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [piece.strip("{}") for piece in super().collect_usage_pieces(ctx)]


class CommandWithGit(Command):
    """What stands after `--` is git's, whatever it looks like: it is cut off before parsing."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- GIT-OPTIONS]"]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        ctx.meta[_FOR_GIT] = args[at + 1 :]
        try:
            return super().parse_args(ctx, args[:at])
        except typer.TyperException as error:
            if hasattr(error, "possibilities"):  # an option that we do not have
                error.message = f"{error.message.rstrip('.')}: those of git follow --"
            raise


def for_git(context: typer.Context) -> list[str]:
    """What the user wrote after `--`."""
    return list(context.meta[_FOR_GIT])
