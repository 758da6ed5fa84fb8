"""Our programs in a fork of the process that runs the tests: a process of its own as ever, but
without the start of an interpreter and what it imports, which take most of a command's time.

What begins as a program of its own is tested with `GitEnv.run` and `GitEnv.start`.
"""

import gc
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import NoReturn, TextIO, cast

from git_knotless.helper import conversation, main, service
from git_knotless.porcelain import commands
from git_knotless.porcelain import main as porcelain

_LOADED = (conversation, service, commands)  # here, so that no fork has to
COMMANDS = porcelain.main
HELPER = main.main
_FAULT = 70  # sysexits.h: of ours here, as main lets no error out


def run_forked(
    program: Callable[[], int],
    arguments: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    stdin: bytes,
    timeout: float,
) -> tuple[int, bytes, bytes]:
    """Run to its end: its exit code as subprocess has it, what it wrote, and what it said."""
    with ExitStack() as stack:
        files = [stack.enter_context(TemporaryFile(buffering=0)) for _ in range(3)]
        files[0].write(stdin)
        files[0].seek(0)
        pid = _fork()
        if not pid:
            _be(program, arguments, cwd, env, [file.fileno() for file in files])
        code = _end_of(pid, timeout)
        out, err = (_all_of(file.fileno()) for file in files[1:])
    return code, out, err


def _fork() -> int:
    with warnings.catch_warnings():
        # From Python 3.12 on, as there are threads: of xdist, and of servers in a test.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _end_of(pid: int, timeout: float) -> int:
    """All that it has begun in its group ends with it."""
    late = threading.Timer(timeout, os.kill, (pid, signal.SIGKILL))
    late.start()
    try:
        _, status = os.waitpid(pid, 0)
    except BaseException:  # it is pytest that gives up
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
    finally:
        late.cancel()
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(status)


def _all_of(descriptor: int) -> bytes:
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)


def _be(
    program: Callable[[], int],
    arguments: Sequence[str],
    cwd: Path,
    env: Mapping[str, str],
    streams: Sequence[int],
) -> NoReturn:
    code = _FAULT
    try:
        gc.freeze()  # what is pytest's is not looked at again, which would copy it
        os.setsid()
        os.chdir(cwd)
        _begin_anew(arguments, env, streams)
        code = program()
        sys.stdout.flush()
    except BaseException:  # noqa: BLE001 - whatever gets past here would go on with the tests
        traceback.print_exc()
    finally:
        os._exit(code)


def _begin_anew(arguments: Sequence[str], env: Mapping[str, str], streams: Sequence[int]) -> None:
    """As an interpreter begins with these variables, of which PYTHONWARNINGS is `error`."""
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    sys.argv = ["", *arguments]
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    sys.stdin = _text(0, "r", "surrogateescape")
    sys.stdout = _text(1, "w", "surrogateescape")
    sys.stderr = _text(2, "w", "backslashreplace")
    for signum in (signal.SIGTERM, signal.SIGHUP, signal.SIGALRM, signal.SIGUSR1):
        signal.signal(signum, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.unraisablehook = sys.__unraisablehook__
    threading.excepthook = threading.__excepthook__
    warnings.resetwarnings()
    warnings.simplefilter("error")


def _text(descriptor: int, mode: str, errors: str) -> TextIO:
    by_lines = 1 if descriptor == 2 else -1
    return cast(
        TextIO,
        os.fdopen(descriptor, mode, by_lines, encoding="utf-8", errors=errors, closefd=False),
    )
