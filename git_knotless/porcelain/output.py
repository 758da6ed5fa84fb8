"""What the commands print: data on stdout, words for people on stderr.

What a host said is shown as text, whatever it holds: nothing of it moves a cursor, sets a colour
or turns the direction of what follows.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from git_knotless.errors import KnotlessError

_JOINER = "\u200d"  # not printable by itself, and part of many an emoji


class WrongUsage(KnotlessError):
    """Options or arguments that do not go together."""


def printable(text: str) -> str:
    """`text` on one line, what a terminal would not show written as Python would escape it."""
    return "".join(c if c.isprintable() or c == _JOINER else ascii(c)[1:-1] for c in text)


def say(text: str) -> None:
    print(printable(text), file=sys.stderr)


def print_json(value: dict[str, Any]) -> None:
    print(json.dumps(value, indent=2))  # in ASCII: the same in every locale, and no escape in it


def print_items(items: Iterable[dict[str, Any]]) -> None:
    print_json({"items": list(items)})


def print_fields(rows: Sequence[tuple[str, str]]) -> None:
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:<{width}}  {printable(value)}".rstrip())


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns for a person on a terminal; into a pipe a row a line, its cells between tabs."""
    shown = [[printable(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _print_columns(headings, shown)
        return
    for row in shown:
        print("\t".join(row))


def _print_columns(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console  # 40 ms, of use on a terminal only
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))  # Text: a cell's brackets are no markup
    Console().print(table)


def print_error(kind: str, message: str, hint: str | None, *, as_json: bool) -> None:
    """One line of what is wrong, and one of what mends it; `kind` is the error's class."""
    if as_json:
        print(json.dumps({"error": kind, "message": message, "hint": hint}), file=sys.stderr)
        return
    say(f"error: {message}")
    if hint:
        say(f"hint: {hint}")
