"""git as we run it: what it answers, what it says when it fails, and that it ends."""

import io
import os
import signal
import time
from pathlib import Path

import pytest

from git_knotless.storage.child import failure, readable
from git_knotless.storage.git import Git, GitError, NoSpace
from git_knotless.storage.progress import TextProgress
from tests.gitenv import GitEnv

NOWHERE = "1" * 40


def test_a_failure_is_gits_own_last_word(git: Git) -> None:
    with pytest.raises(GitError) as raised:
        git.run("cat-file", "commit", NOWHERE)
    assert raised.value.message == f"git cat-file: git cat-file {NOWHERE}: bad file"


@pytest.mark.parametrize(
    ("status", "said", "kind", "message"),
    [
        (128, b"warning: w\nfatal: f\nerror: e\nhint: h\n", GitError, "git gc: f (e)"),
        (1, b"error: one\nerror: two\nusage\n", GitError, "git gc: two"),
        (1, b"something\n\n", GitError, "git gc: something"),
        (3, b"", GitError, "git gc: ended with status 3"),
        (-signal.SIGKILL, b"", GitError, "git gc was ended by SIGKILL"),
        (128, b"fatal: a\x1b[2J\x07b\r\n", GitError, "git gc: a?[2J?b"),
        (128, b"fatal: sha1 file write: No space left on device\n", NoSpace, None),
        (128, b"fatal: write error: Disk quota exceeded\nerror: x\n", NoSpace, None),
        (-signal.SIGXFSZ, b"", NoSpace, None),
    ],
)
def test_what_a_failure_is_told_as(
    status: int, said: bytes, kind: type[Exception], message: str | None
) -> None:
    error = failure(["gc", "--auto"], status, readable(said))
    assert type(error) is kind
    assert error.message == message if message else error.message.startswith("no space left")


def test_without_git_that_is_said(gitenv: GitEnv) -> None:
    git = Git(None, env={**gitenv.env, "PATH": "/nonexistent"})
    with pytest.raises(GitError, match=r"^git cannot be run: No such file"):
        git.run("version")
    with pytest.raises(GitError, match=r"^git cannot be run: No such file"):
        git.popen("version")


def test_a_push_source_is_not_peeled(gitenv: GitEnv, work: Path, git: Git) -> None:
    gitenv.git("tag", "-a", "-m", "one", "v1", cwd=work)
    assert git.resolve("v1") == gitenv.oid(work, "v1")
    assert git.resolve("v1") != git.resolve("main")
    assert git.resolve("HEAD~2") == gitenv.oid(work, "main~2")
    assert git.resolve("nothing") is None
    assert git.resolve("--all") is None


def test_kinds_of_objects(gitenv: GitEnv, work: Path, git: Git) -> None:
    gitenv.git("tag", "-a", "-m", "one", "v1", cwd=work)
    names = ("main", "main^{tree}", "main:file1", "v1")
    oids = [gitenv.oid(work, name) for name in names]
    assert git.types([*oids, NOWHERE, oids[0]]) == dict(
        zip([*oids, NOWHERE], ["commit", "tree", "blob", "tag", None], strict=True)
    )
    assert git.types([]) == {}


def test_ancestry(gitenv: GitEnv, work: Path, git: Git) -> None:
    one, two = gitenv.oid(work, "main~1"), gitenv.oid(work, "main")
    assert git.is_ancestor(one, two)
    assert not git.is_ancestor(two, one)
    with pytest.raises(GitError):
        git.is_ancestor(NOWHERE, two)


def test_merges(gitenv: GitEnv, work: Path, git: Git) -> None:
    before = gitenv.oid(work, "main")
    gitenv.git("checkout", "-q", "-b", "side", "main~1", cwd=work)
    gitenv.commit(work, "side")
    gitenv.git("checkout", "-q", "main", cwd=work)
    gitenv.git("merge", "-q", "--no-edit", "side", cwd=work)
    after = gitenv.commit(work, "after")
    assert git.has_merge(after, before)
    assert git.has_merge(after, None)
    assert not git.has_merge(after, gitenv.oid(work, "HEAD~1"))
    assert not git.has_merge(before, None)


def test_what_is_missing_is_named(gitenv: GitEnv, work: Path, git: Git) -> None:
    tree = gitenv.oid(work, "main^{tree}")
    commit = gitenv.git("commit-tree", "-m", "new", tree, cwd=work).out.strip()
    assert not git.missing([commit])
    assert git.missing([NOWHERE])
    blob = gitenv.git("hash-object", "-w", "--stdin", cwd=work, stdin="gone").out.strip()
    entry = f"100644 blob {blob}\tgone\n"
    tree = gitenv.git("mktree", cwd=work, stdin=entry).out.strip()
    commit = gitenv.git("commit-tree", "-m", "new", tree, cwd=work).out.strip()
    assert not git.missing([commit])
    (work / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    assert blob in (git.broken_link([commit]) or "")


def test_a_worktree_a_subdirectory_and_a_bare_repository(
    gitenv: GitEnv, work: Path, git: Git, monkeypatch: pytest.MonkeyPatch
) -> None:
    gitenv.git("worktree", "add", "-q", "../tree", cwd=work)
    assert Git(work / ".git/worktrees/tree", env=gitenv.env).common_dir == work / ".git"
    assert git.objects_dir == work / ".git/objects"
    monkeypatch.chdir(work)
    assert Git(Path(".git"), env=gitenv.env).common_dir == work / ".git"
    assert Git(None, env=gitenv.env).common_dir == work / ".git"
    bare = gitenv.repository("bare", bare=True)
    assert Git(bare, env=gitenv.env).common_dir == bare
    assert git.object_format() == "sha1"


def test_shallow(gitenv: GitEnv, work: Path, git: Git) -> None:
    gitenv.git("clone", "-q", "--depth=2", work.as_uri(), str(gitenv.root / "shallow"))
    shallow = Git(gitenv.root / "shallow/.git", env=gitenv.env)
    assert shallow.is_shallow()
    assert shallow.shallow_commits() == {gitenv.oid(work, "main~1")}
    assert not git.is_shallow()
    assert git.shallow_commits() == set()


def test_replacements_and_grafts_bend_nothing(gitenv: GitEnv, work: Path, git: Git) -> None:
    tip = gitenv.oid(work, "main")
    gitenv.git("replace", "--graft", "main", cwd=work)
    (work / ".git/info").mkdir(exist_ok=True)
    (work / ".git/info/grafts").write_text(f"{tip}\n")
    assert git.run("rev-list", "--count", "main") == b"3\n"


def test_the_standard_input_is_never_ours(git: Git) -> None:
    assert git.run("hash-object", "--stdin").strip() == b"e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"


def test_a_stream_both_ways(git: Git) -> None:
    with git.popen("cat-file", "--batch-check") as child:
        child.write(f"{NOWHERE}\n".encode())
        child.end_input()
        assert child.read(1000) == f"{NOWHERE} missing\n".encode()
        assert child.read(1000) == b""
        assert child.finish() == 0


def test_a_command_that_stops_reading_says_why(git: Git) -> None:
    with git.popen("index-pack", "--stdin") as child, pytest.raises(GitError) as raised:
        child.write(b"no pack" * 1_000_000)
    assert raised.value.message == "git index-pack: pack signature mismatch"


def test_an_error_of_ours_ends_the_command(git: Git) -> None:
    began, pids = time.monotonic(), list[int]()

    def interrupted() -> None:
        with git.popen("cat-file", "--batch") as child:
            pids.append(child._process.pid)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert time.monotonic() - began < 1.5
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


def test_progress_is_passed_on_and_complaints_are_not(git: Git) -> None:
    screen = io.StringIO()
    progress = TextProgress(screen, enabled=True)
    args = ("pack-objects", "--revs", "--stdout", "--progress")
    with git.popen(*args, progress=progress) as child:
        child.write(b"main\n")
        child.end_input()
        while child.read(1 << 16):
            pass
        child.finish()
    assert "Counting objects: 100% (9/9), done.\n" in screen.getvalue()
    with git.popen(*args, progress=progress) as child:
        child.write(f"{NOWHERE}\n".encode())
        child.end_input()
        with pytest.raises(GitError, match=rf"^git pack-objects: bad object {NOWHERE}$"):
            child.finish()
    assert "bad object" not in screen.getvalue()


def test_a_lot_of_complaints_stop_nothing(gitenv: GitEnv, work: Path) -> None:
    gitenv.git("config", "alias.loud", "!yes warning: words | head -c 300000 >&2; exit 7", cwd=work)
    git = Git(work / ".git", env=gitenv.env)
    expected = pytest.raises(GitError, match=r"^git loud: warning: words$")
    with git.popen("loud") as child, expected:
        child.finish()


@pytest.mark.parametrize(
    ("setting", "is_partial"),
    [
        ("remote.origin.promisor=true", True),
        ("remote.origin.promisor", True),
        ("remote.origin.promisor=false", False),
        ("remote.origin.partialclonefilter=blob:none", False),
        ("extensions.partialClone=origin", True),
        ("core.promisor=true", False),
    ],
)
def test_a_remote_may_have_promised_objects(git: Git, setting: str, is_partial: bool) -> None:
    name, given, text = setting.partition("=")
    count = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": name, "GIT_CONFIG_VALUE_0": text}
    as_typed = {"GIT_CONFIG_PARAMETERS": f"'{name}'"}
    assert git.within(count if given else as_typed).is_partial is is_partial


def test_what_is_promised_is_sent_for_where_it_is_needed_only(gitenv: GitEnv, work: Path) -> None:
    gitenv.git("config", "uploadpack.allowFilter", "true", cwd=work)
    gitenv.git("config", "uploadpack.allowAnySHA1InWant", "true", cwd=work)
    clone = gitenv.root / "clone"
    args = ("clone", "-q", "--filter=blob:none", "--no-checkout", work.as_uri(), str(clone))
    gitenv.git(*args)
    git, blob = Git(clone / ".git", env=gitenv.env), gitenv.oid(work, "main:file1")
    assert git.types([blob]) == {blob: None}
    assert not git.missing([gitenv.oid(work)])
    assert git.missing([NOWHERE])
    assert git.types([blob]) == {blob: None}
    assert git.fetching().run("cat-file", "-t", blob) == b"blob\n"
    assert git.types([blob]) == {blob: "blob"}
