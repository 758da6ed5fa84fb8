"""git push, fetch, clone, ls-remote and pull: what comes back is what went in, to the bit."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import CLAIM, PACK, REF, REPO, Person
from tests.gitenv import GitEnv
from tests.network import Account


def same(machine: GitEnv, one: Path, other: Path) -> None:
    """The same refs, and every object behind them."""
    assert machine.refs(one) == machine.refs(other)
    for path in (one, other):
        machine.git("fsck", "--strict", "--no-dangling", cwd=path)


def test_push_and_clone(account: Callable[..., Account], machine: Callable[[], GitEnv]) -> None:
    """All of it by its commands, each as it is typed."""
    alice = Person(account("alice"), machine())
    login = ("git", "knotless", "login", alice.handle, "--password-stdin")
    alice.machine.run(*login, stdin=f"{alice.account.password}\n")
    work = alice.machine.repository(commits=3)
    alice.machine.run("git", "knotless", "create", cwd=work)
    alice.git("push", "-u", "origin", "main", cwd=work)
    clone = alice.clone(alice.url())
    assert alice.machine.oid(clone) == alice.machine.oid(work)
    assert alice.git("status", "--porcelain", cwd=clone).out == ""
    assert alice.git("symbolic-ref", "HEAD", cwd=clone).out == "refs/heads/main\n"
    assert alice.git("symbolic-ref", "refs/remotes/origin/HEAD", cwd=clone).out == (
        "refs/remotes/origin/main\n"
    )


def test_anyone_may_clone(alice: Person, bob: GitEnv) -> None:
    work = alice.published()
    clone = bob.root / "clone"
    bob.git("clone", alice.url(), str(clone))
    assert bob.oid(clone) == alice.machine.oid(work)
    by_did = bob.root / "by-did"
    bob.git("clone", f"knotless://{alice.account.did}/work", str(by_did))
    assert bob.oid(by_did) == alice.machine.oid(work)


def test_every_kind_of_ref_and_object(alice: Person) -> None:
    work = alice.published()
    alice.git("tag", "light", cwd=work)
    alice.git("tag", "-a", "-m", "one", "v1", cwd=work)
    alice.git("tag", "-a", "-m", "of a tag", "v1-tag", "v1", cwd=work)
    alice.git("tag", "-a", "-m", "of a tree", "tree", "HEAD^{tree}", cwd=work)
    alice.git("tag", "blob", "HEAD:file1", cwd=work)
    alice.git("notes", "add", "-m", "A note", cwd=work)
    alice.git("update-ref", "refs/some/thing/else", "HEAD~1", cwd=work)
    alice.git("checkout", "-q", "-b", "ünï/日本", cwd=work)
    (work / "link").symlink_to("file1")
    (work / "run").write_text("#!/bin/sh\n")
    (work / "run").chmod(0o755)
    alice.git("add", ".", cwd=work)
    alice.git("commit", "-q", "-m", "Modes", cwd=work)
    alice.git("merge", "-q", "--no-ff", "-m", "Merge", "main~1", cwd=work)
    alice.git("push", "--mirror", alice.url(), cwd=work)
    mirror = alice.clone(alice.url(), "mirror.git", "--mirror")
    sent = {n: o for n, o in alice.machine.refs(work).items() if "refs/remotes/" not in n}
    got = {n: o for n, o in alice.machine.refs(mirror).items() if "refs/remotes/" not in n}
    assert got == sent


def test_fetch_and_pull_bring_what_is_new(alice: Person, bob: GitEnv) -> None:
    work = alice.published()
    clone = bob.root / "clone"
    bob.git("clone", alice.url(), str(clone))
    new = alice.machine.commit(work, "new")
    alice.git("tag", "-a", "-m", "tagged", "v1", cwd=work)
    alice.git("push", "--follow-tags", cwd=work)
    bob.git("fetch", cwd=clone)
    assert bob.oid(clone, "origin/main") == new
    assert bob.oid(clone, "v1^{commit}") == new
    bob.git("pull", "--ff-only", cwd=clone)
    assert bob.oid(clone) == new


def test_a_fetch_brings_only_what_is_asked_for_and_no_ref_of_its_own(alice: Person) -> None:
    work = alice.published()
    clone = alice.clone(alice.url())
    alice.git("push", "origin", "main~1:refs/heads/other", "main:refs/heads/third", cwd=work)
    alice.git("fetch", "origin", "other", cwd=clone)
    assert "refs/remotes/origin/third" not in alice.machine.refs(clone)
    assert alice.machine.oid(clone, "FETCH_HEAD") == alice.machine.oid(work, "main~1")


def test_ls_remote_outside_any_repository(alice: Person, bob: GitEnv) -> None:
    work = alice.published()
    oid = alice.machine.oid(work)
    out = bob.git("ls-remote", "--symref", alice.url()).out
    assert out == f"ref: refs/heads/main\tHEAD\n{oid}\tHEAD\n{oid}\trefs/heads/main\n"


@pytest.mark.parametrize("protocol", ["0", "2"])
def test_a_clone_of_an_empty_repository_has_its_default_branch(
    alice: Person, protocol: str
) -> None:
    url = alice.create("empty", default_branch="trunk")
    path = alice.machine.root / "clone"
    alice.git("-c", f"protocol.version={protocol}", "clone", url, str(path))
    expected = {"0": "refs/heads/main\n", "2": "refs/heads/trunk\n"}[protocol]
    assert alice.git("symbolic-ref", "HEAD", cwd=path).out == expected
    assert alice.git("ls-remote", url).out == ""
    alice.git("fetch", cwd=path)


def test_the_first_branch_pushed_becomes_the_default(alice: Person) -> None:
    work = alice.machine.repository(commits=1)
    url = alice.create()
    alice.git("push", url, "main:refs/heads/trunk", cwd=work)
    assert alice.account.record(REPO, "work")["defaultBranch"] == "trunk"
    clone = alice.clone(url)
    assert alice.git("symbolic-ref", "HEAD", cwd=clone).out == "refs/heads/trunk\n"


def test_deletions_the_default_branch_too(alice: Person) -> None:
    work = alice.published()
    alice.git("push", "origin", "main:refs/heads/b", "main:refs/tags/v1", cwd=work)
    alice.git("push", "origin", ":b", "--delete", "v1", "main", cwd=work, code=128)
    alice.git("push", "origin", ":b", ":v1", ":main", cwd=work)
    assert alice.remote_refs(alice.url()) == {}
    alice.git("push", "origin", "main:b", cwd=work)
    clone = alice.clone(alice.url())
    assert alice.git("symbolic-ref", "HEAD", cwd=clone).out == "refs/heads/b\n"


def test_a_default_branch_that_is_not_there(alice: Person) -> None:
    work = alice.published()
    alice.git("push", "origin", "main:b", ":main", cwd=work)
    assert set(alice.remote_refs(alice.url())) == {"refs/heads/b"}
    clone = alice.machine.root / "clone"
    alice.git("clone", alice.url(), str(clone))
    assert alice.machine.oid(clone, "origin/b") == alice.machine.oid(work)


def test_a_push_of_nothing_new_writes_nothing(alice: Person) -> None:
    work = alice.published()
    before = alice.commits()
    assert "Everything up-to-date" in alice.git("push", cwd=work).err
    alice.git("push", "origin", "main:main", "main~1:refs/heads/x", "--dry-run", cwd=work)
    assert alice.commits() == before


def test_what_a_small_push_leaves_behind(alice: Person) -> None:
    work = alice.published()
    alice.machine.commit(work)
    alice.git("push", cwd=work)
    (repo,) = alice.account.records(REPO).values()
    (ref,) = alice.account.records(REF).values()
    assert ref["generation"] == 2
    assert ref["target"] == alice.machine.oid(work)
    assert {key.removeprefix(repo["key"])[:7] for key in alice.account.records(CLAIM)} > {".epoch."}
    assert all("data" in pack for pack in alice.account.records(PACK).values())


def test_from_a_worktree_a_subdirectory_and_a_bare_repository(alice: Person) -> None:
    work = alice.published()
    alice.git("worktree", "add", "-q", "-b", "side", "../wt", cwd=work)
    alice.machine.commit(alice.machine.root / "wt", "sub/dir/file")
    alice.git("push", "origin", "side", cwd=alice.machine.root / "wt/sub/dir")
    alice.git("fetch", cwd=alice.machine.root / "wt/sub")
    bare = alice.machine.root / "bare.git"
    alice.git("clone", "-q", "--bare", str(work), str(bare))
    alice.git("push", alice.url(), "main:from-bare", cwd=bare)
    alice.git("fetch", alice.url(), "side", cwd=bare)
    assert set(alice.remote_refs(alice.url())) == {
        "HEAD",
        "refs/heads/from-bare",
        "refs/heads/main",
        "refs/heads/side",
    }


def test_with_nothing_in_the_environment_but_home_and_path(alice: Person) -> None:
    """And what names the network, which on a real one needs no naming."""
    work = alice.published()
    alice.machine.commit(work)
    keep = ("HOME", "PATH", "KNOTLESS_PLC_URL", "KNOTLESS_HANDLE_RESOLVER")
    bare = {name: value for name, value in alice.machine.env.items() if name in keep}
    config = Path(bare["HOME"]) / ".config/knotless"
    config.parent.mkdir(parents=True, exist_ok=True)
    Path(alice.machine.env["KNOTLESS_CONFIG_DIR"]).rename(config)
    alice.machine.env = bare
    alice.git("push", cwd=work)
    alice.git("clone", alice.url(), str(alice.machine.root / "clone"))


def test_objects_borrowed_from_another_repository(alice: Person) -> None:
    work = alice.published()
    sharing = alice.machine.root / "sharing"
    alice.git("clone", "-q", "--shared", str(work), str(sharing))
    alice.machine.commit(sharing, "more")
    alice.git("push", alice.url(), "main", cwd=sharing)
    alice.git("fetch", cwd=work)
    assert alice.machine.oid(work, "origin/main") == alice.machine.oid(sharing)


def test_after_gc_and_repack(alice: Person) -> None:
    work = alice.published(commits=30)
    alice.git("gc", "-q", "--prune=now", cwd=work)
    alice.machine.commit(work)
    alice.git("push", cwd=work)
    clone = alice.clone(alice.url())
    alice.git("gc", "-q", "--prune=now", cwd=clone)
    alice.machine.commit(work, "another")
    alice.git("push", cwd=work)
    alice.git("fetch", cwd=clone)
    alice.git("fsck", "--strict", cwd=clone)


def test_objects_that_were_pruned_here_are_fetched_again(alice: Person) -> None:
    work = alice.published()
    alice.git("checkout", "-q", "-b", "side", cwd=work)
    side = alice.machine.commit(work, "side")
    alice.git("push", "origin", "side", cwd=work)
    clone = alice.clone(alice.url())
    alice.git("update-ref", "-d", "refs/remotes/origin/side", cwd=clone)
    alice.git("-c", "gc.reflogExpire=now", "gc", "-q", "--prune=now", cwd=clone)
    assert alice.git("cat-file", "-e", side, cwd=clone, code=None).code != 0
    alice.git("fetch", cwd=clone)
    assert alice.machine.oid(clone, "origin/side") == side


@pytest.mark.slow
def test_a_mirror_of_two_thousand_refs_twice(alice: Person) -> None:
    work = alice.machine.repository(commits=200)
    oids = alice.git("rev-list", "main", cwd=work).out.split()
    lines = [f"create refs/heads/b{n} {oids[n % 200]}\n" for n in range(1000)]
    lines += [f"create refs/tags/t{n} {oids[n % 200]}\n" for n in range(999)]
    alice.git("update-ref", "--stdin", cwd=work, stdin="".join(lines))
    url = alice.create()
    alice.git("push", "--mirror", url, cwd=work, timeout=120)
    before = alice.commits()
    assert "Everything up-to-date" in alice.git("push", "--mirror", url, cwd=work).err
    assert alice.commits() == before
    alice.git("update-ref", "-d", "refs/heads/b7", cwd=work)
    alice.git("push", "--mirror", url, cwd=work)
    mirror = alice.clone(url, "mirror.git", "--mirror")
    same(alice.machine, work, mirror)


@pytest.mark.slow
def test_a_large_file_in_several_blobs(alice: Person) -> None:
    import random

    work = alice.published()
    alice.machine.commit(work, "large", random.Random(7).randbytes(23 << 20))
    alice.git("push", cwd=work)
    (pack,) = (p for p in alice.account.records(PACK).values() if "blobs" in p)
    assert len(pack["blobs"]) == 5
    assert {blob["mimeType"] for blob in pack["blobs"]} == {"application/x-git-pack"}
    clone = alice.clone(alice.url())
    assert (clone / "large").read_bytes() == (work / "large").read_bytes()
    assert list((clone / ".git/objects/pack").glob("*.keep")) == []


def test_of_many_branches_the_one_that_is_checked_out_becomes_the_default(alice: Person) -> None:
    work = alice.machine.repository(commits=2)
    alice.git("branch", "-m", "main", "develop", cwd=work)
    alice.git("branch", "another", cwd=work)
    url = alice.create()
    alice.git("push", "--all", url, cwd=work)
    clone = alice.clone(url)
    assert alice.git("symbolic-ref", "HEAD", cwd=clone).out == "refs/heads/develop\n"
    assert (clone / "file1").exists()
