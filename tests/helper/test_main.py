"""The process that git starts: how it begins, and every way in which it ends."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

import git_knotless
from git_knotless.errors import KnotlessError
from git_knotless.helper.stderr import say, tell
from tests.gitenv import GitEnv

SOURCE = str(Path(git_knotless.__file__).parents[1])
COMMAND = ("-c", "import sys; from git_knotless.helper.main import main; sys.exit(main())")
URL = "knotless://alice.test/hello"
ALL = b"option\nfetch\npush\ncheck-connectivity\nobject-format\nstateless-connect\n\n"


@contextmanager
def helper(
    gitenv: GitEnv, *argv: str, env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    given = {"PYTHONPATH": SOURCE, **(env or {})}
    with gitenv.start(sys.executable, *COMMAND, *argv, env=given) as process:
        yield process


def ended(gitenv: GitEnv, said: str, *argv: str) -> tuple[int, bytes, str]:
    with helper(gitenv, *argv) as process:
        out, err = process.communicate(said.encode(), 60)
    return process.returncode, out, err.decode()


@pytest.mark.parametrize("said", ["", "\n", "capabilities\n\n", "capabilities\n"])
def test_git_that_has_no_more_to_ask_is_left(gitenv: GitEnv, said: str) -> None:
    answer = ALL if "capabilities" in said else b""
    assert ended(gitenv, said, "origin", URL) == (0, answer, "")


@pytest.mark.parametrize("said", ["push a:refs/heads/a\n", "fetch " + "1" * 40 + " HEAD\nfe"])
def test_git_that_goes_in_the_middle_is_left_without_a_word(gitenv: GitEnv, said: str) -> None:
    assert ended(gitenv, f"capabilities\n{said}", "origin", URL) == (128, ALL, "")


@pytest.mark.parametrize("argv", [(), ("origin",), ("origin", URL, "more")])
def test_it_is_for_git_to_run(gitenv: GitEnv, argv: tuple[str, ...]) -> None:
    assert ended(gitenv, "capabilities\n\n", *argv) == (
        128,
        b"",
        (
            "error: git-remote-knotless is run by git, with a remote and its URL\n"
            "hint: git clone knotless://<handle>/<name>\n"
        ),
    )


@pytest.mark.parametrize(
    "url", ["knotless://", "knotless://alice.test", "knotless://alice.test/a/b", "knotless://-x/y"]
)
def test_a_bad_address_is_one_line(gitenv: GitEnv, url: str) -> None:
    code, out, err = ended(gitenv, "capabilities\nlist\n", "origin", url)
    assert (code, out) == (128, ALL)
    assert err.startswith("error: ")
    assert "Traceback" not in err


def test_a_bad_command_is_one_line(gitenv: GitEnv) -> None:
    code, out, err = ended(gitenv, "capabilities\nimport \x1b[31m\n", "origin", URL)
    assert (code, out) == (128, ALL)
    assert err == "error: git sent a command that is not known here: import ?[31m\n"


def test_a_closed_pipe_is_a_quiet_end(gitenv: GitEnv) -> None:
    with helper(gitenv, "origin", URL) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        process.stdin.write(b"capabilities\n")
        process.stdin.flush()
        assert process.wait(60) == 128
        assert process.stderr.read() == b""


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_as_it_ends_anything(gitenv: GitEnv, signum: signal.Signals) -> None:
    with helper(gitenv, "origin", URL) as process:
        _begin(process)
        process.send_signal(signum)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (-signum, b"", b"")


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_does_not_wait_for_a_host(gitenv: GitEnv, signum: signal.Signals) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with helper(gitenv, "origin", f"knotless://did:web:localhost%3A{port}/hello") as process:
            _begin(process)
            assert process.stdin
            process.stdin.write(b"list\n")
            process.stdin.flush()
            connection, _ = silent.accept()
            with connection:
                process.send_signal(signum)
                out, err = process.communicate(timeout=10)
    assert (process.returncode, out, err) == (-signum, b"", b"")


def test_a_signal_that_is_ignored_stays_so(gitenv: GitEnv) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with helper(gitenv, "origin", URL) as process:
            _begin(process)
            process.send_signal(signal.SIGHUP)
            assert process.communicate(b"\n", 60) == (b"", b"")
    finally:
        signal.signal(signal.SIGHUP, before)
    assert process.returncode == 0


def _begin(process: subprocess.Popen[bytes]) -> None:
    """Until it has answered once, and so minds signals."""
    assert process.stdin
    assert process.stdout
    process.stdin.write(b"capabilities\n")
    process.stdin.flush()
    assert os.read(process.stdout.fileno(), len(ALL)) == ALL


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (KnotlessError("no"), "error: no\n"),
        (KnotlessError("no", hint="yes"), "error: no\nhint: yes\n"),
        (KnotlessError("a\nb\x1b[0m\u202e\udcff"), "error: a?b?[0m??\n"),
        (OSError(28, "No space left on device", "/x"), "error: /x: No space left on device\n"),
        (OSError("odd"), "error: odd\n"),
        (
            ValueError("x\ny"),
            (
                "error: a fault in git-knotless: ValueError('x\\ny')\n"
                "hint: set KNOTLESS_LOG=debug to see where it is\n"
            ),
        ),
    ],
)
def test_an_error_is_told_in_a_line_and_a_hint(
    error: Exception, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tell(error)
    assert capsys.readouterr().err == told


def test_what_nobody_reads_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    os.close(read)
    with open(write, "w") as closed:
        monkeypatch.setattr(sys, "stderr", closed)
        say("error", "no")
        os.dup2(os.open(os.devnull, os.O_WRONLY), write)
