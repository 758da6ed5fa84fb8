"""The mirrors in the cache: one for each repository, by the account that it is in and its key.

`<did>/<key>.git` is one, `<key>.use` what all hold who use it, and `<key>.lock` what one holds who
brings it up. All of it can be removed at any time.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from git_knotless.atproto.syntax import Did
from git_knotless.storage.filelocks import removing, shared
from git_knotless.storage.mirrors.mirror import DROPPED, Mirror, remove, usable

_USE = ".use"


class Mirrors:
    """In `directory`, and at most `size` bytes of them. `env` is what git is run with."""

    def __init__(self, directory: Path, size: int, env: Mapping[str, str]) -> None:
        self._directory = directory
        self._size = size
        self._env = env

    @contextmanager
    def of(self, did: Did, key: str) -> Iterator[Mirror]:
        """One that stays where it is meanwhile; there may be nothing yet."""
        path = self._directory / did / f"{key}.git"
        with ExitStack() as stack:
            with usable(path):
                for folder in (self._directory, path.parent):
                    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                stack.enter_context(shared(path.with_suffix(_USE)))
            yield Mirror(path, self._env)

    def trim(self) -> None:
        """The least recently used go, but for those that are in use, while all are too large."""
        with suppress(OSError):  # it is for the next to try again
            for left in self._directory.glob(f"*/*{DROPPED}*"):
                remove(left)
            mirrors = [Mirror(path, self._env) for path in self._directory.glob("*/*.git")]
            sizes = {mirror: mirror.size() for mirror in mirrors}
            over = sum(sizes.values()) - self._size
            for mirror in sorted(mirrors, key=_used):
                if over > 0 and self._drop(mirror):
                    over -= sizes[mirror]

    def _drop(self, mirror: Mirror) -> bool:
        with removing(mirror.path.with_suffix(_USE)) as unused:
            if unused:
                mirror.drop()
                mirror.path.with_suffix(".lock").unlink(missing_ok=True)
        return unused


def _used(mirror: Mirror) -> float:
    """When it was, in unix time; one that nobody has used goes first."""
    try:
        return mirror.path.with_suffix(_USE).stat().st_mtime
    except FileNotFoundError:
        return 0.0
