"""`git knotless doctor`."""

import os
from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack, closing, suppress
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from git_knotless.porcelain.options import Account, Json, open_context

if TYPE_CHECKING:
    from git_knotless.atproto.syntax import Did, Handle
    from git_knotless.context import Context
    from git_knotless.porcelain.doctor_account import AccountChecks
    from git_knotless.storage.checkup.checks import Check, Verdict

_SICK = 1
_HELP = "git knotless doctor -h"
_SETTINGS = "unset it; docs/settings.md says what it may be"
_DIRECTORY = "is the network up? KNOTLESS_PLC_URL names another directory"


class Target(NamedTuple):
    """What is asked about; a name may be of either."""

    who: "Did | Handle | None" = None
    host: str | None = None


def doctor(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="HOST|HANDLE", help="Of an account or a host; your own when left out."
        ),
    ] = None,
    *,
    write: Annotated[
        bool,
        typer.Option("--write", help="Write to your account too, and remove it again."),
    ] = False,
    account: Account = None,
    json: Json = False,
) -> None:
    """Find out what is wrong, and what mends it.

    On this machine, with an account, and at its host. It changes nothing. With --write it also
    has the host show that it keeps what pushes rely on: for that it writes some records to your
    account, under a key of no repository, and removes them again. It exits with 1 if something is
    wrong; a warning is nothing that is.

    \b
    Examples:
      git knotless doctor
      git knotless doctor alice.example
      git knotless doctor https://pds.example --write
    """
    from git_knotless.porcelain.doctor_report import Report

    asked = _read(target)
    report = Report(as_json=json)
    with closing(_findings(asked, account, write=write)) as findings:
        for name, verdict in findings:
            report.add(name, verdict)
    report.end()
    if not report.well:
        raise typer.Exit(_SICK)


def _read(text: str | None) -> Target:
    from git_knotless.atproto.hosts import parse_origin
    from git_knotless.atproto.syntax import Did, Handle, is_did, is_handle, parse_handle
    from git_knotless.porcelain.output import WrongUsage

    if text is None:
        return Target()
    if text in ("", "@"):
        raise WrongUsage(f"{text!r} names neither an account nor a host", hint=_HELP)
    if text.startswith("@"):
        return Target(who=parse_handle(text[1:]))
    if is_did(text):
        return Target(who=Did(text))
    if "://" in text:
        return Target(host=parse_origin(text))
    host = parse_origin(f"{_scheme(text)}://{text}")
    name = text.lower()
    return Target(who=Handle(name) if is_handle(name) else None, host=host)


def _scheme(name: str) -> str:
    from git_knotless.atproto.hosts import on_loopback

    return "http" if on_loopback(f"http://{name}") else "https"


Found = tuple[str, "Verdict"]


def _findings(asked: Target, account: str | None, *, write: bool) -> Generator[Found, None, None]:
    from git_knotless.porcelain.doctor_here import folder_checks, program_checks, settings_verdict
    from git_knotless.storage.checkup.checks import Check, Verdict, skipped

    yield from _looked(program_checks())
    with ExitStack() as stack:
        opened: list[Context] = []

        def settings() -> Verdict:
            opened.append(stack.enter_context(open_context(account, hurried=True)))
            return settings_verdict(opened[0].settings)

        yield from _looked([Check("settings", settings, _SETTINGS)])
        if not opened:
            yield "network", skipped("without settings nobody can be asked")
            return
        yield from _looked(folder_checks(opened[0].settings))
        source = "--account" if account is not None else _source()
        yield from _Visit(opened[0], asked, source).findings(write=write)


def _source() -> str:
    """Where an account's name comes from, if settings name one: the variable comes first."""
    return "KNOTLESS_ACCOUNT" if os.environ.get("KNOTLESS_ACCOUNT") else "knotless.account"


def _looked(checks: "Iterable[Check]") -> Iterator[Found]:
    """Each check is made before the next is asked for, which may depend on it."""
    from git_knotless.porcelain.output import working

    for check in checks:
        with working(f"checking: {check.name}"):
            verdict = check.verdict()
        yield check.name, verdict


class _Visit:
    """Of whoever is to be asked over the network; nothing comes from the cache of identities."""

    def __init__(self, context: "Context", asked: Target, source: str) -> None:
        from git_knotless.atproto.identity import Resolver

        self._context = context
        self._client = context.client
        self._directory = context.settings.plc_url
        self._resolver = Resolver(
            context.client,
            plc_url=context.settings.plc_url,
            handle_resolvers=context.settings.handle_resolvers,
        )
        self._asked = asked
        self._source = source

    def findings(self, *, write: bool) -> Iterator[Found]:
        from git_knotless.porcelain.doctor_account import AccountChecks
        from git_knotless.storage.checkup.checks import Check
        from git_knotless.storage.checkup.hostcheck import HostChecks, clock, directory

        answers = True
        register = Check("directory", lambda: directory(self._client, self._directory), _DIRECTORY)
        for name, verdict in _looked([register]):
            answers = verdict.status != "fail"
            yield name, verdict
        asked = self._decided()
        account = AccountChecks(
            self._context, self._resolver, asked.who, source=self._source, directory=answers
        )
        yield from _looked(account.checks())
        host = asked.host or (account.identity.pds if account.identity else None)
        if host is not None:
            auth, did = account.at(host)
            there = HostChecks(self._client, self._resolver, host, did, auth)
            yield from _looked(there.checks())
        else:
            yield "host", _no_host()
        times = Check("clock", lambda: clock(self._client, host, self._directory))
        yield from _looked([times])
        if write:
            yield from self._written(account, host if host and there.answers else None)

    def _decided(self) -> Target:
        """A name is an account's if anybody has it, and else a host's if there is one."""
        from git_knotless.atproto.errors import AtprotoError, HandleNotFound, HandleUnresolved
        from git_knotless.atproto.repo import describe_server
        from git_knotless.porcelain.output import working

        who, host = self._asked.who, self._asked.host
        if who is None or host is None:
            return self._asked
        with working(f"looking for {who}"), suppress(AtprotoError):
            try:
                self._resolver.resolve(who)
            except (HandleNotFound, HandleUnresolved):
                describe_server(self._client, host)
                return Target(host=host)
        return Target(who=who)

    def _written(self, account: "AccountChecks", host: str | None) -> Iterator[Found]:
        from git_knotless.porcelain.output import say
        from git_knotless.storage.checkup.checks import skipped
        from git_knotless.storage.checkup.hostprobe import WriteChecks
        from git_knotless.storage.checkup.scratch import Scratch

        identity = account.identity
        if (lack := account.lacks_to_write()) is not None:
            yield "writing", lack
        elif host is None or identity is None:
            yield "writing", skipped("there is no host to write to")
        elif account.at(host)[0] is None:
            yield "writing", account.lacks_login_for(host)
        else:
            say(f"writing some records to {identity.name}, and removing them again")
            with Scratch(self._context.store(identity, write=True)) as scratch:
                checks = WriteChecks(self._client, self._resolver, identity, scratch)
                yield from _looked(checks.checks())


def _no_host() -> "Verdict":
    from git_knotless.storage.checkup.checks import skipped

    return skipped("neither an account nor a host is known to look at: git knotless doctor HOST")
