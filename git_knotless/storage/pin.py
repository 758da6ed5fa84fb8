"""A remote belongs to the repository that it first led to.

A handle can come to name another account, and a name another repository. So the config of a clone
keeps what a remote led to first: `remote.<name>.knotlessdid` is the account that its handle named,
`knotlesskey` the repository, and `knotlessurl` the address that both were read from. They hold
for that address alone: whoever gives the remote another one means another.
"""

import shlex
from collections.abc import Callable, Mapping
from contextlib import suppress

from git_knotless.atproto.syntax import Did, is_did
from git_knotless.errors import KnotlessError
from git_knotless.storage.git import Git, GitError
from git_knotless.storage.records import RepoRecord
from git_knotless.storage.repositories import Repository
from git_knotless.storage.url import SCHEME, BadUrl, RepoUrl, parse_url

_REPOSITORYS_OWN = ("local",)
_DID, _KEY, _URL = "knotlessdid", "knotlesskey", "knotlessurl"


class OtherAccount(KnotlessError):
    """A remote whose handle names another account than it did."""


class OtherRepository(KnotlessError):
    """A remote whose address leads to another repository than it did."""


class Pin:
    """`remote` and `url` as git hands them over; they are the same for a bare address, which is
    kept to nothing. `notify` gets a line for the person."""

    def __init__(self, git: Git, remote: str, url: str, notify: Callable[[str], None]) -> None:
        section = {} if remote == url else _section(git, remote)
        self._git = git
        self._remote = remote
        self._url = url
        self._notify = notify
        self._is_kept = _is_address_of(section, url)
        self._held = {name: values[-1] for name, values in section.items()}
        self._asked: Did | None = None

    @property
    def did(self) -> Did | None:
        """The account that the handle of the address named, for when it names nobody any more."""
        did = self._held.get(_DID, "")
        return Did(did) if self._is_kept and not self._is_new and is_did(did) else None

    def hold_account(self, did: Did) -> None:
        """Remember whom the address names, or raise OtherAccount where another is remembered."""
        self._asked = did
        if not self._is_kept or self._is_new or _did_in(self._url):
            return
        pinned = self._held.get(_DID)
        if pinned is None:
            self._write({_DID: did, _URL: self._url})
        elif pinned != did:
            raise OtherAccount(
                f"{self._url} leads to {did} now, and {self._remote} is a remote of {pinned}",
                hint=self._unset(_KEY, _DID),
            )

    def hold(self, repository: Repository, repo: RepoRecord) -> None:
        """The same for the repository that was found, which may be in another account by now."""
        if not self._is_kept:
            return
        pinned = self._held.get(_KEY)
        if self._is_new:
            self._pin_anew(repo.key)
        elif pinned is None:
            self._write({_KEY: repo.key, _URL: self._url})
        elif pinned != repo.key:
            raise OtherRepository(
                f"{self._url} is another repository now than {self._remote} is a remote of",
                hint=self._way_to(pinned, repository) or self._unset(_KEY),
            )

    @property
    def _is_new(self) -> bool:
        return self._held.get(_URL, self._url) != self._url

    def _pin_anew(self, key: str) -> None:
        old = self._held[_URL]
        was = self._held.get(_DID) or _did_in(old), self._held.get(_KEY, key)
        self._write({_KEY: key, _DID: None if _did_in(self._url) else self._asked, _URL: self._url})
        if was != (self._asked, key):
            self._notify(
                f"{self._remote} was a remote of {old}, and is kept to {self._url} from now on"
            )

    def _write(self, values: Mapping[str, str | None]) -> None:
        """In this order: the address comes last, so that what is cut short is begun again."""
        with suppress(GitError):  # of a config that cannot be written now: the next run does
            for name, text in values.items():
                if text is None and name in self._held:
                    self._git.run("config", "--unset-all", self._variable(name))
                elif text is not None and self._held.get(name) != text:
                    self._git.run("config", "--replace-all", self._variable(name), text)
        self._held |= {name: text for name, text in values.items() if text is not None}

    def _way_to(self, key: str, repository: Repository) -> str | None:
        """The command after which the remote leads to the repository of `key`, if it is found."""
        from git_knotless.storage.forwarding import set_url

        with suppress(KnotlessError):  # whatever keeps us from looking, the remote is another's
            found = repository.of_key(key)
            if found is not None:
                by_did = RepoUrl(found.store.did, found.url.name)
                new = by_did if _did_in(self._url) else found.url
                return set_url(self._git, self._remote, self._url, new)
        return None

    def _unset(self, *names: str) -> str:
        held = [name for name in names if name in self._held]
        return " && ".join(
            shlex.join(["git", "config", "--unset", self._variable(name)]) for name in held
        )

    def _variable(self, name: str) -> str:
        return f"remote.{self._remote}.{name}"


def _is_address_of(section: Mapping[str, list[str]], url: str) -> bool:
    """Whether the remote is fetched from `url`; or pushed to, where it is fetched from elsewhere.

    `url` may have been made of the one that is configured, by `url.<base>.insteadOf`.
    """
    urls, pushed = section.get("url", []), section.get("pushurl", [])
    if url in urls[:1] or not pushed:
        return url in urls[:1] or len(urls) == 1
    return url in pushed[:1] and not any(each.startswith(SCHEME) for each in urls)


def _did_in(url: str) -> Did | None:
    """The account of an address that names it by its DID."""
    try:
        authority = parse_url(url).authority
    except BadUrl:
        return None
    return Did(authority) if is_did(authority) else None


def _section(git: Git, remote: str) -> dict[str, list[str]]:
    """The values of each variable of the remote's section; none outside a repository."""
    found: dict[str, list[str]] = {}
    for key, text in git.settings(r"remote\.", scopes=_REPOSITORYS_OWN):
        section, _, variable = key.rpartition(".")
        if section == f"remote.{remote}":
            found.setdefault(variable, []).append(text)
    return found
