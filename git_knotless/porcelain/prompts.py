"""What is asked of a person, and never of a script."""

import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from git_knotless.errors import KnotlessError
from git_knotless.porcelain.output import printable

_LONGEST_PASSWORD = 4096  # bytes; no host takes more than some hundreds


class NoAnswer(KnotlessError):
    """Nobody could be asked, or what was asked for was not given."""


def password_from_stdin(who: str) -> str:
    """A line of it; asked for where it is a terminal, which would show what is typed."""
    if sys.stdin.isatty():
        return _ask_password(who)
    line = sys.stdin.buffer.readline(_LONGEST_PASSWORD + 1)
    try:
        password = line.decode().rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise NoAnswer("the password on stdin is not UTF-8 text") from error
    if not password or len(line) > _LONGEST_PASSWORD:
        raise NoAnswer("no password on stdin")
    return password


def _ask_password(who: str) -> str:
    from getpass import getpass

    try:
        with _asking():
            password = getpass(f"App password of {who}: ")
    except EOFError as error:
        raise NoAnswer("no password given") from error
    if not password:
        raise NoAnswer("no password given")
    return password


def confirm(question: str, answers: Collection[str], called: str, *, hint: str) -> None:
    """Go on only once one of `answers` is typed; `hint` is what a script says instead.

    `called` is what they are: `its name`.
    """
    if not sys.stdin.isatty():
        raise NoAnswer(f"this asks for {called} to be typed, and there is no terminal", hint=hint)
    print(printable(question), end=" ", file=sys.stderr, flush=True)
    with _asking():
        answer = sys.stdin.readline()
    if answer.strip() not in answers:
        raise NoAnswer(f"that is not {called}: nothing was changed")


@contextmanager
def _asking() -> Iterator[None]:
    """What is said after a question that was left without an answer has a line of its own."""
    try:
        yield
    except (KeyboardInterrupt, EOFError):
        print(file=sys.stderr)
        raise
