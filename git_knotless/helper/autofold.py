"""Folding by itself, after a push, as git packs a repository after a commit.

In the background, in a process that outlives git: it is run with `-m`, with what the remote is
called, its URL and the repository's key. What it says goes to knotless/fold.log in the git
directory; of one that failed the next push has a word, and an hour later it is tried again.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

from git_knotless.context import Context
from git_knotless.errors import KnotlessError
from git_knotless.helper.options import Options
from git_knotless.helper.stderr import note, printable, progress, tell, warn
from git_knotless.storage.git import Git
from git_knotless.storage.packs.geometry import foldable
from git_knotless.storage.packs.taken import became, know_sizes, pack_sizes
from git_knotless.storage.packs.workroom import is_free, workroom
from git_knotless.storage.pin import Pin
from git_knotless.storage.repositories import Repository

MOST = 50  # small packs, which a clone gets in one page or two
_LONGEST = 3600  # seconds for one fold, and between one that failed and the next
_WORDS = 300  # of a log that are shown
_HOUSEKEEPING = "See `git knotless repo compact -h` for manual housekeeping."

# What git tells a helper of the repository it is in: the fold is told the git directory alone.
_PLACES = ("GIT_WORK_TREE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_INDEX_FILE")


class TookTooLong(KnotlessError):
    """A fold that is given up."""


def is_due(git: Git, key: str) -> bool:
    """Whether there are more small packs than there should be, as far as is known here."""
    return len(foldable(pack_sizes(git, key))) > MOST


class AutoFold:
    """Of the repository that a push has gone to: `name` and `url` are its remote's."""

    def __init__(self, context: Context, git: Git, name: str, url: str, key: str) -> None:
        self._context = context
        self._git = git
        self._name = name
        self._url = url
        self._key = key
        self._place = git.common_dir / "knotless"

    def begin(self, repository: Repository, options: Options, env: Mapping[str, str]) -> None:
        """Once git has its answer. Whatever goes wrong is told, and no fault of the push."""
        if not self._context.settings.auto_fold or not is_due(self._git, self._key):
            return
        try:
            if not self._context.settings.auto_detach:
                self.run(repository, options)
            elif self._is_free():
                self._detach(repository, options, env)
        except (KnotlessError, OSError) as error:
            warn(f"packs were not folded: {_words(error)}")

    def run(self, repository: Repository, options: Options) -> None:
        """Here and now, unless another is at it."""
        from git_knotless.storage.packs.folding import fold  # few pushes fold

        with workroom(self._room) as scratch:
            if scratch is None:
                return
            folded = fold(repository, scratch, progress=progress(options), at_least=MOST)
        know_sizes(self._git, self._key, dict(folded.sizes))
        became(self._git, self._key, folded.packs, folded.into)
        for line in folded.left_out:
            warn(f"left as it is: {line}")

    def _is_free(self) -> bool:
        """Whether none is at it, and none has failed just now."""
        if not is_free(self._room):
            return False
        with suppress(FileNotFoundError):
            found = self.log.stat()
            if found.st_size and time.time() - found.st_mtime < _LONGEST:
                words = printable(self.log.read_text(errors="replace").strip()[:_WORDS])
                warn(f"packs were not folded ({self.log}): {words}")
                return False
        return True

    @property
    def _room(self) -> Path:
        return self._place / f"{self._key}.folding"

    @property
    def log(self) -> Path:
        return self._place / "fold.log"

    def _detach(self, repository: Repository, options: Options, env: Mapping[str, str]) -> None:
        if options.verbosity > 0:
            note(f"folding the packs of {repository.url} in background for optimum performance")
            note(_HOUSEKEEPING)
        kept = {name: text for name, text in env.items() if name not in _PLACES}
        program = [sys.executable, "-P", "-m", "git_knotless.helper.autofold"]
        with self.log.open("wb") as log:
            _started.append(
                subprocess.Popen(
                    [*program, self._name, self._url, self._key],
                    cwd=self._git.common_dir,
                    env={**kept, "GIT_DIR": str(self._git.common_dir)},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )


_started: list[subprocess.Popen[bytes]] = []  # kept, or Python would ask what became of them


def main(argv: Sequence[str], env: Mapping[str, str]) -> int:
    """In the background. What it exits with nobody asks; a log with words says that it failed."""
    signal.signal(signal.SIGALRM, _give_up)
    signal.alarm(_LONGEST)
    os.nice(5)
    name, url, key = argv
    git = Git(None, env=env)
    try:
        with Context.from_environment(env, warn, git) as context:
            pin = Pin(git, name, url, note)
            repository = context.open(url, to="push to", pin=pin)
            folding = AutoFold(context, git, name, url, key)
            folding.run(repository, Options())
            folding.log.write_bytes(b"")  # there is nothing to tell
    except (KnotlessError, OSError) as error:
        tell(error)
        return 1
    return 0


def _give_up(_: int, __: FrameType | None) -> None:
    raise TookTooLong(f"folding took longer than {_LONGEST // 60} minutes")


def _words(error: Exception) -> str:
    return error.message if isinstance(error, KnotlessError) else str(error)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:], os.environ))
