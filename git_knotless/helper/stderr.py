"""stderr is for people, stdout for git."""

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from git_knotless.errors import KnotlessError
from git_knotless.helper.options import Options
from git_knotless.storage.progress import SHOWN_AFTER, TextProgress

_LOOKING = "Looking up the repository...\n"


def printable(text: str) -> str:
    """What a host or a record says may be part of `text`: it reaches no terminal as it is."""
    return "".join(char if char.isprintable() else "?" for char in text)


def say(kind: str, text: str) -> None:
    """`error: …`, `hint: …` or `warning: …`, in one line."""
    try:
        sys.stderr.write(f"{kind}: {printable(text)}\n")
        sys.stderr.flush()
    except OSError:
        pass  # nobody is there to read it


def warn(text: str) -> None:
    say("warning", text)


def note(text: str) -> None:
    say("note", text)


def tell(error: Exception) -> None:
    """What went wrong, and what mends it; where it did only in the log."""
    match error:
        case KnotlessError(message=message, hint=hint):
            pass
        case OSError():
            parts = (error.filename, error.strerror or str(error))
            message, hint = ": ".join(str(part) for part in parts if part), None
        case _:
            message = f"a fault in git-knotless: {error!r}"
            hint = "set KNOTLESS_LOG=debug to see where it is"
    say("error", message)
    if hint:
        say("hint", hint)
    logging.getLogger("git_knotless").debug("this is where", exc_info=error)


@contextmanager
def looking(options: Options) -> Iterator[None]:
    """Says that it is looked for a repository, once that takes longer than a moment."""
    if not options.shows_progress:
        yield
        return
    timer = threading.Timer(SHOWN_AFTER, progress(options).write, [_LOOKING])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def progress(options: Options) -> TextProgress:
    return TextProgress(sys.stderr, enabled=options.shows_progress)
