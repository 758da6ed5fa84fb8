"""`git fetch --unshallow`: history that is all here is cut off no more."""

import shutil
from collections.abc import Iterable

from git_knotless.errors import KnotlessError
from git_knotless.storage.git import Git


def unshallow(git: Git, tips: Iterable[str]) -> None:
    """Of what `tips` reach, all of which must be here, nothing is cut off any more.

    What they do not reach stays as it is. Under the same lock as git does it (shallow.c).
    """
    lines = "".join(f"{tip}\n" for tip in tips).encode()
    whole = set(git.unshallowed().run("rev-list", "--stdin", input=lines).decode().split())
    file = git.shallow_file()
    lock = file.with_name(f"{file.name}.lock")
    try:
        lock.open("xb").close()
    except FileExistsError as error:
        raise KnotlessError(
            f"{lock} exists: another git is at work on where history ends",
            hint=f"once it is done, or rm {lock} if none is: git fetch --unshallow",
        ) from error
    try:
        left = [commit for commit in file.read_text().split() if commit not in whole]
        lock.write_text("".join(f"{commit}\n" for commit in left))
        shutil.copymode(file, lock)
        if left:
            lock.replace(file)
            return
        file.unlink()
    except FileNotFoundError:
        pass  # nothing is cut off
    except BaseException:
        lock.unlink()
        raise
    lock.unlink()
