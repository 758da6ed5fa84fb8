"""What runs for git ends with it, and only with it."""

import signal
import subprocess
import sys

import pytest

from tests.gitenv import GitEnv

WORKS = """
import os, sys, time
from git_knotless.helper.hangup import ended_with_git
with ended_with_git():
    os.write(2, b"at work\\n")
    time.sleep({seconds})
os.close(1)
time.sleep(0.2)
"""


@pytest.fixture
def source() -> dict[str, str]:
    return {"PYTHONPATH": ":".join(sys.path)}


def test_what_works_for_git_ends_when_git_does(gitenv: GitEnv, source: dict[str, str]) -> None:
    with gitenv.start(sys.executable, "-c", WORKS.format(seconds=60), env=source) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stderr.readline() == b"at work\n"
        process.stdout.close()
        assert process.wait(10) == -signal.SIGTERM


@pytest.mark.parametrize("stdin", ["", "closed"])
def test_git_that_waits_or_has_no_more_to_ask_ends_nothing(
    gitenv: GitEnv, source: dict[str, str], stdin: str
) -> None:
    with gitenv.start(sys.executable, "-c", WORKS.format(seconds=0.3), env=source) as process:
        assert process.stdin is not None
        if stdin:
            process.stdin.close()
        assert process.wait(10) == 0


def test_a_stdout_that_is_a_file(gitenv: GitEnv, source: dict[str, str]) -> None:
    command = [sys.executable, "-c", WORKS.format(seconds=0.3)]
    with (gitenv.root / "out").open("wb") as out:
        done = subprocess.run(command, env={**gitenv.env, **source}, stdout=out, check=False)
    assert done.returncode == 0
