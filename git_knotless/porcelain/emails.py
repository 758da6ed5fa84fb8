"""`git knotless account email …`: the addresses that an account's commits are authored as."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from git_knotless.porcelain.options import Account, Json, open_context

if TYPE_CHECKING:
    from git_knotless.atproto.identity import Identity
    from git_knotless.storage.public import PublicStore

Address = Annotated[
    str, typer.Argument(metavar="ADDRESS", help="As git has it in user.email; case is nothing.")
]


def add(address: Address, *, account: Account = None, json: Json = False) -> None:
    """Claim an address: pages show the commits authored as it as yours.

    It is not published: what is kept is a hash of it that others cannot tell it by, unless they
    try it.

    \b
    Example:
      git knotless account email add alice@example.com
    """
    from git_knotless.storage.accounts import emails

    address = emails.parse_address(address)
    with _own_records(account) as (identity, store):
        changed = emails.add(store, address)
        told = _as_json(identity, store)
    state = "claimed" if changed else "already claimed"
    _tell(told | {"changed": changed}, f"{state}: {address}", json=json)


def remove(address: Address, *, account: Account = None, json: Json = False) -> None:
    """Take an address back: its commits are not shown as yours any more.

    No machine claims one by itself after that.

    \b
    Example:
      git knotless account email remove alice@example.com
    """
    from git_knotless.storage.accounts import emails

    address = emails.parse_address(address)
    with _own_records(account) as (identity, store):
        changed = emails.remove(store, address)
        told = _as_json(identity, store)
    state = "taken back" if changed else "not claimed"
    _tell(told | {"changed": changed}, f"{state}: {address}", json=json)


def list_(*, account: Account = None, json: Json = False) -> None:
    """Say how many addresses the account claims.

    Which they are nobody can say, its own account included: only hashes are kept.

    \b
    Example:
      git knotless account email list
    """
    with open_context(account) as context:
        identity = context.identify(context.account().did)
        told = _as_json(identity, context.store(identity))
    count = told["count"]
    _tell(told, f"{identity.name} claims {count} address{'' if count == 1 else 'es'}", json=json)


@contextmanager
def _own_records(account: str | None) -> "Iterator[tuple[Identity, PublicStore]]":
    with open_context(account) as context:
        identity = context.identify(context.account().did, write=True)
        yield identity, context.store(identity, write=True)


def _as_json(identity: "Identity", store: "PublicStore") -> dict[str, Any]:
    from git_knotless.storage.accounts import emails

    return {"handle": identity.handle, "did": identity.did, "count": emails.count(store)}


def _tell(document: dict[str, Any], words: str, *, json: bool) -> None:
    from git_knotless.porcelain.output import print_json, printable

    if json:
        print_json(document)
    else:
        print(printable(words))
