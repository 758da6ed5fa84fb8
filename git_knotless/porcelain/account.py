"""`git knotless login`, `logout`, `whoami`."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from git_knotless.porcelain.options import Account, Json, bare, open_context

if TYPE_CHECKING:
    from git_knotless.atproto.sessions import Session


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
        typer.Argument(metavar="HANDLE", help="The account, when several are logged in."),
    ] = None,
    *,
    json: Json = False,
) -> None:
    """Log out: the host ends the session, and it is forgotten here.

    \b
    Example:
      git knotless logout
    """
    from git_knotless.atproto.password import logout as end_session
    from git_knotless.porcelain.output import print_json, printable

    with open_context(handle) as context:
        session = context.account()
        end_session(context.client, context.sessions, session)
    if json:
        print_json(_as_json(session))
    else:
        print(printable(f"logged out {_name(session)}"))


def whoami(*, account: Account = None, json: Json = False) -> None:
    """Show the account that commands act as.

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
        print_fields(list(_as_json(session).items()))


def _as_json(session: "Session") -> dict[str, Any]:
    return {"handle": session.handle, "did": session.did, "pds": session.pds}


def _name(session: "Session") -> str:
    return f"{session.handle} ({session.did})" if session.handle else session.did
