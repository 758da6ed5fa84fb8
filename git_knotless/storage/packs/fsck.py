"""`fetch.fsckObjects`, `transfer.fsckObjects` and `fetch.fsck.*`, as `git fetch` honours them."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from git_knotless.storage.child import command, readable
from git_knotless.storage.git import Git

_SAYS_MISSING = 2  # in the status of `git fsck`
_SKIP_LIST = "fetch.fsck.skiplist"


def strictness(git: Git) -> str | None:
    """The option that has index-pack examine objects; None where nobody asked for it."""
    settings = dict(git.settings(r"(fetch|transfer)\.fsck"))
    asked = settings.get("fetch.fsckobjects", settings.get("transfer.fsckobjects", "false"))
    if not _is_true(asked):
        return None
    if _SKIP_LIST in settings:
        path = git.run("config", "--type=path", "--get", _SKIP_LIST)
        settings[_SKIP_LIST] = os.fsdecode(path.removesuffix(b"\n"))
    prefix = "fetch.fsck."
    rules = [f"{k.removeprefix(prefix)}={v}" for k, v in settings.items() if k.startswith(prefix)]
    return f"--strict={','.join(rules)}" if rules else "--strict"


def examine(git: Git, packs: Path, strict: str) -> None:
    """Raises GitError for the first object of the packs in a directory that fails.

    They are read once more, when all are there: `--strict` takes no pack whose objects name what
    is not here yet, and none that holds an object twice, as packs that were joined may.
    """
    for pack in sorted(packs.glob("pack-*.pack")):
        scratch = packs / "fsck.idx"
        git.run("index-pack", strict, "--no-rev-index", "-o", str(scratch), str(pack))
        scratch.unlink()


def faults(git: Git) -> Iterator[tuple[str, str]]:
    """Which objects of a repository are not as they should be, and why, as git has it.

    What is missing is not told of: objects that no ref reaches may name any.
    """
    args = ("fsck", "--full", "--strict", "--no-dangling", "--no-reflogs", "--no-progress")
    told = False
    with subprocess.Popen(
        command(args),
        env=git.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        try:
            for line in process.stdout or ():
                for found in _fault(" ".join(readable(line))):
                    yield found
                    told = True
            status = process.wait()
        finally:
            process.kill()
    if status & ~_SAYS_MISSING and not told:
        yield "git fsck", f"it ended with status {status}"


def _fault(line: str) -> Iterator[tuple[str, str]]:
    if line.startswith("error in "):
        what, _, why = line.removeprefix("error in ").partition(": ")
        yield what, why
    elif line.startswith(("error: ", "fatal: ")):
        yield "git fsck", line.partition(": ")[2]


def _is_true(value: str) -> bool:
    """As git reads a boolean."""
    if value.lower() in ("", "false", "no", "off"):
        return False
    return value.lower() in ("true", "yes", "on") or value.strip("+-0") != ""
