"""An empty repository over protocol v2, with the real git upload-pack."""

import io
import os
from pathlib import Path

import pytest

from git_knotless.helper.connect import (
    FLUSH,
    RESPONSE_END,
    converse,
    empty_repository,
    is_served,
    read_request,
)
from git_knotless.helper.protocol import BadCommand, GitGone
from git_knotless.storage.records import RefRecord, RepoRecord
from git_knotless.storage.snapshot import Snapshot

KEY = "3jzfcijpj2z2a"
LS_REFS = b"0014command=ls-refs\n0001000csymrefs\n000bunborn\n0000"


def plain() -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}


def test_head_is_the_default_branch_yet_to_be_born() -> None:
    stdin = io.BytesIO(LS_REFS + LS_REFS)
    with empty_repository("refs/heads/trunk/\xe4", plain()) as server:
        advertised, *answers = converse(stdin, server)
    assert advertised.startswith(b"\n000eversion 2\n")
    assert b"ls-refs=unborn\n" in advertised
    assert b"object-format=sha1\n" in advertised
    assert advertised.endswith(FLUSH)
    head = "unborn HEAD symref-target:refs/heads/trunk/\xe4\n".encode()
    assert answers == [b"%04x" % (len(head) + 4) + head + FLUSH + RESPONSE_END] * 2


def test_nothing_of_it_stays_and_nothing_of_the_users_git_counts(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("[uploadpack]\n\thideRefs = refs\n[lsrefs]\n\tunborn = ignore\n[protocol\n")
    env = plain() | {
        "GIT_CONFIG_GLOBAL": str(config),
        "GIT_DIR": str(tmp_path / "nowhere"),
        "GIT_DEFAULT_HASH": "sha256",
        "GIT_TEMPLATE_DIR": str(tmp_path),
        "GIT_PROTOCOL": "version=1",
        "GIT_OBJECT_DIRECTORY": str(tmp_path / "nowhere"),
    }
    with empty_repository("refs/heads/main", env) as server:
        assert b"object-format=sha1\n" in server.advertise()
        assert b"unborn HEAD" in server.answer(LS_REFS)
        directory = server.directory
    assert not directory.exists()


def test_a_branch_that_looks_like_an_option_is_none() -> None:
    with empty_repository("refs/heads/--help", plain()) as server:
        assert (server.directory / "HEAD").read_text() == "ref: refs/heads/--help\n"


def snapshot_of(target: str | None, default: str = "main") -> Snapshot:
    ref = RefRecord(KEY, "refs/heads/x", target, 2, "2026-01-02T03:04:05.678Z")
    repo = RepoRecord("hello", {"key": KEY, "epoch": 1, "defaultBranch": default})
    return Snapshot(repo, {ref.name: ref}, {}, 0.0)


@pytest.mark.parametrize(
    ("snapshot", "served"),
    [
        (snapshot_of("1" * 40), False),
        (snapshot_of(None), True),  # every ref has been deleted
        (snapshot_of(None, "a/b"), True),
        (snapshot_of(None, "a..b"), False),
        (snapshot_of(None, "a b"), False),
        (snapshot_of(None, "x.lock"), False),
    ],
)
def test_only_a_repository_without_refs_is_served(snapshot: Snapshot, served: bool) -> None:
    assert is_served(snapshot) is served


@pytest.mark.parametrize(
    ("sent", "request_", "rest"),
    [
        (b"", b"", b""),
        (b"0000", b"0000", b""),
        (b"0005a0000tail", b"0005a0000", b"tail"),
        (b"0004000100020000", b"0004000100020000", b""),
        # the mark's four characters as content, and at a packet's end
        (b"000800000000", b"000800000000", b""),
        (b"000a0000000000", b"000a0000000000", b""),
        (b"fff0" + b"x" * 0xFFEC + b"0000", b"fff0" + b"x" * 0xFFEC + b"0000", b""),
    ],
)
def test_a_request_ends_with_its_flush(sent: bytes, request_: bytes, rest: bytes) -> None:
    stream = io.BytesIO(sent)
    assert read_request(stream) == request_
    assert stream.read() == rest


@pytest.mark.parametrize("sent", [b"0", b"000", b"0005", b"0008ab", b"0005a", b"0005a00"])
def test_a_request_that_is_cut_is_none(sent: bytes) -> None:
    with pytest.raises(GitGone):
        read_request(io.BytesIO(sent))


@pytest.mark.parametrize("sent", [b"0x1f", b" 12a", b"+001", b"00 0", b"zzzz"])
def test_a_length_is_four_hex_digits(sent: bytes) -> None:
    with pytest.raises(BadCommand):
        read_request(io.BytesIO(sent + b"x" * 64))
