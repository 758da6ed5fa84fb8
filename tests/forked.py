"""Our programs in a fork of a process that has imported them (tests/forkserver.py): a process of
its own as ever, but without the start of an interpreter and its imports, which take most of a
command's time.

What begins as a program of its own is tested with `GitEnv.run`, `GitEnv.start` and `start_sandbox`,
and on the reference network git starts the helper so.
"""

import marshal
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile

ROOT = Path(__file__).parents[1]
COMMANDS = "git-knotless"
HELPER = "git-remote-knotless"
SANDBOX = "sandbox"
_PROGRAMS = (
    HELPER,
    COMMANDS,
    "git-knotless-lfs",
    "git-remote-local",
    "knotless",
    "python",
    SANDBOX,
)
_FAULT = 70  # sysexits.h: the server is gone
# For git to run: it hands what it was given to the server, whose fork is the program, and ends as
# that does. Each import more would be felt.
_STAND_IN = """\
#!{python} -ISB
import _signal, _socket, marshal, os, sys

server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
server.connect({path!r})
for signum in (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP):
    if _signal.getsignal(signum) is not _signal.SIG_IGN:
        _signal.signal(signum, lambda signum, _: server.send(bytes([signum])))
wanted = (os.path.basename(sys.argv[0]), sys.argv[1:], os.getcwd(), dict(os.environ), os.umask(0))
data = marshal.dumps(wanted)
streams = b"".join(number.to_bytes(4, sys.byteorder) for number in range(3))
server.sendmsg([len(data).to_bytes(4, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
server.sendall(data)
os.closerange(0, 3)  # git waits for their end, which is the program's
code = int(server.recv(10) or {fault})
if code < 0:
    _signal.signal(-code, _signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""


class _Server:
    def __init__(self) -> None:
        # Not in pytest's folder: the path of a socket is short.
        self.folder = Path(tempfile.mkdtemp(prefix="knotless-"))
        self.path = str(self.folder / "socket")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.forkserver", self.path],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # a Ctrl-C is pytest's, which then ends it
        )
        assert self._process.stdout
        assert self._process.stdout.readline() == b"ready\n"
        text = _STAND_IN.format(python=sys.executable, path=self.path, fault=_FAULT)
        self.programs = self.folder / "bin"
        self.programs.mkdir()
        for name in _PROGRAMS:
            place = self.programs / name
            place.write_text(text)
            place.chmod(0o755)

    def end(self) -> None:
        self._process.communicate()  # which closes its standard input


@cache
def _server() -> _Server:
    """Started for whoever is the first to need it, and kept to the end."""
    return _Server()


def end() -> None:
    if _server.cache_info().currsize:
        _server().end()
        _server.cache_clear()


def stand_ins() -> str:
    """A folder for PATH, of programs that are forks."""
    return str(_server().programs)


def python_of_forks() -> dict[str, str]:
    """What has one of our commands start a module of ours as a fork too."""
    return {"PYTHON_OF_FORKS": f"{stand_ins()}/python"}


def run_forked(
    program: str,
    arguments: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    stdin: bytes,
    timeout: float,
) -> tuple[int, bytes, bytes]:
    """Run to its end: its exit code as subprocess has it, what it wrote, and what it said. All
    that it has begun in its group ends with it."""
    with ExitStack() as stack:
        files = [stack.enter_context(TemporaryFile(buffering=0)) for _ in range(3)]
        files[0].write(stdin)
        files[0].seek(0)
        server = stack.enter_context(socket.socket(socket.AF_UNIX))
        server.connect(_server().path)
        mask = os.umask(0)
        os.umask(mask)
        data = marshal.dumps((program, list(arguments), str(cwd), dict(env), mask))
        head = len(data).to_bytes(4, "big")
        socket.send_fds(server, [head], [file.fileno() for file in files])
        server.sendall(data)
        code = _end_of(server, timeout)
        out, err = (_all_of(file.fileno()) for file in files[1:])
    return code, out, err


def _end_of(server: socket.socket, timeout: float) -> int:
    server.settimeout(timeout)
    with suppress(TimeoutError):
        return int(server.recv(10))
    server.settimeout(None)
    server.sendall(bytes([signal.SIGKILL]))
    return int(server.recv(10))


def _all_of(descriptor: int) -> bytes:
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)
