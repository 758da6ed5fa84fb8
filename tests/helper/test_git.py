"""What git itself makes of the conversation."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from git_knotless.helper import conversation
from tests.forked import stand_ins

SOURCE = Path(conversation.__file__).parents[2]


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Place:
    """A folder with a bare repository `there`, and what it takes to reach it by our helper."""

    path: Path

    def git(self, *args: str, cwd: str = ".") -> Done:
        env = {
            "PATH": f"{self.path / 'bin'}:{os.environ['PATH']}",
            "HOME": str(self.path),
            "GIT_CONFIG_NOSYSTEM": "1",
            "PYTHONPATH": str(SOURCE),
            "LC_ALL": "C.UTF-8",
        }
        done = subprocess.run(
            ["git", *args],
            cwd=self.path / cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            check=False,
        )
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode())

    def fine(self, *args: str, cwd: str = ".") -> str:
        done = self.git(*args, cwd=cwd)
        assert done.code == 0, done.err
        # These are git's words for an answer that it did not expect.
        assert "also locked" not in done.err
        assert "unexpectedly" not in done.err
        return done.out.strip()

    @property
    def url(self) -> str:
        return f"local://{self.path / 'there'}"

    def commit(self, cwd: str, text: str) -> str:
        (self.path / cwd / "file").write_text(text)
        self.fine("add", "file", cwd=cwd)
        self.fine("commit", "-qm", text, cwd=cwd)
        return self.fine("rev-parse", "HEAD", cwd=cwd)

    def refs(self, cwd: str = "there") -> dict[str, str]:
        lines = self.fine("for-each-ref", "--format=%(refname) %(objectname)", cwd=cwd)
        pairs = (line.partition(" ") for line in lines.splitlines())
        return {name: oid for name, _, oid in pairs}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return _place(tmp_path)


def _place(path: Path) -> Place:
    binary = path / "bin" / "git-remote-local"
    binary.parent.mkdir()
    binary.symlink_to(f"{stand_ins()}/git-remote-local")
    (path / ".gitconfig").write_text(
        "[user]\n\tname = A\n\temail = a@example.org\n[init]\n\tdefaultBranch = other\n"
        "[advice]\n\tdetachedHead = false\n"
    )
    place = Place(path)
    place.fine("init", "-q", "--bare", "-b", "trunk", "there")
    place.fine("init", "-q", "-b", "trunk", "mine")
    place.fine("remote", "add", "origin", place.url, cwd="mine")
    return place


@pytest.fixture
def filled(place: Place, pushed: Place) -> Place:
    """One commit on trunk and dev, and an annotated tag."""
    for name in ("mine", "there"):
        shutil.copytree(pushed.path / name, place.path / name, dirs_exist_ok=True)
    place.fine("remote", "set-url", "origin", place.url, cwd="mine")
    return place


@pytest.fixture(scope="session")
def pushed(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """What `filled` has copies of: to make one takes longer than most of the tests."""
    place = _place(tmp_path_factory.mktemp("pushed"))
    place.commit("mine", "one")
    place.fine("tag", "-am", "the first", "v1", cwd="mine")
    place.fine("branch", "dev", cwd="mine")
    place.fine("push", "-q", "origin", "trunk", "dev", "v1", cwd="mine")
    return place


@pytest.mark.parametrize("version", ["0", "1", "2"])
def test_a_clone_has_everything_and_keeps_nothing(filled: Place, version: str) -> None:
    filled.fine("-c", f"protocol.version={version}", "clone", "-q", filled.url, "c")
    assert filled.fine("symbolic-ref", "HEAD", cwd="c") == "refs/heads/trunk"
    there, refs = filled.refs(), filled.refs("c")
    assert refs["refs/remotes/origin/dev"] == there["refs/heads/dev"]
    assert refs["refs/tags/v1"] == there["refs/tags/v1"]
    filled.fine("fsck", "--strict", cwd="c")
    assert not list((filled.path / "c/.git/objects/pack").glob("*.keep"))


def test_a_clone_of_nothing_is_on_the_default_branch(place: Place) -> None:
    done = place.git("clone", place.url, "c")
    assert done.code == 0
    assert "You appear to have cloned an empty repository" in done.err
    assert place.fine("symbolic-ref", "HEAD", cwd="c") == "refs/heads/trunk"
    assert place.fine("fetch", cwd="c") == ""
    assert place.fine("ls-remote", place.url) == ""
    place.commit("c", "one")
    place.fine("push", "-q", "-u", "origin", "trunk", cwd="c")
    assert list(place.refs()) == ["refs/heads/trunk"]


def test_a_clone_of_nothing_by_an_old_protocol_is_empty(place: Place) -> None:
    place.fine("-c", "protocol.version=0", "clone", "-q", place.url, "c")
    assert place.fine("symbolic-ref", "HEAD", cwd="c") == "refs/heads/other"


def test_a_clone_without_the_default_branch_is_whole(place: Place) -> None:
    place.commit("mine", "one")
    place.fine("push", "-q", "origin", "trunk:dev", cwd="mine")
    done = place.git("clone", place.url, "c")
    assert done.code == 0
    assert place.refs("c") == {"refs/remotes/origin/dev": place.refs()["refs/heads/dev"]}
    place.fine("fsck", cwd="c")


def test_listing_needs_no_repository(filled: Place) -> None:
    listed = filled.fine("ls-remote", "--symref", filled.url).splitlines()
    assert listed[0] == "ref: refs/heads/trunk\tHEAD"
    assert [line.split("\t")[1] for line in listed[1:]] == ["HEAD", *filled.refs()]


def test_a_fetch_follows_tags_and_says_nothing_of_depth(filled: Place) -> None:
    filled.fine("clone", "-q", "--no-tags", filled.url, "c")
    filled.fine("config", "--unset", "remote.origin.tagOpt", cwd="c")
    filled.commit("mine", "two")
    filled.fine("tag", "-am", "the second", "v2", cwd="mine")
    filled.fine("push", "-q", "origin", "trunk", "v2", cwd="mine")
    done = filled.git("fetch", cwd="c")
    assert "warning" not in done.err
    assert filled.refs("c")["refs/tags/v2"] == filled.refs()["refs/tags/v2"]
    assert not list((filled.path / "c/.git/objects/pack").glob("*.keep"))


@pytest.mark.parametrize(
    ("option", "word"),
    [
        ("--depth=1", "warning: --depth is not honoured without protocol version 2 "),
        ("--filter=blob:none", "warning: --filter is not honoured without protocol version 2 "),
        ("--shallow-since=2020-01-01", "warning: --shallow-since is not honoured without"),
    ],
)
def test_what_an_old_protocol_cannot_is_said_once(filled: Place, option: str, word: str) -> None:
    done = filled.git("-c", "protocol.version=0", "clone", option, filled.url, "c")
    assert done.code == 0
    assert done.err.count(word) == 1
    assert not (filled.path / "c/.git/shallow").exists()
    filled.fine("fsck", cwd="c")


def test_from_a_worktree_and_a_subdirectory(filled: Place) -> None:
    filled.fine("worktree", "add", "-q", "../tree", "dev", cwd="mine")
    (filled.path / "tree/sub").mkdir()
    filled.commit("tree", "two")
    filled.fine("push", "-q", "origin", "dev", cwd="tree/sub")
    filled.fine("fetch", "-q", cwd="tree/sub")
    assert filled.refs("mine")["refs/remotes/origin/dev"] == filled.refs()["refs/heads/dev"]


def test_a_push_of_any_source(filled: Place) -> None:
    oid = filled.commit("mine", "fix the: bug")
    specs = ("HEAD:refs/heads/head", f"{oid}:refs/heads/oid", ":/fix the: bug:refs/heads/found")
    filled.fine("push", "-q", "origin", *specs, "HEAD:file:refs/tags/blob", ":dev", cwd="mine")
    refs = filled.refs()
    assert refs["refs/heads/head"] == refs["refs/heads/oid"] == refs["refs/heads/found"] == oid
    assert refs["refs/tags/blob"] == filled.fine("rev-parse", "HEAD:file", cwd="mine")
    assert "refs/heads/dev" not in refs


def test_names_beyond_ascii(filled: Place) -> None:
    spec = "trunk:refs/heads/n\xe4pel"
    filled.fine("push", "-q", "origin", spec, cwd="mine")
    expected = filled.refs()["refs/heads/n\xe4pel"]
    filled.fine("commit", "-q", "--amend", "-m", "rewritten", cwd="mine")
    filled.fine("push", "-q", f"--force-with-lease=n\xe4pel:{expected}", "origin", spec, cwd="mine")
    assert filled.refs()["refs/heads/n\xe4pel"] == filled.refs("mine")["refs/heads/trunk"]
    filled.fine("push", "-q", "origin", ":refs/heads/n\xe4pel", cwd="mine")
    assert "refs/heads/n\xe4pel" not in filled.refs()


@pytest.fixture
def behind(filled: Place) -> Place:
    """`mine` has not seen what is on trunk by now."""
    filled.fine("clone", "-q", filled.url, "c")
    filled.commit("c", "theirs")
    filled.fine("push", "-q", "origin", "trunk", cwd="c")
    filled.commit("mine", "ours")
    return filled


def test_a_push_over_what_is_not_here_is_refused_as_git_does(behind: Place) -> None:
    before = behind.refs()
    done = behind.git("push", "origin", "trunk", cwd="mine")
    assert done.code == 1
    assert "[rejected]        trunk -> trunk (fetch first)" in done.err
    assert behind.refs() == before


def test_one_refusal_stops_an_atomic_push(behind: Place) -> None:
    before = behind.refs()
    pushed = ("origin", "trunk", "trunk:refs/heads/new")
    assert behind.git("push", "--atomic", *pushed, cwd="mine").code == 1
    assert behind.refs() == before
    assert behind.git("push", *pushed, cwd="mine").code == 1
    assert behind.refs().keys() - before.keys() == {"refs/heads/new"}


def test_a_lease_forces_while_it_holds(behind: Place) -> None:
    theirs = behind.refs()["refs/heads/trunk"]
    stale = behind.git("push", "--force-with-lease", "origin", "trunk", cwd="mine")
    assert (stale.code, "stale info" in stale.err) == (1, True)
    must_be_new = behind.git("push", "--force-with-lease=dev:", "origin", "trunk:dev", cwd="mine")
    assert (must_be_new.code, "stale info" in must_be_new.err) == (1, True)
    lease = f"--force-with-lease=trunk:{theirs}"
    behind.fine("push", "-q", lease, "origin", "trunk", cwd="mine")
    assert behind.refs()["refs/heads/trunk"] == behind.refs("mine")["refs/heads/trunk"]


def test_a_dry_run_moves_nothing(behind: Place) -> None:
    before = behind.refs()
    behind.fine("push", "-n", "-f", "origin", "trunk", cwd="mine")
    assert behind.git("push", "-n", "origin", "trunk", cwd="mine").code == 1
    assert behind.refs() == before


def test_a_mirror_leaves_head_alone(filled: Place) -> None:
    filled.fine("update-ref", "-d", "refs/remotes/origin/trunk", cwd="mine")
    filled.fine("branch", "-D", "dev", cwd="mine")
    done = filled.git("push", "--mirror", filled.url, cwd="mine")
    assert done.code == 0, done.err
    assert filled.refs() == filled.refs("mine")
    assert filled.fine("symbolic-ref", "HEAD", cwd="there") == "refs/heads/trunk"


def test_push_options_and_certificates(filled: Place) -> None:
    filled.commit("mine", "two")
    options = ("-o", 'a  "b" c', "-o", "d", "--signed=if-asked")
    done = filled.git("push", *options, "origin", "trunk", cwd="mine")
    assert done.code == 0, done.err
    assert done.err.count("warning: push options are ignored") == 1
    signed = filled.git("push", "--signed", "origin", "trunk:x", cwd="mine")
    assert (signed.code, "does not support --signed" in signed.err) == (128, True)


def test_an_archive_is_not_to_be_had(filled: Place) -> None:
    assert filled.git("archive", f"--remote={filled.url}", "HEAD").code != 0


def test_an_error_is_one_line_and_128(filled: Place) -> None:
    done = filled.git("ls-remote", f"{filled.url}/nowhere")
    assert done.code == 128
    assert done.err.startswith("error: git for-each-ref: ")
    assert "Traceback" not in done.err
