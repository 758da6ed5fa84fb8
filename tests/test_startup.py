"""Every `git fetch` pays for what the helper imports, so reading a list of refs imports little."""

import json
import re
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from git_knotless.atproto.session import Session
from git_knotless.atproto.sessions import SessionStore
from git_knotless.atproto.syntax import Did
from git_knotless.storage.records import REPO, RefRecord
from tests.gitenv import GitEnv

KEY = "3k2akcsyzdc2r"
NOW = "2026-01-02T03:04:05.678Z"
MAIN = RefRecord(KEY, "refs/heads/main", "a" * 40, 1, NOW)
ONE_REPO = {"$type": REPO, "key": KEY, "epoch": 1, "defaultBranch": "main", "createdAt": NOW}

# What the path may import beside the standard library, and what these stand on.
ALLOWED = {"git_knotless", "httpx", "blake3"}
BELOW_HTTPX = {"anyio", "certifi", "h11", "httpcore", "idna", "sniffio", "typing_extensions"}
EVERY_START = {"_distutils_hack"}  # of setuptools, where it is installed: a .pth file says so

# Of the standard library, what costs most and is not needed; `email` comes with `http.client`.
SLOW = {"asyncio", "unittest", "multiprocessing", "importlib.metadata", "http.server", "sqlite3"}
ELSEWHERE = ("lookup", "places", "forwarding", "renaming")

# Of our own, what only those wait for who push, or fetch what is new.
LATER = {
    "git_knotless.atproto.password",
    "git_knotless.atproto.sessions",
    "git_knotless.helper.push",
    "git_knotless.storage.packs.intake",
    "git_knotless.storage.pushing.push",
    "git_knotless.storage.packs.transfers",
}


class Host(ThreadingHTTPServer):
    """An account's host and, as a did:web, its DID document: one repository with one branch."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.did = f"did:web:localhost%3A{self.server_port}"
        self.asked: list[str] = []

    def answer(self, path: str, query: dict[str, list[str]]) -> dict[str, Any] | None:
        self.asked.append(path)
        match path.removeprefix("/xrpc/com.atproto.repo."), query:
            case "/.well-known/did.json", _:
                pds = {"id": "#atproto_pds", "type": "AtprotoPersonalDataServer"}
                pds["serviceEndpoint"] = f"http://localhost:{self.server_port}"
                return {"id": self.did, "service": [pds]}
            case "getRecord", {"collection": [collection], "rkey": ["notes"]} if collection == REPO:
                return {"uri": f"at://{self.did}/{REPO}/notes", "value": ONE_REPO}
            case "listRecords", {"collection": ["dev.knotless.ref"], **rest}:
                if "".join(rest.get("cursor", [])) >= MAIN.rkey:
                    return {"records": []}
                uri = f"at://{self.did}/dev.knotless.ref/{MAIN.rkey}"
                return {"records": [{"uri": uri, "value": MAIN.to_json()}], "cursor": MAIN.rkey}
        return None


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Host

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        answer = self.server.answer(parts.path, parse_qs(parts.query))
        error = {"error": "RecordNotFound", "message": "Could not locate record"}
        body = json.dumps(answer or error).encode()
        self.send_response(200 if answer else 400)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Not to stderr, which is the test's."""


@pytest.fixture
def host() -> Iterator[Host]:
    with Host() as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def imported(trace: str) -> set[str]:
    """The modules that `python -X importtime` names."""
    return set(re.findall(r"^import time:.*\| +(\S+)$", trace, re.MULTILINE)) - {"imported"}


def source(module: str) -> str:
    found = find_spec(module)
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).read_text()


def script(name: str) -> str:
    found = shutil.which(name, path=sysconfig.get_path("scripts"))
    assert found is not None
    return found


def test_a_list_of_refs_imports_httpx_blake3_and_our_own(host: Host, gitenv: GitEnv) -> None:
    url = f"knotless://{host.did}/notes"
    command = [sys.executable, "-X", "importtime", script("git-remote-knotless"), url, url]
    ran = gitenv.run(*command, stdin="capabilities\nlist\n\n")
    listed = ran.out.split("\n\n")[1]
    assert set(listed.splitlines()) == {f"{MAIN.target} {MAIN.name}", f"@{MAIN.name} HEAD"}
    modules = imported(ran.err)
    assert "git_knotless.helper.main" in modules
    # The trace also has what was looked for and is not there: httpx tries several.
    installed = {name.partition(".")[0] for name in modules} & packages_distributions().keys()
    assert installed - ALLOWED - BELOW_HTTPX - EVERY_START == set()
    assert modules & SLOW == set()
    assert modules & LATER == set()
    ours = [name for name in modules if name.startswith("git_knotless.")]
    assert [name for name in ours if "from dataclasses" in source(name)] == [], "see value.py"
    # What follows a repository that is not there any more is for where there is none.
    assert modules & {f"git_knotless.storage.{name}" for name in ELSEWHERE} == set()
    paths = [path.rpartition(".")[2] for path in host.asked]
    assert [path for path in paths if path == "getRecord"] == ["getRecord"]


@pytest.mark.parametrize("program", ["git-knotless", "knotless"])
def test_help_waits_for_no_network_library(program: str, gitenv: GitEnv) -> None:
    ran = gitenv.run(sys.executable, "-X", "importtime", script(program), "repo", "edit", "-h")
    assert "--default-branch" in ran.out
    tops = {name.partition(".")[0] for name in imported(ran.err)}
    assert tops & {"httpx", "rich", "dns", "filelock", "blake3", "pygit2", "pydantic"} == set()


@pytest.mark.parametrize("words", [["whoami"], ["account", "list"]])
def test_who_makes_no_request_waits_for_no_network_library(
    words: list[str], gitenv: GitEnv
) -> None:
    did, granted = Did(f"did:plc:{'a' * 24}"), "atproto repo:dev.knotless.ref"
    session = Session(did, None, "https://pds.example", "access", "refresh", scope=granted)
    SessionStore(gitenv.home / "knotless/sessions").save(session)
    ran = gitenv.run(sys.executable, "-X", "importtime", script("knotless"), *words)
    assert did in ran.out
    tops = {name.partition(".")[0] for name in imported(ran.err)}
    assert tops & {"httpx", "rich", "ssl", "email", "filelock", "cryptography"} == set()
