"""Which packs of a repository have been taken: a memory that spares downloads, and no more."""

from contextlib import suppress
from pathlib import Path

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


def _memory(git: Git, repo_key: str) -> Path:
    return git.common_dir / "knotless" / f"{repo_key}.taken"
