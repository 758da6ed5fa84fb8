"""What a login is asked for, and what it was given. https://atproto.com/specs/permission

Scopes are compared as what they allow, never as texts: a host writes them in its own way, and
drops what it does not know.
"""

from collections.abc import Iterable, Iterator
from urllib.parse import parse_qsl, quote, unquote

_LOGIN = "atproto"
_EVERYTHING = "transition:generic"
_ACTIONS = frozenset({"create", "update", "delete"})
# By resource, the parameter that its positional one is short for.
_PARAMETERS = {"repo": "collection", "blob": "accept"}


def for_records(*collections: str) -> tuple[str, ...]:
    return tuple(f"repo:{each}" for each in collections)


def for_blobs(*mimes: str) -> tuple[str, ...]:
    return tuple(f"blob:{each}" for each in mimes)


def of_a_repository() -> tuple[str, ...]:
    """What pushing to one and changing it takes."""
    # Who only shows what was granted does not wait for what records are made with.
    from git_knotless.storage.packs.packrecord import PACK_MIME
    from git_knotless.storage.records import CLAIM, PACK, REF, REPO

    return for_records(REPO, REF, CLAIM, PACK) + for_blobs(PACK_MIME)


def of_lfs() -> tuple[str, ...]:
    """What uploading an LFS object takes beside that: it may be a file of any kind."""
    from git_knotless.storage.records import LFS

    return for_records(LFS) + for_blobs("*/*")


def login_scope() -> str:
    """Each scope once, with single spaces: hosts refuse anything else."""
    from git_knotless.storage.accounts.own_record import COLLECTIONS_OF_AN_ACCOUNT
    from git_knotless.storage.records import COLLECTIONS_OF_A_REPOSITORY, REDIRECT, REPO

    collections = (REPO, *COLLECTIONS_OF_A_REPOSITORY, REDIRECT, *COLLECTIONS_OF_AN_ACCOUNT)
    return " ".join((_LOGIN, *for_records(*collections), *for_blobs("*/*")))


def granted(scope: str) -> frozenset[str]:
    """Each permission by itself and in one spelling, such as `repo:dev.knotless.ref`.

    One with an action that is not all has it behind: `repo:dev.knotless.ref?action=create`.
    """
    permissions = {each for text in scope.split() for each in _permissions(text)}
    return frozenset(_joined(permissions))


def missing(scope: str | None, needed: Iterable[str]) -> tuple[str, ...]:
    """Which of the scopes needed are not granted; None is a login that is for everything."""
    if scope is None:
        return ()
    has = granted(scope)
    return tuple(each for each in needed if not all(_covers(has, one) for one in granted(each)))


def _permissions(text: str) -> Iterator[str]:
    """With each action apart."""
    head, _, query = text.partition("?")
    resource, _, positional = head.partition(":")
    if resource not in _PARAMETERS:
        yield text
        return
    pairs = parse_qsl(query)
    values = [value for name, value in pairs if name == _PARAMETERS[resource]]
    values += [unquote(positional)] if positional else []
    actions = {value for name, value in pairs if name == "action"} or _ACTIONS
    for value in values:
        plain = f"{resource}:{quote(value, safe='/*.:+-_')}"
        yield from (f"{plain}?action={each}" for each in actions) if resource == "repo" else [plain]


def _joined(permissions: set[str]) -> Iterator[str]:
    """All actions are as none said."""
    for each in permissions:
        plain, _, action = each.partition("?action=")
        all_of_it = action and all(f"{plain}?action={one}" in permissions for one in _ACTIONS)
        yield plain if all_of_it else each


def _covers(has: frozenset[str], permission: str) -> bool:
    plain, _, action = permission.partition("?")
    ending = f"?{action}" if action else ""
    wider = {plain, plain + ending}
    resource, _, value = plain.partition(":")
    if resource == "repo":
        wider |= {_EVERYTHING, "repo:*", f"repo:*{ending}"}
    elif resource == "blob":
        wider |= {_EVERYTHING, "blob:*/*", f"blob:{value.partition('/')[0]}/*"}
    return not wider.isdisjoint(has)
