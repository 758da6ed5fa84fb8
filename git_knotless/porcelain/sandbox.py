"""`git knotless sandbox`: a directory and hosts on this machine, to try everything on."""

import shlex
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from git_knotless.errors import KnotlessError
from git_knotless.porcelain.options import Json

if TYPE_CHECKING:
    import subprocess

    from git_knotless.porcelain.sandbox_folder import Folder, Server
    from git_knotless.porcelain.sandbox_wanted import Wanted

_NEEDED = ("jwt", "starlette", "uvicorn")  # of the extra `server`

Dir = Annotated[
    Path | None,
    typer.Option("--dir", metavar="DIR", help="Its folder, when it is not the user's one."),
]


class ServerNotInstalled(KnotlessError):
    """The sandbox is in the package, and what it stands on comes with an extra."""


def start(
    *,
    dir_: Dir = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=1024,
            max=65_519,
            metavar="N",
            help="The directory's, and the hosts' follow; the ones it had, or free ones, if not.",
            show_default=False,
        ),
    ] = None,
    pds: Annotated[
        int,
        typer.Option("--pds", min=1, max=16, metavar="N", help="How many hosts."),
    ] = 1,
    account: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HANDLE",
            help="Have this account; may be given again.",
            show_default="alice.test",
        ),
    ] = None,
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Stay until it ends, and end it with Ctrl-C.")
    ] = False,
    json: Json = False,
) -> None:
    """Start one and log accounts in there: a PLC directory and a PDS on this machine.

    It answers when this returns, and goes on until `sandbox stop`. Nothing but this machine can
    reach it. Its ports, accounts and repositories are kept until `sandbox reset`, but it is for
    trying things out, and no place to keep work.

    \b
    Examples:
      git knotless sandbox start
      git knotless sandbox start --account alice.test --account bob.test
    """
    from git_knotless.porcelain.output import print_json, warn
    from git_knotless.porcelain.sandbox_foreground import git_above, stay
    from git_knotless.porcelain.sandbox_wanted import Wanted

    _check_installed()
    above = git_above() if foreground else None
    folder = _folder(dir_)
    wanted = Wanted(dir_, port, pds, foreground=foreground).with_accounts(account or ())
    folder.claim()
    with folder.held():
        process, server = _find_or_start(folder, wanted)
    network = server.network or {}
    warn("a sandbox is for trying things out, and no place to keep work")
    if json:
        print_json({"dir": str(folder.path), "pid": server.pid, **network})
    else:
        _print(folder, network, dir_, started=process is not None)
    if process is not None and foreground:
        sys.stdout.flush()
        stay(folder, process, above)


def env(*, dir_: Dir = None, json: Json = False) -> None:
    """Print what has a shell use it, git and git knotless alike.

    The accounts are logged in there, and your own logins stay out of it. It is that shell alone
    that changes.

    \b
    Examples:
      eval "$(git knotless sandbox env)"
      git knotless sandbox env --json
    """
    import os

    from git_knotless.porcelain.output import print_json

    variables = _variables(_folder(dir_), dir_)
    if json:
        print_json(dict(variables))
        return
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
    sys.stdout.buffer.write(os.fsencode(exports))  # the folder to the byte, whatever the locale


def stop(*, dir_: Dir = None) -> None:
    """End it, and keep what is in it.

    \b
    Example:
      git knotless sandbox stop
    """
    from git_knotless.porcelain.output import printable

    folder = _folder(dir_)
    with folder.held():
        ended = folder.end()
    said = "ended the sandbox in" if ended else "no sandbox runs in"
    print(printable(f"{said} {folder.path}"))


def reset(
    *,
    dir_: Dir = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """End it and delete it, with all accounts.

    \b
    Example:
      git knotless sandbox reset --yes
    """
    from git_knotless.porcelain.output import printable, warn
    from git_knotless.porcelain.prompts import confirm

    folder = _folder(dir_)
    with folder.held():
        if not yes:
            confirm(
                f"The sandbox in {folder.path} and all that is in it will be gone for good. "
                "Type sandbox to delete it:",
                {"sandbox"},
                "the word sandbox",
                hint=f"{_command('reset', dir_)} --yes",
            )
        folder.end()
        left = folder.remove()
    if left:
        warn(f"left what is not the sandbox's: {', '.join(left)}")
    print(printable(f"deleted the sandbox in {folder.path}"))


def _check_installed() -> None:
    from importlib.util import find_spec

    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        pip = f"{shlex.quote(sys.executable)} -m pip install"
        raise ServerNotInstalled(
            f"the sandbox needs what the extra `server` brings: no {', '.join(missing)} here",
            hint=f"{pip} 'git-knotless[server]'",
        )


def _folder(given: Path | None) -> "Folder":
    from git_knotless.porcelain.sandbox_folder import Folder
    from git_knotless.settings import sandbox_dir

    return Folder(sandbox_dir() if given is None else given.absolute())


def _find_or_start(
    folder: "Folder", wanted: "Wanted"
) -> "tuple[subprocess.Popen[bytes] | None, Server]":
    """The server, and its process where it was not there. Nothing is left by a failure."""
    found = folder.server()
    if found is not None and found.network is not None:
        wanted.check(found.network, folder)
        _settle(folder, found.network, again=False)
        return None, found
    folder.end()  # of a start that was killed, one that does not answer yet
    is_first = not folder.has_data()
    try:
        return _start(folder, wanted)
    except BaseException:
        folder.end()
        if is_first:
            folder.remove()  # the ports that it chose are not to bind the next one, either
        raise


def _start(folder: "Folder", wanted: "Wanted") -> "tuple[subprocess.Popen[bytes], Server]":
    from importlib import import_module

    from git_knotless.porcelain.sandbox_folder import SandboxFailed, free_port
    from git_knotless.porcelain.sandbox_wanted import MOST_HOSTS

    log_from = folder.logged()
    process = folder.launch(wanted.options(folder.handles()), foreground=wanted.foreground)
    import_module("git_knotless.atproto.password")  # a tenth of a second, side by side
    try:
        server = folder.ready(log_from)
    except SandboxFailed as error:
        raise SandboxFailed(
            error.message, hint=wanted.mend(error.message, free_port(MOST_HOSTS))
        ) from error
    if wanted.port is not None:
        folder.forget_cache()  # it has the hosts at the ports that they had
    network = server.network or {}
    _settle(folder, network, again=True)
    return process, server


def _settle(folder: "Folder", network: dict[str, Any], *, again: bool) -> None:
    """Keep the accounts' names, and log in those that are not, or all of them again."""
    import time

    from git_knotless.atproto.identity import Identity
    from git_knotless.atproto.password import LoginRefused, login_with_password
    from git_knotless.atproto.sessions import SessionStore
    from git_knotless.atproto.syntax import parse_did, parse_handle
    from git_knotless.atproto.xrpc import Client
    from git_knotless.porcelain.output import warn

    folder.save_handles([account["handle"] for account in network["accounts"]])
    folder.cache.mkdir(mode=0o700, exist_ok=True)
    sessions = SessionStore(folder.config / "sessions")
    stored = {session.did for session in sessions.all()}
    with Client(notify=warn) as client:
        for account in network["accounts"]:
            did, handle = parse_did(account["did"]), parse_handle(account["handle"])
            if did in stored and not again:
                continue
            identity = Identity(did, handle, account["pds"], time.time())
            try:
                sessions.save(login_with_password(client, identity, account["password"]))
            except LoginRefused:
                if did not in stored:
                    warn(f"{handle} has another password now: git knotless login {handle}")


def _variables(folder: "Folder", given: Path | None) -> dict[str, str]:
    from git_knotless.porcelain.sandbox_folder import SandboxNotRunning

    network: dict[str, Any] | None = None
    with suppress(SandboxNotRunning), folder.held():
        if server := folder.server():
            network = server.network
    if network is None:
        raise SandboxNotRunning(f"no sandbox runs in {folder.path}", hint=_command("start", given))
    return {
        "KNOTLESS_PLC_URL": network["plc"],
        "KNOTLESS_HANDLE_RESOLVER": " ".join(host["url"] for host in network["pds"]),
        "KNOTLESS_CONFIG_DIR": str(folder.config),
        "KNOTLESS_CACHE_DIR": str(folder.cache),
        "KNOTLESS_ACCOUNT": network["accounts"][0]["handle"],
    }


def _print(folder: "Folder", network: dict[str, Any], given: Path | None, *, started: bool) -> None:
    from git_knotless.porcelain.output import print_fields, say

    print("the sandbox is ready" if started else "the sandbox is running already")
    print_fields(
        [
            ("accounts", ", ".join(account["handle"] for account in network["accounts"])),
            ("hosts", ", ".join(host["url"] for host in network["pds"])),
            ("directory", network["plc"]),
            ("folder", str(folder.path)),
            ("passwords", str(folder.passwords)),
        ]
    )
    say("to have this shell use it:")
    say(f'hint: eval "$({_command("env", given)})"')


def _command(name: str, given: Path | None) -> str:
    from git_knotless.porcelain.sandbox_wanted import command

    return command(name, given)
