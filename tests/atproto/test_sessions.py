"""The files that keep logins."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from git_knotless.atproto.session import BadSession, DamagedSession, Session
from git_knotless.atproto.sessions import SessionStore
from git_knotless.atproto.syntax import Did, Handle
from git_knotless.errors import LoginNeeded
from tests.atproto.fakes import DID, PDS

ALICE = Session(Did(DID), Handle("alice.test"), PDS, "access", "refresh")
OAUTH = Session(
    Did("did:plc:ragtjsm2j2vknwkz3zp4oxrd"),
    Handle("bob.test"),
    PDS,
    "access",
    "refresh",
    kind="oauth",
    expires_at="2026-01-02T03:04:05.678Z",
    issuer="https://auth.example.com",
    client_id="http://localhost?scope=atproto",
    scope="atproto",
    dpop_key={"kty": "EC", "d": "secret"},
)
WEB = Session(Did("did:web:localhost%3A8000"), None, "http://localhost:8000", "a", "r")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "config" / "sessions"


@pytest.fixture
def store(directory: Path) -> SessionStore:
    return SessionStore(directory)


@pytest.fixture
def path(directory: Path) -> Path:
    """Where Alice's session is."""
    return directory / "did_plc_ewvi7nxzyoun6zhxrhs64oiz.json"


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_what_is_saved_is_loaded(store: SessionStore, directory: Path) -> None:
    for session in (ALICE, OAUTH, WEB):
        store.save(session)
        assert SessionStore(directory).load(session.did) == session
    assert store.all() == [ALICE, OAUTH, WEB]
    assert store.load(Did("did:web:bob.example.com")) is None


def test_nothing_is_there_before_the_first_login(store: SessionStore, directory: Path) -> None:
    assert store.load(ALICE.did) is None
    assert store.all() == []
    store.delete(ALICE.did)
    assert not directory.exists()


def test_nobody_else_reads_them(store: SessionStore, directory: Path, path: Path) -> None:
    before = os.umask(0)
    try:
        store.save(ALICE)
    finally:
        os.umask(before)
    assert (mode(directory), mode(path)) == (0o700, 0o600)


def test_what_others_could_read_is_mended_with_a_word(directory: Path, path: Path) -> None:
    told: list[str] = []
    store = SessionStore(directory, told.append)
    store.save(ALICE)
    path.chmod(0o644)
    directory.chmod(0o755)
    assert store.load(ALICE.did) == store.load(ALICE.did) == ALICE
    assert mode(path) == 0o600
    assert told == [f"{path} could be read by others on this machine; no longer"]
    store.save(ALICE)
    assert mode(directory) == 0o700


def test_a_session_is_replaced_whole(store: SessionStore, directory: Path, path: Path) -> None:
    store.save(ALICE)
    first = path.open("rb")
    store.save(Session(ALICE.did, ALICE.handle, PDS, "newer", "newer"))
    with first:
        assert json.load(first)["access"] == "access"
    assert {each.suffix for each in directory.iterdir()} == {".json", ".lock"}


def test_fields_of_others_are_kept(store: SessionStore, path: Path) -> None:
    store.save(ALICE)
    value = json.loads(path.read_text())
    path.write_text(json.dumps({**value, "color": {"a": 1}}))
    loaded = store.load(ALICE.did)
    assert loaded is not None
    assert loaded.extra == {"color": {"a": 1}}
    store.save(loaded)
    assert json.loads(path.read_text()) == {**value, "color": {"a": 1}}


def test_a_session_is_deleted(store: SessionStore, path: Path) -> None:
    store.save(ALICE)
    store.delete(ALICE.did)
    assert store.load(ALICE.did) is None
    path.write_text("damaged")
    store.delete(ALICE.did)
    assert not path.exists()


@pytest.mark.parametrize(
    "change",
    [
        {"did": None},
        {"did": "did:plc:x"},
        {"handle": 7},
        {"handle": "not a handle"},
        {"pds": "http://pds.example.com"},
        {"pds": ["x"]},
        {"access": None},
        {"access": "a b"},
        {"access": "a\nHost: x"},
        {"access": "é"},
        {"refresh": 7},
        {"version": "1"},
    ],
)
def test_a_damaged_session_says_what_to_do(
    store: SessionStore, path: Path, change: dict[str, Any]
) -> None:
    store.save(ALICE)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(BadSession, match=re.escape(f"{path} is damaged")) as caught:
        store.load(ALICE.did)
    assert caught.value.hint == f"git knotless login {DID}"


@pytest.mark.parametrize(
    "change",
    [
        {"issuer": None},
        {"issuer": "http://auth.example.com"},
        {"issuer": 7},
        {"client_id": None},
        {"scope": None},
        {"scope": ["atproto"]},
        {"dpop_key": None},
        {"dpop_key": "x"},
        {"expires_at": 7},
        {"expires_at": True},
        {"expires_at": "soon"},
    ],
)
def test_a_damaged_oauth_session(
    store: SessionStore, directory: Path, change: dict[str, Any]
) -> None:
    store.save(OAUTH)
    path = directory / f"{OAUTH.did.replace(':', '_')}.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(DamagedSession, match="is damaged"):
        store.load(OAUTH.did)


def test_a_session_that_has_ended_holds_no_secret(store: SessionStore, directory: Path) -> None:
    ended = replace(OAUTH, access="", refresh="", dpop_key=None)
    assert ended.ended
    assert not OAUTH.ended
    store.save(ended)
    assert store.load(OAUTH.did) == ended


def test_a_file_of_before_oauth_is_read(store: SessionStore, directory: Path, path: Path) -> None:
    old = {
        "version": 1,
        "kind": "password",
        "did": DID,
        "handle": "alice.test",
        "pds": PDS,
        "access": "access",
        "refresh": "refresh",
    }
    directory.mkdir(parents=True, mode=0o700)
    path.write_text(json.dumps(old))
    assert store.load(ALICE.did) == ALICE


def test_the_account_that_was_chosen(store: SessionStore, directory: Path) -> None:
    assert store.chosen() is None
    store.choose(ALICE.did)
    store.save(ALICE)
    store.save(WEB)
    assert SessionStore(directory).chosen() == ALICE.did
    store.choose(WEB.did)
    assert store.chosen() == WEB.did
    store.delete(ALICE.did)
    assert store.chosen() == WEB.did
    store.delete(WEB.did)
    assert store.chosen() is None, "it went with its session"


@pytest.mark.parametrize("text", [b"", b"alice.test", b"\xff", b"did:plc:x", b"did:plc:" * 5000])
def test_a_choice_that_is_none(store: SessionStore, directory: Path, text: bytes) -> None:
    store.choose(ALICE.did)
    (directory.parent / "account").write_bytes(text)
    assert store.chosen() is None


def test_whether_a_session_could_be_saved(store: SessionStore, directory: Path) -> None:
    store.check_writable(ALICE.did)
    assert [each.suffix for each in directory.iterdir()] == [".lock"]
    (directory.parent / "file").write_text("")
    with pytest.raises(BadSession, match="cannot be written"):
        SessionStore(directory.parent / "file" / "sessions").check_writable(ALICE.did)
    with pytest.raises(BadSession, match="cannot be written"):
        SessionStore(directory.parent / "file" / "sessions").choose(ALICE.did)


@pytest.mark.parametrize("size", [0, 1, 20, 100])
def test_a_truncated_session_is_damaged(store: SessionStore, path: Path, size: int) -> None:
    store.save(ALICE)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(DamagedSession, match="is damaged"):
        store.load(ALICE.did)


DAMAGE = [
    (lambda path: path.write_text("{"), "is damaged"),
    (lambda path: path.write_text(json.dumps({"version": 2, "kind": "x"})), "newer git-knotless"),
    (lambda path: (path.unlink(), os.mkfifo(path)), "cannot be read: Not a regular file"),
    (lambda path: os.truncate(path, 3 << 30), "cannot be read: File too large"),
]
# In the place of a session; no login puts one there.
IN_THE_WAY = [
    (lambda path: path.mkdir(), "folder"),
    (lambda path: path.symlink_to("/dev/zero"), "link"),
    (lambda path: path.symlink_to(path.parent / "kept"), "link"),
    (lambda path: path.symlink_to("nowhere"), "link"),
]


@pytest.mark.parametrize(("damage", "words"), DAMAGE)
def test_one_that_cannot_be_read_is_in_nobody_elses_way(
    directory: Path, path: Path, damage: Callable[[Path], Any], words: str
) -> None:
    told: list[str] = []
    store = SessionStore(directory, told.append)
    for session in (ALICE, WEB):
        store.save(session)
    damage(path)
    assert store.load(WEB.did) == WEB
    assert store.of_handle("alice.test") is None
    assert told == []
    assert store.all() == store.all() == [WEB]
    assert store.dids() == [ALICE.did, WEB.did]
    (line,) = told
    assert words in line
    assert f"git knotless logout {DID}" in line


def test_a_session_is_found_by_the_handle_that_it_was_begun_under(store: SessionStore) -> None:
    for session in (WEB, ALICE):
        store.save(session)
    assert store.of_handle("alice.test") == ALICE
    assert store.of_handle("bob.test") is None


def test_what_a_login_mends_is_a_login_that_is_missing(store: SessionStore, path: Path) -> None:
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    with pytest.raises(LoginNeeded) as caught:
        store.load(ALICE.did)
    assert caught.value.hint == f"git knotless login {DID}"
    store.save(ALICE)
    assert store.load(ALICE.did) == ALICE


@pytest.mark.parametrize("deed", ["load", "save", "delete", "room"])
@pytest.mark.parametrize(("put", "kind"), IN_THE_WAY)
def test_what_is_in_the_way_is_put_aside_by_hand(
    store: SessionStore, path: Path, put: Callable[[Path], Any], kind: str, deed: str
) -> None:
    """A link's other end would keep the tokens of a session that is renewed, or logged out."""
    store.save(ALICE)
    path.rename(path.parent / "kept")
    put(path)
    deeds: dict[str, Callable[[], Any]] = {
        "load": lambda: store.load(ALICE.did),
        "save": lambda: store.save(ALICE),
        "delete": lambda: store.delete(ALICE.did),
        "room": lambda: store.check_writable(ALICE.did),
    }
    with pytest.raises(BadSession, match=f"is a {kind}, and no session") as caught:
        deeds[deed]()
    assert not isinstance(caught.value, LoginNeeded), "a login mends nothing"
    told: list[str] = []
    assert SessionStore(path.parent, told.append).all() == []
    hint = caught.value.hint
    assert hint is not None
    assert f"({hint} keeps it)" in told[0]
    assert json.loads((path.parent / "kept").read_text())["access"] == "access"
    subprocess.run(hint, shell=True, check=True)
    assert store.load(ALICE.did) is None
    store.save(ALICE)
    assert store.load(ALICE.did) == ALICE


def test_the_choice_is_read_whatever_it_is(store: SessionStore, directory: Path) -> None:
    store.save(ALICE)
    choice = directory.parent / "account"
    for put in (os.mkfifo, lambda path: path.symlink_to("/dev/zero"), lambda path: path.mkdir()):
        put(choice)
        assert store.chosen() is None
        choice.rename(directory / f"{choice.stat().st_ino}")
    (directory / "elsewhere").write_text(f"{DID}\n")
    choice.symlink_to(directory / "elsewhere")
    assert store.chosen() == DID, "it is no secret"


def test_room_is_there_before_a_session_is(store: SessionStore, path: Path) -> None:
    with store.room(ALICE.did) as save:
        (left,) = path.parent.glob(".*.new")
        assert left.stat().st_size > 16_000
        save(ALICE)
    assert store.load(ALICE.did) == ALICE
    with pytest.raises(OSError, match="of somebody else"), store.room(ALICE.did):
        raise OSError("of somebody else")


@pytest.mark.parametrize("text", ["[]", "7", "[" * 100_000, "\xff"])
def test_what_is_no_session_is_damaged(store: SessionStore, path: Path, text: str) -> None:
    store.save(ALICE)
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(BadSession, match="is damaged"):
        store.load(ALICE.did)


@pytest.mark.parametrize("change", [{"version": 2}, {"kind": "passkey"}])
def test_a_session_of_a_newer_version_is_left_alone(
    store: SessionStore, path: Path, change: dict[str, Any]
) -> None:
    store.save(ALICE)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(BadSession, match="was written by a newer git-knotless") as caught:
        store.load(ALICE.did)
    assert not isinstance(caught.value, LoginNeeded), "a login would lose what the newer one knows"
    assert caught.value.hint == "pip install --upgrade git-knotless"


def test_a_session_under_anothers_name(store: SessionStore, path: Path, directory: Path) -> None:
    store.save(ALICE)
    other = Did("did:plc:ragtjsm2j2vknwkz3zp4oxrd")
    path.rename(directory / "did_plc_ragtjsm2j2vknwkz3zp4oxrd.json")
    with pytest.raises(BadSession, match="is the session of another account"):
        store.load(other)


def test_files_that_are_no_sessions_are_not_looked_at(store: SessionStore, path: Path) -> None:
    store.save(ALICE)
    (path.parent / "did_x.json").write_text("x")
    (path.parent / "notes.txt").write_text("x")
    (path.parent / f".{path.name}.abc").write_text("half")
    assert store.all() == [ALICE]


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadSession, match="cannot be written"):
        SessionStore(tmp_path / "file" / "sessions").save(ALICE)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read anything")
def test_a_session_that_cannot_be_read(store: SessionStore, path: Path) -> None:
    store.save(ALICE)
    path.chmod(0)
    with pytest.raises(DamagedSession, match="cannot be read: Permission denied"):
        store.load(ALICE.did)


def test_tokens_are_not_shown_by_accident() -> None:
    assert "access" not in repr(ALICE).replace("access=", "")
    assert "refresh" not in repr(ALICE)
    assert "secret" not in repr(OAUTH)


def test_one_process_at_a_time_holds_the_lock(store: SessionStore, directory: Path) -> None:
    """Taken by another process, it is waited for; taken by this one, it may be taken again."""
    hold = f"""
import sys
from pathlib import Path
from git_knotless.atproto.sessions import SessionStore
with SessionStore(Path({str(directory)!r})).lock({DID!r}):
    print("held", flush=True)
    sys.stdin.read()
    Path({str(directory / "order")!r}).write_text("first")
"""
    command = [sys.executable, "-c", hold]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        other.stdin.close()
        with store.lock(ALICE.did), store.lock(ALICE.did):
            assert (directory / "order").read_text() == "first"
