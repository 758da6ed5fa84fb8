"""A sandbox's folder, and the server that runs in it.

data/           the server's own
config/ cache/  of whoever uses the sandbox: their sessions, and what can be found out again
accounts        the handles that were asked for, a line each; the first is who commands act as
running         the server's standard output: its process id, then the network as JSON (0600)
log             its standard error
sandbox.lock    makes the folder a sandbox's; held by the command that is at work in it

`running` is locked too, and it is the server that holds that lock, by having the file open: it is
let go of when the server ends, however that happens. So a process id is never one of another
process, and a server is found again whatever became of the command that started it.
"""

import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

from git_knotless.atproto.files import discard, replace_file
from git_knotless.errors import KnotlessError
from git_knotless.settings import SANDBOX_CONFIG, SANDBOX_LOCK

# In the order in which they go: what remembers the accounts before the accounts themselves.
_REMOVED = ("accounts", SANDBOX_CONFIG, "cache", "data", "running", "log")
_READY_SECONDS = 60.0  # a first start compiles what it imports, on a machine that may be busy
_END_SECONDS = 10.0  # the server gives requests under way two
_LOOK_SECONDS = 0.01  # between looks at whether it answers, or has ended: a start takes 0.3 s
_FIRST_PORT, _LAST_PORT = 24_000, 32_000  # below those that systems give out by themselves
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LONGEST = 1 << 20  # bytes of `running`, or of an end of `log`, that are read


class NotASandbox(KnotlessError):
    """A folder that holds something else: nothing is put there, and nothing taken away."""


class SandboxNotRunning(KnotlessError):
    """There is none in the folder, or it has been ended."""


class SandboxFailed(KnotlessError):
    """It could not be started, or ended by itself."""


@dataclass(frozen=True, slots=True)
class Server:
    """One that runs. `network` is what it prints once it answers, None before."""

    pid: int | None  # None for the moment before it says so
    network: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Folder:
    path: Path

    @property
    def config(self) -> Path:
        return self.path / SANDBOX_CONFIG

    @property
    def cache(self) -> Path:
        return self.path / "cache"

    @property
    def log(self) -> Path:
        return self.path / "log"

    @property
    def passwords(self) -> Path:
        """Where the server keeps those of the accounts that were asked for."""
        return self._data / "passwords.json"

    def claim(self) -> None:
        """Make it a sandbox's; raises NotASandbox where there is something else in it."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise NotASandbox(f"{self.path} is, or is in, a file") from error
        there = os.listdir(self.path)
        if there and SANDBOX_LOCK not in there:
            raise NotASandbox(f"{self.path} is not a sandbox's, and not empty")
        (self.path / SANDBOX_LOCK).touch(mode=0o600)

    @contextmanager
    def held(self) -> Iterator[None]:
        """By one command at a time; raises SandboxNotRunning where no sandbox has ever been."""
        path = self.path / SANDBOX_LOCK
        while True:
            try:
                lock = open(path, "r+b")  # noqa: SIM115  closed below, whatever happens
            except (FileNotFoundError, NotADirectoryError) as error:
                raise SandboxNotRunning(f"there is no sandbox in {self.path}") from error
            with lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if _is(lock, path):  # else a reset has removed it while we waited
                    yield
                    return

    def server(self) -> Server | None:
        """The one that runs, for whoever holds the folder."""
        try:
            file = open(self._running, "rb")  # noqa: SIM115  closed below, whatever happens
        except FileNotFoundError:
            return None
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return _read(file)
        return None

    def launch(self, options: Sequence[str], *, foreground: bool) -> "subprocess.Popen[bytes]":
        """A server that is beginning. In the foreground it ends when the pipe to it closes, which
        is when we end, however that happens.
        """
        # -P: nothing of the directory that we are called in is imported.
        program = [sys.executable, "-P", "-m", "git_knotless.sandbox", "--json"]
        with _private(self._running) as out, _private(self.log) as log, _undisturbed() as mask:
            fcntl.flock(out, fcntl.LOCK_EX | fcntl.LOCK_NB)
            out.truncate()
            log.seek(0, os.SEEK_END)
            process = subprocess.Popen(
                [*program, "--dir", str(self._data), *options],
                cwd="/",
                stdin=subprocess.PIPE if foreground else subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                start_new_session=not foreground,
                preexec_fn=partial(_begin, mask),
            )
            # Its end is seen by its lock. A Popen whose process outlives it would complain.
            process.returncode = 0
        return process

    def ready(self, log_from: int) -> Server:
        """Wait until the server that was launched answers."""
        until = time.monotonic() + _READY_SECONDS
        while found := self.server():
            if found.network is not None:
                return found
            if time.monotonic() > until:
                raise SandboxFailed(f"the sandbox does not answer: {self.said(log_from)}")
            time.sleep(_LOOK_SECONDS)
        raise SandboxFailed(f"the sandbox did not start: {self.said(log_from)}")

    def end(self) -> bool:
        """Whether a server ran; it is gone when this returns."""
        kill_at = time.monotonic() + _END_SECONDS
        sent = None
        while found := self.server():
            signum = signal.SIGTERM if time.monotonic() < kill_at else signal.SIGKILL
            if found.pid is not None and sent != signum:
                with suppress(ProcessLookupError):
                    os.kill(found.pid, signum)
                sent = signum
            time.sleep(_LOOK_SECONDS)
        return sent is not None

    def said(self, log_from: int) -> str:
        """The last line that the server has logged since."""
        with open(self.log, "rb") as log:
            log.seek(max(log_from, self.logged() - _LONGEST))
            lines = log.read(_LONGEST).decode(errors="replace").strip().splitlines()
        return lines[-1].removeprefix("sandbox: ") if lines else "it has logged nothing"

    def logged(self) -> int:
        """Bytes of log."""
        return self.log.stat().st_size if self.log.exists() else 0

    def handles(self) -> list[str]:
        try:
            return (self.path / "accounts").read_text().split()
        except FileNotFoundError:
            return []

    def save_handles(self, handles: Sequence[str]) -> None:
        text = "".join(f"{handle}\n" for handle in handles)
        replace_file(self.path / "accounts", text.encode())

    def has_data(self) -> bool:
        return self._data.exists()

    def forget_cache(self) -> None:
        shutil.rmtree(self.cache, ignore_errors=True)

    def remove(self) -> list[str]:
        """All that is a sandbox's, for whoever holds it. The answer is what else is there."""
        discard(self.path / "accounts")
        for name in _REMOVED:
            path = self.path / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        others = sorted(set(os.listdir(self.path)) - {SANDBOX_LOCK})
        if not others:
            (self.path / SANDBOX_LOCK).unlink()
            with suppress(OSError):  # somebody's current directory, or a mount
                self.path.rmdir()
        return others

    @property
    def _data(self) -> Path:
        return self.path / "data"

    @property
    def _running(self) -> Path:
        return self.path / "running"


def free_port(following: int) -> int:
    """One that nothing listens on now, nor on so many after it."""
    for port in range(_FIRST_PORT, _LAST_PORT, following + 1):
        with suppress(OSError), ExitStack() as stack:
            for each in range(port, port + following + 1):
                stack.enter_context(socket.create_server(("127.0.0.1", each)))
            return port
    raise SandboxFailed("no port of this machine is free")


@contextmanager
def _undisturbed() -> Iterator[Iterable[int]]:
    """What would end us waits until a process that was begun is known; the mask before."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        yield mask
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _begin(mask: Iterable[int]) -> None:
    """In the server's process, before it becomes the server."""
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    os.write(1, b"%d\n" % os.getpid())


def _read(running: IO[bytes]) -> Server:
    """Whatever of its two lines is whole."""
    pid, network, *_ = [*running.read(_LONGEST).split(b"\n")[:-1], b"", b""]
    return Server(int(pid) if pid else None, json.loads(network) if network else None)


def _private(path: Path) -> IO[bytes]:
    return open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b")


def _is(file: IO[bytes], path: Path) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    return False
