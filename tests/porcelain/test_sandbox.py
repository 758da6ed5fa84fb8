"""`git knotless sandbox` as people and machines treat it: real processes, ended by their id."""

import fcntl
import json
import os
import re
import shlex
import signal
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from git_knotless.porcelain import sandbox as command
from git_knotless.porcelain.sandbox_folder import Folder
from tests.forked import python_of_forks
from tests.gitenv import GIT, GitEnv, Result

WARNING = "warning: a sandbox is for trying things out, and no place to keep work\n"
Variables = dict[str, str]


class Machine(GitEnv):
    """One with a sandbox that is the user's own, in a home with a name that needs quotes."""

    @property
    def folder(self) -> Path:
        return self.home / ".local/share/knotless/sandbox"

    def sandbox(self, *arguments: str, **options: Any) -> Result:
        return self.git("knotless", "sandbox", *arguments, **options)

    def begin(self, *arguments: str) -> dict[str, Any]:
        """One whose server is a fork too."""
        done = self.sandbox("start", "--json", *arguments, env=python_of_forks())
        assert done.err == WARNING
        described: dict[str, Any] = json.loads(done.out)
        return described

    def variables(self, *arguments: str) -> Variables:
        found: Variables = json.loads(self.sandbox("env", "--json", *arguments).out)
        return found


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path / 'it\'s "one" $HOME')
    yield machine
    if machine.folder.exists():
        machine.sandbox("stop", code=None)


def runs(folder: Path) -> bool:
    """Whether a server holds the folder, by the lock that ends with it."""
    if not (folder / "running").exists():
        return False
    with open(folder / "running", "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def wait_until_ended(folder: Path) -> None:
    until = time.monotonic() + 30
    while runs(folder):
        assert time.monotonic() < until
        time.sleep(0.02)  # another process is ending


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_tour_without_a_login(one: Machine) -> None:
    work = one.repository("notes", commits=3)
    one.sandbox("start")
    script = """
        eval "$(git knotless sandbox env)" &&
        git knotless create --push &&
        git clone --quiet knotless://alice.test/notes ../copy
    """
    one.run("/bin/sh", "-c", script, cwd=work)
    assert one.oid(one.root / "copy") == one.oid(work)
    one.git("fsck", "--strict", cwd=one.root / "copy")
    assert not (one.home / "knotless").exists(), "the user's own sessions"
    assert not (one.home / "knotless-cache").exists()


def test_what_people_are_shown(one: Machine) -> None:
    done = one.sandbox("start")
    variables = one.variables()
    hint = 'to have this shell use it:\nhint: eval "$(git knotless sandbox env)"\n'
    assert done.err == WARNING + hint
    first, *rows = done.out.splitlines()
    assert first == "the sandbox is ready"
    assert dict(re.split("  +", row, maxsplit=1) for row in rows) == {
        "accounts": "alice.test",
        "hosts": variables["KNOTLESS_HANDLE_RESOLVER"],
        "directory": variables["KNOTLESS_PLC_URL"],
        "folder": str(one.folder),
        "passwords": f"{one.folder}/data/passwords.json",
    }
    again = one.sandbox("start")
    assert again.out == done.out.replace("is ready", "is running already", 1)
    assert again.err == done.err
    assert one.sandbox("stop").out == f"ended the sandbox in {one.folder}\n"
    assert one.sandbox("stop").out == f"no sandbox runs in {one.folder}\n"


def test_the_environment_of_a_shell_and_of_a_program_are_the_same(one: Machine) -> None:
    network = one.begin("--account", "alice.test", "--account", "@Bob.pds1.test", "--pds", "2")
    variables = one.variables()
    exports = one.sandbox("env").out.splitlines()
    assert [shlex.split(line) for line in exports] == [
        ["export", f"{name}={value}"] for name, value in variables.items()
    ]
    assert variables == {
        "KNOTLESS_PLC_URL": network["plc"],
        "KNOTLESS_HANDLE_RESOLVER": " ".join(host["url"] for host in network["pds"]),
        "KNOTLESS_CONFIG_DIR": str(one.folder / "config"),
        "KNOTLESS_CACHE_DIR": str(one.folder / "cache"),
        "KNOTLESS_ACCOUNT": "alice.test",
    }
    who = ["knotless", "whoami", "--json", "--account"]
    for account in network["accounts"]:
        shown = json.loads(one.git(*who, account["handle"], env=variables).out)
        for key in ("handle", "did", "pds"):
            assert shown[key] == account[key]
    assert network["accounts"][1]["pds"] == network["pds"][1]["url"]


def test_a_folder_is_named_to_the_byte(one: Machine) -> None:
    place = os.fsdecode(b"caf\xe9 \n'$x")
    one.sandbox("start", "--dir", place)
    script = 'eval "$(git knotless sandbox env --dir "$1")"; git knotless whoami'
    assert "alice.test" in one.run("/bin/sh", "-c", script, "sh", place).out
    assert one.sandbox("stop", "--dir", place).out.startswith("ended")


def test_it_is_kept_over_a_stop_and_a_kill(one: Machine) -> None:
    work = one.repository()
    first = one.begin("--account", "bob.test", "--account", "alice.test")
    url = "knotless://bob.test/work"
    one.git("knotless", "create", "work", cwd=work, env=one.variables())
    one.git("push", url, "main", cwd=work, env=one.variables())
    os.kill(first["pid"], signal.SIGKILL)
    wait_until_ended(one.folder)
    refused = one.sandbox("env", code=1)
    assert refused.err.splitlines() == [
        f"error: no sandbox runs in {one.folder}",
        "hint: git knotless sandbox start",
    ]
    again = one.begin("--account", "carol.test")
    assert again["accounts"][:2] == first["accounts"]
    assert [each["handle"] for each in again["accounts"]] == [
        "bob.test",
        "alice.test",
        "carol.test",
    ]
    assert {**again, "pid": 0, "accounts": 0} == {**first, "pid": 0, "accounts": 0}
    listed = one.git("ls-remote", url, env=one.variables()).out
    assert one.oid(work) in listed
    one.commit(work)
    one.git("push", url, "main", cwd=work, env=one.variables())


def test_secrets_are_for_their_owner(one: Machine) -> None:
    (password,) = (each["password"] for each in one.begin()["accounts"])
    assert re.fullmatch("[a-z2-7]{4}(-[a-z2-7]{4}){3}", password)
    assert mode(one.folder) == 0o700
    files = [path for path in one.folder.rglob("*") if path.is_file()]
    secret = [path for path in files if path.name != "lock" and path.suffix != ".lock"]
    assert {mode(path) for path in secret} == {0o600}


def test_a_session_that_is_damaged_is_begun_again(one: Machine) -> None:
    one.begin()
    (session,) = (one.folder / "config/sessions").glob("*.json")
    session.write_text("{")
    one.begin()
    assert one.git("knotless", "whoami", env=one.variables()).out.startswith("handle")


def test_two_starts_at_once_are_one_sandbox(one: Machine) -> None:
    start = ("git-knotless", "sandbox", "start", "--json")
    with one.start(*start) as first, one.start(*start) as second:
        shown = [json.loads(each.communicate(timeout=60)[0]) for each in (first, second)]
    assert shown[0] == shown[1]


def test_a_process_that_has_the_id_of_an_old_one_is_left_alone(one: Machine) -> None:
    """As after a restart of the machine: here it is ours."""
    one.begin()
    one.sandbox("stop")
    running = one.folder / "running"
    lines = running.read_text().splitlines()
    running.write_text(f"{os.getpid()}\n{lines[1]}\n")
    assert one.sandbox("stop").out.startswith("no sandbox runs")
    assert one.begin()["pid"] != os.getpid()


def mend(refused: Result) -> list[str]:
    """What the hint would have been typed as, for `run`."""
    (hint,) = (line for line in refused.err.splitlines() if line.startswith("hint: "))
    return ["/bin/sh", "-c", f"({hint.removeprefix('hint: ')}) 2>&1"]


@pytest.mark.slow
def test_a_port_that_is_taken_does_not_bind_the_next_start(one: Machine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = one.sandbox("start", "--port", str(port), "--account", "bob.test", code=1)
        assert f"error: the sandbox did not start: port {port} is already taken\n" in refused.err
        assert not one.folder.exists()
        assert "bob.test" in one.run(*mend(refused)).out
        network = one.begin()
    assert not network["plc"].endswith(f":{port}")


@pytest.mark.slow
def test_a_sandbox_whose_port_is_taken_goes_to_another(one: Machine) -> None:
    """With its accounts, which the directory then says are there, and all that is in them."""
    work = one.repository()
    network = one.begin("--pds", "2", "--account", "alice.test", "--account", "bob.pds1.test")
    one.git("knotless", "create", "--push", cwd=work, env=one.variables())
    one.git("ls-remote", "knotless://bob.pds1.test/x", env=one.variables(), code=128)  # is cached
    one.sandbox("stop")
    kept = int(network["pds"][1]["url"].rpartition(":")[2])
    with socket.create_server(("127.0.0.1", kept)):
        refused = one.sandbox("start", code=1)
        assert f"port {kept} is already taken" in refused.err
        one.run(*mend(refused))
        moved = one.begin()
        assert {each["did"] for each in moved["accounts"]} == {
            each["did"] for each in network["accounts"]
        }
        assert not {network["plc"], *(each["url"] for each in network["pds"])} & {
            moved["plc"], *(each["url"] for each in moved["pds"])
        }  # fmt: skip
        one.git("knotless", "create", "bob.pds1.test/x", env=one.variables())
        one.commit(work)
        one.git("push", cwd=work, env=one.variables())
        listed = one.git("ls-remote", "knotless://alice.test/work", env=one.variables()).out
        assert one.oid(work) in listed


@pytest.mark.slow
def test_what_it_does_not_become_is_refused(one: Machine) -> None:
    """With the commands that make it so, which are of this sandbox and with these options."""
    place = one.root / "it's another"
    first = one.begin("--dir", str(place))
    ran = []
    for arguments, lacking in (
        (("--account", "bob.test"), "runs already, without bob.test"),
        (("--pds", "2"), "runs already, without 2 hosts"),
        (("--port", "24999"), f"runs already, at {first['plc']}"),
    ):
        where = ("start", "--dir", str(place), *arguments)
        error = json.loads(one.sandbox(*where, "--json", code=1).err)
        assert error["error"] == "SandboxRuns"
        assert error["message"].endswith(lacking)
        one.run(*mend(one.sandbox(*where, code=1)))
        ran.append(one.begin("--dir", str(place)))
    assert [each["handle"] for each in ran[0]["accounts"]] == ["alice.test", "bob.test"]
    assert [len(each["pds"]) for each in ran] == [1, 2, 2]
    assert ran[2]["plc"].endswith(":24999")
    refused = one.sandbox("start", "--foreground", "--dir", str(place), code=1)
    assert refused.err.splitlines()[-1].startswith("hint: git knotless sandbox stop --dir '")
    assert refused.err.endswith(" --foreground\n")
    one.sandbox("stop", "--dir", str(place))
    assert not one.folder.exists()


@pytest.mark.slow
def test_an_account_that_cannot_be_leaves_nothing(one: Machine) -> None:
    for handle, why in (
        ("alice.example.org", "no host here is for .example.org: "),
        ("x.y.test", "no host here is for .y.test: "),
        ("admin.test", "Reserved handle"),
    ):
        done = one.sandbox("start", "--account", handle, code=1)
        assert done.err.startswith(f"error: the sandbox did not start: {why}")
        assert len(done.err.splitlines()) == 1
        assert not one.folder.exists()
    one.begin()


@pytest.mark.parametrize(
    ("name", "why"),
    [("bob.pds1.test", "no host here is for .pds1.test"), ("bob", "'bob' is not a handle")],
)
def test_an_account_that_takes_more_has_the_command(name: str, why: str, one: Machine) -> None:
    refused = one.sandbox("start", "--account", name, code=1)
    assert why in refused.err
    assert not one.folder.exists()
    assert f"{name.removesuffix('.test')}.test" in one.run(*mend(refused)).out


@pytest.mark.parametrize(
    "signum",
    [
        signal.SIGINT,
        pytest.param(signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param(signal.SIGHUP, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("begun", [False, True], ids=["at once", "once its server is there"])
def test_a_start_that_is_interrupted_leaves_no_process(
    signum: int, begun: bool, one: Machine
) -> None:
    with one.start("git-knotless", "sandbox", "start") as process:
        until = time.monotonic() + 30
        while not (runs(one.folder) if begun else one.folder.exists()):
            assert time.monotonic() < until
            time.sleep(0.001)  # another process is beginning
        process.send_signal(signum)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (128 + signum, b"", b"")
    assert not runs(one.folder)
    assert one.begin()["accounts"]


@pytest.mark.slow
def test_a_start_that_is_killed_leaves_nothing_that_is_not_found_again(one: Machine) -> None:
    for wait in (0.0, 0.02, 0.1, 0.3):
        with one.start("git-knotless", "sandbox", "start") as process:
            until = time.monotonic() + 30
            while not runs(one.folder) and process.poll() is None:
                assert time.monotonic() < until
                time.sleep(0.001)  # another process is beginning
            time.sleep(wait)  # to be somewhere else in its start
            process.kill()
        network = one.begin()
        assert one.git("knotless", "whoami", env=one.variables()).out.startswith("handle")
        assert Path(f"/proc/{network['pid']}").exists() or not Path("/proc").exists()
        one.sandbox("stop")
        assert not runs(one.folder)


@pytest.mark.parametrize(
    ("signum", "code"),
    [
        (signal.SIGINT, 130),
        pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow),
        (signal.SIGKILL, -9),
    ],
)
def test_in_the_foreground_it_ends_with_its_command(signum: int, code: int, one: Machine) -> None:
    with one.start("git-knotless", "sandbox", "start", "--foreground", "--json") as process:
        assert process.stdout
        shown = b""
        while not shown.endswith(b"\n}\n"):
            shown += process.stdout.readline()
        assert json.loads(shown)["accounts"]
        assert one.variables()["KNOTLESS_ACCOUNT"] == "alice.test"
        process.send_signal(signum)
        assert process.wait(30) == code
        wait_until_ended(one.folder)


def test_in_the_foreground_it_ends_with_the_git_that_runs_it(one: Machine) -> None:
    """Which is what a shell knows by its process id, and kills."""
    with one.start(str(GIT), "knotless", "sandbox", "start", "--foreground") as process:
        assert process.stdout
        assert process.stdout.readline() == b"the sandbox is ready\n"
        process.kill()
        process.wait(30)
        wait_until_ended(one.folder)


@pytest.mark.slow
def test_in_the_foreground_it_can_be_ended_by_another_command(one: Machine) -> None:
    with one.start("git-knotless", "sandbox", "start", "--foreground") as process:
        assert process.stdout
        assert process.stdout.readline() == b"the sandbox is ready\n"
        one.sandbox("stop")
        assert process.wait(30) == 0


def test_reset_deletes_what_is_a_sandbox_s(one: Machine) -> None:
    one.begin()
    refused = one.sandbox("reset", code=1)
    assert refused.err.endswith("hint: git knotless sandbox reset --yes\n")
    assert runs(one.folder)
    (one.folder / "mine").write_text("kept")
    left = one.sandbox("reset", "--yes")
    assert left.err == "warning: left what is not the sandbox's: mine\n"
    assert left.out == f"deleted the sandbox in {one.folder}\n"
    assert sorted(path.name for path in one.folder.iterdir()) == ["mine", "sandbox.lock"]
    (one.folder / "mine").unlink()
    one.begin()
    one.sandbox("reset", "--yes")
    assert not one.folder.exists()
    assert one.sandbox("reset", "--yes", code=1).err.startswith("error: there is no sandbox in")


def test_a_folder_of_something_else_is_left_alone(one: Machine) -> None:
    for command_ in (["start"], ["stop"], ["reset", "--yes"], ["env"]):
        done = one.sandbox(*command_, "--dir", str(one.home), code=1)
        assert done.err.startswith("error: ")
        assert [path.name for path in one.home.iterdir()] == [".gitconfig"]
    (one.root / "empty").mkdir()
    one.sandbox("start", "--dir", "empty")
    one.sandbox("reset", "--yes", "--dir", "empty")


def test_a_file_is_no_folder(one: Machine) -> None:
    (one.root / "file").write_text("mine\n")
    for place in ("file", "file/within"):
        refused = one.sandbox("start", "--dir", place, code=1)
        assert refused.err == f"error: {one.root / place} is, or is in, a file\n"
    assert (one.root / "file").read_text() == "mine\n"


def test_nothing_of_the_current_directory_is_run(one: Machine) -> None:
    for name in ("uvicorn", "json", "git_knotless"):
        (one.root / f"{name}.py").write_text("raise SystemExit('not ours')\n")
    one.sandbox("start")


def test_a_server_that_hangs_is_ended_all_the_same(
    one: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.kill(json.loads(one.sandbox("start", "--json").out)["pid"], signal.SIGSTOP)
    monkeypatch.setattr("git_knotless.porcelain.sandbox_folder._END_SECONDS", 0.2)
    folder = Folder(one.folder)
    with folder.held():
        assert folder.end()
    assert not runs(one.folder)


def test_without_its_extra_it_says_what_to_install(
    one: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_NEEDED", ("json", "not_installed"))
    with pytest.raises(command.ServerNotInstalled) as raised:
        command.start(dir_=one.folder)
    assert raised.value.message.endswith(": no not_installed here")
    assert raised.value.hint
    assert raised.value.hint.endswith(" -m pip install 'git-knotless[server]'")
    assert not one.folder.exists()
