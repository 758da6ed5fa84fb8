"""The wheel as people get it: built here, installed into an environment that holds nothing else."""

import os
import subprocess
import sys
import tomllib
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.gitenv import GIT, GitEnv
from tests.network import Account

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SHARED = {
    "share/man/man1/git-knotless.1": ROOT / "share/man/man1/git-knotless.1",
    **{
        f"share/git-knotless/{path.relative_to(ROOT)}": path
        for path in (ROOT / "lexicons").rglob("*.json")
    },
}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def python(*args: str, program: str = sys.executable) -> None:
    ran = subprocess.run([program, "-m", *args], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    python("build", "--wheel", "--outdir", str(folder), str(ROOT))
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The environment's folder."""
    place = tmp_path_factory.mktemp("environment")
    venv.create(place, with_pip=True)
    python("pip", "install", "--quiet", str(wheel), program=str(place / "bin/python"))
    return place


def test_it_holds_the_package_and_nothing_of_its_tests(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.split("/")[0] for name in names}
    stem = f"git_knotless-{PROJECT['version']}"
    assert tops == {"git_knotless", f"{stem}.dist-info", f"{stem}.data"}
    assert "git_knotless/py.typed" in names
    assert f"{stem}.dist-info/licenses/LICENSE" in names


def test_it_puts_the_commands_the_man_page_and_the_lexicons_in_place(installed: Path) -> None:
    for command in PROJECT["scripts"]:
        assert os.access(installed / "bin" / command, os.X_OK)
    for name, source in SHARED.items():
        assert (installed / name).read_bytes() == source.read_bytes()


def test_git_finds_the_man_page_beside_the_command(installed: Path, gitenv: GitEnv) -> None:
    """`git knotless --help` shows what `man` finds, and that looks beside each `bin` on PATH."""
    gitenv.env["PATH"] = os.pathsep.join([str(installed / "bin"), "/usr/bin", "/bin"])
    viewer = gitenv.root / "viewer"
    viewer.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    viewer.chmod(0o755)
    config = ["-c", "man.viewer=test", "-c", f"man.test.cmd={viewer}"]
    assert gitenv.git(*config, "knotless", "--help").out == "git-knotless\n"
    beside = Path(gitenv.run("/bin/sh", "-c", "command -v git-knotless").out).parents[1]
    assert (beside / "share/man/man1/git-knotless.1").exists()


def test_it_needs_nothing_but_what_it_declares(installed: Path) -> None:
    python("pip", "check", program=str(installed / "bin/python"))


def test_a_login_a_push_and_a_clone(
    installed: Path, machine: Callable[[], GitEnv], account: Callable[..., Account]
) -> None:
    alice, here = account("alice"), machine()
    here.env["PATH"] = os.pathsep.join(
        [str(installed / "bin"), str(GIT.parent), "/usr/bin", "/bin"]
    )
    version = here.run("knotless", "--version").out
    assert version == f"git-knotless {PROJECT['version']}\n"
    work = here.repository("work", commits=3)
    here.login(alice)
    created = here.git("knotless", "create", "notes", cwd=work)
    assert created.out == f"knotless://{alice.handle}/notes\n"
    here.git("push", "--quiet", "--set-upstream", "origin", "main", cwd=work)
    here.git("clone", "--quiet", f"knotless://{alice.handle}/notes", "copy")
    copy = here.root / "copy"
    assert here.oid(copy) == here.oid(work)
    here.git("fsck", "--strict", cwd=copy)
    (ref,) = alice.records("dev.knotless.ref").values()
    assert (ref["name"], ref["target"]) == ("refs/heads/main", here.oid(work))
