"""Several at once: every push that was accepted is in the history, and nothing is locked."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.e2e.conftest import Person


def pushed(alice: Person, clone: Path) -> bool:
    return alice.git("push", "origin", "main", cwd=clone, code=None, timeout=120).code == 0


def history(alice: Person, path: Path, branch: str = "origin/main") -> set[str]:
    alice.git("fetch", cwd=path)
    return set(alice.git("rev-list", branch, cwd=path).out.split())


@pytest.mark.parametrize("pushers", [2, pytest.param(8, marks=pytest.mark.slow)])
def test_pushers_to_one_branch(alice: Person, pushers: int) -> None:
    work = alice.published()
    clones = [alice.clone(alice.url(), f"clone{n}") for n in range(pushers)]
    accepted: set[str] = set()
    for round_ in range(2):
        for n, clone in enumerate(clones):
            alice.git("pull", "-q", "--rebase", cwd=clone)
            alice.machine.commit(clone, f"file-{n}-{round_}", message=f"{n} {round_}")
        tips = [alice.machine.oid(clone) for clone in clones]
        with ThreadPoolExecutor(pushers) as pool:
            won = list(pool.map(lambda clone: pushed(alice, clone), clones))
        accepted |= {tip for tip, ok in zip(tips, won, strict=True) if ok}
        assert sum(won) == 1
    assert accepted <= history(alice, work)
    alice.clone(alice.url(), "after")


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_pushers_to_branches_of_their_own(alice: Person, count: int) -> None:
    work = alice.published()
    clones = [alice.clone(alice.url(), f"clone{n}") for n in range(count)]
    tips = {
        f"refs/heads/b{n}": alice.machine.commit(clone, f"file{n}", message=f"{n}")
        for n, clone in enumerate(clones)
    }

    def push(n: int) -> int:
        spec = f"main:refs/heads/b{n}"
        return alice.git("push", "origin", spec, cwd=clones[n], code=None, timeout=120).code

    with ThreadPoolExecutor(count) as pool:
        assert list(pool.map(push, range(count))) == [0] * count
    refs = alice.remote_refs(alice.url())
    assert {name: refs[name] for name in tips} == tips
    alice.git("fetch", cwd=work)


def test_forced_pushers(alice: Person) -> None:
    """Forced or not, of two that read the same one loses whole."""
    alice.published()
    clones = [alice.clone(alice.url(), f"clone{n}") for n in range(3)]
    for n, clone in enumerate(clones):
        alice.git("reset", "-q", "--hard", "HEAD~1", cwd=clone)
        alice.machine.commit(clone, f"file{n}", message=f"{n}")

    def push(clone: Path) -> str | None:
        done = alice.git("push", "--force", "origin", "main", cwd=clone, code=None, timeout=120)
        return alice.machine.oid(clone) if done.code == 0 else None

    with ThreadPoolExecutor(3) as pool:
        tips = [tip for tip in pool.map(push, clones) if tip]
    assert alice.remote_refs(alice.url())["refs/heads/main"] in tips


def test_settings_rewritten_while_others_push(alice: Person) -> None:
    work = alice.published()
    stop = threading.Event()

    def rewrite() -> int:
        count = 0
        while not stop.is_set():
            text = f"number {count}"
            alice.git("knotless", "repo", "edit", alice.url(), "--description", text, timeout=120)
            count += 1
        return count

    with ThreadPoolExecutor(1) as pool:
        edits = pool.submit(rewrite)
        try:
            for n in range(4):
                alice.machine.commit(work, f"file-{n}")
                alice.git("push", cwd=work, timeout=120)
        finally:
            stop.set()
        count = edits.result()
    assert count > 0
    repo = alice.account.record("dev.knotless.repo", "work")
    assert repo is not None
    assert repo["description"] == f"number {count - 1}"
    assert repo["epoch"] == 1 + count
    clone = alice.clone(alice.url())
    assert alice.machine.oid(clone) == alice.machine.oid(work)


def test_deleted_and_pushed_to_at_once(alice: Person, person: Callable[..., Person]) -> None:
    work = alice.published()
    alice.machine.commit(work)
    with ThreadPoolExecutor(2) as pool:
        push = pool.submit(alice.git, "push", cwd=work, code=None, timeout=120)
        delete = pool.submit(
            alice.git,
            "knotless",
            "repo",
            "delete",
            alice.url(),
            "--yes",
            f"{alice.handle}/work",
            timeout=120,
        )
        push.result()
        delete.result()
    for collection in ("repo", "ref", "claim", "pack"):
        assert alice.account.records(f"dev.knotless.{collection}") == {}
