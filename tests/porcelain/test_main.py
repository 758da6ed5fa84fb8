"""What a person meets before any host is asked: help, wrong usage, and how a command ends."""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from git_knotless.atproto.session import Session
from git_knotless.atproto.sessions import SessionStore
from git_knotless.atproto.syntax import Did, Handle
from git_knotless.porcelain import main as porcelain
from git_knotless.porcelain.commands import app
from git_knotless.porcelain.main import main
from tests.gitenv import GitEnv

Captured = pytest.CaptureFixture[str]
ALICE, BOB = (
    Session(Did(f"did:plc:{name[0] * 24}"), Handle(f"{name}.test"), "http://localhost:1", "a", "r")
    for name in ("alice", "bob")
)


@pytest.fixture(autouse=True)
def _signals_are_pytests_again() -> Iterator[None]:
    minded = {each: signal.getsignal(each) for each in porcelain._ENDING}
    yield
    for each, handler in minded.items():
        signal.signal(each, handler)


@pytest.fixture(autouse=True)
def _nothing_of_ours_around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty home, no git repository, and no server that could be asked."""
    for name in [name for name in os.environ if name.startswith(("KNOTLESS_", "GIT_"))]:
        monkeypatch.delenv(name)
    home = {
        "HOME": tmp_path / "home",
        "XDG_CONFIG_HOME": tmp_path / "home/.config",
        "XDG_CACHE_HOME": tmp_path / "home/.cache",
        "KNOTLESS_CONFIG_DIR": tmp_path / "home/config",
        "KNOTLESS_CACHE_DIR": tmp_path / "home/cache",
        "GIT_CEILING_DIRECTORIES": tmp_path,
    }
    for name, value in home.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("KNOTLESS_PLC_URL", "http://localhost:1")
    monkeypatch.setenv("KNOTLESS_HANDLE_RESOLVER", "http://localhost:1")
    monkeypatch.chdir(tmp_path)


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["git-knotless", *arguments])
    return main()


ROOT = str(Path(porcelain.__file__).parents[2])
PROGRAM = "import sys; from git_knotless.porcelain.main import main; sys.exit(main())"


def command(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """The program itself, in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        env={**os.environ, "PYTHONPATH": ROOT},
        text=True,
        timeout=60,
        check=False,
        **options,
    )


def started(*arguments: str, env: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        env={**os.environ, "PYTHONPATH": ROOT, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def all_commands(group: Any, path: Sequence[str] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, each in group.commands.items():
        if hasattr(each, "commands"):
            yield from all_commands(each, (*path, name))
        else:
            yield (*path, name), each


COMMANDS = dict(all_commands(get_command(app)))


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("option", ["-h", pytest.param("--help", marks=pytest.mark.slow)])
def test_every_command_has_help_with_an_example(
    path: tuple[str, ...], option: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    assert run(monkeypatch, *path, option) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith(f"Usage: git knotless {' '.join(path)} [OPTIONS]")
    assert "\n  Example" in shown.out
    assert "\n    git knotless " in shown.out
    assert not shown.err


def test_what_gh_calls_otherwise_is_there_and_not_shown() -> None:
    hidden = {" ".join(path) for path, each in COMMANDS.items() if each.hidden}
    assert hidden >= {"repo view", "repo ls", "repo create", "repo clone"}
    auth = {" ".join(path) for path in COMMANDS if path[0] == "auth"}
    assert auth == {"auth login", "auth logout", "auth status", "auth switch"}
    assert get_command(app).commands["auth"].hidden  # type: ignore[attr-defined]  # it is a group


@pytest.mark.parametrize("words", [[], ["repo"], ["repo", "edit"], ["clone"]])
def test_help_is_what_h_shows(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    assert run(monkeypatch, *words, "-h") == 0
    shown = capsys.readouterr().out
    assert run(monkeypatch, "help", *words) == 0
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["help", "nonsense"], "no such command 'nonsense'"),
        (["cloen"], "no such command 'cloen', did you mean 'clone'?"),
        (["auht"], "no such command 'auht'"),
        (["repo", "lst"], "no such command 'lst', did you mean 'list'?"),
        (["repo", "veiw"], "no such command 'veiw', did you mean 'verify'?"),
        (["repo", "creat"], "no such command 'creat'"),
    ],
)
def test_what_is_hidden_is_not_suggested(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    assert run(monkeypatch, *arguments) == 2
    assert capsys.readouterr().err.splitlines()[0] == f"error: {message}"


@pytest.mark.parametrize("arguments", [[], ["repo"], ["auth"]])
def test_without_a_command_help_is_no_success(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    assert run(monkeypatch, *arguments) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("Usage: git knotless")
    assert not shown.out


WRONG = [
    (["clone"], "missing argument 'URL'", "git knotless clone -h"),
    (["login"], "missing argument 'HANDLE'", "git knotless login -h"),
    (["nonsense"], "no such command 'nonsense'", "git knotless -h"),
    (["whoami", "--nonsense"], "no such option: --nonsense", "git knotless whoami -h"),
    (["clone", "--depth", "1", "alice.test/notes"],
     "no such option: --depth: those of git follow --", "git knotless clone -h"),
    (["login", "a.test", "--no-browser", "--password-stdin"],
     "--no-browser and --password-stdin do not go together: a password takes no browser",
     "git knotless login -h"),
    (["login", "a.test", "--password", "x"],
     "no such option: --password (Possible options: --password-stdin)", "git knotless login -h"),
    (["auth", "token"], "no such command 'token'", "git knotless auth -h"),
    (["repo", "show", "a.test/b", "c"], "got unexpected extra argument(s) (c)",
     "git knotless repo show -h"),
    (["repo", "edit", "a.test/b", "--history", "odd"],
     "invalid value for '--history': 'odd' is not one of 'linear', 'merges'",
     "git knotless repo edit -h"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "message", "hint"), WRONG)
def test_wrong_usage_is_one_line_and_the_help_that_mends_it(
    arguments: list[str],
    message: str,
    hint: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
) -> None:
    assert run(monkeypatch, *arguments) == 2
    assert capsys.readouterr().err == f"error: {message}\nhint: {hint}\n"


@pytest.mark.parametrize(("arguments", "message", "hint"), WRONG[2:])
def test_wrong_usage_with_json_is_a_document(
    arguments: list[str],
    message: str,
    hint: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
) -> None:
    assert run(monkeypatch, *arguments, "--json") == 2
    shown = capsys.readouterr()
    error = json.loads(shown.err)
    assert error["error"] == "WrongUsage"
    assert error["message"].startswith(message.partition(" (")[0])
    assert error["hint"] == hint
    assert not shown.out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["whoami"], 4, "nobody is logged in"),
        (["logout"], 4, "nobody is logged in"),
        (["repo", "list"], 4, "nobody is logged in"),
        (["create", "notes"], 4, "nobody is logged in"),
        (["whoami", "--account", "alice.test"], 4, "not logged in as alice.test"),
        (["create", "notes", "--private"], 1, "private repositories"),
        (["create", "notes", "--push"], 1, "not in a git repository"),
        (["create", "notes", "--remote", "x"], 1, "not in a git repository"),
        (["create", "no tes"], 1, "'no tes' cannot be the name of a repository"),
        (["repo", "show"], 1, "not in a git repository"),
        (["repo", "show", "alice.test"], 1, "'alice.test' names no repository"),
        (["repo", "show", "alice.test/a/b"], 1, "'alice.test/a/b': 'a/b' cannot be the name"),
        (["repo", "show", ""], 1, "'' names no repository"),
        (["repo", "show", "notes"], 1, "'notes' names no owner"),
        (["repo", "show", "@alice.test/a/b"], 1, "'@alice.test/a/b': 'a/b' cannot be the name"),
        (["repo", "show", "alice.example/a"], 1, "'alice.example/a': 'alice.example' is"),
        (["repo", "show", "https://a.test/b"], 1, "'https://a.test/b' is not a knotless:// URL"),
        (["clone", "notes"], 1, "'notes' names no owner"),
        (["clone", "https://a.test/b"], 1, "'https://a.test/b' is not a knotless:// URL"),
        (["clone", "not a url"], 1, "'not a url'"),
        (["create", "notes.lock"], 1, "the name of a repository does not end in .git, "),
        (["clone", "--", "alice.test/a"], 2, "missing argument 'URL'"),
        (["login", "nonsense"], 1, "'nonsense' is not"),
        (["whoami", "--account", "nonsense"], 1, "'nonsense' is not"),
        (["whoami", "--account", "@alice.test"], 4, "not logged in as alice.test"),
    ],
)  # fmt: skip
def test_a_refusal_is_one_line_and_a_code(
    arguments: list[str],
    code: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
) -> None:
    assert run(monkeypatch, *arguments) == code
    shown = capsys.readouterr()
    first, *rest = shown.err.splitlines()
    assert first.startswith(f"error: {message}")
    assert len(rest) <= 1
    assert all(line.startswith("hint: ") for line in rest)
    assert not shown.out


@pytest.mark.parametrize("account", [None, "alice.test"])
def test_who_is_not_logged_in_is_not_told_to_log_in_so_as_to_log_out(
    account: str | None, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    arguments = ["logout"] if account is None else ["logout", account]
    assert run(monkeypatch, *arguments) == 4
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_an_account_may_be_written_with_its_at(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setenv("KNOTLESS_ACCOUNT", "@alice.test")
    assert run(monkeypatch, "whoami") == 4
    assert capsys.readouterr().err.startswith("error: not logged in as alice.test\n")


@pytest.mark.parametrize(
    ("logged_in", "account", "hint"),
    [
        ([], None, "HANDLE/notes"),
        ([ALICE], None, "alice.test/notes"),
        ([ALICE, BOB], None, "HANDLE/notes"),
        ([ALICE, BOB], "bob.test", "bob.test/notes"),
    ],
)
@pytest.mark.parametrize("command", [["clone"], ["repo", "show"], ["repo", "delete"]])
def test_a_name_without_its_owner_is_told_whose_it_may_be(
    command: list[str],
    logged_in: list[Session],
    account: str | None,
    hint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
) -> None:
    for session in logged_in:
        SessionStore(tmp_path / "home/config/sessions").save(session)
    monkeypatch.setenv("KNOTLESS_ACCOUNT", account or "")
    assert run(monkeypatch, *command, "notes") == 1
    assert capsys.readouterr().err.splitlines() == [
        "error: 'notes' names no owner",
        f"hint: git knotless {' '.join(command)} {hint}",
    ]


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["repo", "rename", "-R", "notes", "new"], "repo rename -R HANDLE/notes new"),
        (["repo", "edit", "notes", "--description=it's notes"],
         """repo edit HANDLE/notes '--description=it'"'"'s notes'"""),
        (["repo", "delete", "--yes", "x", "x"], "repo delete --yes HANDLE/x HANDLE/x"),
        (["repo", "redirects", "--repo=notes"], "repo redirects --repo=HANDLE/notes"),
        (["fork", "notes", "--name", "mine"], "fork HANDLE/notes --name mine"),
        (["repo", "rename", "bob.test/x", "-R", "bob.test/y"], "repo rename x -R bob.test/y"),
        (["sandbox", "start", "--dir"], "sandbox start -h"),
        (["sandbox", "start", "--pds", "x"], "sandbox start -h"),
        (["doctor", "@"], "doctor -h"),
    ],
)  # fmt: skip
def test_a_hint_is_the_whole_command(
    arguments: list[str], hint: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    assert run(monkeypatch, *arguments) in (1, 2)
    assert capsys.readouterr().err.splitlines()[-1] == f"hint: git knotless {hint}"


def test_a_command_outside_of_any_clone_of_ours_is_told_where_its_repository_goes(
    monkeypatch: pytest.MonkeyPatch, gitenv: GitEnv, capsys: Captured
) -> None:
    monkeypatch.chdir(gitenv.repository())
    for words, more in ((["rename", "x"], ["-R HANDLE/NAME"]), (["show"], ["HANDLE/NAME"])):
        assert run(monkeypatch, "repo", *words) == 1
        hint = " ".join(["hint: git knotless repo", *words, *more])
        assert capsys.readouterr().err.splitlines()[-1] == hint


def test_what_cannot_be_reached_has_who_looks_into_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Captured
) -> None:
    """Or the sandbox to start, where that is whose settings these are."""
    monkeypatch.setenv("KNOTLESS_HANDLE_RESOLVER", "http://localhost:1")
    monkeypatch.setenv("KNOTLESS_PLC_URL", "http://localhost:1")
    sandbox = tmp_path / "a sandbox"
    (sandbox / "config").mkdir(parents=True)
    monkeypatch.setenv("KNOTLESS_CONFIG_DIR", str(sandbox / "config"))
    for hint in ("doctor", f"sandbox start --dir '{sandbox}'"):
        for who in ("alice.test", ALICE.did):
            assert run(monkeypatch, "repo", "list", who) == 1
            error = capsys.readouterr().err.splitlines()
            assert "connection refused" in error[0]
            assert error[1] == f"hint: git knotless {hint}"
        (sandbox / "sandbox.lock").touch()


def test_a_bad_setting_is_told_by_its_name(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setenv("KNOTLESS_LOG", "loud")
    assert run(monkeypatch, "whoami", "--json") == 1
    assert json.loads(capsys.readouterr().err)["message"].startswith("KNOTLESS_LOG: 'loud'")


def test_a_browser_that_is_not_there_is_told_before_anything_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """No host can be reached here, and none is asked."""
    monkeypatch.setenv("KNOTLESS_BROWSER", f"'{tmp_path}/no browser' --new-window")
    assert run(monkeypatch, "login", "alice.test") == 1
    assert capsys.readouterr().err.splitlines() == [
        f"error: KNOTLESS_BROWSER or knotless.browser names no command: '{tmp_path}/no browser'",
        "hint: set it to one that there is, or log in with --no-browser",
    ]


def test_an_empty_password_is_none() -> None:
    done = command("login", "alice.test", "--password-stdin", input="\n", capture_output=True)
    assert done.returncode == 1
    assert done.stderr == "error: no password on stdin\n"


def test_ctrl_c_is_quiet(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    def interrupt(_: Sequence[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(porcelain, "_run", interrupt)
    assert run(monkeypatch, "whoami") == 130
    assert capsys.readouterr() == ("", "")


def test_a_fault_of_ours_is_no_traceback(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    def fail(_: Sequence[str]) -> int:
        raise ZeroDivisionError("by\nzero")

    monkeypatch.setattr(porcelain, "_run", fail)
    assert run(monkeypatch, "whoami") == 1
    assert capsys.readouterr().err.splitlines() == [
        "error: this is a fault of git-knotless: ZeroDivisionError: by\\nzero",
        "hint: set KNOTLESS_LOG=debug to see where",
    ]


def test_a_fault_of_ours_shows_where_it_is_once_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr(porcelain, "_run", lambda _: 1 // 0)
    monkeypatch.setenv("KNOTLESS_LOG", "debug")
    assert run(monkeypatch, "whoami") == 1
    assert "1 // 0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_while_it_starts_is_quiet(signum: int, code: int, tmp_path: Path) -> None:
    """typer is imported first of what takes time: here it is what is interrupted."""
    (tmp_path / "typer.py").write_text(
        f"import os, time\nos.kill(os.getpid(), {int(signum)})\ntime.sleep(9)  # not reached\n"
    )
    path = os.pathsep.join([str(tmp_path), ROOT])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "-h"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


def test_ctrl_c_ends_a_command_that_waits_for_a_host() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        resolver = f"http://127.0.0.1:{silent.getsockname()[1]}"
        env = {"KNOTLESS_HANDLE_RESOLVER": resolver}
        with started("repo", "list", "alice.test", env=env) as process:
            connection, _ = silent.accept()
            process.send_signal(signal.SIGINT)
            shown = process.communicate(timeout=10)
            connection.close()
    assert (process.returncode, *shown) == (130, "", "")


def test_a_reader_that_leaves_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = command("-h", stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_full_disk_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        done = command("-h", stdout=full, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (1, "error: No space left on device\n")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "NoSpace"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "NoSpace"),
        (PermissionError(errno.EACCES, "Permission denied", "/x"), "SystemError"),
        (ZeroDivisionError("by zero"), "Fault"),
        (OSError("of a library's own"), "Fault"),
    ],
)
def test_an_error_of_the_system_has_a_name_of_its_own(
    error: Exception, kind: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    def fail(_: Sequence[str]) -> int:
        raise error

    monkeypatch.setattr(porcelain, "_run", fail)
    assert run(monkeypatch, "whoami", "--json") == 1
    assert json.loads(capsys.readouterr().err)["error"] == kind


def test_help_imports_nothing_that_is_slow() -> None:
    done = command("-h", capture_output=True)
    assert done.returncode == 0
    program = (
        "import sys; from git_knotless.porcelain.main import main; main(); "
        "print(*sorted(sys.modules), file=sys.stderr)"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", program, "repo", "edit", "-h"],
        env={**os.environ, "PYTHONPATH": ROOT},
        capture_output=True,
        text=True,
        check=True,
    ).stderr.split()
    slow = {"httpx", "rich", "importlib.metadata", "asyncio", "ssl", "blake3", "logging"}
    assert not slow & set(loaded)
    assert not [name for name in loaded if name.startswith("git_knotless.storage")]


def test_clone_hands_on_what_is_gits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """git is a program that says what it was called with."""
    (tmp_path / "bin").mkdir()
    git = tmp_path / "bin/git"
    git.write_text('#!/bin/sh\n[ "$1" = config ] || printf "%s\\n" "$@"\nexit 7\n')
    git.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    done = command(
        "clone", "Alice.test/notes", "there", "--", "--json", "-b", "x", capture_output=True
    )
    assert done.returncode == 7
    assert done.stdout.splitlines() == [
        "clone", "--json", "-b", "x", "--", "knotless://alice.test/notes", "there",
    ]  # fmt: skip
