"""What is measured, installed: the wheel of this tree, and what it stands beside, from PyPI."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from scripts._bench.report import say

ROOT = Path(__file__).parents[2]
_KNOTLESS, _BESIDE = "knotless", "beside"
_PACKAGES = ("git-remote-s3==0.4.2", "moto[server]>=5,<6")
_IN_THE_WHEEL = ("git_knotless", "lexicons", "share")
_ABOUT_THE_WHEEL = ("pyproject.toml", "README.md", "LICENSE")


@dataclass(frozen=True)
class Programs:
    """Virtual environments in a folder; neither has this tree on its path."""

    folder: Path

    @property
    def path(self) -> list[Path]:
        return [self.folder / name / "bin" for name in (_KNOTLESS, _BESIDE)]

    @property
    def python(self) -> Path:
        """The one that has git_knotless, as installed from the wheel."""
        return self.folder / _KNOTLESS / "bin/python"

    @cached_property
    def moto_server(self) -> Path:
        """Installed, with git-remote-s3 beside it, once a section needs it."""
        place = _environment(self.folder / _BESIDE, "\n".join(_PACKAGES), _install_beside)
        return place / "bin/moto_server"


@contextmanager
def installed() -> Iterator[Programs]:
    """One bench at a time: two would measure each other, and share these environments."""
    cache = _cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / "lock", "wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another bench")
            fcntl.flock(lock, fcntl.LOCK_EX)
        _environment(cache / _KNOTLESS, _digest(), _install_wheel)
        yield Programs(cache)


def _cache_folder() -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():  # the XDG rules: unset, empty and relative are alike
        base = Path.home() / ".cache"
    return base / "git-knotless" / "bench"


def _digest() -> str:
    """Of everything that the wheel is made from."""
    digest = hashlib.sha256()
    files = [ROOT / name for name in _ABOUT_THE_WHEEL]
    for name in _IN_THE_WHEEL:
        files += sorted(path for path in (ROOT / name).rglob("*") if path.is_file())
    for path in files:
        if path.suffix != ".pyc":
            digest.update(f"{path.relative_to(ROOT)}\0{path.stat().st_size}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _environment(place: Path, made_from: str, install: Callable[[Path], None]) -> Path:
    """`place`, made anew unless it was made from the same by the same Python."""
    stamp, wanted = place / "stamp", f"{sys.executable} {sys.version}\n{made_from}\n"
    if not stamp.exists() or stamp.read_text() != wanted:
        say(f"making {place}")
        shutil.rmtree(place, ignore_errors=True)
        venv.create(place, with_pip=True)
        install(place)
        stamp.write_text(wanted)
    return place


def _install_wheel(place: Path) -> None:
    wheels = place / "wheel"
    _pip(place, "wheel", "--no-deps", "--wheel-dir", str(wheels), str(ROOT))
    _pip(place, "install", *(f"{wheel}[server]" for wheel in wheels.glob("*.whl")))


def _install_beside(place: Path) -> None:
    _pip(place, "install", *_PACKAGES)


def _pip(place: Path, *args: str) -> None:
    command = [str(place / "bin/python"), "-m", "pip", "-qq"]
    subprocess.run(
        [*command, "--disable-pip-version-check", *args],
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
    )
