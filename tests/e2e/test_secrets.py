"""Tokens, passwords, DPoP keys and proofs are in the session's file and in requests: nowhere else.

Whatever is run here is looked through afterwards: what was printed, at every level of the log and
with git's own traces; what git and a browser were started with; and every file that was written.
"""

import json
import re
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from git_knotless.settings import LOG_LEVELS
from tests.approval import Page
from tests.browser import Opener
from tests.gitenv import GIT, GitEnv, Result
from tests.network import Account, run_testnet

MakeAccount = Callable[..., Account]
PAST = "2026-01-02T03:04:05.678Z"
# The beginning of a JWT, as tokens and proofs are, and of what follows the name of a scheme.
JWT = re.compile(r"eyJ[\w-]{8,}\.|DPoP [\w-]{8,}\.|Bearer [\w-]{8,}\.")
SECRETS = ("access", "refresh")
# What git then prints of itself, on stderr.
TRACES = ("GIT_TRACE", "GIT_TRACE_PACKET", "GIT_TRACE_SETUP", "GIT_CURL_VERBOSE", "GIT_TRACE_CURL")


@dataclass
class Watched:
    """A machine on which nothing is said or started unseen."""

    machine: GitEnv
    secrets: set[str]
    texts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """git, for all that runs there, is one that keeps what it was started with."""
        here = self.machine.root / "watched"
        here.mkdir()
        self.kept = here / "started"
        self.kept.touch()
        script = here / "git"
        script.write_text(
            f'#!/bin/sh\n{{ printf "%s\\n" "$0" "$@"; env; }} >>"{self.kept}"\nexec {GIT} "$@"\n'
        )
        script.chmod(0o755)
        self.machine.env["PATH"] = f"{here}:{self.machine.env['PATH']}"
        self.machine.env |= dict.fromkeys(TRACES, "1")

    def run(
        self,
        *words: str,
        level: str = "debug",
        cwd: Path | None = None,
        stdin: str = "",
        more: Mapping[str, str] | None = None,
    ) -> Result:
        """Not by `machine.run`: at this level an error comes with its traceback."""
        env = {"KNOTLESS_LOG": level, **(more or {})}
        with self.machine.start("git", *words, cwd=cwd, env=env) as process:
            out, err = process.communicate(stdin.encode(), timeout=60)
        done = Result(process.returncode, out.decode(), err.decode())
        self.texts += [done.out, done.err]
        self.learn()
        return done

    def learn(self) -> None:
        """What the sessions hold now is a secret from now on, and was one before."""
        for file in self.sessions():
            try:
                session = json.loads(file.read_text())
            except ValueError:
                continue  # one that was cut short
            self.secrets |= {session[name] for name in SECRETS if session[name]}
            self.secrets |= {(session.get("dpop_key") or {}).get("d", "")} - {""}

    def sessions(self) -> list[Path]:
        return list((self.machine.home / "knotless/sessions").glob("did_*.json"))

    def found(self) -> Iterator[str]:
        """Where a secret, or what looks like one, is that should not be there."""
        places = {f"what was printed, {number}": text for number, text in enumerate(self.texts)}
        kept = set(self.sessions())
        for path in self.machine.root.rglob("*"):
            if path.is_file() and path not in kept:
                places[str(path)] = path.read_text(errors="replace")
        for place, text in places.items():
            yield from (f"{place}: {secret}" for secret in self.secrets if secret in text)
            yield from (f"{place}: {match}" for match in JWT.findall(text))


@pytest.fixture
def watched(machine: Callable[[], GitEnv], alice: Account) -> Watched:
    return Watched(machine(), {alice.password})


@pytest.fixture
def alice(account: MakeAccount) -> Account:
    return account("alice")


@pytest.mark.slow
def test_an_app_password_and_its_session_are_nowhere_else(watched: Watched, alice: Account) -> None:
    login = ("knotless", "login", alice.handle, "--password-stdin")
    watched.run(*login, stdin=f"{alice.password[:-1]}\n")  # refused
    watched.run(*login, stdin=f"{alice.password}\n")
    assert len(watched.secrets) == 3
    use(watched, alice)
    assert list(watched.found()) == []


@pytest.mark.parametrize(
    "network",
    [pytest.param(run_testnet, id="testnet", marks=pytest.mark.testnet)],
    indirect=True,
    scope="session",
)
def test_an_oauth_session_and_its_key_are_nowhere_else(watched: Watched, alice: Account) -> None:
    opener = Opener.on(watched.machine)
    env = {"KNOTLESS_LOG": "debug"}
    with watched.machine.start("git", "knotless", "login", alice.handle, env=env) as process:
        address = opener.address()
        arrived = Page(address).approve(alice.handle, alice.password)
        urllib.request.urlopen(arrived, timeout=30).close()
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    watched.texts += [address, out.decode(), err.decode()]
    watched.secrets.add(parse_qs(urlsplit(arrived).query)["code"][0])
    watched.learn()
    assert len(watched.secrets) == 5
    use(watched, alice)
    assert len(watched.secrets) == 7, "renewed once"
    assert list(watched.found()) == []


def use(watched: Watched, alice: Account) -> None:
    """What people do, and what can go wrong as they do it."""
    machine, work = watched.machine, watched.machine.repository()
    url = watched.run("knotless", "create", "work").out.strip()
    machine.git("remote", "add", "origin", url, cwd=work)
    for level in LOG_LEVELS:
        pushed = watched.run("push", "origin", f"main:{level}", cwd=work, level=level)
        assert pushed.code == 0, pushed.err
    (file,) = watched.sessions()
    edit(file, expires_at=PAST)
    assert watched.run("push", "origin", "main:renewed", cwd=work).code == 0
    assert watched.run("knotless", "whoami", "--json").code == 0
    down = {"KNOTLESS_PLC_URL": "http://localhost:1", "KNOTLESS_IDENTITY_TTL_SECS": "0"}
    assert watched.run("push", "origin", "main:down", cwd=work, more=down).code != 0
    assert "Traceback" in watched.texts[-1]
    session = file.read_text()
    file.write_text(session[:-20])
    assert "is damaged" in watched.run("push", "origin", "main:damaged", cwd=work).err
    file.write_text(session)
    assert watched.run("knotless", "logout").code == 0
    file.write_text(session)
    edit(file, expires_at=PAST)
    ended = watched.run("push", "origin", "main:ended", cwd=work)
    assert f"the login of {alice.handle} has ended" in ended.err


def edit(file: Path, **fields: str) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))
