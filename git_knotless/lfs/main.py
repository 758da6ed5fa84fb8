"""git-knotless-lfs: what git-lfs runs for each transfer to or from a knotless:// remote.

Here is where its environment comes in, and where an error becomes a line on stderr and an exit
code. git-lfs starts eight at a time and uses few: what takes time to import waits for a request.
"""

import os
import signal
import sys
from contextlib import ExitStack, suppress
from typing import NoReturn

from git_knotless.errors import KnotlessError
from git_knotless.lfs.agent import Agent, Direction, Work

_FAULT = 1
_INTERRUPTED = 130  # 128 + SIGINT


def main() -> int:
    """What the process exits with."""
    try:
        _mind_signals()
        _serve()
    except KeyboardInterrupt:
        _leave(_INTERRUPTED)
    except BrokenPipeError:  # git-lfs is gone
        _leave(_FAULT)
    except Exception as error:  # noqa: BLE001 - the last place before a traceback
        _tell(error)
        _leave(_FAULT)
    _leave(0)


def _mind_signals() -> None:
    """Ctrl-C reaches us as it reaches git: what is begun is put in order."""
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, signal.default_int_handler)


def _serve() -> None:
    if len(sys.argv) > 1 or sys.stdin.isatty():
        raise KnotlessError("git-knotless-lfs is run by git-lfs", hint="git knotless lfs install")
    Agent(sys.stdin.buffer, sys.stdout.buffer, _begin).run()


def _begin(stack: ExitStack, direction: Direction, remote: str) -> Work:
    from git_knotless.lfs.work import begin

    return begin(stack, direction, remote, os.environ)


def _leave(code: int) -> NoReturn:
    """All is said by now, and no transfer that was called off is waited for."""
    with suppress(OSError):
        sys.stderr.flush()
    os._exit(code)


def _tell(error: Exception) -> None:
    match error:
        case KnotlessError(message=message, hint=hint):
            lines = [f"error: {message}", *([f"hint: {hint}"] if hint else [])]
        case _:
            lines = [f"error: a fault in git-knotless: {error!r}"]
    with suppress(OSError):
        sys.stderr.write("\n".join(lines) + "\n")
