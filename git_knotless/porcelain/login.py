"""`git knotless login`."""

import os
from typing import TYPE_CHECKING, Annotated

import typer

from git_knotless.porcelain.accounts import account_json, full_name, in_use
from git_knotless.porcelain.options import Json, bare, open_context

if TYPE_CHECKING:
    from git_knotless.atproto.identity import Identity
    from git_knotless.atproto.sessions import Session
    from git_knotless.atproto.syntax import Did, Handle
    from git_knotless.context import Context


def login(
    handle: Annotated[str, typer.Argument(metavar="HANDLE", help="Your handle, or your DID.")],
    *,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address to open, on any machine.")
    ] = False,
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read an app password from stdin instead.")
    ] = False,
    json: Json = False,
) -> None:
    """Log in: your account's host asks you in a browser, and knows what for.

    The browser is the system's, or what KNOTLESS_BROWSER names. Over SSH, --no-browser prints an
    address to open on your own machine, and takes the one that it ends at, pasted here.

    An app password, on stdin or in KNOTLESS_PASSWORD, logs in without a browser. The session is
    kept for this user of this machine; the password is not.

    \b
    Example:
      git knotless login alice.example
    """
    from git_knotless.atproto.syntax import parse_identifier
    from git_knotless.porcelain.output import WrongUsage, print_json, printable, say
    from git_knotless.porcelain.prompts import password_from_stdin

    if no_browser and password_stdin:
        raise WrongUsage(
            "--no-browser and --password-stdin do not go together: a password takes no browser",
            hint="git knotless login -h",
        )
    who = parse_identifier(bare(handle))
    with open_context() as context:
        if password_stdin:
            session = _log_in_with(context, who, password_from_stdin(who))
        elif context.settings.password is None or no_browser:
            session = _log_in_at_page(context, who, no_browser=no_browser)
        else:
            if not json:
                say("logging in with KNOTLESS_PASSWORD")
            session = _log_in_with(context, who, context.settings.password)
        context.sessions.save(session)
        used = _chosen(context, session)
    if json:
        print_json(account_json(session, used))
    else:
        print(printable(f"logged in as {full_name(session)}"))


def _log_in_with(context: "Context", who: "Did | Handle", password: str) -> "Session":
    from git_knotless.atproto.password import login_with_password

    return login_with_password(context.client, _identity(context, who), password)


def _log_in_at_page(context: "Context", who: "Did | Handle", *, no_browser: bool) -> "Session":
    """Nothing is sent before the browser is found to be there, and that there is a place for
    what is given only once."""
    from git_knotless.atproto.callback import listen
    from git_knotless.atproto.oauth import begin
    from git_knotless.porcelain import browser
    from git_knotless.porcelain.page import show
    from git_knotless.storage.scope import login_scope

    command = None if no_browser else browser.find(context.settings.browser, os.environ)
    identity = _identity(context, who)
    with context.sessions.lock(identity.did):  # a folder that cannot be written to says so now
        pass
    with listen() as listener:
        begun = begin(context.client, identity, login_scope(), redirect_port=listener.port)
        with show(begun.url, begun.redirect_uri, command, on_purpose=no_browser):
            answer = listener.wait(begun.state)
    return begun.finish(context.client, answer)


def _identity(context: "Context", who: "Did | Handle") -> "Identity":
    return context.resolver.resolve(who, max_age=0)


def _chosen(context: "Context", session: "Session") -> "Did | None":
    """Whom commands act as now: the only account that there is, or else it is said."""
    from git_knotless.porcelain.output import say

    if context.sessions.dids() == [session.did]:
        context.sessions.choose(session.did)
    used = in_use(context)
    if used != session.did:
        names = {each.did: each.name for each in context.sessions.all()}
        acts = f"commands act as {names.get(used, used)}" if used else "no account is chosen"
        say(f"{acts}: git knotless account use {session.name} changes that")
    return used
