"""Protocol v2 as git says it, and the real git upload-pack that answers."""

import io
import os
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

from git_knotless.helper.connect import FLUSH, RESPONSE_END, Request, converse, is_empty
from git_knotless.helper.protocol import BadCommand, GitGone
from git_knotless.storage.git import GitError
from git_knotless.storage.mirrors.upload_pack import upload_pack
from git_knotless.storage.packs.bare import Refs
from git_knotless.storage.records import RefRecord, RepoRecord
from git_knotless.storage.snapshot import Snapshot
from tests.gitenv import GitEnv
from tests.storage.packs import noise

KEY = "3jzfcijpj2z2a"
LS_REFS = b"0014command=ls-refs\n0001000csymrefs\n000bunborn\n0000"


def plain() -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}


def test_head_is_the_default_branch_yet_to_be_born() -> None:
    stdin = io.BytesIO(LS_REFS + LS_REFS)
    with upload_pack(plain()) as server:
        server.show(Refs.of("refs/heads/trunk/\xe4", {}))
        advertised, *answers = converse(stdin, server)
    assert advertised.startswith(b"\n000eversion 2\n")
    assert b"ls-refs=unborn\n" in advertised
    assert b"object-format=sha1\n" in advertised
    assert advertised.endswith(FLUSH)
    head = "unborn HEAD symref-target:refs/heads/trunk/\xe4\n".encode()
    assert answers == [b"%04x" % (len(head) + 4) + head + FLUSH, RESPONSE_END] * 2


def test_nothing_of_it_stays_and_nothing_of_the_users_git_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    with upload_pack(env) as server:
        server.show(Refs.of("refs/heads/main", {}))
        assert b"object-format=sha1\n" in server.advertise()
        assert b"unborn HEAD" in b"".join(server.answer([LS_REFS]))
        (folder,) = (tmp_path / "tmp").iterdir()
        assert folder.stat().st_mode & 0o077 == 0
    assert list((tmp_path / "tmp").iterdir()) == []


def test_what_a_killed_one_has_left_goes_after_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    old, new, others = (tmp_path / name for name in ("knotless-refs-1", "knotless-refs-2", "x-1"))
    for folder in (old, new, others):
        (folder / "refs").mkdir(parents=True)
    for folder in (old, others):
        os.utime(folder, (1, 1))
    with upload_pack(plain()):
        pass
    assert set(tmp_path.iterdir()) == {new, others}


@pytest.mark.parametrize(
    ("branch", "head"),
    [
        ("refs/heads/--help", "refs/heads/--help"),
        ("refs/heads/a..b", "refs/knotless/nowhere"),
        ("refs/heads/a\nb", "refs/knotless/nowhere"),
    ],
)
def test_a_branch_that_git_refuses_is_no_head(branch: str, head: str) -> None:
    with upload_pack(plain()) as server:
        server.show(Refs.of(branch, {}))
        assert f"symref-target:{head}" in b"".join(server.answer([LS_REFS])).decode()


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
    assert is_empty(snapshot) is served


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
    with nothing_or(Request.read(stream)) as request:
        assert b"".join(request) == request_
    assert stream.read() == rest


def nothing_or(request: Request | None) -> AbstractContextManager[Iterable[bytes]]:
    return nullcontext([]) if request is None else request


def test_what_is_wanted_is_read_from_a_request_however_long(tmp_path: Path) -> None:
    wanted = [f"{number:040x}" for number in range(60_000)]
    lines = [b"command=fetch", b"thin-pack", *(f"want {oid}\n".encode() for oid in wanted)]
    lines += [b"have " + b"f" * 40, b"done"]
    said = b"".join(b"%04x" % (len(line) + 4) + line for line in lines) + FLUSH
    request = Request.read(io.BytesIO(said + FLUSH))
    assert request is not None
    with request:
        assert list(request.wants()) == wanted
        assert b"".join(request) == said
        assert list(request.wants()) == wanted


@pytest.mark.parametrize("sent", [b"0", b"000", b"0005", b"0008ab", b"0005a", b"0005a00"])
def test_a_request_that_is_cut_is_none(sent: bytes) -> None:
    with pytest.raises(GitGone):
        Request.read(io.BytesIO(sent))


@pytest.mark.parametrize("sent", [b"0x1f", b" 12a", b"+001", b"00 0", b"zzzz"])
def test_a_length_is_four_hex_digits(sent: bytes) -> None:
    with pytest.raises(BadCommand):
        Request.read(io.BytesIO(sent + b"x" * 64))


def test_an_answer_comes_in_pieces_and_git_that_leaves_ends_it(gitenv: GitEnv) -> None:
    work = gitenv.repository(commits=1)
    gitenv.commit(work, "large", noise(4 << 20))
    lines = [b"command=fetch", b"no-progress", f"want {gitenv.oid(work)}\n".encode(), b"done\n"]
    packets = [b"%04x" % (len(line) + 4) + line for line in lines]
    said = packets[0] + b"0001" + b"".join(packets[1:]) + FLUSH
    with upload_pack(gitenv.env) as server:
        server.use(work / ".git/objects")
        server.show(Refs.of("refs/heads/main", {"refs/heads/main": gitenv.oid(work)}))
        sizes = [len(piece) for piece in converse(io.BytesIO(said), server)]
        assert sum(sizes) > 4 << 20
        assert max(sizes) <= 1 << 20
        answer = converse(io.BytesIO(said), server)
        assert next(answer).startswith(b"\n000eversion 2\n")
        assert next(answer)
        answer.close()


def test_what_upload_pack_says_is_the_error(gitenv: GitEnv) -> None:
    work = gitenv.repository(commits=1)
    want = f"0032want {'1' * 40}\n".encode()
    said = b"0011command=fetch0001" + want + b"0009done\n" + FLUSH
    with upload_pack(gitenv.env) as server:
        server.use(work / ".git/objects")
        with pytest.raises(GitError, match="not our ref"):
            list(converse(io.BytesIO(said), server))
