"""Addresses of repositories, `knotless://<handle or did>/<name>`, and the names that we make.

git hands an address over as it was typed, so it is checked here, whole: nothing that comes out
can be an option, a path or a second address.
"""

import re

from git_knotless.atproto.syntax import (
    Did,
    Handle,
    InvalidSyntax,
    Rkey,
    is_handle,
    is_reserved,
    is_rkey,
    parse_identifier,
)
from git_knotless.errors import KnotlessError
from git_knotless.value import value

SCHEME = "knotless://"
MAX_NAME = 100  # bytes, of a repository's name
_MADE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_ENDINGS = (".git", ".lock", ".")


class BadUrl(KnotlessError):
    """An address that no repository can have."""


class NoOwner(BadUrl):
    """The name of a repository, without the account that it is in."""


class BadName(KnotlessError):
    """A name that we do not give to a repository."""


@value
class RepoUrl:
    authority: Did | Handle
    name: Rkey

    def __str__(self) -> str:
        return f"{SCHEME}{self.authority}/{self.name}"


def parse_url(text: str) -> RepoUrl:
    """`text` as git hands it over; `.git` stays, since a record may have it (`without_git`)."""
    if not text.startswith(SCHEME):
        raise BadUrl(f"{text!r} is not a {SCHEME} URL")
    return _parse(text, text.removeprefix(SCHEME))


def parse_target(text: str) -> RepoUrl:
    """As people name a repository on a command line: also `handle/name`, or `@handle/name`."""
    if text.startswith(SCHEME):
        return parse_url(text)
    if "://" in text:
        raise BadUrl(f"{text!r} is not a {SCHEME} URL")
    if not text:
        raise BadUrl("'' names no repository", hint="give a URL or HANDLE/NAME")
    name = text.removesuffix("/").removesuffix(".git")
    if _MADE.fullmatch(name) and not _looks_like_a_handle(name.lower()):
        raise NoOwner(f"{text!r} names no owner", hint=f"give it with its owner: HANDLE/{name}")
    return _parse(text, text.removeprefix("@"))


def _parse(text: str, rest: str) -> RepoUrl:
    authority, slash, name = rest.removesuffix("/").partition("/")
    try:
        owner = parse_identifier(_unescaped(authority))
    except InvalidSyntax as error:
        raise BadUrl(f"{text!r}: {error.message}") from error
    if not slash or not name:
        raise BadUrl(
            f"{text!r} names no repository", hint=f"give it with its name: {SCHEME}{owner}/NAME"
        )
    if not is_rkey(name) or name.startswith("-"):
        raise BadUrl(f"{text!r}: {name!r} cannot be the name of a repository")
    return RepoUrl(owner, Rkey(name))


def _looks_like_a_handle(text: str) -> bool:
    return is_handle(text) or is_reserved(text)


def _unescaped(authority: str) -> str:
    """A DID whose own colons came as `%3A`; in a did:web the one before the port is part of it."""
    if not authority.lower().startswith("did%3a"):
        return authority
    return re.sub("%3a", ":", authority, count=2, flags=re.IGNORECASE)


def without_git(url: RepoUrl) -> RepoUrl | None:
    """What `url` means where no record has its `.git`; None where it ends otherwise."""
    name = url.name.removesuffix(".git")
    return RepoUrl(url.authority, Rkey(name)) if name and name != url.name else None


def check_new_name(name: str) -> Rkey:
    """`name`, if it is one that we give; readers take any valid record key."""
    if not _MADE.fullmatch(name):
        raise BadName(
            f"{name!r} cannot be the name of a repository: letters, digits, '.', '_' and '-', "
            "the first a letter or a digit"
        )
    if name.lower().endswith(_ENDINGS):
        raise BadName("the name of a repository does not end in .git, .lock or '.'")
    if len(name) > MAX_NAME:
        raise BadName(f"the name of a repository has at most {MAX_NAME} characters")
    return Rkey(name)
