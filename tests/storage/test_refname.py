import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from git_knotless.limits import REF_NAME
from git_knotless.storage.refname import blocker_of, is_ref_name, parents


def git_takes(name: str) -> bool:
    return subprocess.run(["git", "check-ref-format", name], check=False).returncode == 0


pieces = st.sampled_from(
    [*"ab/.@{~^:?*[\\ \t\x7f-", "refs/", "heads/", ".lock", "..", "//", "é", "\n", '"', "'"]
)


@settings(max_examples=3 * settings().max_examples)
@given(st.lists(pieces, min_size=1, max_size=6).map("".join))
def test_as_git_has_it(tail: str) -> None:
    assert is_ref_name("refs/" + tail) == git_takes("refs/" + tail)


@pytest.mark.parametrize("name", ["HEAD", "heads/x", "", "refs/", "refs/heads/", "/refs/heads/a"])
def test_only_names_in_full(name: str) -> None:
    assert not is_ref_name(name)


def test_a_record_holds_text() -> None:
    assert is_ref_name("refs/heads/ünï/日本")
    assert not is_ref_name("refs/heads/" + b"\xff".decode(errors="surrogateescape"))
    assert not is_ref_name("refs/heads/" + "x" * REF_NAME)


def test_side_by_side() -> None:
    assert list(parents("refs/heads/a/b")) == ["refs/heads", "refs/heads/a"]
    assert blocker_of("refs/heads/a/b", {"refs/heads/a", "refs/heads/a/b"}) == "refs/heads/a"
    assert blocker_of("refs/heads/ab", {"refs/heads/a"}) is None
