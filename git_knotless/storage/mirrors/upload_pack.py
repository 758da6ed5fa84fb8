"""`git upload-pack`, by protocol v2, on refs of a moment and the objects of a mirror.

The refs are in a folder of their own, which nobody else sees or changes: what one git is told
stays so, whatever another brings into the mirror meanwhile.
"""

import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from git_knotless.storage.packs.bare import Refs, git_in, lay_out, show

_READ = 1 << 20
_PREFIX = "knotless-refs-"
_LEFT_OVER_SECONDS = 86_400.0  # no git takes a day to fetch
_ANSWER = ("upload-pack", "--strict", "--stateless-rpc")


class UploadPack:
    """It keeps nothing from one request to the next, and of an answer only what is read."""

    def __init__(self, directory: Path, env: Mapping[str, str]) -> None:
        self._directory = directory
        self._bare = git_in(directory, env).within({"GIT_PROTOCOL": "version=2"})
        self._git = self._bare

    def show(self, refs: Refs) -> None:
        show(self._directory, refs)

    def use(self, objects: Path) -> None:
        """Have its objects be those of another repository, by the folder that they are in."""
        self._git = self._bare.within({"GIT_OBJECT_DIRECTORY": str(objects)})

    def advertise(self) -> bytes:
        """It says nothing of refs or objects, and looks at none."""
        return self._bare.run(*_ANSWER, "--advertise-refs", str(self._directory))

    def answer(self, request: Iterable[bytes]) -> Iterator[bytes]:
        with self._git.popen(*_ANSWER, str(self._directory)) as child:
            for chunk in request:
                child.write(chunk)
            child.end_input()
            while chunk := child.read(_READ):
                yield chunk
            child.finish()


@contextmanager
def upload_pack(env: Mapping[str, str]) -> Iterator[UploadPack]:
    """One without any refs and objects yet."""
    import tempfile  # 8 ms, for what few fetches come to

    with tempfile.TemporaryDirectory(prefix=_PREFIX) as name:
        lay_out(Path(name))
        yield UploadPack(Path(name), env)
        _sweep(Path(name).parent)


def _sweep(folder: Path) -> None:
    """What those have left that were killed."""
    oldest = time.time() - _LEFT_OVER_SECONDS
    for left in folder.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if left.lstat().st_mtime < oldest:
                shutil.rmtree(left)
