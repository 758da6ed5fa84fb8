"""What the commands print: data on stdout, words for people on stderr.

What a host said is shown as text, whatever it holds: nothing of it moves a cursor, sets a colour
or turns the direction of what follows.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from git_knotless.errors import KnotlessError

_MOMENT = 1.0  # seconds: what is over sooner needs no progress
_at_work: list[str] = []  # what is said to be done, if anything is
_JOINER = "\u200d"  # not printable by itself, and part of many an emoji


class WrongUsage(KnotlessError):
    """Options or arguments that do not go together."""


def printable(text: str) -> str:
    """`text` on one line, what a terminal would not show written as Python would escape it."""
    return "".join(c if c.isprintable() or c == _JOINER else ascii(c)[1:-1] for c in text)


def say(text: str) -> None:
    print(printable(text), file=sys.stderr)


def warn(text: str) -> None:
    say(f"warning: {text}")


def note(text: str) -> None:
    say(f"note: {text}")


def print_json(value: dict[str, Any]) -> None:
    print(json.dumps(value, indent=2))  # in ASCII: the same in every locale, and no escape in it


def print_items(items: Iterable[dict[str, Any]]) -> None:
    print_json({"items": list(items)})


def print_fields(rows: Sequence[tuple[str, str]]) -> None:
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:<{width}}  {printable(value)}".rstrip())


def on_terminal() -> bool:
    return sys.stdout.isatty()


def print_rows(rows: Iterable[Sequence[str]]) -> None:
    """For programs: a row a line, its cells between tabs."""
    for row in rows:
        print("\t".join(map(printable, row)))


def print_columns(headings: Sequence[str], rows: Iterable[Sequence[str]], *, cut: str) -> None:
    """For a person: a row a line, the cells of the column `cut` as long as there is room for."""
    from rich.console import Console  # 40 ms, of use on a terminal only
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, no_wrap=heading != cut)
    for row in rows:
        # Text: a cell's brackets are no markup.
        table.add_row(*(Text(printable(c), no_wrap=True, overflow="ellipsis") for c in row))
    Console().print(table)


@contextmanager
def working(what: str) -> Iterator[None]:
    """On a terminal, says what is being done once it takes longer than a moment.

    Within another one it says nothing: that is about the whole.
    """
    if not sys.stderr.isatty() or _at_work:
        yield
        return
    from threading import Timer

    from rich.console import Console
    from rich.markup import escape

    status = Console(stderr=True).status(escape(printable(what)))
    timer = Timer(_MOMENT, status.start)
    timer.start()
    _at_work.append(what)
    try:
        yield
    finally:
        _at_work.clear()
        timer.cancel()
        timer.join()
        status.stop()


def print_error(kind: str, message: str, hint: str | None, *, as_json: bool) -> None:
    """One line of what is wrong, and one of what mends it; `kind` is what docs/json.md calls it."""
    if as_json:
        print(json.dumps({"error": kind, "message": message, "hint": hint}), file=sys.stderr)
        return
    say(f"error: {message}")
    if hint:
        say(f"hint: {hint}")
