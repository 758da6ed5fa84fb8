"""What a login asks for, and how what it was given is read."""

import re

import pytest

from git_knotless.storage.accounts import emails, profile
from git_knotless.storage.packs.packrecord import PACK_MIME
from git_knotless.storage.records import COLLECTIONS_OF_A_REPOSITORY, REDIRECT, REPO
from git_knotless.storage.scope import granted, login_scope, missing, of_a_repository, of_lfs


def test_a_login_asks_for_what_is_written_and_for_nothing_else() -> None:
    scopes = login_scope().split(" ")
    assert scopes[0] == "atproto"
    records = {REPO, *COLLECTIONS_OF_A_REPOSITORY, REDIRECT, emails.COLLECTION, profile.COLLECTION}
    assert {each for each in scopes if each.startswith("repo:")} == {f"repo:{r}" for r in records}
    assert [each for each in scopes if each.startswith("blob:")] == ["blob:*/*"], "for LFS objects"
    assert len(scopes) == len(set(scopes)) == 1 + len(records) + 1
    assert missing(login_scope(), [*of_lfs(), *(f"blob:{m}" for m in profile.PICTURES)]) == ()
    assert not re.search(r"^ |  | $", login_scope()), "which hosts refuse"


def test_every_collection_that_is_written_has_a_lexicon_and_a_scope() -> None:
    from pathlib import Path

    root = Path(__file__).parents[2] / "lexicons/dev/knotless"
    records = {f"repo:dev.knotless.{path.stem}" for path in root.glob("*.json")}
    assert {each for each in login_scope().split() if each.startswith("repo:")} <= records
    assert records - set(login_scope().split()) <= {"repo:dev.knotless.defs"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("repo?collection=a.b.c&collection=d.e.f", "repo:d.e.f repo:a.b.c"),
        ("blob?accept=image/png&accept=image/gif", "blob:image/gif blob:image/png"),
        ("blob:image%2Fpng", "blob:image/png"),
        ("blob?accept=image%2Fpng", "blob:image/png"),
        ("repo:a.b.c?action=create&action=update&action=delete", "repo:a.b.c"),
        (
            "repo:a.b.c?action=create repo:a.b.c?action=update repo:a.b.c?action=delete",
            "repo:a.b.c",
        ),
        ("repo?collection=a.b.c&action=create", "repo:a.b.c?action=create"),
        ("atproto  repo:a.b.c ", "repo:a.b.c atproto atproto"),
        ("blob:application/x-git-pack", "blob?accept=application%2Fx-git-pack"),
    ],
)
def test_the_same_in_another_spelling(one: str, other: str) -> None:
    assert granted(one) == granted(other)


def test_each_permission_is_one() -> None:
    assert granted("atproto repo?collection=a.b.c&collection=d.e.f&action=create") == {
        "atproto",
        "repo:a.b.c?action=create",
        "repo:d.e.f?action=create",
    }
    assert granted("repo:a.b.c rpc:x?aud=* transition:generic") == {
        "repo:a.b.c",
        "rpc:x?aud=*",
        "transition:generic",
    }
    assert granted("") == frozenset()


@pytest.mark.parametrize(
    ("scope", "lacks"),
    [
        (login_scope(), ()),
        ("transition:generic", ()),
        ("atproto repo:* blob:*/*", ()),
        (None, ()),
        ("atproto", of_a_repository()),
        (login_scope().replace(f"repo:{REPO}", ""), (f"repo:{REPO}",)),
        (login_scope().replace(f"repo:{REPO}", f"repo:{REPO}?action=update"), (f"repo:{REPO}",)),
        (login_scope().replace("blob:*/*", "blob:image/*"), (f"blob:{PACK_MIME}",)),
        (login_scope().replace("blob:*/*", "blob:application/*"), ()),
        ("repo:*?action=create blob:*/*", tuple(s for s in of_a_repository() if s[0] == "r")),
        ("repo:*?action=create&action=update&action=delete blob:*/*", ()),
    ],
)
def test_what_a_push_lacks(scope: str | None, lacks: tuple[str, ...]) -> None:
    assert missing(scope, of_a_repository()) == lacks


@pytest.mark.parametrize(
    ("scope", "needed", "lacks"),
    [
        ("repo:a.b.c?action=create", "repo:a.b.c?action=create", False),
        ("repo:a.b.c", "repo:a.b.c?action=create", False),
        ("repo:*", "repo:a.b.c?action=create", False),
        ("repo:*?action=create", "repo:a.b.c?action=create", False),
        ("repo:a.b.c?action=update", "repo:a.b.c?action=create", True),
        ("repo:a.b", "repo:a.b.c", True),
        ("blob:*/*", "repo:a.b.c", True),
        ("repo:*", "blob:image/png", True),
        ("transition:generic", "atproto", True),
        ("transition:generic", "account:email", True),
        ("account:email", "account:email", False),
    ],
)
def test_one_covers_another(scope: str, needed: str, *, lacks: bool) -> None:
    assert missing(scope, [needed]) == ((needed,) if lacks else ())
