"""Who a commit that knotless makes is by (spec: naming.md).

On a person's own machine it is who git would say there; where git would have to guess that from
the machine's name, and wherever a server acts for an account, it is the account. A runner is
itself.
"""

import re
from dataclasses import dataclass
from typing import Self

from git_knotless.atproto.syntax import Did, Handle
from git_knotless.storage.git import Git, GitError

# Nobody receives mail there, and the DID in it needs no claim to tell whose commit it is.
_DOMAIN = "knotless.invalid"
_RUNNER = "knotless"
_AUTHOR = "GIT_AUTHOR_IDENT"
_COMMITTER = "GIT_COMMITTER_IDENT"

# A name may hold control characters, as git has it; never what would end it.
_IDENT = re.compile(rb"([^<>\n\0]*) <([^<>\n\0]*)> [0-9]+ [+-][0-9]{4}\n?")
# git's own words for an identity that it has not, would have to guess, or would not write.
_NONE_GIVEN = ("auto-detect", "ident name", "name consists only of disallowed characters")


@dataclass(frozen=True, slots=True)
class Person:
    """As git writes one: bytes that are not UTF-8 are surrogates."""

    name: str
    email: str

    def __str__(self) -> str:
        return f"{self.name} <{self.email}>"


@dataclass(frozen=True, slots=True)
class CommitIdentity:
    author: Person
    committer: Person

    @classmethod
    def of(cls, person: Person) -> Self:
        return cls(person, person)


def commit_identity(git: Git, did: Did, handle: Handle | None) -> CommitIdentity:
    """Of a commit made on a person's machine, where `git` runs; raises GitError if it cannot."""
    account = _account(did, handle)
    return CommitIdentity(_stated(git, _AUTHOR) or account, _stated(git, _COMMITTER) or account)


def author_here(git: Git) -> Person | None:
    """Who git authors commits as here; None where it would have to guess."""
    return _stated(git, _AUTHOR)


def account_identity(did: Did, handle: Handle | None) -> CommitIdentity:
    """Of a commit that a server makes for an account."""
    return CommitIdentity.of(_account(did, handle))


def runner_identity(did: Did) -> CommitIdentity:
    """Of what the runner whose account is `did` lands or writes back."""
    return CommitIdentity.of(Person(_RUNNER, f"{did}@{_DOMAIN}"))


def _account(did: Did, handle: Handle | None) -> Person:
    return Person(handle or did, f"{did}@{_DOMAIN}")


def _stated(git: Git, variable: str) -> Person | None:
    """The environment and the config counted as git counts them, and nothing guessed."""
    if person := _ident(git, variable, "user.useConfigOnly=true"):
        return person
    email = git.env.get("EMAIL")
    # That is no guess to git, but the setting that shows what is one leaves it out as well; and
    # where it is the user's own, git would not have taken EMAIL.
    if not email or _ident(git, variable) is None:
        return None
    return _ident(git, variable, "user.useConfigOnly=true", f"user.email={email}")


def _ident(git: Git, variable: str, *settings: str) -> Person | None:
    """What `git var` prints, under more settings; the date is nobody's concern here."""
    undated = git.within({"GIT_AUTHOR_DATE": "", "GIT_COMMITTER_DATE": ""})
    options = [word for setting in settings for word in ("-c", setting)]
    try:
        line = undated.run(*options, "var", variable)
    except GitError as error:
        if any(words in error.message for words in _NONE_GIVEN):
            return None
        reason = error.message.removeprefix("git -c: ").removeprefix("git var: ")
        raise GitError(f"git does not say who commits here: {reason}") from error
    return _parse(line)


def _parse(line: bytes) -> Person:
    found = _IDENT.fullmatch(line)
    if found is None:
        raise GitError("git does not say who commits here: its answer is not an identity")
    return Person(*(part.decode("utf-8", "surrogateescape") for part in found.groups()))
