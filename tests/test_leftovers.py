"""A run that leaves a process behind fails, whatever its tests say, and names it."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.network import ENVIRONMENT

ROOT = Path(__file__).parents[1]
# Two deep, so that it has another parent once the test is over.
LEAVES = """
import subprocess

def test_that_passes():
    subprocess.run(["sh", "-c", "sleep 61 >/dev/null 2>&1 </dev/null &"], start_new_session=True)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_process_that_is_left(tmp_path: Path, workers: str) -> None:
    (tmp_path / "test_leaves.py").write_text(LEAVES)
    options = ("-p", "tests.conftest", "-p", "no:cacheprovider", "-n", workers, "--rootdir", ROOT)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *options, tmp_path],
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
    )
    left = re.findall("^LEFT RUNNING: ([0-9]+) sleep 61 *$", ran.stdout, re.MULTILINE)
    for pid in left:
        os.kill(int(pid), signal.SIGKILL)
    assert "1 passed" in ran.stdout
    assert (len(left), ran.returncode) == (1, 1), ran.stdout + ran.stderr
