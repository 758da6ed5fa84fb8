"""A sandbox that lasts as long as the command that started it, and the git that runs that.

Of `git knotless …` it is git that people, and whoever kills it, know by its process id.
"""

import os
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from git_knotless.porcelain.sandbox_folder import Folder, SandboxFailed

_GIT = "git"
_PS_SECONDS = 5.0
_LOOK_SECONDS = 0.1  # from one look to the next whether it has ended


def git_above() -> int | None:
    """Its process id; None where we are run by ourselves, and live on when a shell ends."""
    parent = os.getppid()
    return parent if Path(_name_of(parent)).name == _GIT else None


def stay(folder: Folder, process: "subprocess.Popen[bytes]", above: int | None) -> None:
    """Until it ends. Who ends us, or the process `above`, ends it."""
    ended, status = 0, 0
    try:
        while not ended and above in (None, os.getppid()):
            time.sleep(_LOOK_SECONDS)
            ended, status = os.waitpid(process.pid, os.WNOHANG)
    finally:
        if not ended:
            folder.end()  # a Ctrl-C has reached it, another signal has not
    if status:
        raise SandboxFailed(f"the sandbox has ended; its log is {folder.log}")


def _name_of(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    with suppress(OSError, subprocess.SubprocessError):  # as on macOS
        command = ["ps", "-o", "comm=", "-p", str(pid)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PS_SECONDS)
        return done.stdout.strip()
    return ""
