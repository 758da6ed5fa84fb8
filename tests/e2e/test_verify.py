"""`git knotless repo verify`: what is wrong in a repository is named, whatever it is."""

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from git_knotless.storage.records import LFS
from tests.e2e.conftest import CLAIM, PACK, REF, REPO, Person
from tests.gitenv import GitEnv

ROOT = Path(__file__).parents[2]
LARGE = 1_500_000  # bytes: a pack that is indexed alone


def verify(bob: GitEnv, url: str, *, wrong: int) -> dict[str, Any]:
    ran = bob.git("knotless", "repo", "verify", url, "--json", code=1 if wrong else 0)
    assert ran.out, ran.err
    found: dict[str, Any] = json.loads(ran.out)
    assert len(found["wrong"]) == found["wrongInAll"] == wrong, found["wrong"]
    assert list((bob.home / "knotless-cache").glob("verify-*")) == []
    return found


def reasons(found: dict[str, Any]) -> str:
    return "\n".join(f"{each['what']}: {each['why']}" for each in found["wrong"])


def test_a_sound_repository(alice: Person, bob: GitEnv) -> None:
    work = alice.published(commits=3)
    alice.machine.commit(work, "large", hashlib.shake_256(b"").digest(LARGE))
    alice.git("push", "--quiet", "origin", "main", "main~1:refs/heads/topic", cwd=work)
    data = b"an LFS object"
    put_lfs(alice, hashlib.sha256(data).hexdigest(), data)
    found = verify(bob, alice.url(), wrong=0)
    assert [found[name] for name in ("refs", "claims", "packs", "lfsObjects")] == [2, 3, 2, 1]
    assert (found["objects"], found["name"]) == (12, "work")
    assert found["bytes"] > LARGE
    latest = alice.account.get("com.atproto.sync.getLatestCommit", did=alice.account.did)
    assert (found["commit"], found["rev"]) == (latest["cid"], latest["rev"])
    page = (ROOT / "docs/verifying.md").read_text()
    (shown,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    assert list(json.loads(shown)) == list(found)
    plain = bob.git("knotless", "repo", "verify", alice.url())
    assert plain.err == ""
    assert "\nrefs         2\n" in plain.out
    assert plain.out.endswith("wrong        nothing\n")


def put_lfs(alice: Person, oid: str, data: bytes) -> str:
    (repo,) = alice.account.records(REPO).values()
    blob = alice.account.upload(data, "application/octet-stream")
    rkey = f"{repo['key']}.{oid}"
    value = {"repo": repo["key"], "size": len(data), "blobs": [blob], "createdAt": now()}
    alice.account.create(LFS, rkey, value)
    return rkey


def now() -> str:
    return "2026-01-02T03:04:05.678Z"


def test_what_is_wrong_is_named(alice: Person, bob: GitEnv) -> None:
    work = alice.published(commits=2)
    account = alice.account
    ((ref_key, ref),) = account.records(REF).items()
    ((pack_key, pack),) = account.records(PACK).items()
    tip, tree = alice.machine.oid(work), alice.machine.oid(work, "main^{tree}")

    account.put(REF, ref_key, {**ref, "target": "f" * 40})
    found = verify(bob, alice.url(), wrong=1)
    assert reasons(found) == f"refs/heads/main: {'f' * 40} is in no pack"

    account.put(REF, ref_key, {**ref, "target": tree})
    assert reasons(verify(bob, alice.url(), wrong=1)) == (
        f"refs/heads/main: a branch points at a tree, {tree}"
    )

    account.put(REF, ref_key, {**ref, "generation": 0})
    assert "generation" in reasons(verify(bob, alice.url(), wrong=1))
    account.put(REF, ref_key, ref)

    account.put(PACK, pack_key, {**pack, "checksum": "0" * 40})
    found = verify(bob, alice.url(), wrong=2)
    assert reasons(found) == (
        f"pack {pack_key}: its checksum is not its record's\nrefs/heads/main: {tip} is in no pack"
    )
    assert found["bytes"] == 0
    account.delete(PACK, pack_key)
    assert reasons(verify(bob, alice.url(), wrong=1)) == f"refs/heads/main: {tip} is in no pack"
    account.create(PACK, pack_key, pack)

    (epoch_key,) = (key for key in account.records(CLAIM) if ".epoch." in key)
    epoch = account.records(CLAIM)[epoch_key]
    account.delete(CLAIM, epoch_key)
    assert "the claim that its epoch 1 stands on" in reasons(verify(bob, alice.url(), wrong=1))
    account.create(CLAIM, epoch_key, epoch)
    claim = {"repo": ref["repo"], "ref": ref["name"], "epoch": 1, "generation": 8}
    account.create(CLAIM, f"{ref_key}.9", claim)
    assert reasons(verify(bob, alice.url(), wrong=2)) == (
        f"claim {ref_key}.9: its key is not that of what it says\n"
        "refs/heads/main: it is at generation 1, and was claimed at 8"
    )
    account.delete(CLAIM, f"{ref_key}.9")

    rkey = put_lfs(alice, "0" * 64, b"not that object")
    found = verify(bob, alice.url(), wrong=1)
    assert reasons(found) == f"LFS object {rkey}: its blob is not what its key says"
    account.delete(LFS, rkey)
    verify(bob, alice.url(), wrong=0)


@pytest.mark.slow
def test_objects_that_git_finds_wrong(alice: Person, bob: GitEnv) -> None:
    """And one that names what is nowhere, told of by the ref that reaches it."""
    work = alice.published(commits=2)
    body = "tree {tree}\nauthor A <a@b.example> 0 +0000\ncommitter {who} 0 +0000\n\nx\n"
    tree = alice.machine.oid(work, "main^{tree}")

    def commit(**fields: str) -> str:
        text = body.format(**{"tree": tree, "who": "A <a@b.example>", **fields})
        args = ("hash-object", "-t", "commit", "-w", "--literally", "--stdin")
        return alice.git(*args, cwd=work, stdin=text).out.strip()

    odd = commit(who="A a@b.example>")
    alice.git("push", "--quiet", "origin", f"{odd}:refs/heads/odd", cwd=work)
    found = verify(bob, alice.url(), wrong=1)
    assert reasons(found).startswith(f"commit {odd}: ")
    alice.git("push", "--quiet", "origin", ":refs/heads/odd", cwd=work)
    verify(bob, alice.url(), wrong=1)  # the object is there, though no ref has it

    newest = max(alice.account.records(PACK))
    alice.account.delete(PACK, newest)
    alice.machine.commit(work, "another")
    alice.git("push", "--quiet", "origin", "main:next", cwd=work)
    oldest = min(alice.account.records(PACK))
    alice.account.delete(PACK, oldest)
    found = verify(bob, alice.url(), wrong=2)
    assert "refs/heads/next" in reasons(found)
    assert "reaches what is in no pack: " in reasons(found)


def test_a_repository_that_is_not_there(alice: Person, bob: GitEnv) -> None:
    missing = bob.git("knotless", "repo", "verify", alice.url("none"), code=1)
    assert missing.err.startswith(f"error: {alice.url('none')}: no such repository")


@pytest.mark.slow
def test_many_packs_of_which_one_is_bad(alice: Person, bob: GitEnv) -> None:
    work = alice.published(commits=1)
    for number in range(12):
        alice.machine.commit(work, f"file{number}")
        alice.machine.push_main(work)
    packs = alice.account.records(PACK)
    rkey = sorted(packs)[5]
    pack = packs[rkey]
    raw = bytearray(decoded(pack["data"]["$bytes"]))
    raw[14] ^= 0xFF
    raw[-20:] = hashlib.sha1(raw[:-20]).digest()
    changed = {"$bytes": encoded(bytes(raw))}
    alice.account.put(PACK, rkey, {**pack, "data": changed, "checksum": raw[-20:].hex()})
    found = verify(bob, alice.url(), wrong=2)
    bad, reaching = found["wrong"]
    assert bad["what"] == f"pack {rkey}"
    assert reaching["what"] == "refs/heads/main"
    assert found["packs"] == 13


def decoded(text: str) -> bytes:
    return base64.b64decode(text + "==")


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode().rstrip("=")
