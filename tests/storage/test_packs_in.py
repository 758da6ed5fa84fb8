"""Packs on their way in: that all that is asked for comes, however it is kept."""

import io
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from git_knotless.atproto.errors import StillMoving
from git_knotless.storage.git import Git
from git_knotless.storage.packs.intake import MissingObjects, remember, take
from git_knotless.storage.progress import TextProgress
from git_knotless.storage.records import PACK
from git_knotless.storage.store import BlobRef
from tests.gitenv import GitEnv
from tests.storage.account import cid_of
from tests.storage.packs import KEY, SILENT, bytes_of, noise, publish, replacing
from tests.storage.reader import KIB, LIMIT, Host, Reader, push_each, rewrite


def test_a_clone(gitenv: GitEnv, work: Path, git: Git, host: Host, reader: Reader) -> None:
    record = publish(host, git, [tip := gitenv.oid(work)])
    taken = reader.take(tip, clone=True)
    assert reader.has(tip)
    assert (taken.connected, taken.left_out) == (True, ())
    assert reader.packs() == [f"pack-{record.checksum}.{kind}" for kind in ("idx", "keep", "pack")]
    assert [keep.name for keep in taken.keeps] == [f"pack-{record.checksum}.keep"]
    taken.release()
    taken.release()  # git has removed the one that it was told of
    assert not taken.keeps[0].exists()
    assert reader.gitenv.refs(reader.path) == {}


@pytest.mark.parametrize("size", [10 * KIB, 100 * KIB, 900 * KIB, 5 * LIMIT + 77])
@pytest.mark.parametrize("clone", [False, True])
def test_packs_of_all_sizes(
    gitenv: GitEnv, work: Path, git: Git, host: Host, reader: Reader, size: int, clone: bool
) -> None:
    first = gitenv.oid(work)
    publish(host, git, [first])
    tip = gitenv.commit(work, "noise", noise(size))
    publish(host, git, [tip], [first])
    assert reader.take(tip, clone=clone).connected
    assert reader.has(tip)


def test_many_pushes_are_one_pack(gitenv: GitEnv, host: Host, reader: Reader) -> None:
    work = gitenv.repository("turns", commits=0)
    gitenv.git("fast-import", "--quiet", cwd=work, stdin=replacing(30))
    git = Git(work / ".git", env=gitenv.env)
    oids = gitenv.git("rev-list", "--reverse", "main", cwd=work).out.split()
    records = push_each(gitenv, work, git, host)
    listed = sum(record.objects for record in records)
    taken = reader.take(oids[-1], clone=True)
    assert reader.has(oids[-1])
    assert len(taken.keeps) == 1
    assert len(reader.packs()) == 3
    verified = gitenv.git("verify-pack", "-v", str(taken.keeps[0].with_suffix(".idx"))).out
    kept = [
        line.split()[0] for line in verified.splitlines() if " blob " in line or " tree" in line
    ]
    assert len(kept) == len(set(kept)) < listed - 30
    assert reader.has(oids[0])


def test_only_what_was_not_taken_is_looked_at(
    gitenv: GitEnv, work: Path, git: Git, host: Host, reader: Reader
) -> None:
    host.page = 4
    for number in range(20):
        gitenv.commit(work, f"more{number}", noise(60 * KIB, number))
    records = push_each(gitenv, work, git, host)
    before = gitenv.oid(work)
    reader.take(before).release()
    reader.update("main", before)
    host.requests.clear()
    new = gitenv.commit(work, "new", noise(70 * KIB, 99))
    records.append(publish(host, git, [new], [before]))
    host.requests.clear()
    reader.take(new).release()
    assert reader.has(new)
    assert host.requests == [f"list {PACK}", "download"]
    memory = (reader.git_dir / "knotless" / f"{KEY}.taken").read_text().split()
    assert sorted(memory) == [record.rkey for record in records]


def test_packs_older_than_one_that_was_taken(
    gitenv: GitEnv, work: Path, git: Git, host: Host, reader: Reader
) -> None:
    """A pack of our own push is remembered: others may have come before it, a page away."""
    host.page = 1
    records = push_each(gitenv, work, git, host)
    tip = gitenv.oid(work)
    gitenv.git("fetch", "-q", "--depth=1", work.as_uri(), "main", cwd=reader.path)
    (reader.git_dir / "shallow").unlink()
    remember(Git(reader.git_dir, env=gitenv.env), KEY, records[-1].rkey)
    host.requests.clear()
    assert reader.take(tip).connected
    assert host.requests == [f"list {PACK}"] * 5
    assert reader.has(tip)


def test_objects_that_were_taken_and_lost(
    gitenv: GitEnv, work: Path, git: Git, host: Host, reader: Reader
) -> None:
    push_each(gitenv, work, git, host)
    tip = gitenv.oid(work)
    reader.take(tip, clone=True).release()
    for path in (reader.git_dir / "objects/pack").iterdir():
        path.unlink()
    assert reader.take(tip).connected
    assert reader.has(tip)


@pytest.mark.parametrize("memory", [b"\xff\xfe\x00garbage\n", b"../../x\n\n3k", None])
def test_a_memory_that_cannot_be_read(
    gitenv: GitEnv, work: Path, git: Git, host: Host, reader: Reader, memory: bytes | None
) -> None:
    publish(host, git, [tip := gitenv.oid(work)])
    path = reader.git_dir / "knotless" / f"{KEY}.taken"
    path.parent.mkdir()
    path.mkdir() if memory is None else path.write_bytes(memory)
    assert reader.take(tip).connected


def test_a_pack_folded_while_we_list(
    gitenv: GitEnv, work: Path, git: Git, host: Host, reader: Reader
) -> None:
    """The blobs of what was listed are gone; what holds their objects now is listed next."""
    gitenv.commit(work, "noise", noise(2 * 1024 * KIB))
    gitenv.commit(work, "noise2", noise(100 * KIB, 2))
    old = push_each(gitenv, work, git, host)
    tip = gitenv.oid(work)
    download = host.kept

    def folds(blob: BlobRef) -> Iterator[bytes]:
        host.serve = None
        host.blobs.clear()
        for record in old:
            host.records[PACK].pop(record.rkey)
        publish(host, git, [tip])
        return download(blob)

    host.serve = folds
    assert reader.take(tip, clone=True).connected
    assert reader.has(tip)


def test_what_is_in_no_pack_is_named(
    gitenv: GitEnv, work: Path, git: Git, host: Host, reader: Reader
) -> None:
    parent, tip = gitenv.oid(work, "main~1"), gitenv.oid(work)
    with pytest.raises(MissingObjects, match=f"on the host: {tip} is in no pack$"):
        reader.take(tip, clone=True)
    with pytest.raises(MissingObjects, match=rf"{tip} \(refs/heads/main\) is in no pack$"):
        reader.take(tip, clone=True, refs=("refs/heads/main",))
    publish(host, git, [tip], [parent])
    for clone in (True, False):
        with pytest.raises(MissingObjects, match=f"{tip} reaches what is in no pack: .*{parent}"):
            reader.take(tip, clone=clone)
    assert reader.packs() == []
    assert not (reader.git_dir / "knotless" / f"{KEY}.taken").exists()


def test_a_clone_of_a_pack_that_lacks_the_tip(
    gitenv: GitEnv, work: Path, git: Git, host: Host, reader: Reader
) -> None:
    parent, tip = gitenv.oid(work, "main~1"), gitenv.oid(work)
    publish(host, git, [parent])
    with pytest.raises(MissingObjects, match=f"{tip} is in no pack$"):
        reader.take(parent, tip, clone=True)


def test_the_ref_that_reaches_what_is_missing_is_named(
    gitenv: GitEnv, work: Path, git: Git, host: Host, reader: Reader
) -> None:
    publish(host, git, [tip := gitenv.oid(work)])
    gitenv.git("checkout", "-q", "--orphan", "other", cwd=work)
    gitenv.commit(work, "other")
    publish(host, git, [bad := gitenv.commit(work, "more")], [gitenv.oid(work, "HEAD~1")])
    older = gitenv.git("rev-list", tip, cwd=work).out.split()
    for at in range(len(older) + 1):
        wants = {oid: [f"refs/heads/{oid[:8]}"] for oid in [*older[:at], bad, *older[at:]]}
        with pytest.raises(MissingObjects) as raised:
            take(Git(reader.git_dir, env=gitenv.env), host, KEY, wants, progress=SILENT, clone=True)
        said = f"on the host: {bad} (refs/heads/{bad[:8]}) reaches what is in no pack: git rev-list"
        assert said in raised.value.message


def test_what_is_said_does_not_grow_with_what_a_host_sends(
    gitenv: GitEnv, work: Path, git: Git, host: Host, reader: Reader
) -> None:
    publish(host, git, [tip := gitenv.oid(work)])
    for number in range(2000):
        host.records[PACK][f"{KEY}.x{number:04}"] = {"$type": PACK, "repo": KEY, "size": "large"}
    taken = reader.take(tip, clone=True)
    assert len(taken.left_out) == 4
    assert taken.left_out[-1] == "… and 1997 more"
    wants = {f"{number:040x}": ["refs/heads/x"] * 2000 for number in range(2000)}
    with pytest.raises(MissingObjects) as raised:
        take(Git(reader.git_dir, env=gitenv.env), host, KEY, wants, progress=SILENT, clone=False)
    assert len(raised.value.message) < 1000
    assert raised.value.message.count("… and 1997 more") == 5


def test_a_pack_in_more_blobs_than_it_is_worth(
    gitenv: GitEnv, work: Path, git: Git, host: Host, reader: Reader
) -> None:
    """Each would be a request: nothing is asked for."""
    tip = gitenv.commit(work, "noise", noise(60 * KIB))
    record = publish(host, git, [tip])
    data = bytes_of(host, record)
    pieces = [*(data[at : at + 1] for at in range(4096)), data[4096:]]
    for blobs in ([b"", data], pieces):
        named = tuple(BlobRef(cid_of(blob), "application/x-git-pack", len(blob)) for blob in blobs)
        host.blobs |= {cid_of(blob): blob for blob in blobs}
        rewrite(host, record, blobs=named)
        host.requests.clear()
        with pytest.raises(MissingObjects, match=f"pack {record.rkey} is left out: [^p]"):
            reader.take(tip)
        assert "download" not in host.requests
    pieces = [*(data[at : at + 1] for at in range(4)), data[4:]]
    named = tuple(BlobRef(cid_of(blob), "application/x-git-pack", len(blob)) for blob in pieces)
    host.blobs |= {cid_of(blob): blob for blob in pieces}
    rewrite(host, record, blobs=named)
    assert reader.take(tip).connected


@pytest.mark.parametrize("cid", ["x", "", "\x1b[31mx", "b" * 5000, 7])
def test_a_blob_that_has_no_cid(
    gitenv: GitEnv, work: Path, git: Git, host: Host, reader: Reader, cid: object
) -> None:
    tip = gitenv.commit(work, "noise", noise(60 * KIB))
    record = publish(host, git, [tip])
    host.records[PACK][record.rkey]["blobs"][0]["ref"]["$link"] = cid
    with pytest.raises(MissingObjects, match=f"; pack {record.rkey} is left out: a blob without"):
        reader.take(tip)


def test_a_blob_that_stays_gone(
    gitenv: GitEnv, work: Path, git: Git, host: Host, reader: Reader
) -> None:
    tip = gitenv.commit(work, "noise", noise(60 * KIB))
    record = publish(host, git, [tip])
    host.blobs.clear()
    with pytest.raises(StillMoving) as caught:
        reader.take(tip)
    known = f"pack {record.rkey}: a blob is not there yet; {tip} is in no pack"
    assert (
        caught.value.message == f"the account is still being moved to its host, it seems: {known}"
    )
    assert caught.value.hint is not None, "it may have lost them as well"
    assert ": git knotless repo verify " in caught.value.hint


def test_a_record_that_cannot_be_read_breaks_nothing_else(
    gitenv: GitEnv, work: Path, git: Git, host: Host, reader: Reader
) -> None:
    record = publish(host, git, [tip := gitenv.oid(work)])
    host.records[PACK][f"{KEY}.zzz"] = {"$type": PACK, "repo": KEY, "size": "large"}
    taken = reader.take(tip)
    assert len(taken.left_out) == 1
    assert taken.left_out[0].startswith(f"pack {KEY}.zzz is left out: ")
    host.records[PACK].pop(record.rkey)
    (reader.git_dir / "objects/pack" / f"pack-{record.checksum}.idx").unlink()
    with pytest.raises(MissingObjects, match=rf"in no pack; pack {KEY}\.zzz is left out: "):
        reader.take(tip)


def test_parts_come_in_any_order_four_at_once(
    gitenv: GitEnv, work: Path, git: Git, host: Host, reader: Reader
) -> None:
    tip = gitenv.commit(work, "noise", noise(8 * LIMIT - 5000))
    record = publish(host, git, [tip])
    assert len(record.blobs) == 8
    download, lock, running, most = host.kept, threading.Lock(), 0, 0

    def slowly(blob: BlobRef) -> Iterator[bytes]:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        # The later ones of each four are the quicker ones.
        time.sleep(0.02 * (4 - record.blobs.index(blob) % 4))
        yield from download(blob)
        with lock:
            running -= 1

    host.serve = slowly
    assert reader.take(tip, clone=True).connected
    assert reader.has(tip)
    assert 2 <= most <= 4


def test_what_is_shown(gitenv: GitEnv, work: Path, git: Git, host: Host, reader: Reader) -> None:
    tip = gitenv.commit(work, "noise", noise(8 * LIMIT))
    publish(host, git, [tip])
    screen = io.StringIO()
    reader.take(tip, clone=True, progress=TextProgress(screen, enabled=True))
    assert "Receiving objects: 100% (12/12)" in screen.getvalue()
    assert screen.getvalue().endswith("done.\n")
