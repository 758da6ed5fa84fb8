"""What `--json` prints is what docs/json.md says: the shapes, and the names of the errors."""

import ast
import importlib
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from git_knotless.atproto.errors import AccountNotHere, AtprotoError
from git_knotless.atproto.session import Session
from git_knotless.atproto.syntax import Did, Handle, Rkey
from git_knotless.errors import KnotlessError
from git_knotless.porcelain.accounts import account_json
from git_knotless.porcelain.output import print_error
from git_knotless.porcelain.views import place_json, repository_json, snapshot_json
from git_knotless.storage.records import RefRecord, RepoRecord
from git_knotless.storage.snapshot import Snapshot
from git_knotless.storage.store import Record
from git_knotless.storage.url import RepoUrl

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/json.md").read_text()
BLOCKS = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)]
REPOSITORY, REFS, PLACE, ACCOUNT, COMMITS_AS, LOGOUT, ERROR = BLOCKS

DID = Did("did:plc:ewvi7nxzyoun6zhxrhs64oiz")
URL = RepoUrl(Handle("alice.test"), Rkey("notes"))
LEAST = {"key": "3mbg7vmqyzc2k", "epoch": 1, "createdAt": "2026-01-02T03:04:05.678Z"}


def record(**fields: Any) -> RepoRecord:
    return RepoRecord.from_record(Record(Rkey("notes"), LEAST | fields))


def place() -> dict[str, str]:
    return {"uri": f"at://{DID}/dev.knotless.repo/notes", "key": LEAST["key"]}


def shape(value: Any) -> Any:
    """Its keys in their order, and the types of what they hold."""
    if isinstance(value, dict):
        return [(key, shape(each)) for key, each in value.items()]
    return [shape(each) for each in value[:1]] if isinstance(value, list) else type(value)


def test_a_repository_is_what_the_page_shows() -> None:
    whole = record(
        description="x",
        updatedAt="2026-01-03T00:00:00.000Z",
        nonce="secret",
        archived=True,
        collaborators=[DID],
        rules=[{"branch": "main"}],
        forkOf=place(),
        transfer=place() | {"offer": "1"},
        transferredFrom=place() | {"offer": "1"},
        gateway="https://x.example",
        url="knotless://bank.test/x",
    )
    assert shape(repository_json(URL, DID, whole)) == shape(REPOSITORY)
    assert shape(place_json(URL, DID)) == shape(PLACE)


def test_every_key_is_there_whatever_the_record_lacks() -> None:
    shown = repository_json(URL, DID, record())
    assert list(shown) == list(REPOSITORY)
    assert shown["updatedAt"] == shown["createdAt"] == LEAST["createdAt"]
    empty: dict[str, Any] = {"description": "", "archived": False, "collaborators": []}
    empty |= {"rules": [], "forkOf": None, "transfer": None, "transferredFrom": None}
    assert {key: shown[key] for key in empty} == empty
    assert shown["defaultBranch"] == "main"


@pytest.mark.parametrize(
    ("rule", "history", "queue"),
    [
        ({}, "linear", False),
        ({"history": "linear"}, "linear", False),
        ({"history": "merges"}, "merges", False),
        ({"history": "of a newer version"}, "linear", False),
        ({"history": "merges", "queue": True}, "merges", True),
        ({"history": "merges", "new": 1}, "linear", False),
    ],
)
def test_a_rule_is_written_out_as_it_is_read(
    rule: dict[str, Any], history: str, queue: bool
) -> None:
    (shown,) = repository_json(URL, DID, record(rules=[{"branch": "main", **rule}]))["rules"]
    assert list(shown.items()) == [("branch", "main"), ("history", history), ("queue", queue)]


def test_refs_come_last_and_by_name() -> None:
    names = ("refs/tags/v1", "refs/heads/main", "refs/heads/gone")
    refs = {
        name: RefRecord(LEAST["key"], name, None if "gone" in name else "a" * 40, 2, "")
        for name in names
    }
    shown = snapshot_json(URL, DID, Snapshot(record(), refs, {}, 0.0))
    assert list(shown) == [*REPOSITORY, *REFS]
    assert shape(shown["refs"]) == shape(REFS["refs"])
    assert [ref["name"] for ref in shown["refs"]] == ["refs/heads/main", "refs/tags/v1"]


def test_an_account_is_what_the_page_shows() -> None:
    session = Session(DID, Handle("alice.test"), "https://pds.example", "access", "refresh")
    assert list(account_json(session, None)) == list(ACCOUNT)
    granted = "repo:dev.knotless.ref atproto repo?collection=b.c.d&collection=a.b.c"
    oauth = replace(session, kind="oauth", scope=granted, expires_at=ACCOUNT["expiresAt"])
    shown = account_json(oauth, DID)
    assert shape(shown) == shape(ACCOUNT)
    assert shown["scopes"] == ["atproto", "repo:a.b.c", "repo:b.c.d", "repo:dev.knotless.ref"]
    assert (shown["inUse"], account_json(oauth, None)["inUse"]) == (True, False)


# --- the names of errors: those of every module that a command can come to import


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def file_of(module: str) -> Path:
    return ROOT / f"{module.replace('.', '/')}.py"


def reached() -> dict[str, ModuleType]:
    found: dict[str, ModuleType] = {}
    names = ["git_knotless.porcelain.main"]
    while names:
        name = names.pop()
        if name.startswith("git_knotless.") and name not in found and file_of(name).exists():
            found[name] = importlib.import_module(name)
            names += imports(file_of(name))
    return found


MODULES = reached()
# What others are made of, and no error is by itself; and what is not ours, by the names it gets.
BASES = {KnotlessError.__name__, AtprotoError.__name__, AccountNotHere.__name__}
NOT_OURS = {"SystemError", "Fault"}


def test_every_name_of_an_error_is_on_the_page_and_no_other() -> None:
    ours = {
        value.__name__
        for name, module in MODULES.items()
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, KnotlessError)
        if value.__module__ == name
    }
    rows = re.findall(r"^\| (`\w+`[^|]*) \|", PAGE.partition("| `error` |")[2], re.MULTILINE)
    listed = [name for row in rows for name in re.findall(r"\w+", row)]
    assert sorted(listed) == sorted(ours - BASES | NOT_OURS)


def test_no_error_is_of_a_base_class() -> None:
    for name in MODULES:
        for node in ast.walk(ast.parse(file_of(name).read_text())):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                assert ast.unparse(node.exc.func) not in BASES, f"{name}:{node.lineno}"


def test_an_error_is_what_the_page_shows(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(ERROR["error"], ERROR["message"], ERROR["hint"], as_json=True)
    assert capsys.readouterr().err == json.dumps(ERROR) + "\n"
