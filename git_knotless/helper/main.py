"""git-remote-knotless: what git runs for an address that begins with knotless://.

Here is where its arguments, its environment and its signals come in, and where an error becomes
a line on stderr and an exit code. What takes time to import is imported once signals are minded.
"""

import gc
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import FrameType
from typing import NoReturn

from git_knotless.errors import KnotlessError

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_FATAL = 128  # git's own, for what ends a command


class Interrupted(KeyboardInterrupt):
    """A signal that ends us, once our children have been ended."""

    def __init__(self, signum: int) -> None:
        super().__init__()
        self.signum = signum


def main() -> int:
    """What the process exits with."""
    gc.disable()
    _mind_signals()
    try:
        _leave(_run(sys.argv[1:], os.environ))
    except Interrupted as interrupted:
        # Whoever waits for us is to see what ended us; _interrupt made that the signal's action.
        os.kill(os.getpid(), interrupted.signum)
    return _FATAL


def _leave(code: int) -> NoReturn:
    """All is closed and said by now. To take the interpreter down as well took 10 ms."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(code)


def _mind_signals() -> None:
    for signum in _ENDING:
        if signal.getsignal(signum) is not signal.SIG_IGN:
            signal.signal(signum, _interrupt)


def _interrupt(signum: int, _: FrameType | None) -> None:
    """One that comes again ends us at once, whatever the first is waiting for.

    Others do not: git's wrapper has the Ctrl-C of a terminal as we have, and passes on SIGTERM.
    """
    for each in _ENDING:
        again = each in (signum, signal.SIGINT)
        signal.signal(each, signal.SIG_DFL if again else _pass_over)
    raise Interrupted(signum)


def _pass_over(_: int, __: FrameType | None) -> None:
    """In place of SIG_IGN: a signal that has come before it is set is then an error of Python's."""


def _run(argv: Sequence[str], env: Mapping[str, str]) -> int:
    from git_knotless.helper.protocol import GitGone
    from git_knotless.helper.stderr import tell

    try:
        _serve(argv, env)
    except GitGone:
        _forget_stdout()
        return _FATAL
    except Exception as error:  # noqa: BLE001 - the last place before a traceback
        tell(error)
        return _FATAL
    return 0


def _serve(argv: Sequence[str], env: Mapping[str, str]) -> None:
    from git_knotless.context import Context
    from git_knotless.helper.conversation import Conversation
    from git_knotless.helper.service import Remote
    from git_knotless.helper.stderr import warn
    from git_knotless.storage.git import Git

    if len(argv) != 2:
        raise KnotlessError(
            "git-remote-knotless is run by git, with a remote and its URL",
            hint="git clone knotless://<handle>/<name>",
        )
    # What has been imported stays: to look for garbage in it, then and at the end, took 30 ms.
    gc.freeze()
    gc.enable()
    name, url = argv
    git = Git(None, env=env)
    with (
        Context.from_environment(env, warn, git) as context,
        Remote(context, name, url, git, env) as remote,
    ):
        Conversation(sys.stdin.buffer, sys.stdout.buffer, remote).run()


def _forget_stdout() -> None:
    """What is still buffered has nobody to go to, and would fail once more as we exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
