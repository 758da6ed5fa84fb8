"""The sandbox's own code in this process, behind httpx: a host without sockets, whose requests
come one at a time.

What its database holds is looked at without a request, and its clock is what a test says.
"""

import asyncio
import threading
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from email.utils import formatdate
from pathlib import Path
from time import time
from typing import Any
from urllib.parse import unquote

import httpx

from git_knotless.atproto.errors import AuthRefused
from git_knotless.atproto.identity import Identity
from git_knotless.atproto.keys import PublicKey
from git_knotless.atproto.syntax import Did, Handle
from git_knotless.sandbox import accounts
from git_knotless.sandbox.app import App
from git_knotless.sandbox.sessions import issue
from git_knotless.sandbox.state import Behaviour, Sandbox, open_sandbox
from git_knotless.sandbox.values import record_json

_PORTS = 1000  # which nothing listens on


class InProcess(httpx.BaseTransport):
    """An ASGI application as the network. `ahead`: seconds, of the host's clock before ours."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._loop = asyncio.new_event_loop()
        self._turn = threading.Lock()
        self.ahead = 0.0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        body = request.read()
        with self._turn:
            return self._loop.run_until_complete(self._answer(request, body))

    def close(self) -> None:
        """Of one client: the loop goes on for the others."""

    def end(self) -> None:
        with self._turn:
            self._loop.close()

    async def _answer(self, request: httpx.Request, body: bytes) -> httpx.Response:
        begun: list[Any] = []
        sent: list[bytes] = []
        given = [{"type": "http.request", "body": body}]

        async def receive() -> dict[str, Any]:
            if not given:
                await asyncio.Event().wait()  # nobody hangs up
            return given.pop()

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                begun.append(message)
            else:
                sent.append(message.get("body", b""))

        await self._app(_scope(request), receive, send)
        headers = [*begun[0]["headers"], (b"date", formatdate(time() + self.ahead).encode())]
        return httpx.Response(
            begun[0]["status"], headers=headers, stream=httpx.ByteStream(b"".join(sent))
        )


def _scope(request: httpx.Request) -> dict[str, Any]:
    return {
        "type": "http",
        "http_version": "1.1",
        "method": request.method,
        "path": unquote(request.url.path),
        "raw_path": request.url.raw_path,
        "query_string": request.url.query,
        "root_path": "",
        "scheme": "http",
        "headers": [(name.lower(), value) for name, value in request.headers.raw],
        "client": ("127.0.0.1", 1),
        "server": ("localhost", request.url.port),
    }


class Bearer:
    """A session that lasts as long as the test. Satisfies `Auth`."""

    def __init__(self, token: str) -> None:
        self._token = token

    def credential(self, url: str) -> httpx.Auth:
        return _Header(self._token)

    def renewed(self, sent: httpx.Auth, refusal: AuthRefused) -> bool:
        return False


class _Header(httpx.Auth):
    def __init__(self, token: str) -> None:
        self._token = token

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        request.headers["Authorization"] = f"Bearer {self._token}"
        yield request


class Home:
    """An account on that host, and what is in it."""

    def __init__(self, sandbox: Sandbox, number: int) -> None:
        self._sandbox = sandbox
        host = sandbox.hosts[0]
        wanted = {"handle": f"alice{number}.test", "email": f"alice{number}@example.com"}
        with sandbox.database.writing() as transaction:
            row = accounts.create(transaction, host, wanted, did=None)
            tokens = issue(transaction.connection, host, row)
        self.id: int = row["id"]
        self.key = accounts.signing_key(row).public
        self.auth = Bearer(tokens["accessJwt"])
        self.identity = Identity(Did(row["did"]), Handle(row["handle"]), host.url, time())

    def records(self) -> dict[tuple[str, str], dict[str, Any]]:
        with self._sandbox.database.reading() as connection:
            rows = connection.execute(
                "SELECT collection, rkey, value FROM record WHERE account = ?", (self.id,)
            ).fetchall()
        return {(row["collection"], row["rkey"]): record_json(row["value"]) for row in rows}

    def blob(self, cid: str) -> bytes:
        return self._sandbox.blob_path(self.id, cid).read_bytes()

    def forget_uploads(self) -> None:
        """As hosts do after a while with those that no record names."""
        with self._sandbox.database.writing() as transaction:
            transaction.connection.execute(
                "DELETE FROM blob WHERE account = ? AND temporary", (self.id,)
            )

    def close(self) -> None:
        with self._sandbox.database.writing() as transaction:
            accounts.delete(transaction, self._sandbox, self.id)


class Homes:
    """An account that never moves, nor changes its key."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def find_again(self, identity: Identity) -> Identity:
        return identity

    def writer(self, identity: Identity) -> Bearer:
        return self._home.auth

    def signing_key(self, did: Did, *, fresh: bool) -> PublicKey:
        return self._home.key


class Town:
    """One host, with as many accounts as it takes."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self.network = InProcess(App(sandbox))
        self._count = 0

    @contextmanager
    def home(self) -> Iterator[Home]:
        self._count += 1
        with closing(Home(self._sandbox, self._count)) as home:
            yield home


@contextmanager
def in_process(folder: Path) -> Iterator[Town]:
    sandbox = open_sandbox(folder, pds=1, new_port=lambda at: _PORTS + at, behaviour=Behaviour())
    with closing(sandbox):
        town = Town(sandbox)
        try:
            yield town
        finally:
            town.network.end()
