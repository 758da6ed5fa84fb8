"""What is said to git-lfs, line by line, without git-lfs."""

import io
import json
import sys
import sysconfig
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest

from git_knotless.errors import KnotlessError, LoginNeeded
from git_knotless.lfs import agent
from git_knotless.lfs.agent import Agent, BadMessage, Direction, Request
from tests.gitenv import GitEnv

OID = "a" * 64
INIT = {"event": "init", "operation": "upload", "remote": "origin", "concurrent": True}
DONE = {"event": "terminate"}


def asked(event: str = "upload", size: Any = 10, oid: str = OID, **more: Any) -> dict[str, Any]:
    return {"event": event, "oid": oid, "size": size, "action": None, **more}


@dataclass
class Deeds:
    """Work that counts what it is given to count, and fails as it is told."""

    counts: list[int] = field(default_factory=list)
    error: Exception | None = None
    path: str | None = None
    seen: list[Request] = field(default_factory=list)
    begun: list[tuple[str, str]] = field(default_factory=list)
    ended: list[bool] = field(default_factory=list)
    refusal: KnotlessError | None = None

    def begin(self, stack: ExitStack, direction: Direction, remote: str) -> "Deeds":
        self.begun.append((direction, remote))
        stack.callback(self.ended.append, True)
        if self.refusal:
            raise self.refusal
        return self

    def carry_out(self, request: Request, count: Callable[[int], None]) -> str | None:
        self.seen.append(request)
        for each in self.counts:
            count(each)
        if self.error:
            raise self.error
        return self.path


def talk(deeds: Deeds, *messages: Any) -> list[Any]:
    lines = [json.dumps(message).encode() + b"\n" for message in messages]
    out = io.BytesIO()
    Agent(lines, out, deeds.begin).run()
    return [json.loads(line) for line in out.getvalue().splitlines()]


@pytest.fixture(autouse=True)
def always_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every step, however soon it comes."""
    monkeypatch.setattr(agent, "_EVERY", 0.0)


def progress(so_far: int, last: int) -> dict[str, Any]:
    return {"event": "progress", "oid": OID, "bytesSoFar": so_far, "bytesSinceLast": last}


def test_an_upload() -> None:
    deeds = Deeds(counts=[4, 6])
    said = talk(deeds, INIT, asked(path="/a b/c"), DONE)
    assert said == [{}, progress(4, 4), progress(10, 6), {"event": "complete", "oid": OID}]
    assert deeds.seen == [Request(OID, 10, "/a b/c")]
    assert deeds.begun == [("upload", "origin")]
    assert deeds.ended == [True]


def test_a_download() -> None:
    deeds = Deeds(counts=[10], path="/x/y")
    said = talk(deeds, INIT | {"operation": "download"}, asked("download"), DONE)
    assert said[1:] == [progress(10, 10), {"event": "complete", "oid": OID, "path": "/x/y"}]


def test_what_had_not_to_be_sent_counts_in_the_end() -> None:
    assert talk(Deeds(), INIT, asked(), DONE)[1] == progress(10, 10)


def test_what_is_sent_again_is_told_once() -> None:
    said = talk(Deeds(counts=[6, -6, 3, 7, 5]), INIT, asked(), DONE)
    assert [(each["bytesSoFar"], each["bytesSinceLast"]) for each in said[1:-1]] == [
        (6, 6),
        (10, 4),
    ]


def test_ten_words_a_second_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "_EVERY", 0.1)
    now = iter(number / 100 for number in range(100_000))
    monkeypatch.setattr(agent.time, "monotonic", lambda: next(now))
    said = talk(Deeds(counts=[1] * 300), INIT, asked(size=300), DONE)
    assert len(said) < 45
    assert said[-2]["bytesSoFar"] == 300
    assert sum(each["bytesSinceLast"] for each in said[1:-1]) == 300


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (KnotlessError("no", hint="git x"), {"code": 1, "message": "no\nhint: git x"}),
        (LoginNeeded("who?", hint="git l"), {"code": 4, "message": "who?\nhint: git l"}),
        (KnotlessError("a\x1b[31mb\nc"), {"code": 1, "message": "a?[31mb?c"}),
        (
            OSError(28, "No space left on device", "/x"),
            {"code": 1, "message": "/x: No space left on device"},
        ),
    ],
    ids=["refusal", "login", "colours", "disk"],
)
def test_an_error_ends_one_transfer(error: Exception, said: dict[str, Any]) -> None:
    deeds = Deeds(error=error)
    answers = talk(deeds, INIT, asked(), asked(), DONE)
    assert answers[1:] == [{"event": "complete", "oid": OID, "error": said}] * 2
    assert len(deeds.seen) == 2


def test_what_refuses_the_first_refuses_all() -> None:
    deeds = Deeds(refusal=LoginNeeded("not logged in as alice.test"))
    answers = talk(deeds, INIT, asked(), asked(), DONE)
    assert [each["error"]["code"] for each in answers[1:]] == [4, 4]
    assert len(deeds.begun) == 1


def test_nothing_is_looked_up_for_nothing() -> None:
    """git-lfs starts eight of us, and may need one."""
    deeds = Deeds()
    assert talk(deeds, INIT, DONE) == [{}]
    assert talk(deeds, INIT) == [{}]
    assert deeds.begun == []


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [7],
        [{}],
        [INIT | {"operation": "both"}],
        [INIT, {"event": "download", "oid": OID, "size": 1}],
        [INIT, asked(oid="A" * 64)],
        [INIT, asked(oid="../../etc/passwd")],
        [INIT, asked(size=-1)],
        [INIT, asked(size="1")],
        [INIT, asked(size=1 << 60)],
        [INIT, [1, 2]],
    ],
    ids=str,
)
def test_what_git_lfs_does_not_say(messages: list[Any]) -> None:
    with pytest.raises(BadMessage):
        talk(Deeds(), *messages)


def test_what_is_no_json_or_too_long() -> None:
    for line in (
        b"{\n",
        b"\xff\n",
        b"[" * 100_000 + b"\n",
        b'{"event": "' + b"x" * (1 << 20) + b'"}\n',
    ):
        with pytest.raises(BadMessage):
            Agent([line], io.BytesIO(), Deeds().begin).run()


# --- the program


def program() -> str:
    return f"{sysconfig.get_path('scripts')}/git-knotless-lfs"


def test_it_says_who_runs_it(gitenv: GitEnv) -> None:
    ran = gitenv.run(program(), "upload", code=1)
    assert ran.err == "error: git-knotless-lfs is run by git-lfs\nhint: git knotless lfs install\n"
    ran = gitenv.run(program(), stdin="what\n", code=1)
    assert ran.err == "error: what came on standard input is not git-lfs's\n"
    assert ran.out == ""


def test_it_starts_without_what_a_transfer_takes(gitenv: GitEnv) -> None:
    command = [sys.executable, "-X", "importtime", program()]
    ran = gitenv.run(*command, stdin=json.dumps(INIT) + "\n")
    assert ran.out == "{}\n"
    assert "git_knotless.lfs.agent" in ran.err
    assert not {"httpx", "git_knotless.context", "git_knotless.storage.git"} & {
        line.rpartition("|")[2].strip() for line in ran.err.splitlines()
    }


def test_a_remote_that_leads_elsewhere(gitenv: GitEnv) -> None:
    path = gitenv.repository()
    gitenv.git("remote", "add", "origin", "https://lfs.example/x.git", cwd=path)
    lines = [INIT, asked(path="/x"), INIT | DONE]
    ran = gitenv.run(program(), cwd=path, stdin="".join(json.dumps(each) + "\n" for each in lines))
    said = json.loads(ran.out.splitlines()[1])["error"]["message"]
    assert said == (
        "origin leads to https://lfs.example/x.git, which is no knotless:// address\n"
        "hint: git config --unset remote.origin.lfsurl"
    )
    ran = gitenv.run(
        program(), cwd=gitenv.root, stdin=json.dumps(INIT) + "\n" + json.dumps(asked()) + "\n"
    )
    assert "origin is no remote of this repository" in ran.out
