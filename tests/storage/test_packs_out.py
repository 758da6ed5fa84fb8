"""The pack of a push on its way out: cut, uploaded side by side, sent again, given up."""

import hashlib
import io
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from git_knotless.atproto.errors import BadAnswer, HostUnreachable, PayloadTooLarge
from git_knotless.storage.git import Child, Git, GitError
from git_knotless.storage.packs.outgoing import INLINE_LIMIT, OutgoingPack
from git_knotless.storage.progress import TextProgress
from git_knotless.storage.store import BlobBody, BlobRef
from tests.gitenv import GitEnv
from tests.storage.account import Account, cid_of, refusal
from tests.storage.packs import SILENT, noise

KIB = 1024
LIMIT = 100 * KIB


@pytest.fixture
def host() -> Account:
    return Account(blob_limit=LIMIT)


def build(
    git: Git,
    host: Account,
    tips: Sequence[str] = ("main",),
    haves: Sequence[str | None] = (),
    *,
    limit: int | None = LIMIT,
    upload: Callable[[BlobBody], BlobRef] | None = None,
) -> OutgoingPack | None:
    oids = [git.resolve(tip) or tip for tip in tips]
    use = upload or host.upload
    known = [oid for oid in haves if oid is not None]
    return OutgoingPack.build(git, oids, known, limit=lambda: limit, upload=use, progress=SILENT)


def built(*args: Any, **options: Any) -> OutgoingPack:
    pack = build(*args, **options)
    assert pack is not None
    return pack


def joined(host: Account, pack: OutgoingPack) -> bytes:
    return b"".join(host.blobs[blob.cid] for blob in pack.blobs)


def is_whole(pack: OutgoingPack, data: bytes) -> bool:
    """By everything that its record will say of it."""
    assert pack.size == len(data)
    assert data[:8] == b"PACK\0\0\0\2"
    assert int.from_bytes(data[8:12], "big") == pack.objects
    return hashlib.sha1(data[:-20]).digest().hex() == data[-20:].hex() == pack.checksum


def test_a_small_pack_is_not_uploaded(git: Git, host: Account) -> None:
    with built(git, host) as pack:
        assert pack.data is not None
        assert is_whole(pack, pack.data)
        assert (pack.objects, pack.blobs, host.requests) == (9, (), [])


def test_it_holds_what_the_other_side_lacks(git: Git, host: Account) -> None:
    have = git.resolve("main~1")
    with built(git, host, ["main"], [have, "1" * 40]) as pack:
        assert pack.objects == 3
    assert build(git, host, ["main~1"], [git.resolve("main")]) is None


def test_tags_of_anything(gitenv: GitEnv, work: Path, git: Git, host: Account) -> None:
    other = gitenv.repository("other", commits=0, bare=True)
    gitenv.git("tag", "-a", "-m", "one", "v1", cwd=work)
    gitenv.git("tag", "-a", "-m", "two", "v2", "v1", cwd=work)
    gitenv.git("tag", "-a", "-m", "a blob", "b1", "main:file1", cwd=work)
    with built(git, host, ["v2", "b1", "main:file2"], [git.resolve("main")]) as pack:
        assert pack.data is not None
        listed = gitenv.git("index-pack", "--stdin", cwd=other, stdin=pack.data).out
        assert listed.startswith("pack\t")
    kinds = Git(other, env=gitenv.env).types(gitenv.oid(work, tag) for tag in ("v1", "v2", "b1"))
    assert set(kinds.values()) == {"tag"}


def test_what_is_not_here_cannot_be_sent(git: Git, host: Account) -> None:
    with pytest.raises(GitError, match=r"^git pack-objects: bad object 1{40}$"):
        build(git, host, ["1" * 40])


@pytest.mark.parametrize("size", [INLINE_LIMIT - 2000, INLINE_LIMIT + 1, LIMIT, 10 * LIMIT + 17])
def test_a_larger_pack_is_cut(
    gitenv: GitEnv, work: Path, git: Git, host: Account, size: int
) -> None:
    gitenv.commit(work, "noise", noise(size))
    with built(git, host) as pack:
        if pack.data is not None:
            assert pack.size <= INLINE_LIMIT
            assert is_whole(pack, pack.data)
        else:
            assert pack.size > INLINE_LIMIT
            assert is_whole(pack, joined(host, pack))
            sizes = [blob.size for blob in pack.blobs]
            assert set(sizes[:-1]) <= {LIMIT}
            assert 0 < sizes[-1] <= LIMIT
            assert len(host.requests) == -(-pack.size // LIMIT)


def test_four_go_out_at_once_and_any_may_be_first(
    gitenv: GitEnv, work: Path, git: Git, host: Account
) -> None:
    gitenv.commit(work, "noise", noise(8 * LIMIT - 5000))
    together, most, running = threading.Barrier(4), 0, 0
    lock = threading.Lock()

    def upload(body: BlobBody) -> BlobRef:
        nonlocal most, running
        with lock:
            running += 1
            most = max(most, running)
        place = together.wait(timeout=10)
        time.sleep(0.01 * place)  # so that they end in another order
        blob = host.upload(body)
        with lock:
            running -= 1
        return blob

    with built(git, host, upload=upload) as pack:
        assert len(pack.blobs) == 8
        assert is_whole(pack, joined(host, pack))
    assert most == 4


def test_uploads_go_on_while_git_still_packs(
    gitenv: GitEnv, work: Path, git: Git, host: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    gitenv.commit(work, "noise", noise(8 * LIMIT))
    first, read = threading.Event(), Child.read

    def upload(body: BlobBody) -> BlobRef:
        first.set()
        return host.upload(body)

    def patiently(child: Child, most: int) -> bytes:
        """git does not end before something has been uploaded."""
        chunk = read(child, most)
        assert chunk or first.wait(10)
        return chunk

    monkeypatch.setattr(Child, "read", patiently)
    with built(git, host, upload=upload) as pack:
        assert is_whole(pack, joined(host, pack))


@pytest.mark.parametrize("limit", [None, 10 * LIMIT])
def test_a_host_that_takes_less_than_it_says(
    gitenv: GitEnv, work: Path, git: Git, host: Account, limit: int | None
) -> None:
    gitenv.commit(work, "noise", noise(9 * LIMIT))
    with built(git, host, limit=limit) as pack:
        assert pack.limit <= LIMIT
        assert max(blob.size for blob in pack.blobs) <= LIMIT
        assert is_whole(pack, joined(host, pack))
        before = pack.blobs
        host.blobs.clear()
        host.requests.clear()
        pack.upload_again()
        assert pack.blobs == before
        assert len(host.requests) == len(before)  # what was learnt holds
        assert is_whole(pack, joined(host, pack))


def test_a_host_that_takes_nothing(gitenv: GitEnv, work: Path, git: Git, host: Account) -> None:
    def upload(body: BlobBody) -> BlobRef:
        raise refusal(PayloadTooLarge, 413, "PayloadTooLarge")

    gitenv.commit(work, "noise", noise(9 * LIMIT))
    with pytest.raises(PayloadTooLarge):
        build(git, host, upload=upload)


def test_a_slice_that_looks_like_something_else_is_cut(
    gitenv: GitEnv, work: Path, git: Git, host: Account
) -> None:
    """Where a slice happens to begin as a gzip file does, the host would keep it as one."""
    gitenv.commit(work, "noise", noise(3 * LIMIT))
    with built(git, host) as pack:
        odd = host.blobs[pack.blobs[1].cid][:3]

    def upload(body: BlobBody) -> BlobRef:
        blob = host.upload(body)
        known = host.blobs[blob.cid].startswith(odd)
        return BlobRef(blob.cid, "application/gzip" if known else blob.mime, blob.size)

    with built(git, host, upload=upload) as pack:
        sizes = [blob.size for blob in pack.blobs]
        assert sizes[:3] == [LIMIT, 1, LIMIT - 1]
        assert {blob.mime for blob in pack.blobs} == {"application/x-git-pack"}
        assert is_whole(pack, joined(host, pack))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda ref: BlobRef(ref.cid, "text/plain", ref.size), "keeps packs as 'text/plain'"),
        (lambda ref: BlobRef(cid_of(b"other"), ref.mime, ref.size), "with another blob"),
        (lambda ref: BlobRef(ref.cid, ref.mime, ref.size + 1), "with another blob"),
    ],
)
def test_what_the_host_answers_is_checked(
    gitenv: GitEnv,
    work: Path,
    git: Git,
    host: Account,
    answer: Callable[[BlobRef], BlobRef],
    message: str,
) -> None:
    gitenv.commit(work, "noise", noise(LIMIT))
    with pytest.raises(BadAnswer, match=message):
        build(git, host, upload=lambda body: answer(host.upload(body)))


def test_a_host_that_looks_at_nothing(gitenv: GitEnv, work: Path, git: Git, host: Account) -> None:
    gitenv.commit(work, "noise", noise(LIMIT))

    def upload(body: BlobBody) -> BlobRef:
        return BlobRef(cid_of(b""), "application/x-git-pack", body.size)

    with pytest.raises(BadAnswer, match="with another blob"):
        build(git, host, upload=upload)


def test_a_failed_upload_ends_it_at_once(
    gitenv: GitEnv, work: Path, git: Git, host: Account
) -> None:
    """Whatever the others are waiting for: no further chunk of theirs goes out."""
    gitenv.commit(work, "noise", noise(20 * LIMIT))
    stuck, released, chunks = threading.Semaphore(0), threading.Event(), list[int]()

    def upload(body: BlobBody) -> BlobRef:
        if body.size < LIMIT:
            raise HostUnreachable("host is down")
        parts = body.chunks()
        stuck.release()
        released.wait(10)
        chunks.extend(map(len, parts))
        return host.upload(body)

    began = time.monotonic()
    calls = 0

    def failing(body: BlobBody) -> BlobRef:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise HostUnreachable("host is down")
        return upload(body)

    with pytest.raises(HostUnreachable, match="host is down"):
        build(git, host, upload=failing)
    assert time.monotonic() - began < 5
    released.set()
    time.sleep(0.05)  # time enough for a chunk, were one to go out
    assert chunks == []
    assert calls < 8  # one or two may have begun meanwhile


def test_an_interrupted_push_leaves_nothing(
    gitenv: GitEnv, work: Path, git: Git, host: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    gitenv.commit(work, "noise", noise(20 * LIMIT))

    def interrupt(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("git_knotless.storage.packs.uploads.Uploads.begin_full", interrupt)
    with pytest.raises(KeyboardInterrupt):
        build(git, host)
    assert list((work / ".git/knotless").iterdir()) == []


def test_what_is_shown(gitenv: GitEnv, work: Path, git: Git, host: Account) -> None:
    gitenv.commit(work, "noise", noise(3 * LIMIT))
    screen, seconds = io.StringIO(), iter(range(1000))
    progress = TextProgress(screen, enabled=True, clock=lambda: next(seconds))
    pack = OutgoingPack.build(
        git, [gitenv.oid(work)], [], limit=lambda: LIMIT, upload=host.upload, progress=progress
    )
    assert pack is not None
    pack.close()
    lines = screen.getvalue().replace("\r", "\n").splitlines()
    for title in ("Enumerating", "Compressing", "Writing"):
        assert any(line.startswith(f"{title} objects: ") for line in lines)
    assert lines[-1].startswith("Uploading objects: 100% (300.")
    assert lines[-1].rstrip().endswith("/s, done.")
