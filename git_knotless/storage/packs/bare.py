"""Bare repositories of our own: laid out file by file, as gitrepository-layout(5) has them.

No template, config or default of the user's has a say in what they are.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from git_knotless.atproto.files import read_file, replace_cache
from git_knotless.storage.git import Git
from git_knotless.storage.refname import is_ref_name
from git_knotless.value import value

_CONFIG = b"""\
[core]
\trepositoryformatversion = 0
\tbare = true
[uploadpack]
\tallowFilter = true
\tallowAnySHA1InWant = true
"""
_LARGEST_FILE = 128 << 20  # of as many refs as a repository may have, all with long names
_NOWHERE = "refs/knotless/nowhere"  # no ref of any repository that we serve


def plain(env: Mapping[str, str]) -> dict[str, str]:
    """An environment in which git is nobody's: no config, hook or tracing of the user's."""
    kept = {name: text for name, text in env.items() if not name.startswith("GIT_")}
    kept |= {name: env[name] for name in ("GIT_EXEC_PATH",) if name in env}
    return kept | {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"}


def git_in(directory: Path, env: Mapping[str, str]) -> Git:
    return Git(directory, env=plain(env))


@value
class Refs:
    """Two files of a repository, by which it has some refs and no other."""

    head: bytes
    packed: bytes

    @classmethod
    def of(cls, head: str, refs: Mapping[str, str]) -> Self:
        """Object ids by full names. `head` is the default branch, whether or not it is there."""
        head = head if is_ref_name(head) else _NOWHERE
        lines = "".join(f"{refs[name]} {name}\n" for name in sorted(refs))
        packed = f"# pack-refs with: sorted \n{lines}"
        return cls(f"ref: {head}\n".encode(), packed.encode())

    @classmethod
    def read(cls, directory: Path) -> Self | None:
        """What a repository has; None where it has none that git would take."""
        files = (directory / "HEAD", directory / "packed-refs")
        try:
            return cls(*(read_file(file, _LARGEST_FILE, links=False) for file in files))
        except OSError:
            return None

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.head + self.packed).hexdigest()


def lay_out(directory: Path) -> None:
    """A repository without refs, for nobody but us. The objects of one that is there stay."""
    for folder in ("", "refs", "objects", "objects/pack"):
        (directory / folder).mkdir(mode=0o700, exist_ok=True)
    _put(directory / "config", _CONFIG)
    show(directory, Refs.of(_NOWHERE, {}))


def is_laid_out(directory: Path) -> bool:
    return _holds(directory / "config", _CONFIG) and (directory / "refs").is_dir()


def show(directory: Path, refs: Refs) -> None:
    """Each file is replaced whole: no reader sees half of it."""
    _put(directory / "packed-refs", refs.packed)
    _put(directory / "HEAD", refs.head)


def _put(path: Path, data: bytes) -> None:
    if not _holds(path, data):
        replace_cache(path, data)


def _holds(path: Path, data: bytes) -> bool:
    try:
        return read_file(path, _LARGEST_FILE, links=False) == data
    except OSError:
        return False
