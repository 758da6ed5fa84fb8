"""The names that a repository had in an account, of which each leads on: within it, or out of it.

Where the repository has moved away, they are all that the account has of it.
"""

from git_knotless.atproto.errors import AtprotoError
from git_knotless.atproto.syntax import Rkey, is_rkey
from git_knotless.storage.outcome import REFUSALS, SENDINGS
from git_knotless.storage.places.references import RedirectRecord, redirect_named, redirects_of
from git_knotless.storage.places.renaming import NoSuchRedirect, remove_redirect
from git_knotless.storage.places.taking import freed, left_under
from git_knotless.storage.pushing.batches import stamp_now
from git_knotless.storage.remains import leads_to_itself
from git_knotless.storage.repositories import Repository
from git_knotless.storage.snapshot import NoSuchRepository
from git_knotless.storage.store import RecordStore


def key_of(repository: Repository) -> str:
    """The key of what its name leads to, be that in another account. Raises NoSuchRepository."""
    try:
        return repository.record().key
    except NoSuchRepository:
        redirect = redirect_named(repository.store, repository.url.name)
        if redirect is None or redirect.repo.did == repository.store.did:
            raise
        return redirect.repo.key


def old_names(store: RecordStore, key: str) -> list[RedirectRecord]:
    """Of the repository of `key`: what leads to it, or to where it moved, by name."""
    return [each for each in redirects_of(store, key) if not leads_to_itself(each, store)]


def take_back(repository: Repository, key: str, name: str) -> None:
    """Have an old name lead nowhere. Raises NoSuchRedirect where it is none of that key."""
    redirect = redirect_named(repository.store, Rkey(name)) if is_rkey(name) else None
    if redirect is None or redirect.repo.key != key:
        hint = f"git knotless repo redirects -R {repository.url}"
        raise NoSuchRedirect(f"{name} is not an old name of {repository.url}", hint=hint)
    if redirect.repo.did == repository.store.did:
        remove_redirect(repository, name)
    else:
        _delete(repository.store, redirect)


def _delete(store: RecordStore, redirect: RedirectRecord) -> None:
    """One that leads out: nothing of the account moves with it but what has come back since."""
    for _ in range(SENDINGS):
        left = left_under(store, redirect.name)
        if left is None or left.redirect.value != redirect.fields:
            return  # it was carried out, or another was first
        try:
            store.apply(freed(left, "", stamp_now(store)))
        except REFUSALS:
            raise
        except AtprotoError as error:
            trouble = error
        else:
            return
    raise trouble
