"""`git knotless login`."""

import os
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from git_knotless.porcelain.accounts import account_json, full_name, in_use
from git_knotless.porcelain.options import Json, bare, open_context

if TYPE_CHECKING:
    from git_knotless.atproto.identity import Identity
    from git_knotless.atproto.session import Session
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
    """Log in, as your account's host asks you in a browser.

    The browser is the system's, or what KNOTLESS_BROWSER names. Over SSH, --no-browser prints an
    address to open on your own machine, and takes the one that it ends at, pasted here.

    An app password, on stdin or in KNOTLESS_PASSWORD, logs in without a browser. The session is
    kept for this user of this machine; the password is not.

    \b
    Example:
      git knotless login alice.example
    """
    from git_knotless.atproto.syntax import parse_identifier
    from git_knotless.porcelain.output import WrongUsage, print_json, printable
    from git_knotless.porcelain.prompts import password_from_stdin

    if no_browser and password_stdin:
        raise WrongUsage(
            "--no-browser and --password-stdin do not go together: a password takes no browser",
            hint="git knotless login -h",
        )
    who = parse_identifier(bare(handle))
    with open_context() as context:
        if password_stdin:
            password = password_from_stdin(who)
            session = context.logins.with_password(_identity(context, who), password)
        elif context.settings.password is None or no_browser:
            session = _log_in_at_page(context, who, no_browser=no_browser)
        else:
            session = _log_in_by_environment(context, _identity(context, who), quiet=json)
        used = _chosen(context, session)
    if json:
        print_json(account_json(session, used))
    else:
        print(printable(f"logged in as {full_name(session)}"))


def _log_in_by_environment(context: "Context", identity: "Identity", *, quiet: bool) -> "Session":
    from git_knotless.porcelain.output import say

    password = context.logins.password_for(identity)
    if not quiet:
        say("logging in with KNOTLESS_PASSWORD")
    return context.logins.with_password(identity, password)


def _log_in_at_page(context: "Context", who: "Did | Handle", *, no_browser: bool) -> "Session":
    """Nothing is sent before the browser is found to be there, and that there is a place for
    what is given only once."""
    from git_knotless.atproto.callback import listen
    from git_knotless.atproto.hosts import host_of
    from git_knotless.atproto.oauth import begin
    from git_knotless.porcelain import browser
    from git_knotless.porcelain.output import working
    from git_knotless.porcelain.page import show
    from git_knotless.storage.scope import login_scope

    command = None if no_browser else browser.find(context.settings.browser, os.environ)
    identity = _identity(context, who)
    context.sessions.check_writable(identity.did)  # a folder that is not says so now
    with listen(f"git knotless login {identity.name} --no-browser") as listener:
        with working(f"asking {host_of(identity.pds)} for a login"):
            begun = begin(context.client, identity, login_scope(), redirect_port=listener.port)
        with show(begun.url, begun.redirect_uri, command, on_purpose=no_browser):
            answer = listener.wait(begun.state)
    name_of = partial(_name_of, context)
    finish = partial(begun.finish, context.client, answer, name_of=name_of)
    return context.logins.saved(identity.did, finish)


def _name_of(context: "Context", did: "Did") -> str:
    """As it is called here, where it is logged in; else as it is called everywhere."""
    names = {session.did: session.name for session in context.sessions.all()}
    return names.get(did) or context.name_of(did)


def _identity(context: "Context", who: "Did | Handle") -> "Identity":
    from git_knotless.porcelain.output import working

    with working(f"looking for {who}"):
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
        say(f"note: {acts}; to have them act as {session.name}:")
        say(f"hint: git knotless account use {session.name}")
    return used
