import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from git_knotless.storage.url import (
    BadName,
    BadUrl,
    check_new_name,
    parse_target,
    parse_url,
    without_git,
)

DID = "did:plc:" + "a" * 24


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("knotless://alice.test/repo", "knotless://alice.test/repo"),
        ("knotless://ALICE.Test/Repo", "knotless://alice.test/Repo"),
        ("knotless://alice.test/repo/", "knotless://alice.test/repo"),
        ("knotless://alice.test/repo.git", "knotless://alice.test/repo.git"),
        (f"knotless://{DID}/repo", f"knotless://{DID}/repo"),
        (f"knotless://did%3Aplc%3A{'a' * 24}/repo", f"knotless://{DID}/repo"),
        ("knotless://did:web:localhost%3A99/r", "knotless://did:web:localhost%3A99/r"),
        ("knotless://did%3aweb%3Aexample.com/r", "knotless://did:web:example.com/r"),
    ],
)
def test_an_address_in_its_one_spelling(typed: str, meant: str) -> None:
    assert str(parse_url(typed)) == meant


@pytest.mark.parametrize(
    "typed",
    [
        "",
        "alice.test/repo",
        "https://alice.test/repo",
        "KNOTLESS://alice.test/repo",
        "knotless://alice.test",
        "knotless://alice.test/",
        "knotless:///repo",
        "knotless://alice.test//repo",
        "knotless://alice.test/repo//",
        "knotless://alice.test/a/b",
        "knotless://alice.test/..",
        "knotless://alice.test/.",
        "knotless://alice.test/%2e%2e",
        "knotless://alice.test/-x",
        "knotless://-x.test/repo",
        "knotless://alice.test/re po",
        "knotless://alice.test/re\npo",
        "knotless://alice.test/repo\0",
        "knotless://alice.test/repo?x=1",
        "knotless://alice.test/repo#x",
        "knotless://alice.test/é",
        "knotless://alice@alice.test/repo",
        "knotless://alice.test:80/repo",
        "knotless://localhost/repo",
        "knotless://127.0.0.1/repo",
        "knotless://did:plc:short/repo",
        "knotless://did:key:zabc/repo",
        "knotless://alice.test/" + "x" * 513,
        "knotless::knotless://alice.test/repo",
    ],
)
def test_what_is_no_address(typed: str) -> None:
    with pytest.raises(BadUrl) as caught:
        parse_url(typed)
    assert "\n" not in caught.value.message


def test_people_may_leave_the_scheme_out() -> None:
    assert str(parse_target("alice.test/repo")) == "knotless://alice.test/repo"
    assert str(parse_target("@Alice.test/repo")) == "knotless://alice.test/repo"


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("", "'' names no repository"),
        ("notes", "'notes' names no owner"),
        ("notes/", "'notes/' names no owner"),
        ("notes.git", "'notes.git' names no owner"),
        ("alice.test", "'alice.test' names no repository"),
        ("@alice.test", "'@alice.test' names no repository"),
        ("did:plc:x", "'did:plc:x': 'did:plc:x' is not a DID"),
        ("a.example", "'a.example': 'a.example' is not a handle: .example is reserved"),
        ("a.b.LOCAL/x", "'a.b.LOCAL/x': 'a.b.LOCAL' is not a handle: .local is reserved"),
        ("https://github.com/a/b", "'https://github.com/a/b' is not a knotless:// URL"),
        ("KNOTLESS://alice.test/b", "'KNOTLESS://alice.test/b' is not a knotless:// URL"),
        ("knotless://@alice.test/b", "'knotless://@alice.test/b': '@alice.test' is not a handle"),
    ],
)
def test_what_is_nearly_one_is_told_what_it_lacks(typed: str, message: str) -> None:
    with pytest.raises(BadUrl) as caught:
        parse_target(typed)
    assert caught.value.message == message


def test_git_is_dropped_where_no_record_has_it() -> None:
    url = parse_url("knotless://alice.test/repo.git")
    assert str(without_git(url)) == "knotless://alice.test/repo"
    assert without_git(parse_url("knotless://alice.test/repo")) is None
    assert without_git(parse_url("knotless://alice.test/.git")) is None


@given(st.text())
@example("knotless://alice.test/repo")
def test_whatever_is_taken_is_its_own_spelling(text: str) -> None:
    try:
        url = parse_target(text)
    except BadUrl:
        return
    assert parse_url(str(url)) == url
    assert str(url).isascii()
    assert not url.name.startswith("-")


@pytest.mark.parametrize("name", ["a", "A-b_c.d", "0", "x" * 100, "git", "a.git.x"])
def test_names_that_we_give(name: str) -> None:
    assert check_new_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["", "-x", ".x", "_x", "a:b", "a~b", "a/b", "é", "x.git", "X.GIT", "x.lock", "x.", "x" * 101],
)
def test_names_that_we_do_not_give(name: str) -> None:
    with pytest.raises(BadName):
        check_new_name(name)


def test_the_endings_are_told_apart_from_the_full_stop() -> None:
    with pytest.raises(BadName) as caught:
        check_new_name("x.lock")
    assert caught.value.message.endswith("does not end in .git, .lock or '.'")
