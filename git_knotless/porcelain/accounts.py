"""`git knotless account list` and `use`, and how an account is shown."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from git_knotless.porcelain.options import Json, bare, open_context

if TYPE_CHECKING:
    from git_knotless.atproto.session import Session
    from git_knotless.atproto.syntax import Did
    from git_knotless.context import Context

_HEADINGS = ("account", "did", "host", "login", "")


def list_(*, json: Json = False) -> None:
    """List the accounts that are logged in on this machine.

    It looks at what is stored here, and asks no host.

    \b
    Example:
      git knotless account list
    """
    from git_knotless.porcelain.output import (
        on_terminal,
        print_columns,
        print_items,
        print_rows,
        say,
    )

    with open_context() as context:
        used = in_use(context)
        shown = [account_json(each, used) for each in context.sessions.all()]
    if json:
        print_items(shown)
    elif not shown:
        say("nobody is logged in")
        say("hint: git knotless login HANDLE")
    elif on_terminal():
        print_columns(_HEADINGS, map(_row, shown), cut=_HEADINGS[1])
    else:
        print_rows(map(_row, shown))


def use(
    handle: Annotated[
        str, typer.Argument(metavar="HANDLE", help="Its handle or DID; it is logged in.")
    ],
    *,
    json: Json = False,
) -> None:
    """Choose the account that commands act as.

    What is set for one clone or one command comes first: --account, KNOTLESS_ACCOUNT, or
    knotless.account in git config. A push is its repository's owner's, whoever is chosen here.

    \b
    Example:
      git knotless account use bob.example
    """
    from git_knotless.porcelain.output import print_json, printable, warn

    with open_context() as context:
        session = _logged_in(context, handle)
        context.sessions.choose(session.did)
        used = in_use(context)
    if used != session.did:
        named = context.settings.account
        warn(f"KNOTLESS_ACCOUNT or knotless.account names {named}, which comes first")
    if json:
        print_json(account_json(session, used))
    else:
        print(printable(f"commands act as {full_name(session)}"))


def _logged_in(context: "Context", handle: str) -> "Session":
    from git_knotless.atproto.syntax import Did, is_did, parse_identifier
    from git_knotless.errors import LoginNeeded

    who = parse_identifier(bare(handle))
    sessions = context.sessions
    session = sessions.load(Did(who)) if is_did(who) else sessions.of_handle(who)
    if session is None:
        raise LoginNeeded(f"not logged in as {who}", hint=f"git knotless login {who}")
    return session


def in_use(context: "Context") -> "Did | None":
    """The account that commands act as, if that is plain without asking anybody."""
    from git_knotless.atproto.syntax import is_did
    from git_knotless.errors import LoginNeeded
    from git_knotless.logins import AmbiguousAccount

    who = context.settings.account
    if who is not None and not is_did(who):
        session = context.sessions.of_handle(who)
        return session.did if session else None
    try:
        return context.account_did()
    except (AmbiguousAccount, LoginNeeded):
        return None


def account_json(session: "Session", used: "Did | None") -> dict[str, Any]:
    from git_knotless.storage.scope import granted

    return {
        "handle": session.handle,
        "did": session.did,
        "pds": session.pds,
        "kind": session.kind,
        "scopes": sorted(granted(session.scope)) if session.scope else None,
        "expiresAt": session.expires_at,
        "inUse": session.did == used,
        "ended": session.ended,
    }


def full_name(session: "Session") -> str:
    return f"{session.handle} ({session.did})" if session.handle else session.did


def _row(shown: dict[str, Any]) -> tuple[str, ...]:
    from git_knotless.atproto.hosts import host_of

    state = ["in use"] * shown["inUse"] + ["ended"] * shown["ended"]
    return (
        shown["handle"] or "",
        shown["did"],
        host_of(shown["pds"]),
        shown["kind"],
        ", ".join(state),
    )
