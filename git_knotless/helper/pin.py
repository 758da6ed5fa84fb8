"""A remote belongs to the account that it first led to (spec: naming.md, trust.md).

A handle can come to name another account. `remote.<name>.knotlessdid` is the DID that a remote
led to first; where its address leads to another one later, nothing is fetched or pushed.
"""

from contextlib import suppress
from dataclasses import dataclass

from git_knotless.atproto.syntax import Did
from git_knotless.errors import KnotlessError
from git_knotless.storage.git import Git, GitError


class OtherAccount(KnotlessError):
    """A remote whose address leads to another account than it did."""


@dataclass(frozen=True, slots=True)
class Pin:
    """`remote` and `url` as git hands them over; they are the same for a bare address."""

    git: Git
    remote: str
    url: str

    def hold(self, did: Did) -> None:
        """Remember `did`, or raise OtherAccount where another is remembered."""
        remote = {} if self.remote == self.url else self._configured()
        if not self._is_address_of(remote):
            return
        pinned = remote.get("knotlessdid", [])
        if not pinned:
            with suppress(GitError):  # of a config that cannot be written now: the next run does
                self.git.run("config", self._key, did)
        elif pinned[-1] != did:
            raise OtherAccount(
                f"{self.url} leads to {did} now, and {self.remote} is a remote of {pinned[-1]}",
                hint=f"if that is as it should be: git config --unset {self._key}",
            )

    @property
    def _key(self) -> str:
        return f"remote.{self.remote}.knotlessdid"

    def _is_address_of(self, remote: dict[str, list[str]]) -> bool:
        """Whether the remote is fetched from `url`, not only pushed to.

        `url` may have been made of the one that is configured, by `url.<base>.insteadOf`.
        """
        urls = remote.get("url", [])
        return self.url in urls[:1] or (len(urls) == 1 and "pushurl" not in remote)

    def _configured(self) -> dict[str, list[str]]:
        """The values of each variable of the remote's section; none outside a repository."""
        try:
            listed = self.git.run("config", "--local", "--null", "--get-regexp", "^remote[.]")
        except GitError:  # there is no such section, or no repository
            return {}
        found: dict[str, list[str]] = {}
        for entry in listed.decode("utf-8", "surrogateescape").split("\0"):
            key, _, value = entry.partition("\n")
            section, _, variable = key.rpartition(".")
            if section == f"remote.{self.remote}":
                found.setdefault(variable, []).append(value)
        return found
