"""`git knotless`: where its arguments and its signals come in, and where an error becomes words and
an exit code.

What takes time to import is imported once signals are minded.
"""

import io
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

REFUSED = 1
WRONG_USAGE = 2
LOGIN_NEEDED = 4
ENDED_BY_SIGNAL = 128  # and the signal's number, as a shell says it: 130 after Ctrl-C
OUTPUT_CLOSED = 141  # 128 + SIGPIPE
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(KeyboardInterrupt):
    """A signal that ends us, once what was begun is put in order."""

    def __init__(self, signum: int) -> None:
        super().__init__()
        self.signum = signum


def main() -> int:
    """Run the command that sys.argv says. The answer is the exit code."""
    try:
        _mind_signals()
        return _main(sys.argv[1:])
    except KeyboardInterrupt as interrupt:
        return ENDED_BY_SIGNAL + getattr(interrupt, "signum", signal.SIGINT)


def _mind_signals() -> None:
    for signum in _ENDING:
        if signal.getsignal(signum) is not signal.SIG_IGN:
            signal.signal(signum, _interrupt)


def _interrupt(signum: int, _: FrameType | None) -> None:
    """One that comes again ends us at once, whatever the first is waiting for."""
    for each in _ENDING:
        signal.signal(each, signal.SIG_DFL)
    raise Interrupted(signum)


def _main(arguments: Sequence[str]) -> int:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what the locale cannot write is escaped
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_stdout()
        return OUTPUT_CLOSED
    except Exception as error:  # noqa: BLE001 - the entry point: no traceback reaches a person
        _drop_what_is_stuck()
        return _report(error, as_json=_wants_json(arguments))
    return code


def _drop_what_is_stuck() -> None:
    """What stdout would not take it will not take at the end either, whose failure is exit 120."""
    try:
        sys.stdout.flush()
    except OSError:
        _drop_stdout()


def _run(arguments: Sequence[str]) -> int:
    from git_knotless.porcelain.commands import run

    return run(arguments)


def _report(error: Exception, *, as_json: bool) -> int:
    """Say what is wrong. The answer is the exit code."""
    from git_knotless.errors import KnotlessError, LoginNeeded
    from git_knotless.porcelain.output import WrongUsage, print_error

    kind, message, hint = type(error).__name__, str(error), None
    match error:
        case KnotlessError():
            message, hint = error.message, error.hint
        case OSError() if error.strerror:
            kind, message = _of_the_system(error)
        case _:
            message, hint = f"this is a fault of git-knotless: {kind}: {message}", _SHOWS_WHERE
            kind = "Fault"
            if os.environ.get("KNOTLESS_LOG") == "debug":
                _show_traceback(error)
    print_error(kind, message, hint, as_json=as_json)
    if isinstance(error, LoginNeeded):
        return LOGIN_NEEDED
    return WRONG_USAGE if isinstance(error, WrongUsage) else REFUSED


_SHOWS_WHERE = "set KNOTLESS_LOG=debug to see where"


def _of_the_system(error: OSError) -> tuple[str, str]:
    """What to call the error, and what it says."""
    import errno

    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    name = f"{os.fsdecode(error.filename)}: " if error.filename else ""
    return "NoSpace" if full else "SystemError", f"{name}{error.strerror}"


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
