"""One running git command: fed, read and ended, whatever happens on our side."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import IO, Self

from git_knotless.errors import KnotlessError
from git_knotless.storage.progress import Progress

_PIPE_SIZE = 1 << 20  # a pipe that holds 64 KiB has both sides wait for each other
_PATIENCE = 2.0  # seconds between asking a command to end and ending it
_LINES_KEPT = 20
_LINE_KEPT = 500  # bytes of a line that are worth showing

# The settings that decide what we read of git's files and answers, whatever the user's say.
_SETTINGS = (
    *("-c", "pack.indexVersion=2"),  # an index is read for its object ids
    *("-c", "pack.packSizeLimit=0"),  # one pack is one file; no option says so
)

# git's own words, under LC_ALL=C, for what is no fault of the data.
_NO_SPACE = ("No space left on device", "Disk quota exceeded", "File too large")


class GitError(KnotlessError):
    """A git command failed; the message ends in git's own last word."""


class TooMuchWork(GitError):
    """It has used up the processor's time that it was given."""


class NoSpace(KnotlessError):
    """Something could not be written, whatever it was."""


def command(args: Sequence[str], settings: Sequence[str] = ()) -> list[str]:
    return ["git", *_SETTINGS, *(word for each in settings for word in ("-c", each)), *args]


def failure(args: Sequence[str], status: int, said: Sequence[str]) -> KnotlessError:
    """What a command that ended with `status` is to its caller; `said` are its lines on stderr."""
    name = f"git {args[0]}"
    if status == -signal.SIGXFSZ:
        return NoSpace(f"no space left: {name} was stopped by the limit on a file's size")
    if status == -signal.SIGXCPU:
        return TooMuchWork(f"{name} takes too long")
    if any(words in line for line in said for words in _NO_SPACE):
        return NoSpace(f"no space left: {name} could not write")
    if status < 0:
        return GitError(f"{name} was ended by {signal.Signals(-status).name}")
    return GitError(f"{name}: {_last_word(said) or f'ended with status {status}'}")


def _last_word(said: Sequence[str]) -> str:
    """Why it gave up, and what it had met; where it says neither, its last line."""
    last = {line[:7]: line[7:] for line in said if line.startswith(("fatal: ", "error: "))}
    if len(last) == 2:
        return f"{last['fatal: ']} ({last['error: ']})"
    return next(iter(last.values()), said[-1] if said else "")


def readable(stderr: bytes) -> list[str]:
    """The last lines of what a command said, without anything that a terminal would obey."""
    lines = [line[:_LINE_KEPT].decode(errors="replace") for line in stderr.splitlines()]
    clean = ["".join(c if c.isprintable() else "?" for c in line).strip() for line in lines]
    return [line for line in clean if line][-_LINES_KEPT:]


class Child:
    """A running git command, as a context manager: left by an error, it ends the command."""

    def __init__(
        self,
        args: Sequence[str],
        env: Mapping[str, str],
        *,
        progress: Progress | None = None,
        fds: Sequence[int] = (),
        source: "Child | None" = None,
        settings: Sequence[str] = (),
        seconds: int | None = None,
    ) -> None:
        """What `source` prints is its input, where one is given. `settings` are of git config;
        `seconds` are of the processor's time, where the system can bound it."""
        self._args = args
        self._progress = progress if progress is not None and progress.enabled else None
        self._said: list[str] = []
        try:
            self._process: subprocess.Popen[bytes] = subprocess.Popen(
                command(args, settings),
                env=env,
                stdin=subprocess.PIPE if source is None else _pipe(source._process.stdout),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=fds,
                pipesize=_PIPE_SIZE,
            )
        except OSError as error:
            raise GitError(f"git cannot be run: {error.strerror}") from error
        if seconds is not None:
            _bound(self._process.pid, seconds)
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def write(self, data: bytes) -> None:
        """All of `data`; raises the command's own error when it reads no more."""
        try:
            _pipe(self._process.stdin).write(data)
        except BrokenPipeError as error:
            self.finish()
            raise GitError(f"git {self._args[0]} ended before its input did") from error

    def read(self, most: int) -> bytes:
        """What has come, up to `most` bytes; nothing at its end."""
        return os.read(_pipe(self._process.stdout).fileno(), most)

    def end_input(self) -> None:
        if self._process.stdin is None:
            return
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            return  # finish() says why it went

    def finish(self, *fine: int) -> int:
        """The status, once the command has ended; one that is neither 0 nor `fine` is raised."""
        self.end_input()
        status = self._process.wait()
        self._listener.join()
        if status != 0 and status not in fine:
            raise failure(self._args, status, self._said)
        return status

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()
        self.end_input()
        self._listener.join()
        for pipe in (self._process.stdout, self._process.stderr):
            _pipe(pipe).close()

    def _end(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _listen(self) -> None:
        """Read stderr to its end: a command whose stderr is full would stop."""
        stderr, rest = _pipe(self._process.stderr).fileno(), b""
        while chunk := os.read(stderr, 4096):
            *lines, rest = (rest + chunk).replace(b"\r", b"\r\n").split(b"\n")
            for line in lines:
                self._hear(line)
            rest = rest[-_LINE_KEPT:]
        self._hear(rest)

    def _hear(self, line: bytes) -> None:
        ours = line.startswith((b"fatal:", b"error:", b"warning:", b"hint:"))
        if self._progress is not None and line and not ours:
            self._progress.relay(line if line.endswith(b"\r") else line + b"\n")
        elif not line.endswith(b"\r"):
            self._said = [*self._said, *readable(line)][-_LINES_KEPT:]


def _bound(pid: int, seconds: int) -> None:
    """Linux can do that to a process that runs; without a core dump at its end."""
    import resource  # of the few who take a pack

    if sys.platform == "linux":
        with suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_CPU, (seconds, seconds + 1))
            resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise ValueError("the command was started without this pipe")
    return pipe
