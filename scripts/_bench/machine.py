"""A machine of its own for what is measured: a home, a git, and programs that were installed."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from scripts._bench.watch import Watch

GIT = Path(shutil.which("git") or "git")
_CONFIG = """\
[init]
\tdefaultBranch = main
[user]
\tname = Bench
\temail = bench@bench.invalid
[gc]
\tauto = 0
[maintenance]
\tauto = false
[advice]
\tdetachedHead = false
"""


class Failed(Exception):
    """A command that should have worked."""


@dataclass(frozen=True, slots=True)
class Ran:
    seconds: float
    out: str
    err: str


class Machine:
    def __init__(self, root: Path, programs: Sequence[Path], env: Mapping[str, str]) -> None:
        self.root = root
        self.temporary = root / "tmp"
        self.temporary.mkdir(parents=True)
        self.cache = root / "cache"
        (root / ".gitconfig").write_text(_CONFIG)
        path = [*map(str, programs), str(GIT.parent), "/usr/bin", "/bin"]
        self.env = {
            "HOME": str(root),
            "PATH": os.pathsep.join(path),
            "TMPDIR": str(self.temporary),
            "LC_ALL": "C",
            "TZ": "UTC",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_CEILING_DIRECTORIES": str(root.parent),
            "KNOTLESS_CONFIG_DIR": str(root / "config"),
            "KNOTLESS_CACHE_DIR": str(self.cache),
            **env,
        }

    def run(
        self,
        *command: str,
        cwd: Path | None = None,
        given: bytes = b"",
        watch: Watch | None = None,
    ) -> Ran:
        """Run to its end; raises Failed for a status other than 0."""
        began = time.perf_counter()
        with subprocess.Popen(
            command,
            cwd=cwd or self.root,
            env=self.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # what the watch looks for, and what is ended as one
        ) as process:
            try:
                if watch is not None:
                    watch.session(process.pid)
                out, err = process.communicate(given)
            except BaseException:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGTERM)
                raise
        seconds = time.perf_counter() - began
        ran = Ran(seconds, *(text.decode(errors="replace") for text in (out, err)))
        if process.returncode != 0:
            words = " ".join(command)
            raise Failed(f"{words[:200]}: exit code {process.returncode}\n{ran.out}{ran.err}")
        return ran

    def git(self, *args: str, cwd: Path | None = None, given: bytes = b"") -> Ran:
        return self.run(str(GIT), *args, cwd=cwd, given=given)

    def oid(self, repository: Path, revision: str = "HEAD") -> str:
        return self.git("rev-parse", "--verify", revision, cwd=repository).out.strip()

    def refs(self, repository: Path) -> dict[str, str]:
        """Branches and tags, by their full names."""
        form = "--format=%(refname) %(objectname)"
        listed = self.git("for-each-ref", form, "refs/heads", "refs/tags", cwd=repository).out
        return dict(line.split(" ") for line in listed.splitlines())
