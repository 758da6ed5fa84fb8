"""The process that tests/forked.py forks our programs from: `python -m tests.forkserver SOCKET`.

It has no threads, so a fork of it never waits for what a thread held; and it has imported what
they import, and little else. It ends when its standard input does, as pytest does or is killed,
and takes the socket's folder away.

Who connects sends the three standard streams and what it wants, see `Wanted`. The answer is the
exit code as subprocess has it, in text; until then each byte that comes is a signal for the
program, and whoever hangs up kills it, and all that is in its group.
"""

import gc
import marshal
import os
import pkgutil
import selectors
import shutil
import signal
import socket
import sys
import time
import traceback
import warnings
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, NoReturn, TextIO, cast

import typer.main

import git_knotless
from git_knotless.helper import main
from git_knotless.lfs import main as lfs
from git_knotless.porcelain import commands
from git_knotless.porcelain import main as porcelain
from git_knotless.sandbox import __main__ as sandbox
from tests.helper import local_remote


def python() -> int:
    """`python -P -m git_knotless.sandbox …`"""
    assert sys.argv[1:4] == ["-P", "-m", "git_knotless.sandbox"]
    return sandbox.main(sys.argv[4:])


PROGRAMS = {
    "git-knotless": porcelain.main,
    "git-knotless-lfs": lfs.main,
    "git-remote-knotless": main.main,
    "git-remote-local": local_remote.main,
    "knotless": porcelain.main,
    "python": python,
    "sandbox": sandbox.main,
}
FAULT = 70  # sysexits.h: of ours here, as main lets no error out
# What ours import when they need it, and what that does.
_LATER = (
    "cbrrr",
    "concurrent.futures.thread",
    "cryptography.hazmat.primitives.asymmetric.ec",
    "encodings.idna",
    "filelock",
    "httpcore",
    "mmap",
    "platformdirs.unix",
    "rich.console",
    "rich.table",
    "stringprep",
    "typer._click.decorators",
    "uvicorn.lifespan.off",
    "uvicorn.protocols.http.h11_impl",
)
_LENGTH = 4  # bytes, big-endian, before what is wanted


class Wanted(NamedTuple):
    program: str
    arguments: list[str]
    cwd: str
    env: dict[str, str]
    umask: int


class Server:
    def __init__(self, listening: socket.socket, awake: socket.socket) -> None:
        self._running: dict[socket.socket, int] = {}
        self._waiting = selectors.DefaultSelector()
        self._listening, self._awake = listening, awake
        for readable in (sys.stdin, listening, awake):
            self._waiting.register(readable, selectors.EVENT_READ)

    def run(self) -> None:
        while True:
            for key, _ in self._waiting.select():
                if key.fileobj is sys.stdin:
                    return
                self._turn_to(cast(socket.socket, key.fileobj))
            for connection, pid in list(self._running.items()):
                self._look_after(connection, pid)

    def _turn_to(self, readable: socket.socket) -> None:
        if readable is self._listening:
            connection, _ = readable.accept()
            try:
                self._running[connection] = _begin(connection)
            except (EOFError, TypeError, ValueError):  # whoever it is was killed as it asked
                connection.close()
            else:
                self._waiting.register(connection, selectors.EVENT_READ)
        elif readable is self._awake:
            readable.recv(1000)
        else:
            _pass_on(readable, self._running[readable])

    def _look_after(self, connection: socket.socket, pid: int) -> None:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            _kill_group(pid)
            del self._running[connection]
            self._waiting.unregister(connection)
            with suppress(OSError), connection:
                connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())


def serve(path: str) -> None:
    awake, woken = socket.socketpair()
    with socket.socket(socket.AF_UNIX) as listening, awake, woken:
        woken.setblocking(False)
        signal.set_wakeup_fd(woken.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        listening.bind(path)
        listening.listen()
        os.write(1, b"ready\n")
        Server(listening, awake).run()


def _pass_on(connection: socket.socket, pid: int) -> None:
    try:
        signals = connection.recv(100)
    except OSError:
        signals = b""
    for signum in signals:
        os.kill(pid, signum)
    if not signals:
        os.kill(pid, signal.SIGKILL)
        _kill_group(pid)


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _begin(connection: socket.socket) -> int:
    head, streams, _, _ = socket.recv_fds(connection, _LENGTH, 3)
    try:
        with connection.makefile("rb") as file:
            wanted = Wanted(*marshal.loads(file.read(int.from_bytes(head, "big"))))
        pid = os.fork()
        if not pid:
            _be(wanted, streams)
        return pid
    finally:
        for stream in streams:
            os.close(stream)


def _be(wanted: Wanted, streams: list[int]) -> NoReturn:
    code = FAULT
    try:
        os.setsid()
        _begin_anew(wanted, streams)
        code = PROGRAMS[wanted.program]()
        sys.stdout.flush()
    except BaseException:  # noqa: BLE001 - whatever gets past here would go on as the server
        traceback.print_exc()
    finally:
        os._exit(code)


def _begin_anew(wanted: Wanted, streams: list[int]) -> None:
    """As an interpreter begins with these variables, of which PYTHONWARNINGS is `error`."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # the server's, and of others that it serves
    os.chdir(wanted.cwd)
    os.umask(wanted.umask)
    os.environ.clear()
    os.environ.update(wanted.env)
    time.tzset()
    sys.argv = ["", *wanted.arguments]
    sys.executable = wanted.env.get("PYTHON_OF_FORKS", sys.executable)
    sys.stdin = _text(0, "r", "surrogateescape")
    sys.stdout = _text(1, "w", "surrogateescape")
    sys.stderr = _text(2, "w", "backslashreplace")


def _text(descriptor: int, mode: str, errors: str) -> TextIO:
    by_lines = 1 if descriptor == 2 else -1
    return cast(
        TextIO,
        os.fdopen(descriptor, mode, by_lines, encoding="utf-8", errors=errors, closefd=False),
    )


def _load() -> None:
    """All that is imported and made anew by every command is here already."""
    for module in pkgutil.walk_packages(git_knotless.__path__, "git_knotless."):
        if "__main__" not in module.name:
            import_module(module.name)
    for name in _LATER:
        import_module(name)
    # What typer makes of our functions is the same each time.
    commands.get_command = cache(typer.main.get_command)
    commands.get_command(commands.app)


if __name__ == "__main__":
    warnings.resetwarnings()
    warnings.simplefilter("error")
    _load()
    gc.freeze()  # what is here is not looked at again by a fork, which would copy it
    try:
        serve(sys.argv[1])
    finally:
        shutil.rmtree(Path(sys.argv[1]).parent)
