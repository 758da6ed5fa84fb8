"""Writes what is made from the code: the man page, from the commands' own help, and the tables in
docs/settings.md and docs/limits.md. `scripts/check --fix` runs it; a test holds the files to it.
"""

import re
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from git_knotless import limits, settings
from git_knotless.porcelain.commands import app

ROOT = Path(__file__).parents[1]
MAN_PAGE = ROOT / "share/man/man1/git-knotless.1"
SETTINGS_PAGE = ROOT / "docs/settings.md"
LIMITS_PAGE = ROOT / "docs/limits.md"

DESCRIPTION = """
A repository lives in its owner's atproto account, as records and blobs. git clones, fetches and
pushes it at knotless://ACCOUNT/NAME, the account given by its handle or DID; git knotless does the
rest.

Where a command takes a repository, ACCOUNT/NAME is enough, and inside a clone it can be left out.
Every command tells more of itself with -h.
"""

EXIT_STATUS = {
    "0": "Done.",
    "1": "Refused, for the reason printed.",
    "2": "The command line cannot be parsed, or its options do not go together.",
    "4": "A login is what is missing.",
    "130": "Ended by Ctrl-C; 128 and the number of another signal that ended it.",
    "141": "Whoever read the output has left.",
    "others": "Of git clone, which clone becomes: 128 where it failed.",
}


def man_page() -> str:
    program = typer.main.get_command(app)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    summary = _paragraphs(program.help)[0]
    lines = [
        ".\\\" Made from the commands' help by scripts/check --fix.",
        f'.TH GIT\\-KNOTLESS 1 "" "git\\-knotless {version}" "Git Manual"',
        ".SH NAME",
        f"git\\-knotless \\- {_escaped(summary[:1].lower() + summary[1:].rstrip('.'))}",
        ".SH SYNOPSIS",
        ".B git knotless",
        ".I COMMAND\n[\\fIOPTIONS\\fR] [\\fIARGUMENTS\\fR]",
        ".SH DESCRIPTION",
        *_prose(_paragraphs(DESCRIPTION)),
        ".SH COMMANDS",
    ]
    lines += _commands(program, typer.Context(program, info_name="git knotless"))
    lines.append(".SH ENVIRONMENT")
    for setting in settings.TABLE:
        lines += _item(setting.variable, _in_words(setting))
    lines.append(".SH EXIT STATUS")
    for status, meaning in EXIT_STATUS.items():
        lines += _item(status, meaning)
    lines += [".SH SEE ALSO", ".BR git (1),", ".BR gitremote\\-helpers (7)"]
    return "\n".join(lines) + "\n"


def settings_page() -> str:
    return _with_table(SETTINGS_PAGE, settings.markdown())


def limits_page() -> str:
    return _with_table(LIMITS_PAGE, limits.markdown())


def _with_table(page: Path, made: str) -> str:
    """The page as it is, with its table made anew."""
    table = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)
    return table.sub(lambda _: made, page.read_text(), count=1)


def _commands(group: Any, context: typer.Context) -> Iterator[str]:
    for name, command in group.commands.items():
        if command.hidden:
            continue
        inner = typer.Context(command, info_name=name, parent=context)
        if hasattr(command, "commands"):
            yield from _commands(command, inner)
        else:
            yield from _command(command, inner)


def _command(command: Any, context: typer.Context) -> Iterator[str]:
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    yield f'.SS "{_escaped(usage)}"'
    yield from _prose(_paragraphs(command.help))
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and parameter.name != "help":
            yield from _item(*record)


def _paragraphs(text: str | None) -> list[str]:
    return textwrap.dedent(text or "").strip().split("\n\n")


def _prose(paragraphs: list[str]) -> Iterator[str]:
    """A paragraph after a line of `\\b` stays as it is written, as in the help on a terminal."""
    for paragraph in paragraphs:
        if paragraph.startswith("\b\n"):
            yield from (".PP", ".nf", _escaped(paragraph[2:]), ".fi")
        else:
            yield from (".PP", _escaped(" ".join(paragraph.split())))


def _item(term: str, text: str) -> Iterator[str]:
    yield from (".TP", f"\\fB{_escaped(term)}\\fR", _escaped(" ".join(text.split())))


def _in_words(setting: settings.Setting) -> str:
    twin = f" In git config: {setting.key}." if setting.key else ""
    default = f" By default: {setting.default}." if setting.default else ""
    return f"{setting.help}{default}{twin}".replace("`", "")


def _escaped(text: str) -> str:
    """As roff prints it: a hyphen that can be copied, and no line taken for a request."""
    literal = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^(?=[.'])", r"\\&", literal, flags=re.MULTILINE)


PAGES = {MAN_PAGE: man_page, SETTINGS_PAGE: settings_page, LIMITS_PAGE: limits_page}

if __name__ == "__main__":
    for path, made in PAGES.items():
        path.write_text(made())
