"""How a command parses what is typed, where typer's way is not ours."""

from typing import Any

import typer
from typer.core import TyperCommand

_FOR_GIT = "git_knotless.for_git"


class Command(TyperCommand):
    """Its usage line says `URL [DIR]`, as git's do, and not `{URL} [DIR]`."""

    # typer types its own copy of click's Context, which it keeps private: hence Any.
    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [piece.strip("{}") for piece in super().collect_usage_pieces(ctx)]


class CommandWithGit(Command):
    """What stands after `--` is git's, whatever it looks like: it is cut off before parsing."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- GIT-OPTIONS]"]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        ctx.meta[_FOR_GIT] = args[at + 1 :]
        return super().parse_args(ctx, args[:at])


def for_git(context: typer.Context) -> list[str]:
    """What the user wrote after `--`."""
    return list(context.meta[_FOR_GIT])
