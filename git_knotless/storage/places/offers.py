"""Offering a repository to another account, and taking the offer back.

Neither account can write to the other: what the owner says is `transfer`, in the record, and what
the recipient answers with is a copy (`accepting`).
"""

import secrets

from git_knotless.atproto.syntax import Did
from git_knotless.errors import KnotlessError
from git_knotless.storage.editing import edit
from git_knotless.storage.places.lookup import Accounts, go_on
from git_knotless.storage.places.references import RepoRef
from git_knotless.storage.records import RepoRecord
from git_knotless.storage.repositories import Repository
from git_knotless.storage.snapshot import record_named
from git_knotless.storage.url import RepoUrl, check_new_name
from git_knotless.value import replace


class OwnAccount(KnotlessError):
    """A repository cannot be offered to the account that it is in."""


class NotOffered(KnotlessError):
    """The repository is offered to nobody; or to somebody else, who is `to`."""

    def __init__(self, message: str, *, to: Did | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.to = to


class AlreadyAccepted(KnotlessError):
    """The repository is in the account that it was offered to."""


def offer(repository: Repository, to: Did, name: str | None = None) -> RepoRecord:
    """Offer it to `to`, under its own name or another; in the place of an offer that stands.

    Each offer has a name of its own: who accepted an earlier one, and has kept that copy, has not
    accepted this one.

    Raises OwnAccount, or BadName.
    """
    if to == repository.store.did:
        raise OwnAccount(f"{repository.url} is already in that account: rename it instead")
    if name is not None:
        check_new_name(name)
    offer = secrets.token_hex(8)

    def offered(repo: RepoRecord) -> RepoRecord:
        place = RepoRef(to, check_new_name(repo.name if name is None else name), repo.key, offer)
        stands = repo.transfer is not None and replace(repo.transfer, offer=offer) == place
        return repo if stands else repo.changed(transfer=place.to_json())

    return edit(repository, offered)


def withdraw(repository: Repository, accounts: Accounts | None = None) -> RepoRecord:
    """Raises NotOffered where there is nothing to take back, and AlreadyAccepted.

    `accounts` are where it is looked for, that of `repository` being the one that offers it.
    """
    _refuse_accepted(repository, accounts)

    def withdrawn(repo: RepoRecord) -> RepoRecord:
        if "transfer" not in repo.fields:
            raise nobody(repository.url)
        return repo.changed(transfer=None)

    return edit(repository, withdrawn)


def _refuse_accepted(repository: Repository, accounts: Accounts | None) -> None:
    """As far as can be told: an offer to one who cannot be asked is taken back."""
    url, store = repository.url, repository.store
    try:
        found = go_on(url, store, accounts, record_named(store, url))
    except KnotlessError:
        return
    if found.store.did != store.did:
        raise AlreadyAccepted(f"{url} has been accepted, and is {found.url} now")


def offer_to(repo: RepoRecord, url: RepoUrl, to: Did) -> RepoRef:
    """The offer that `to` can accept."""
    if repo.transfer is None:
        raise nobody(url)
    if repo.transfer.did != to:
        to = repo.transfer.did
        raise NotOffered(f"{url} is offered to {to}, not to you", to=to)
    return repo.transfer


def nobody(url: RepoUrl) -> NotOffered:
    return NotOffered(f"{url} has not been offered to anyone")
