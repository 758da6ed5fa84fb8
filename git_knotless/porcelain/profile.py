"""`git knotless account profile …`: what an account's page shows of it."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from git_knotless.porcelain.options import Account, Json, bare, open_context

if TYPE_CHECKING:
    from git_knotless.atproto.identity import Identity
    from git_knotless.storage.accounts.profile import Field


def show(
    handle: Annotated[
        str | None,
        typer.Argument(metavar="HANDLE", help="Whose, or a DID; your own when left out."),
    ] = None,
    *,
    account: Account = None,
    json: Json = False,
) -> None:
    """Show an account's profile: what is set here, and of all else what Bluesky shows.

    \b
    Example:
      git knotless account profile show alice.example
    """
    from git_knotless.atproto.syntax import parse_identifier
    from git_knotless.storage.accounts.profile import read_profile

    with open_context(account) as context:
        who = context.account().did if handle is None else parse_identifier(bare(handle))
        identity = context.identify(who)
        profile = read_profile(context.store(identity))
    _print(identity, profile, json=json)


def set_(
    *,
    display_name: Annotated[str | None, typer.Option(metavar="TEXT", help="Its name.")] = None,
    description: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What it says of itself, on any lines.")
    ] = None,
    pronouns: Annotated[str | None, typer.Option(metavar="TEXT", help="Its pronouns.")] = None,
    website: Annotated[str | None, typer.Option(metavar="URL", help="Its own page.")] = None,
    avatar: Annotated[
        str | None, typer.Option(metavar="FILE", help="Its picture: PNG, JPEG, WebP or GIF.")
    ] = None,
    banner: Annotated[
        str | None, typer.Option(metavar="FILE", help="The wide picture behind that one.")
    ] = None,
    account: Account = None,
    json: Json = False,
) -> None:
    """Set what your profile shows in place of Bluesky's.

    An option that is given '' has Bluesky's shown again.

    \b
    Examples:
      git knotless account profile set --display-name "Alice Liddell" --avatar alice.png
      git knotless account profile set --description ''
    """
    from git_knotless.porcelain.output import WrongUsage
    from git_knotless.storage.accounts.profile import read_profile, set_profile

    texts = {
        "displayName": display_name,
        "description": description,
        "pronouns": pronouns,
        "website": website,
    }
    given = {name: text for name, text in texts.items() if text is not None}
    files = {"avatar": avatar, "banner": banner}
    pictures = {name: _read(file) for name, file in files.items() if file is not None}
    if not (given or pictures):
        raise WrongUsage("nothing to set: give at least one option")
    with open_context(account) as context:
        identity = context.identify(context.account().did, write=True)
        store = context.store(identity, write=True)
        set_profile(store, given, pictures)
        profile = read_profile(store)
    _print(identity, profile, json=json)


def _read(file: str) -> bytes:
    """No more than tells that it is too large; nothing of the file '' that is none."""
    from git_knotless.storage.accounts.profile import LARGEST_PICTURE, BadPicture

    if not file:
        return b""
    with Path(file).open("rb") as stream:
        data = stream.read(LARGEST_PICTURE + 1)
    if not data:
        raise BadPicture(f"{file} is empty")
    return data


def profile_json(identity: "Identity", profile: "Mapping[str, Field]") -> dict[str, Any]:
    values = {name: _value(field) for name, field in profile.items()}
    sources = {name: field.source for name, field in profile.items()}
    return {"handle": identity.handle, "did": identity.did, **values, "from": sources}


def _value(field: "Field") -> Any:
    match field.value:
        case {"ref": {"$link": cid}, "mimeType": mime, "size": size}:
            return {"cid": cid, "mimeType": mime, "size": size}
    return field.value


def _print(identity: "Identity", profile: "Mapping[str, Field]", *, json: bool) -> None:
    from git_knotless.porcelain.output import print_fields, print_json

    shown = profile_json(identity, profile)
    if json:
        print_json(shown)
        return
    rows = [("account", identity.name)]
    rows += [(_HEADINGS[name], _in_words(field)) for name, field in profile.items() if field.source]
    print_fields(rows)


_HEADINGS = {
    "displayName": "display name",
    "description": "description",
    "pronouns": "pronouns",
    "website": "website",
    "avatar": "avatar",
    "banner": "banner",
}


def _in_words(field: "Field") -> str:
    from git_knotless.storage.accounts.profile import BLUESKY

    match field.value:
        case {"mimeType": mime, "size": size}:
            text = f"{mime}, {size:,} bytes"
        case text:
            pass
    return f"{text} (Bluesky's)" if field.source == BLUESKY else str(text)
