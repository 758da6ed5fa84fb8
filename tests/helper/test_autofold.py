"""A push that leaves many small packs has them folded, as git packs a repository by itself."""

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from git_knotless.atproto.syntax import Rkey, tid
from git_knotless.helper.autofold import MOST, is_due
from git_knotless.storage.git import Git
from git_knotless.storage.packs.taken import note_size, pack_sizes, packs_taken, remember
from tests.gitenv import GitEnv
from tests.network import Account, write
from tests.storage.pushing import commits_of, push_each

HERE = {"KNOTLESS_AUTO_DETACH": "false"}
PACK = "dev.knotless.pack"


class Busy:
    """A repository with as many small packs as are left alone, and the next commit.

    The machine is logged in to the account.
    """

    def __init__(self, machine: GitEnv, account: Account) -> None:
        self.machine, self.account = machine, account
        self.url = f"knotless://{account.handle}/work"
        machine.create(self.url)
        self.work = machine.repository()
        machine.git("remote", "add", "origin", self.url, cwd=self.work)
        self.git = Git(self.work / ".git", env=machine.env)
        with machine.knotless() as context:
            repository = context.open(self.url, to="push to")
            push_each(repository, self.git, commits_of(self.git))
        ((first, value),) = self.packs().items()
        self.key = first.partition(".")[0]
        self._plant(value)
        machine.commit(self.work)

    def _plant(self, value: dict[str, Any]) -> None:
        """The same pack as often as there may be packs: what is in them makes no difference."""
        rkeys = [f"{self.key}.{tid(number, 0)}" for number in range(1, MOST)]
        self.account.apply(*(write("create", PACK, rkey, value) for rkey in rkeys))
        for rkey in rkeys:
            note_size(self.git, self.key, Rkey(rkey), value["size"])

    def push(self, *args: str, **env: str) -> str:
        pushed = self.machine.git("push", *args, "origin", "main", cwd=self.work, env=env)
        return pushed.err

    def packs(self) -> dict[str, Any]:
        return self.account.records(PACK)

    def memory(self) -> Path:
        return self.work / ".git/knotless"

    def wait(self) -> None:
        """Until what goes on in the background has folded all, and has ended."""
        until = time.monotonic() + 30
        while len(self.packs()) > 1 or len(pack_sizes(self.git, self.key)) > 1:
            assert time.monotonic() < until, (self.memory() / "fold.log").read_text()
            time.sleep(0.05)  # what goes on beside us
        with (self.memory() / f"{self.key}.folding.lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)

    def clones(self) -> bool:
        place = self.machine.root / "clone"
        self.machine.git("clone", "--quiet", self.url, str(place))
        self.machine.git("fsck", "--strict", cwd=place)
        return self.machine.oid(place) == self.machine.oid(self.work)


@pytest.fixture
def busy(machine: Callable[[], GitEnv], account: Callable[..., Account]) -> Busy:
    mine, alice = machine(), account("alice")
    mine.log_in(alice)
    return Busy(mine, alice)


def test_in_the_foreground(busy: Busy) -> None:
    assert len(busy.packs()) == MOST
    assert not is_due(busy.git, busy.key)
    before = set(busy.packs())
    assert "fold" not in busy.push(**HERE)  # in silence, where it does not take long
    (folded,) = busy.packs()
    assert folded > max(before)
    assert set(pack_sizes(busy.git, busy.key)) == {folded}
    assert folded not in packs_taken(busy.git, busy.key)  # not all of them were taken here
    assert busy.clones()
    assert not (busy.memory() / f"{busy.key}.folding").exists()


@pytest.mark.slow
def test_who_has_had_all_the_packs_takes_what_they_became_for_taken(busy: Busy) -> None:
    remember(busy.git, busy.key, *busy.packs())
    busy.push(**HERE)
    (folded,) = busy.packs()
    assert folded in packs_taken(busy.git, busy.key)


def test_in_the_background(busy: Busy) -> None:
    said = busy.push()
    assert f"note: folding the packs of {busy.url} in background" in said
    assert said.count("in background") == 1
    busy.wait()
    assert (busy.memory() / "fold.log").read_text() == ""
    assert busy.clones()


@pytest.mark.slow
def test_a_quiet_push_says_nothing_of_it(busy: Busy) -> None:
    with (busy.memory() / f"{busy.key}.folding.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another is at it
        assert busy.push("--quiet") == ""
    assert len(busy.packs()) == MOST + 1


@pytest.mark.slow
def test_not_where_it_is_switched_off(busy: Busy) -> None:
    busy.push(KNOTLESS_AUTO_FOLD="false", **HERE)
    assert len(busy.packs()) == MOST + 1


def test_one_that_fails_fails_no_push_and_is_not_tried_at_once(busy: Busy) -> None:
    log = busy.memory() / "fold.log"
    log.write_text("error: the host is on fire\n")
    assert "warning: packs were not folded" in (said := busy.push())
    assert "the host is on fire" in said
    assert len(busy.packs()) == MOST + 1
    an_hour_ago = time.time() - 3601
    os.utime(log, (an_hour_ago, an_hour_ago))
    busy.machine.commit(busy.work, "another")
    busy.push(**HERE)
    assert len(busy.packs()) == 1


@pytest.mark.slow
def test_what_was_folded_elsewhere_is_not_folded_again(busy: Busy) -> None:
    """The memory here is of packs that are there no more: a listing puts it right."""
    remembered = (busy.memory() / f"{busy.key}.packs").read_bytes()
    busy.push(**HERE)
    (busy.memory() / f"{busy.key}.packs").write_bytes(remembered)
    before = set(busy.packs())
    busy.machine.commit(busy.work, "another")
    busy.push(**HERE)
    assert before < set(busy.packs())
    assert len(pack_sizes(busy.git, busy.key)) == 2


def test_it_costs_a_push_next_to_nothing(busy: Busy) -> None:
    is_due(busy.git, busy.key)
    began = time.perf_counter()
    for _ in range(20):
        is_due(busy.git, busy.key)
    assert (time.perf_counter() - began) / 20 < 0.003
