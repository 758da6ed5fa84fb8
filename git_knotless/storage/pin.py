"""A remote belongs to the repository that it first led to.

A handle can come to name another account, and a name another repository. So the config of a clone
keeps what a remote led to first: `remote.<name>.knotlessdid` is the account that its handle named,
`knotlesskey` the repository, and `knotlessurl` the address that both were read from. They hold
for that address alone: whoever gives the remote another one means another.

`knotlessowner` is the account that the repository was in when it was last read, where that is
another: it has moved there. By it the repository is found once its old place leads there no more.
"""

import shlex
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from git_knotless.atproto.syntax import Did, is_did, is_tid
from git_knotless.errors import KnotlessError
from git_knotless.storage.git import Git, GitError
from git_knotless.storage.records import RepoRecord
from git_knotless.storage.repositories import Repository
from git_knotless.storage.url import SCHEME, BadUrl, RepoUrl, parse_url

if TYPE_CHECKING:  # looked for is what is not where it was
    from git_knotless.storage.places.lookup import Accounts

_REPOSITORYS_OWN = ("local",)
_DID, _KEY, _OWNER, _URL = "knotlessdid", "knotlesskey", "knotlessowner", "knotlessurl"


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
        self._accounts: Accounts | None = None

    @property
    def did(self) -> Did | None:
        """The account that the handle of the address named, for when it names nobody any more."""
        did = self._held.get(_DID, "")
        return Did(did) if self._is_kept and not self._is_new and is_did(did) else None

    @property
    def place(self) -> tuple[Did, str] | None:
        """The account that the repository was in when it was last read, and its key."""
        owner = self._held.get(_OWNER) or self.did or _did_in(self._url)
        key = self._key
        if key is None or not is_tid(key) or owner is None or not is_did(owner):
            return None
        return Did(owner), key

    def hold_account(self, did: Did, accounts: "Accounts") -> None:
        """Remember whom the address names, or raise OtherAccount where another is remembered.

        `accounts` are where the repository is looked for when the address leads to it no more.
        """
        self._asked, self._accounts = did, accounts
        if not self._is_kept or self._is_new or _did_in(self._url):
            return
        pinned = self._held.get(_DID)
        if pinned is None:
            self._write({_DID: did, _URL: self._url})
        elif pinned != did:
            raise OtherAccount(
                f"{self._url} leads to {did} now, and {self._remote} is a remote of {pinned}",
                hint=self._mend(pinned, "account", _KEY, _DID),
            )

    def hold(self, repository: Repository, repo: RepoRecord) -> None:
        """The same for the repository that was found, which may be in another account by now."""
        if not self._is_kept:
            return
        owner = repository.store.did
        moved_to = None if owner == self._asked else owner
        if self._is_new:
            self._pin_anew(repo.key, moved_to)
        elif self._held.get(_KEY, repo.key) == repo.key:
            self._write({_KEY: repo.key, _OWNER: moved_to, _URL: self._url})
        else:
            raise OtherRepository(
                f"{self._url} is another repository now than {self._remote} is a remote of",
                hint=self._mend(self._asked, "repository", _KEY),
            )

    def elsewhere(self) -> str | None:
        """The command after which the remote leads to its repository, where the address leads to
        none. None: it is nowhere. Raises what keeps us from looking.
        """
        return self._way_from(self._asked)

    def letting_go(self) -> str | None:
        """The command after which the remote is kept to what it leads to then."""
        return self._unset(_KEY) if self._key is not None else None

    @property
    def _key(self) -> str | None:
        """Of the repository that the address led to."""
        return self._held.get(_KEY) if self._is_kept and not self._is_new else None

    @property
    def _is_new(self) -> bool:
        return self._held.get(_URL, self._url) != self._url

    def _pin_anew(self, key: str, moved_to: Did | None) -> None:
        old = self._held[_URL]
        owner = self._held.get(_OWNER) or self._held.get(_DID) or _did_in(old)
        was = owner, self._held.get(_KEY, key)
        did = None if _did_in(self._url) else self._asked
        self._write({_KEY: key, _DID: did, _OWNER: moved_to, _URL: self._url})
        if was != (moved_to or self._asked, key):
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

    def _mend(self, did: str | None, what: str, *names: str) -> str:
        """`did` had the repository; `names` are what keeps the remote from leading to another."""
        with suppress(KnotlessError):  # whatever keeps us from looking, the remote is another's
            if command := self._way_from(did):
                return command
        return f"only if you mean the other {what} from now on: {self._unset(*names)}"

    def _way_from(self, did: str | None) -> str | None:
        """As `elsewhere`, for a repository that was in the account `did` when it was pinned."""
        for each in (did, self._held.get(_OWNER)):
            if each is not None and (command := self._way_in(each)):
                return command
        return None

    def _way_in(self, did: str) -> str | None:
        """The command that leads to the repository as the account `did` has it, or led to it."""
        from git_knotless.atproto.errors import DidNotFound, RepoNotFound
        from git_knotless.storage.places.forwarding import set_url
        from git_knotless.storage.places.lookup import of_key

        if self._key is None or self._accounts is None or not is_did(did):
            return None
        try:
            found = of_key(*self._accounts.open_account(Did(did)), self._accounts, self._key)
        except (DidNotFound, RepoNotFound):  # an account that is gone holds nothing
            return None
        if found is None:
            return None
        # A handle that leads to another account may be remembered as this one's.
        by_did = _did_in(self._url) or str(found.url) == self._url
        new = RepoUrl(found.store.did, found.url.name) if by_did else found.url
        return set_url(self._git, self._remote, self._url, new)

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
