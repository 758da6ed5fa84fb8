"""Packs that are not what they are called: refused by name, and nothing of them is kept."""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from git_knotless.errors import KnotlessError
from git_knotless.storage.git import Git
from git_knotless.storage.packs.packfile import BadPack
from git_knotless.storage.store import BlobRef
from tests.gitenv import GitEnv
from tests.storage.account import DID, cid_of
from tests.storage.packs import bytes_of, noise, publish
from tests.storage.reader import KIB, LIMIT, Host, Reader, rewrite


def longer(data: bytes) -> bytes:
    return data + b"x"


def flipped(at: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:at] + bytes([data[at] ^ 1]) + data[at:][1:]


def sealed(change: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """Changed, and with the checksum of what it is now."""

    def to(data: bytes) -> bytes:
        changed = change(data[:-20])
        return changed + hashlib.sha1(changed).digest()

    return to


# In the record, in one blob and in several.
SLOW = [pytest.param(size * KIB, marks=pytest.mark.slow) for size in (100, 2048)]
SIZES = pytest.mark.parametrize("size", [0, 700 * KIB, *SLOW])


@SIZES
@pytest.mark.parametrize(
    ("change", "keeps_checksum"),
    [
        (longer, True),
        (lambda data: data[:-1], True),
        (lambda data: data[: len(data) // 2], True),
        (flipped(0), True),
        (flipped(7), True),  # the version
        (flipped(11), True),  # the count
        (flipped(14), True),  # an object
        (flipped(-1), True),  # the trailer
        (sealed(flipped(14)), False),
        (sealed(longer), False),
        (sealed(lambda data: data[:-30]), False),
        (sealed(lambda data: data[:11] + bytes([data[11] + 1]) + data[12:]), False),
    ],
)
def test_a_pack_that_is_not_what_its_record_says(
    gitenv: GitEnv,
    work: Path,
    git: Git,
    host: Host,
    reader: Reader,
    size: int,
    change: Callable[[bytes], bytes],
    keeps_checksum: bool,
) -> None:
    """The host makes up the record too: all but what is wrong agrees with the bytes."""
    good = publish(host, git, [gitenv.oid(work, "main~1")])
    tip = gitenv.commit(work, "noise", noise(size)) if size else gitenv.oid(work)
    record = publish(host, git, [tip], [gitenv.oid(work, "main~1")])
    data = change(bytes_of(host, record))
    fields: dict[str, Any] = {"size": len(data)}
    if not keeps_checksum:
        fields["checksum"] = data[-20:].hex()
        fields["objects"] = int.from_bytes(data[8:12], "big")
    if record.data is not None:
        fields["data"] = data
    else:
        host.blobs[cid_of(data)] = data
        fields["blobs"] = (BlobRef(cid_of(data), "application/x-git-pack", len(data)),)
    rewrite(host, record, **fields)
    with pytest.raises(BadPack, match=f"^{DID}: pack {record.rkey}: ") as raised:
        reader.take(tip)
    assert good.rkey not in raised.value.message
    assert "\n" not in raised.value.message
    assert reader.packs() == []


@pytest.mark.parametrize("size", [700 * KIB, *SLOW])
@pytest.mark.parametrize(
    ("served", "message"),
    [
        (lambda data: data[:-1], r"bytes long, not \d+$"),
        (lambda data: data + b"x", r"is longer than \d+ bytes$"),
        (flipped(5000), "the bytes of blob .* are not its own$"),
        (lambda data: b"", "is 0 bytes long"),
    ],
)
def test_a_blob_that_is_not_what_it_is_called(
    gitenv: GitEnv,
    work: Path,
    git: Git,
    host: Host,
    reader: Reader,
    size: int,
    served: Callable[[bytes], bytes],
    message: str,
) -> None:
    tip = gitenv.commit(work, "noise", noise(size))
    record = publish(host, git, [tip])
    cid = record.blobs[-1].cid
    host.blobs[cid] = served(host.blobs[cid])
    with pytest.raises(BadPack, match=message) as raised:
        reader.take(tip, clone=True)
    assert raised.value.message.startswith(f"{DID}: pack {record.rkey}: ")
    assert reader.packs() == []


def test_a_blob_without_end(
    gitenv: GitEnv, work: Path, git: Git, host: Host, reader: Reader
) -> None:
    tip = gitenv.commit(work, "noise", noise(2 * 1024 * KIB))
    publish(host, git, [tip])
    sent = 0

    def endless(blob: BlobRef) -> Iterator[bytes]:
        nonlocal sent
        while True:
            sent += 65536
            yield bytes(65536)

    host.serve = endless
    with pytest.raises(BadPack, match="is longer than"):
        reader.take(tip)
    assert sent < 5 * (LIMIT + 2 * 65536)


@pytest.mark.parametrize(
    ("settings", "refused"),
    [
        ({}, False),
        ({"transfer.fsckObjects": "true"}, True),
        ({"fetch.fsckObjects": "1"}, True),
        ({"transfer.fsckObjects": "true", "fetch.fsckObjects": "false"}, False),
        ({"fetch.fsckObjects": "yes", "fetch.fsck.hasDotgit": "warn"}, False),
        ({"fetch.fsckObjects": "on", "fetch.fsck.skipList": "~/skip"}, False),
    ],
)
@SIZES
def test_objects_are_examined_where_the_user_asks_for_it(
    gitenv: GitEnv,
    work: Path,
    git: Git,
    host: Host,
    reader: Reader,
    settings: dict[str, str],
    refused: bool,
    size: int,
) -> None:
    before = gitenv.oid(work)
    if size:
        before = gitenv.commit(work, "noise", noise(size))
    publish(host, git, [before])
    blob = gitenv.oid(work, "main:file1")
    objects = work / ".git/objects"
    tree = gitenv.git(
        "hash-object", "-t", "tree", "-w", "--literally", "--stdin",
        cwd=work, stdin=b"100644 .git\0" + bytes.fromhex(blob),
    ).out.strip()  # fmt: skip
    assert (objects / tree[:2] / tree[2:]).exists()
    tip = gitenv.git("commit-tree", "-p", before, "-m", "bad", tree, cwd=work).out.strip()
    record = publish(host, git, [tip], [before])
    (gitenv.home / "skip").write_text(f"{tree}\n")
    for name, value in settings.items():
        gitenv.git("config", name, value, cwd=reader.path)
    if not refused:
        assert reader.take(tip, clone=True).connected
        return
    with pytest.raises(KnotlessError, match=rf"object {tree}: hasDotgit") as raised:
        reader.take(tip, clone=True)
    assert "\n" not in raised.value.message
    assert record.rkey not in reader.packs()
    assert reader.packs() == []
