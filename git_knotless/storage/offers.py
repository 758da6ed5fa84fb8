"""Offering a repository to another account, and taking the offer back.

Neither account can write to the other: what the owner says is `transfer`, in the record, and what
the recipient answers with is a copy (`accepting`).
"""

from git_knotless.atproto.syntax import Did
from git_knotless.errors import KnotlessError
from git_knotless.storage.editing import edit
from git_knotless.storage.places import RepoRef
from git_knotless.storage.records import RepoRecord
from git_knotless.storage.repositories import Repository
from git_knotless.storage.url import RepoUrl, check_new_name


class OwnAccount(KnotlessError):
    """A repository cannot be offered to the account that it is in."""


class NotOffered(KnotlessError):
    """The repository is offered to nobody, or to somebody else."""


def offer(repository: Repository, to: Did, name: str | None = None) -> RepoRecord:
    """Offer it to `to`, under its own name or another; in the place of an offer that stands.

    Raises OwnAccount, or BadName.
    """
    if to == repository.store.did:
        raise OwnAccount(f"{repository.url} is already in that account: rename it instead")
    if name is not None:
        check_new_name(name)

    def offered(repo: RepoRecord) -> RepoRecord:
        place = RepoRef(to, check_new_name(name or repo.name), repo.key)
        return repo.changed(transfer=place.to_json())

    return edit(repository, offered)


def withdraw(repository: Repository) -> RepoRecord:
    """Raises NotOffered where there is nothing to take back."""

    def withdrawn(repo: RepoRecord) -> RepoRecord:
        if "transfer" not in repo.fields:
            raise nobody(repository.url)
        return repo.changed(transfer=None)

    return edit(repository, withdrawn)


def offer_to(repo: RepoRecord, url: RepoUrl, to: Did) -> RepoRef:
    """The offer that `to` can accept."""
    if repo.transfer is None:
        raise nobody(url)
    if repo.transfer.did != to:
        raise NotOffered(f"{url} is offered to {repo.transfer.did}, not to you")
    return repo.transfer


def nobody(url: RepoUrl) -> NotOffered:
    return NotOffered(f"{url} has not been offered to anyone")
