"""stderr is for people, stdout for git."""

import logging
import sys

from git_knotless.errors import KnotlessError
from git_knotless.helper.options import Options
from git_knotless.storage.progress import TextProgress


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
            hint = "KNOTLESS_LOG=debug shows where it is"
    say("error", message)
    if hint:
        say("hint", hint)
    logging.getLogger("git_knotless").debug("this is where", exc_info=error)


def progress(options: Options) -> TextProgress:
    return TextProgress(sys.stderr, enabled=options.shows_progress)
