"""What `repo compact` and `repo size` say is what docs/packs.md shows."""

import fcntl
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.gitenv import GitEnv
from tests.marks import sandbox_only
from tests.network import Account
from tests.porcelain.test_json import shape

pytestmark = sandbox_only
PAGE = (Path(__file__).parents[2] / "docs/packs.md").read_text()
COMPACT, SIZE = (json.loads(b) for b in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL))


@pytest.fixture
def mine(machine: Callable[[], GitEnv], account: Callable[..., Account]) -> GitEnv:
    """With a repository around it that was pushed twice."""
    alice, mine = account("alice"), machine()
    mine.log_in(alice)
    url = f"knotless://{alice.handle}/work"
    mine.create(url)
    work = mine.repository(commits=1)
    mine.git("remote", "add", "origin", url, cwd=work)
    mine.push_main(work)
    mine.commit(work)
    mine.push_main(work)
    return mine


def said(mine: GitEnv, *args: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(
        mine.git("knotless", "repo", *args, "--json", cwd=mine.root / "work").out
    )
    return told


def test_their_json(mine: GitEnv) -> None:
    size = said(mine, "size")
    assert [*size] == [*SIZE]
    assert shape(size["records"]) == shape(SIZE["records"])
    assert [*size["prunable"]] == [*SIZE["prunable"]]
    assert said(mine, "size", "--quick") == size | {"prunable": None}
    dry = said(mine, "compact", "--dry-run")
    done = said(mine, "compact")
    assert [*dry] == [*done] == [*COMPACT]
    assert (dry["folded"], done["folded"]) == (0, 2)
    assert (dry["dryRun"], done["dryRun"]) == (True, False)


def test_what_a_person_reads(mine: GitEnv) -> None:
    work = mine.root / "work"
    lines = mine.git("knotless", "repo", "size", cwd=work).out.splitlines()
    rows = [line.partition(" ")[0] for line in lines]
    assert rows == ["url", "readers", "size", "repo", "ref", "claim", "pack", "prunable"]
    lines = mine.git("knotless", "repo", "compact", cwd=work).out.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["freed", "packs", "claims", "folded"]
    assert lines[-1].endswith("2 packs")


def test_whoever_compacts_in_a_clone_fetches_nothing_of_it_again(mine: GitEnv) -> None:
    said(mine, "compact")
    (memory,) = (mine.root / "work/.git/knotless").glob("*.taken")
    assert len(memory.read_text().split()) == 3


def test_one_at_a_time(mine: GitEnv) -> None:
    said(mine, "compact")
    (lock,) = (mine.home / "knotless-cache/packs").glob("*.lock")
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        refused = mine.git("knotless", "repo", "compact", "--json", cwd=mine.root / "work", code=1)
    assert json.loads(refused.err)["error"] == "AtItAlready"
    assert not (lock.parent / lock.stem).exists()
