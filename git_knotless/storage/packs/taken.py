"""Which packs of a repository have been taken, and how large those are that went out: a memory that
spares downloads and listings, and no more."""

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from git_knotless.atproto.files import replace_cache
from git_knotless.atproto.syntax import Rkey
from git_knotless.storage.git import Git


def packs_taken(git: Git, repo_key: str) -> set[str]:
    """The record keys of packs whose objects were here once."""
    try:
        return set(_memory(git, repo_key).read_text(errors="replace").split())
    except OSError:
        return set()


def remember(git: Git, repo_key: str, *rkeys: str) -> None:
    """Appended in one write, so that two fetches at once lose nothing of each other's.

    What cannot be remembered is fetched again.
    """
    if not rkeys:
        return
    memory = _memory(git, repo_key)
    with suppress(OSError):
        memory.parent.mkdir(exist_ok=True)
        with memory.open("ab") as file:
            file.write("".join(f"{rkey}\n" for rkey in rkeys).encode())


def became(git: Git, repo_key: str, packs: Collection[Rkey], into: Iterable[Rkey]) -> None:
    """Whoever has had all of `packs` has what is in those that came in their place."""
    if packs and packs_taken(git, repo_key).issuperset(packs):
        remember(git, repo_key, *into)


def _memory(git: Git, repo_key: str) -> Path:
    return git.common_dir / "knotless" / f"{repo_key}.taken"


def pack_sizes(git: Git, repo_key: str) -> dict[Rkey, int]:
    """Packs that are on the host as far as is known here, each with its bytes.

    Those of pushes from here, since the packs were last listed to be folded.
    """
    with suppress(OSError):
        words = _sizes(git, repo_key).read_text(errors="replace").split()
        pairs = zip(words[::2], words[1::2], strict=False)
        return {Rkey(rkey): int(size) for rkey, size in pairs if size.isdecimal()}
    return {}


def note_size(git: Git, repo_key: str, rkey: Rkey, size: int) -> None:
    """Of a pack that has landed. What is not noted counts once the packs are listed."""
    with suppress(OSError), _sizes(git, repo_key).open("ab") as file:
        file.write(f"{rkey} {size}\n".encode())


def know_sizes(git: Git, repo_key: str, sizes: Mapping[Rkey, int]) -> None:
    """Of all packs that there are now."""
    replace_cache(_sizes(git, repo_key), "".join(f"{k} {n}\n" for k, n in sizes.items()).encode())


def _sizes(git: Git, repo_key: str) -> Path:
    return git.common_dir / "knotless" / f"{repo_key}.packs"
