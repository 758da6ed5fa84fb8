"""`git knotless whoami` and `logout`."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from git_knotless.porcelain.accounts import account_json, full_name, in_use
from git_knotless.porcelain.options import Account, Json, open_context

if TYPE_CHECKING:
    from collections.abc import Iterator

    from git_knotless.atproto.session import Session
    from git_knotless.atproto.session_auth import Ended
    from git_knotless.atproto.syntax import Did
    from git_knotless.context import Context


def logout(
    handle: Annotated[
        str | None,
        typer.Argument(metavar="HANDLE", help="Its handle or DID, when several are logged in."),
    ] = None,
    *,
    json: Json = False,
) -> None:
    """Log out: the host ends the session, and it is forgotten here.

    It is forgotten here as well where the host cannot be told, or does not do it, with a warning.

    \b
    Example:
      git knotless logout
    """
    from git_knotless.porcelain.output import print_json, printable

    with open_context(handle) as context:
        did = _logged_in(context)
        ended = _end(context, did)
    session = ended.session
    if json:
        handle, pds = (session.handle, session.pds) if session else (None, None)
        revoked = ended.trouble is None
        print_json({"handle": handle, "did": did, "pds": pds, "revoked": revoked})
    else:
        print(printable(f"logged out {full_name(session) if session else did}"))


def whoami(*, account: Account = None, json: Json = False) -> None:
    """Show the account that commands act as.

    With whom its commits are by. It looks at the session that is stored here, and does not ask
    the host whether it holds there.

    \b
    Example:
      git knotless whoami
    """
    from git_knotless.errors import LoginNeeded
    from git_knotless.porcelain.output import print_fields, print_json

    with open_context(account) as context:
        session = context.account()
        if session.ended:
            raise LoginNeeded(f"the login of {session.name} has ended", hint=session.login_command)
        shown = account_json(session, in_use(context)) | {"commitsAs": _commits_as(session)}
    if json:
        print_json(shown)
    else:
        print_fields(list(_fields(shown)))


def _fields(shown: dict[str, Any]) -> "Iterator[tuple[str, str]]":
    from git_knotless.atproto.hosts import host_of

    yield "handle", shown["handle"] or ""
    yield "did", shown["did"]
    yield "host", host_of(shown["pds"])
    yield "login", shown["kind"]
    if shown["scopes"] is not None:
        yield "scopes", " ".join(shown["scopes"])
    if shown["expiresAt"] is not None:
        yield "token", f"until {shown['expiresAt']}, then renewed"
    yield "commits", "{name} <{email}>".format_map(shown["commitsAs"])


def _commits_as(session: "Session") -> dict[str, str]:
    import os

    from git_knotless.storage.accounts.authorship import commit_identity
    from git_knotless.storage.git import Git

    author = commit_identity(Git(None, env=os.environ), session.did, session.handle).author
    return {"name": author.name, "email": author.email}


def _logged_in(context: "Context") -> "Did":
    """Whom to log out. A hint to log in would mend nothing."""
    from git_knotless.errors import LoginNeeded

    try:
        did = context.account_did()
    except LoginNeeded as error:
        raise LoginNeeded(error.message) from error
    if did not in context.sessions.dids():
        raise LoginNeeded(f"not logged in as {context.settings.account or did}")
    return did


def _end(context: "Context", did: "Did") -> "Ended":
    """A warning says what is left of it at its host."""
    from git_knotless.atproto.hosts import host_of
    from git_knotless.atproto.session_auth import log_out

    ended = log_out(context.client, context.sessions, did)
    if ended.trouble is not None:
        session = ended.session
        host, kind = (host_of(session.pds), session.kind) if session else ("its host", None)
        _warn_of_host(host, ended.trouble, kind)
    return ended


def _warn_of_host(host: str, what: str, kind: str | None = None) -> None:
    from git_knotless.porcelain.output import say, warn

    revoke = "revoke the app password" if kind == "password" else "end the session"
    warn(f"logged out here; {host} {what}")
    say(f"hint: {revoke} in the account's settings at {host}")
