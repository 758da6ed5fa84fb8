"""`git knotless login`, `logout`, `whoami`."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from git_knotless.porcelain.options import Account, Json, bare, open_context

if TYPE_CHECKING:
    from git_knotless.atproto.sessions import Session
    from git_knotless.atproto.syntax import Did
    from git_knotless.context import Context


def login(
    handle: Annotated[str, typer.Argument(metavar="HANDLE", help="Your handle, or your DID.")],
    *,
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the app password from stdin.")
    ] = False,
    json: Json = False,
) -> None:
    """Log in with an app password.

    The password is read from stdin, taken from KNOTLESS_PASSWORD, or asked for. The session is
    kept for this user of this machine; the password is not.

    \b
    Example:
      git knotless login alice.example
    """
    from git_knotless.atproto.password import login_with_password
    from git_knotless.atproto.syntax import parse_identifier
    from git_knotless.porcelain.output import print_json, printable
    from git_knotless.porcelain.prompts import ask_password, need_terminal, password_from_stdin

    who = parse_identifier(bare(handle))
    with open_context() as context:
        given = password_from_stdin() if password_stdin else context.settings.password
        if given is None:
            need_terminal(who)
        identity = context.resolver.resolve(who, max_age=0)
        password = given or ask_password(who)
        session = login_with_password(context.client, identity, password)
        context.sessions.save(session)
    if json:
        print_json(_as_json(session))
    else:
        print(printable(f"logged in as {_name(session)}"))


def logout(
    handle: Annotated[
        str | None,
        typer.Argument(metavar="HANDLE", help="Its handle or DID, when several are logged in."),
    ] = None,
    *,
    json: Json = False,
) -> None:
    """Log out: the host ends the session, and it is forgotten here.

    It is forgotten here as well where the host cannot be told, with a warning.

    \b
    Example:
      git knotless logout
    """
    from git_knotless.porcelain.output import print_json, printable

    with open_context(handle) as context:
        did = _logged_in(context)
        session = _end(context, did)
    if json:
        print_json(_as_json(session) if session else {"handle": None, "did": did, "pds": None})
    else:
        print(printable(f"logged out {_name(session) if session else did}"))


def whoami(*, account: Account = None, json: Json = False) -> None:
    """Show the account that commands act as.

    It looks at the session that is stored here, and does not ask the host whether it still holds.

    \b
    Example:
      git knotless whoami
    """
    from git_knotless.porcelain.output import print_fields, print_json

    with open_context(account) as context:
        session = context.account()
    if json:
        print_json(_as_json(session))
    else:
        print_fields([(name, value or "") for name, value in _as_json(session).items()])


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


def _end(context: "Context", did: "Did") -> "Session | None":
    """The session that was ended; None for one that could not be read, and is only forgotten."""
    from git_knotless.atproto.errors import AtprotoError
    from git_knotless.atproto.hosts import host_of
    from git_knotless.atproto.password import logout as end_session
    from git_knotless.atproto.sessions import BadSession

    try:
        session = context.sessions.load(did)
    except BadSession as error:
        context.sessions.delete(did)
        _warn_of_host("its host", error.message)
        return None
    if session is not None:
        try:
            end_session(context.client, context.sessions, session)
        except AtprotoError as error:
            _warn_of_host(host_of(session.pds), error.message)
    return session


def _warn_of_host(host: str, why: str) -> None:
    from git_knotless.porcelain.output import say, warn

    warn(f"logged out here; {host} could not be told: {why}")
    say(f"hint: revoke the app password in the account's settings at {host}")


def _as_json(session: "Session") -> dict[str, Any]:
    return {"handle": session.handle, "did": session.did, "pds": session.pds}


def _name(session: "Session") -> str:
    return f"{session.handle} ({session.did})" if session.handle else session.did
