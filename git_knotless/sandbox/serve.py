"""Running a sandbox: its sockets, its server, the accounts that were asked for, its end."""

import asyncio
import contextlib
import errno
import os
import signal
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from git_knotless.sandbox import accounts
from git_knotless.sandbox.app import App
from git_knotless.sandbox.call import account_row
from git_knotless.sandbox.errors import SandboxError
from git_knotless.sandbox.passwords import random_password
from git_knotless.sandbox.ports import move, moved
from git_knotless.sandbox.state import (
    Behaviour,
    Host,
    Sandbox,
    made_passwords,
    open_sandbox,
    save_passwords,
)

_ADDRESSES = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))
_NO_IPV6 = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
_FREE_PORT_TRIES = 20  # a port that is free on one of the two addresses is so on the other, nearly
_GRACE_SECONDS = 2  # for requests under way when it is ended
# For connections between two requests: with uvicorn's 5 a client that has just been idle for so
# long sends a request to a connection that is being closed.
_IDLE_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Wanted:
    folder: Path
    port: int | None
    pds: int
    handles: tuple[str, ...]
    behaviour: Behaviour


def run(wanted: Wanted, ready: Callable[[dict[str, object]], None]) -> None:
    """Serves until SIGINT, SIGTERM or the end of a piped standard input; `ready` is told the
    network once it answers."""

    def port(at: int) -> int:
        return _free_port() if wanted.port is None else wanted.port + at

    sandbox = open_sandbox(wanted.folder, pds=wanted.pds, new_port=port, behaviour=wanted.behaviour)
    try:
        with contextlib.ExitStack() as stack:
            there = moved(sandbox, wanted.port)
            sockets = [s for port in there.ports for s in stack.enter_context(_bound(port))]
            move(sandbox, there)
            sandbox = there
            made = [_have_account(sandbox, handle) for handle in wanted.handles]
            network = describe(sandbox) | ({"accounts": made} if made else {})
            asyncio.run(_serve(sandbox, sockets, lambda: ready(network)))
    finally:
        sandbox.close()


def describe(sandbox: Sandbox) -> dict[str, object]:
    """In the words of `scripts/testnet --json`."""
    return {
        "plc": sandbox.plc_url,
        "pds": [{"url": host.url, "domain": host.domain} for host in sandbox.hosts],
        "adminPassword": sandbox.admin_password,
    }


class _Server(uvicorn.Server):
    """One that leaves signals to us, and says when it listens."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _serve(sandbox: Sandbox, sockets: list[socket.socket], ready: Callable[[], None]) -> None:
    config = uvicorn.Config(
        App(sandbox),
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    server = _Server(config, ready)
    loop = asyncio.get_running_loop()

    def end() -> None:
        server.should_exit = True

    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(ending, end)
    _watch_stdin(lambda: loop.call_soon_threadsafe(end))
    await server.serve(sockets)


def _watch_stdin(end: Callable[[], Any]) -> None:
    """Whoever holds the other end of a pipe and dies, even by SIGKILL, closes it."""
    try:
        mode = os.fstat(0).st_mode
    except OSError:
        return
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):

        def watch() -> None:
            while os.read(0, 4096):
                pass
            with contextlib.suppress(RuntimeError):  # the loop has ended first
                end()

        threading.Thread(target=watch, daemon=True).start()


@contextlib.contextmanager
def _bound(port: int) -> Iterator[list[socket.socket]]:
    """Sockets on a port of loopback, and of nothing else; of IPv6 where there is that."""
    with contextlib.ExitStack() as stack:
        sockets = []
        for family, address in _ADDRESSES:
            try:
                # Named as TCP, or asyncio leaves Nagle's algorithm on: 40 ms an answer.
                made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
                bound = stack.enter_context(made)
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                bound.bind((address, port))
            except OSError as error:
                if family == socket.AF_INET6 and error.errno in _NO_IPV6:
                    continue
                raise SandboxError(f"port {port} is already taken") from error
            sockets.append(bound)
        yield sockets


def _free_port() -> int:
    """A port that nothing listens on now; it is bound to a little later."""
    for _ in range(_FREE_PORT_TRIES):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        with contextlib.suppress(SandboxError), _bound(port):
            return port
    raise SandboxError("found no free port")


def _have_account(sandbox: Sandbox, handle: str) -> dict[str, str]:
    """An account that a person asked for, with a password that is kept for them to read."""
    domain = "." + handle.partition(".")[2]
    host = next((host for host in sandbox.hosts if host.domain == domain), None)
    if host is None:
        domains = ", ".join(host.domain for host in sandbox.hosts)
        raise SandboxError(f"no host here is for {domain}: {handle} can be under {domains}")
    passwords = made_passwords(sandbox.folder)
    with sandbox.database.reading() as connection:
        account = account_row(connection, host, handle)
    if account is None:
        # Written first: killed in between, the next start makes the account with it.
        passwords.setdefault(handle, random_password())
        save_passwords(sandbox.folder, passwords)
        account = _create(sandbox, host, handle, passwords[handle])
    return {
        "handle": handle,
        "did": account["did"],
        "password": passwords.get(handle, ""),
        "pds": host.url,
    }


def _create(sandbox: Sandbox, host: Host, handle: str, password: str) -> Any:
    name = handle.removesuffix(host.domain)
    wanted = {"handle": handle, "email": f"{name}@example.com", "password": password}
    with sandbox.database.writing() as transaction:
        return accounts.create(transaction, host, wanted, did=None)
