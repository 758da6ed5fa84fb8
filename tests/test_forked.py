"""Our programs are in a fork what they are when they are started."""

import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.forked import HELPER, stand_ins
from tests.gitenv import GitEnv
from tests.marks import sandbox_only
from tests.network import Account

NOWHERE = {
    "KNOTLESS_PLC_URL": "http://localhost:1",
    "KNOTLESS_HANDLE_RESOLVER": "http://localhost:1",
}


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--version"], 0),
        (["account", "list", "--json"], 0),
        (["login", "a.test", "--password-stdin"], 1),
        (["no-such"], 2),
        (["whoami"], 4),
        (["repo", "show"], 1),
    ],
)
def test_it_answers_as_the_program_does(gitenv: GitEnv, arguments: list[str], code: int) -> None:
    work = gitenv.repository()
    gitenv.git("remote", "add", "origin", "knotless://a.test/é", cwd=work)
    gitenv.env |= NOWHERE
    forked = gitenv.git("knotless", *arguments, cwd=work, stdin="x\n", code=code)
    assert forked == gitenv.run("git", "knotless", *arguments, cwd=work, stdin="x\n", code=code)
    assert forked.out or forked.err


def test_it_ends_when_its_time_is_over(gitenv: GitEnv) -> None:
    with socket.create_server(("localhost", 0)) as silent:
        env = {name: f"http://localhost:{silent.getsockname()[1]}" for name in NOWHERE}
        asked = ("login", "a.test", "--password-stdin")
        gitenv.git("knotless", *asked, stdin="x\n", env=env, timeout=0.5, code=-9)


def test_git_runs_it_as_it_does_the_program(gitenv: GitEnv) -> None:
    for address in ("knotless://a.test/é", "knotless://no handle/x"):
        seen = gitenv.git("ls-remote", address, env=NOWHERE, code=128)
        assert seen == gitenv.run("git", "ls-remote", address, env=NOWHERE, code=128)
        assert seen.err


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_it_ends_with_its_stand_in(gitenv: GitEnv, signum: int) -> None:
    """Whose signals it gets."""
    with socket.create_server(("localhost", 0)) as host:
        host.settimeout(20)
        env = {name: f"http://localhost:{host.getsockname()[1]}" for name in NOWHERE}
        program = f"{stand_ins()}/{HELPER}"
        with gitenv.start(program, "origin", "knotless://a.test/x", env=env) as process:
            assert process.stdin
            process.stdin.write(b"list\n")
            process.stdin.flush()
            asked, _ = host.accept()
            asked.settimeout(20)
            process.send_signal(signum)
            assert process.wait(20) == -signum
            with asked:
                while asked.recv(10_000):
                    pass


def test_who_asks_for_nothing_is_no_trouble(gitenv: GitEnv) -> None:
    for sent in (b"", b"\0\0", b"\0\0\0\x09half"):
        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect(str(Path(stand_ins()).with_name("socket")))
            asking.sendall(sent)
    assert gitenv.git("knotless", "--version").code == 0


@sandbox_only
def test_a_push_leaves_what_gits_own_does(
    account: Callable[..., Account], machine: Callable[[], GitEnv]
) -> None:
    alice, left = account("alice"), list[Any]()
    for name, push in (("one", GitEnv.push_main), ("two", push_by_git)):
        there = machine()
        there.log_in(alice)
        there.create(url := f"knotless://{alice.handle}/{name}")
        work = there.repository(commits=3)
        there.git("remote", "add", "origin", url, cwd=work)
        push(there, work)
        assert there.git("push", cwd=work).err == "Everything up-to-date\n"
        record = alice.record("dev.knotless.repo", name)
        assert record
        config = there.git("config", "--local", "--list", cwd=work).out
        names = [path.name for path in (work / ".git/knotless").iterdir()]
        texts = [config.replace(url, "URL"), *sorted(names)]
        left.append(([text.replace(record["key"], "KEY") for text in texts], there.refs(work)))
    assert left[0] == left[1]


def push_by_git(one: GitEnv, work: Path) -> None:
    one.run("git", "push", "-u", "origin", "main", cwd=work)
