"""What `git knotless doctor` looks at on this machine, and asks nobody for."""

import os
import re
import shlex
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from git_knotless.settings import TABLE, Settings, load
from git_knotless.storage.checkup.checks import Check, Verdict, fail, ok, skipped, warn
from git_knotless.storage.git import Git, GitError

OLDEST_GIT = (2, 31)  # whose index-pack knows --no-rev-index
HELPER = "git-remote-knotless"
# What the helper says to whoever runs it without arguments.
_HELPERS_WORDS = f"{HELPER} is run by git"
_ANSWER_SECONDS = 30.0


def program_checks() -> Iterator[Check]:
    oldest = ".".join(map(str, OLDEST_GIT))
    yield Check("git", _git, mend=f"install git {oldest} or newer")
    yield Check("helper", _helper)


def folder_checks(settings: Settings) -> Iterator[Check]:
    def sessions() -> Verdict:
        return _folder(settings.config_dir / "sessions", settings.config_dir, private=True)

    def cache() -> Verdict:
        found = _folder(settings.cache_dir, settings.cache_dir, private=False)
        # Everything works without it, and takes longer.
        return warn(found.detail, found.hint) if found.status == "fail" else found

    yield Check("config folder", sessions, mend="set KNOTLESS_CONFIG_DIR to a folder of your own")
    yield Check("cache folder", cache, mend="set KNOTLESS_CACHE_DIR to a folder of your own")


def settings_verdict(settings: Settings) -> Verdict:
    """They could be read, or there would be none; which are not as they are by default."""
    usual = load({"KNOTLESS_CONFIG_DIR": "/", "KNOTLESS_CACHE_DIR": "/"}, b"")
    changed = [
        setting.variable
        for setting in TABLE
        if getattr(settings, setting.field) != getattr(usual, setting.field)
        and setting.field not in ("config_dir", "cache_dir")
    ]
    return ok(f"set: {', '.join(changed)}" if changed else "as they are by default")


def _git() -> Verdict:
    said = os.fsdecode(Git(None, env=os.environ).run("--version")).strip()
    found = re.search(r"(\d+)\.(\d+)[\w.]*", said)
    if found is None:
        return warn(f"git says {said[:100]!r} of its version")
    if (int(found[1]), int(found[2])) < OLDEST_GIT:
        return fail(f"git {found[0]} is too old")
    return ok(f"git {found[0]}")


def _helper() -> Verdict:
    """As git looks for it: in its own folder first, then on PATH."""
    try:
        own = os.fsdecode(Git(None, env=os.environ).run("--exec-path")).strip()
    except GitError:
        return skipped("git cannot be run")
    found, useless = _find(HELPER, [own, *os.get_exec_path()])
    beside = _beside_us()
    if found is None:
        if useless is not None:
            return fail(f"{useless} is not executable", f"chmod +x {shlex.quote(str(useless))}")
        return fail(f"{HELPER} is not on PATH, where git looks for it", _export(beside))
    if (trouble := _trouble_with(found)) is not None:
        return fail(f"{found} does not run: {trouble}", "install git-knotless again")
    if beside is not None and not found.samefile(beside):
        return warn(f"git runs {found}, of another installation than this", _export(beside))
    return ok(str(found))


def _find(name: str, folders: list[str]) -> tuple[Path | None, Path | None]:
    """The first that can be run, else the first that cannot."""
    files = [path for folder in folders if (path := Path(folder or ".", name)).is_file()]
    runs = (path for path in files if os.access(path, os.X_OK))
    return next(runs, None), next(iter(files), None)


def _beside_us() -> Path | None:
    """The helper of the installation that is running, by where our own program lies."""
    for folder in (Path(sys.argv[0]).resolve().parent, Path(sys.executable).parent):
        if (path := folder / HELPER).is_file():
            return path
    return None


def _export(beside: Path | None) -> str:
    if beside is None:
        return "pipx install git-knotless"
    return f'export PATH={shlex.quote(str(beside.parent))}:"$PATH"'


def _trouble_with(program: Path) -> str | None:
    """Run as git would, but for the arguments: it says how it is meant to be used."""
    try:
        done = subprocess.run(
            [program], stdin=subprocess.DEVNULL, capture_output=True, timeout=_ANSWER_SECONDS
        )
    except subprocess.TimeoutExpired:
        return "it does not end"
    except OSError as error:  # such as an interpreter that is gone
        return error.strerror or str(error)
    said = done.stderr.decode(errors="replace").strip()
    if _HELPERS_WORDS in said:
        return None
    return f"it says {said.rpartition(chr(10))[2][:200] or 'nothing'!r}"


def _folder(wanted: Path, base: Path, *, private: bool) -> Verdict:
    """`wanted` is under `base`; whichever of both or above is there is where it would be made."""
    there = next(path for path in (wanted, *wanted.parents) if path.exists())
    if not there.is_dir():
        return fail(f"{there} is not a folder")
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        return fail(f"{there} cannot be written to: {error.strerror}")
    if private and there == wanted and (seen := _seen_by_others(there)):
        return warn(f"{seen} can be read by others", f"chmod -R go= {shlex.quote(str(there))}")
    return ok(str(base) if base.exists() else f"{base}, made when it is needed")


def _seen_by_others(folder: Path) -> Path | None:
    """Whatever of the sessions is not the user's alone."""
    for path in (folder, *folder.glob("*.json")):
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            return path
    return None
