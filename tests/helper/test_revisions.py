"""Sources of a push, as git itself reads them."""

from git_knotless.helper.service import revisions
from git_knotless.storage.git import Git
from tests.gitenv import GitEnv


def test_a_source_is_whatever_git_reads_as_one(gitenv: GitEnv) -> None:
    work = gitenv.repository(commits=2)
    oid = gitenv.commit(work, "a name", message="fix the: bug")
    gitenv.git("tag", "-am", "one", "v1", cwd=work)
    gitenv.git("update-ref", "refs/heads/\udcff", "HEAD", cwd=work)
    found = revisions(
        Git(work / ".git", env=gitenv.env),
        ["HEAD", oid, ":/fix the: bug", "HEAD~1", "v1", "HEAD:a name", "refs/heads/\udcff"],
    )
    assert found == {
        "HEAD": oid,
        oid: oid,
        ":/fix the: bug": oid,
        "HEAD~1": gitenv.oid(work, "HEAD~1"),
        "v1": gitenv.oid(work, "v1"),
        "HEAD:a name": gitenv.oid(work, "HEAD:a name"),
        "refs/heads/\udcff": oid,
    }
    assert found["v1"] != oid


def test_what_is_not_here_is_none(gitenv: GitEnv) -> None:
    git = Git(gitenv.repository() / ".git", env=gitenv.env)
    names = ["gone", "--help", "", " ", ":", "1" * 40, "HEAD:no such", "HEAD missing"]
    assert revisions(git, names) == dict.fromkeys(names)
    assert revisions(git, []) == {}
