"""Real git in an environment of its own: nothing of the developer's home, configuration, clock or
prompts comes in, and nothing of a test goes out."""

import os
import shutil
import signal
import stat
import subprocess
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict, Unpack

from git_knotless import settings
from git_knotless.atproto.password import login_with_password
from git_knotless.atproto.syntax import parse_handle
from git_knotless.context import Context
from git_knotless.storage.creation import create
from git_knotless.storage.url import parse_target
from tests.forked import COMMANDS, HELPER, run_forked, stand_ins
from tests.leftovers import MARK
from tests.network import Account, Network

GIT = Path(shutil.which("git") or "git")
DATE = "1767323045 +0000"  # 2026-01-02T03:04:05Z
REMOTE = {"clone", "fetch", "ls-remote", "pull", "push", "remote", "submodule"}
PUSH_MAIN = b"""\
capabilities
option progress false
option verbosity 1
list for-push
push refs/heads/main:refs/heads/main

"""
# No push claims an address there for an account; tests/e2e/test_emails.py has those that do.
CONFIG = """\
[init]
\tdefaultBranch = main
[user]
\tname = Test Person
\temail = person@example.invalid
[commit]
\tgpgSign = false
[core]
\tfsync = none
\tlooseCompression = 0
[gc]
\tauto = 0
[maintenance]
\tauto = false
"""


# Made by git once, and written again for whoever wants the same.
_REPOSITORIES = dict[tuple[object, ...], list[tuple[str, int, bytes | None]]]()


@dataclass(frozen=True, slots=True)
class Result:
    code: int
    out: str
    err: str


class RunOptions(TypedDict, total=False):
    cwd: Path
    code: int | None
    stdin: str | bytes
    env: Mapping[str, str]
    timeout: float


class GitEnv:
    """One person's machine: a home with its git and knotless configuration, in `root`."""

    def __init__(self, root: Path, network: Network | None = None) -> None:
        self.root = root
        self.home = root / "home"
        self.home.mkdir(parents=True)
        self._config = self.home / ".gitconfig"
        self._config.write_text(CONFIG)
        scripts = sysconfig.get_path("scripts")  # of the environment that runs the tests
        self._path = os.pathsep.join([scripts, str(GIT.parent), "/usr/bin", "/bin"])
        self._reference = network is not None and network.reference
        self.env = {
            "HOME": str(self.home),
            "XDG_CONFIG_HOME": str(self.home / ".config"),
            "XDG_CACHE_HOME": str(self.home / ".cache"),
            "XDG_DATA_HOME": str(self.home / ".local/share"),
            "PATH": self._path,
            "LC_ALL": "C",
            "TZ": "UTC",
            "TERM": "dumb",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": str(self._config),
            "GIT_CEILING_DIRECTORIES": str(root.parent),
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_EDITOR": "true",
            "GIT_AUTHOR_DATE": DATE,
            "GIT_COMMITTER_DATE": DATE,
            "KNOTLESS_CONFIG_DIR": str(self.home / "knotless"),
            "KNOTLESS_CACHE_DIR": str(self.home / "knotless-cache"),
            # Ours and what it imports: a warning in a child is seen as one in a test is.
            "PYTHONWARNINGS": "error",
            **dict([MARK]),
        }
        if network:
            self.env |= network.environment()

    @contextmanager
    def start(
        self, *command: str, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> Iterator[subprocess.Popen[bytes]]:
        """A command of this machine, with pipes. It and all its children end with the block."""
        with subprocess.Popen(
            command,
            cwd=cwd or self.root,
            env={**self.env, **(env or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # no terminal to ask on; a group to end as one
        ) as process:
            try:
                yield process
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)

    def run(
        self,
        *command: str,
        cwd: Path | None = None,
        code: int | None = 0,
        stdin: str | bytes = b"",
        env: Mapping[str, str] | None = None,
        timeout: float = 60,
    ) -> Result:
        """Run to its end. `code` is the exit code that the test expects; None is any."""
        data = stdin.encode() if isinstance(stdin, str) else stdin
        with self.start(*command, cwd=cwd, env=env) as process:
            out, err = process.communicate(data, timeout)
        return _checked(command, code, process.returncode, out, err)

    def git(self, *args: str, **options: Unpack[RunOptions]) -> Result:
        """Our commands, and the helper that git runs, are run as tests/forked.py says."""
        if args[0] == "knotless":
            return self._knotless(*args[1:], **options)
        if args[0] in REMOTE and not self._reference:
            options["env"] = self._with_stand_ins(options.get("env"))
        return self.run(str(GIT), *args, **options)

    def _with_stand_ins(self, env: Mapping[str, str] | None) -> Mapping[str, str]:
        """Unless PATH is the test's own."""
        variables = {**self.env, **(env or {})}
        if variables["PATH"] == self._path:
            variables["PATH"] = f"{stand_ins()}{os.pathsep}{self._path}"
        return variables

    def _knotless(
        self,
        *args: str,
        cwd: Path | None = None,
        code: int | None = 0,
        stdin: str | bytes = b"",
        env: Mapping[str, str] | None = None,
        timeout: float = 60,
    ) -> Result:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        if args[:1] == ("doctor",):  # which looks at PATH
            variables: Mapping[str, str] = {**self.env, **(env or {})}
        else:
            variables = self._with_stand_ins(env)
        where = cwd or self.root
        ended = run_forked(COMMANDS, args, cwd=where, env=variables, stdin=data, timeout=timeout)
        return _checked(("git", "knotless", *args), code, *ended)

    def login(self, account: Account) -> Result:
        return self.git(
            "knotless", "login", account.handle, "--password-stdin", stdin=account.password + "\n"
        )

    @contextmanager
    def knotless(self) -> Iterator[Context]:
        """What a command of ours works with, in this process: a start takes most of its time."""
        with Context(settings.load(self.env, b""), print) as context:
            yield context

    def log_in(self, account: Account) -> None:
        """As `login`, for a test of something else."""
        with self.knotless() as context:
            identity = context.resolver.resolve(parse_handle(account.handle), max_age=0)
            context.sessions.save(login_with_password(context.client, identity, account.password))

    def create(self, url: str, **options: str) -> None:
        """As the command of that name, for a test of something else."""
        with self.knotless() as context:
            parsed = parse_target(url)
            identity = context.identify(parsed.authority, write=True)
            create(context.store(identity, write=True), parsed, **options)

    def push_main(self, repository: Path) -> None:
        """As `git push -u origin main`, for a test of something else: what git says to the helper
        and does afterwards, and the helper as tests/forked.py says."""
        url = self.git("remote", "get-url", "--push", "origin", cwd=repository).out.strip()
        ended = run_forked(
            HELPER,
            ("origin", url),
            cwd=repository,
            env={**self.env, "GIT_DIR": str(repository / ".git")},
            stdin=PUSH_MAIN,
            timeout=60,
        )
        pushed = _checked(("git", "push", "origin", "main"), 0, *ended)
        assert "ok refs/heads/main\n" in pushed.out, pushed
        self.git("update-ref", "refs/remotes/origin/main", "main", cwd=repository)
        self.git("branch", "--quiet", "--set-upstream-to=origin/main", "main", cwd=repository)

    def repository(self, name: str = "work", *, commits: int = 1, bare: bool = False) -> Path:
        """A repository in `root` with a chain of small commits on main, checked out."""
        path = self.root / name
        kind = (commits, bare, *self._settings_of_git())
        if path.exists():
            self._make(path, commits, bare=bare)
        elif kind in _REPOSITORIES:
            _write(path, _REPOSITORIES[kind])
        else:
            self._make(path, commits, bare=bare)
            _REPOSITORIES[kind] = list(_files(path))
        return path

    def _settings_of_git(self) -> list[str]:
        """What a new repository depends on."""
        names = {name for name in self.env if name.startswith("GIT_")}
        names -= {"GIT_CONFIG_GLOBAL", "GIT_CEILING_DIRECTORIES"}
        config = self._config.read_text() if self._config.exists() else ""
        return [config, *(f"{name}={self.env[name]}" for name in sorted(names))]

    def _make(self, path: Path, commits: int, *, bare: bool) -> None:
        self.git("init", "--quiet", "--template=", *["--bare"] * bare, str(path))
        if commits:
            self.git("fast-import", "--quiet", cwd=path, stdin=history(commits))
        if commits and not bare:
            self.git("reset", "--quiet", "--hard", cwd=path)

    def commit(
        self,
        repository: Path,
        file: str = "file",
        content: str | bytes = "content\n",
        *,
        message: str = "A change",
    ) -> str:
        """Write a file, commit it on the branch that is checked out; the commit's id."""
        place = repository / file
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content.encode() if isinstance(content, str) else content)
        self.git("add", "--", file, cwd=repository)
        self.git("commit", "--quiet", f"--message={message}", cwd=repository)
        return self.oid(repository, "HEAD")

    def oid(self, repository: Path, revision: str = "HEAD") -> str:
        return self.git("rev-parse", "--verify", revision, cwd=repository).out.strip()

    def refs(self, repository: Path) -> dict[str, str]:
        """Every ref, by its full name."""
        listed = self.git("for-each-ref", "--format=%(refname) %(objectname)", cwd=repository).out
        return dict(line.split(" ") for line in listed.splitlines())


def _files(top: Path) -> Iterator[tuple[str, int, bytes | None]]:
    """All that is in a folder: where, with which mode, and the bytes of what is no folder."""
    for path in sorted(top.rglob("*")):
        data = None if path.is_dir() else path.read_bytes()
        yield str(path.relative_to(top)), stat.S_IMODE(path.stat().st_mode), data


def _write(top: Path, files: list[tuple[str, int, bytes | None]]) -> None:
    top.mkdir(parents=True)
    for name, mode, data in files:
        place = top / name
        if data is None:
            place.mkdir()
        else:
            place.write_bytes(data)
        place.chmod(mode)


def _checked(
    command: Sequence[str], expected: int | None, code: int, out: bytes, err: bytes
) -> Result:
    texts = (text.decode(errors="backslashreplace") for text in (out, err))
    result = Result(code, *texts)
    told = f"{' '.join(command)}: {code}\n{result.out}{result.err}"
    assert expected is None or code == expected, told
    assert "Traceback (most recent call last)" not in result.err, told
    assert "Warning: " not in result.err, told  # Python's, such as a ResourceWarning
    return result


def history(commits: int, branch: str = "main") -> str:
    """A stream for `git fast-import`: a chain of commits, each with a file of its own. The same
    number gives the same ids everywhere."""
    return "".join(
        f"commit refs/heads/{branch}\n"
        f"committer Test Person <person@example.com> {DATE}\n"
        f"data <<END\nCommit {number}\nEND\n"
        f"M 644 inline file{number}\n"
        f"data <<END\nThis is file {number}.\nEND\n\n"
        for number in range(1, commits + 1)
    )
