"""scripts/try on a machine that has git and a Python: from a clone, and from an archive."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.gitenv import GIT, GitEnv, Result

ROOT = Path(__file__).parents[1]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an archive of this version holds."""
    listed = [str(GIT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    place = tmp_path_factory.mktemp("tree") / "git knotless"
    for name in names.split("\0"):
        if name and (ROOT / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place / name)
    return place


@pytest.fixture
def tried(tree: Path, gitenv: GitEnv) -> Callable[[], Result]:
    """Runs it, and holds that nothing is left behind but the environment that it says."""
    temporary = gitenv.root / "tmp"
    temporary.mkdir()
    gitenv.env = {
        "HOME": str(gitenv.home),
        "PATH": os.pathsep.join([str(GIT.parent), "/usr/bin", "/bin"]),
        "TMPDIR": str(temporary),
        "PYTHON": sys.executable,
        # How pip finds packages is the machine's.
        **{name: value for name, value in os.environ.items() if name.startswith("PIP_")},
    }

    def run() -> Result:
        before = everything(tree) | everything(gitenv.root)
        done = gitenv.run("scripts/try", cwd=tree, timeout=600)
        after = everything(tree) | everything(gitenv.root)
        assert dict(after.items() - before.items()) == {}
        assert before.keys() == after.keys()
        return done

    return run


def everything(folder: Path) -> dict[str, int]:
    """Every path but those of the environment, and when its content changed."""
    found = {}
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name != ".venv-try"]
        for name in files:
            path = Path(place, name)
            found[str(path)] = path.stat().st_mtime_ns
        found |= {str(Path(place, name)): 0 for name in folders}
    return found


def readme() -> str:
    block = re.search(
        r"```console\n\$ scripts/try\n(.*?)```", (ROOT / "README.md").read_text(), re.S
    )
    assert block
    return block[1]


def without_numbers(text: str) -> str:
    return re.sub(r"\d+", "N", re.sub(r"PATH=.*/\.venv-try", "PATH=….venv-try", text))


def test_it_says_what_the_readme_shows(tree: Path, tried: Callable[[], Result]) -> None:
    """From an archive: what is pushed is one commit of the tree."""
    done = tried()
    making, _, then = readme().partition("\n")
    assert done.err in (f"{making}\n", ""), "it is made once"
    assert f'say "{making}"' in (ROOT / "scripts/try").read_text()
    assert without_numbers(done.out) == without_numbers(then)
    assert len(done.out.splitlines()) == 10
    assert "branches: 1, tags: 0, " in done.out
    assert f"PATH={tree}/.venv-try/bin:$PATH" in done.out


def test_from_a_clone_every_branch_and_tag_is_compared(
    tree: Path, gitenv: GitEnv, tried: Callable[[], Result]
) -> None:
    people = [f"GIT_{who}_{what}" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")]
    identity = dict.fromkeys(people, "x")
    gitenv.git("init", "--quiet", str(tree))
    gitenv.git("add", "--all", cwd=tree)
    gitenv.git("commit", "--quiet", "-m", "all", cwd=tree, env=identity)
    gitenv.git("branch", "other", cwd=tree)
    gitenv.git("switch", "--quiet", "--create", "draft", cwd=tree)
    gitenv.git("tag", "-a", "-m", "one", "v1", cwd=tree, env=identity)
    (tree / ".git/hooks").mkdir(exist_ok=True)
    hook = tree / ".git/hooks/pre-push"
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    try:
        done = tried()
        assert "branches: 3, tags: 1, " in done.out
        assert "default branch" not in done.err
    finally:
        shutil.rmtree(tree / ".git")


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_leaves_nothing_behind(
    signum: int, tree: Path, gitenv: GitEnv, tried: Callable[[], Result]
) -> None:
    tried()
    temporary = gitenv.root / "tmp"
    with gitenv.start("scripts/try", cwd=tree) as process:
        until = time.monotonic() + 60
        while not any(temporary.glob("*/sandbox/running")):
            assert time.monotonic() < until
            time.sleep(0.01)  # another process is at work
        os.killpg(process.pid, signum)  # as a terminal does
        process.communicate(timeout=60)
    assert process.returncode == 128 + signum
    assert not list(temporary.iterdir())
