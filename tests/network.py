"""A network of a PLC directory and PDSes for the tests, and its hosts as a client without any of
our code sees them."""

import json
import os
import select
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import httpx

from tests.forked import SANDBOX, stand_ins
from tests.leftovers import MARK

TESTNET = Path(__file__).resolve().parent.parent / "scripts" / "testnet"
READY_WITHIN = 280  # seconds: the first start of all installs the packages
PASSWORD = "correct horse battery staple"

os.environ.update([MARK])
# As pytest was started: the network's caches are the developer's, whatever a test sets later.
ENVIRONMENT = dict(os.environ)


class XrpcFailure(Exception):
    """An answer other than 200."""

    def __init__(self, response: httpx.Response) -> None:
        try:
            body = response.json()
        except ValueError:
            body = {"message": response.text[:300]}
        self.status = response.status_code
        self.name: str | None = body.get("error")
        self.headers = response.headers
        super().__init__(f"{response.url.path}: {self.status} {self.name}: {body.get('message')}")


@dataclass(frozen=True, slots=True)
class Host:
    """A PDS, and raw calls to it. `auth` goes out as the Authorization header."""

    url: str
    domain: str
    http: httpx.Client = field(repr=False)

    def send(
        self, method: str, nsid: str, *, auth: str | None = None, **options: Any
    ) -> httpx.Response:
        """Whatever the answer is."""
        headers = {**options.pop("headers", {}), **({"Authorization": auth} if auth else {})}
        return self.http.request(
            method, f"{self.url}/xrpc/{nsid}", headers=headers, follow_redirects=False, **options
        )

    def get(self, nsid: str, *, auth: str | None = None, **params: Any) -> dict[str, Any]:
        return answer(self.send("GET", nsid, auth=auth, params=params))

    def post(self, nsid: str, body: Any = None, *, auth: str | None = None) -> dict[str, Any]:
        return answer(self.send("POST", nsid, auth=auth, json={} if body is None else body))


def answer(response: httpx.Response) -> dict[str, Any]:
    """A 200's JSON object; some calls answer with nothing."""
    if response.status_code != 200:
        raise XrpcFailure(response)
    body: dict[str, Any] = response.json() if response.content else {}
    return body


@dataclass(frozen=True, slots=True)
class Account:
    """An account and what is in its repo. Its calls carry its own password session."""

    host: Host
    did: str
    handle: str
    password: str
    auth: str = field(repr=False)

    @property
    def pds(self) -> str:
        return self.host.url

    def get(self, nsid: str, **params: Any) -> dict[str, Any]:
        return self.host.get(nsid, auth=self.auth, **params)

    def post(self, nsid: str, body: Any = None) -> dict[str, Any]:
        return self.host.post(nsid, body, auth=self.auth)

    def record(self, collection: str, rkey: str) -> dict[str, Any] | None:
        """The record's value; None where there is no such record."""
        try:
            found = self.host.get(
                "com.atproto.repo.getRecord", repo=self.did, collection=collection, rkey=rkey
            )
        except XrpcFailure as failure:
            if failure.name == "RecordNotFound":
                return None
            raise
        value: dict[str, Any] = found["value"]
        return value

    def records(self, collection: str) -> dict[str, dict[str, Any]]:
        """Every record of a collection, by its key, in the order of the keys."""
        values: dict[str, dict[str, Any]] = {}
        page: dict[str, Any] = {"cursor": ""}
        while "cursor" in page:
            page = self.host.get(
                "com.atproto.repo.listRecords",
                repo=self.did,
                collection=collection,
                limit=100,
                reverse=True,
                **({"cursor": page["cursor"]} if page["cursor"] else {}),
            )
            values |= {found["uri"].rpartition("/")[2]: found["value"] for found in page["records"]}
        return values

    def apply(self, *writes: dict[str, Any]) -> dict[str, Any]:
        return self.post("com.atproto.repo.applyWrites", {"repo": self.did, "writes": writes})

    def create(self, collection: str, rkey: str, value: Mapping[str, Any]) -> None:
        self.apply(write("create", collection, rkey, value))

    def put(self, collection: str, rkey: str, value: Mapping[str, Any]) -> None:
        """Whether or not there is one."""
        place = {"repo": self.did, "collection": collection, "rkey": rkey}
        record = {"$type": collection, **value}
        self.post("com.atproto.repo.putRecord", {**place, "record": record})

    def delete(self, collection: str, rkey: str) -> None:
        self.apply(write("delete", collection, rkey))

    def upload(self, data: bytes, mime: str) -> dict[str, Any]:
        """The blob object to put in a record."""
        options = {"content": data, "headers": {"Content-Type": mime}}
        sent = self.host.send("POST", "com.atproto.repo.uploadBlob", auth=self.auth, **options)
        blob: dict[str, Any] = answer(sent)["blob"]
        return blob

    def blob(self, cid: str) -> bytes:
        params = {"did": self.did, "cid": cid}
        response = self.host.send("GET", "com.atproto.sync.getBlob", params=params)
        if response.status_code != 200:
            raise XrpcFailure(response)
        return response.content


def write(
    action: str, collection: str, rkey: str, value: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """One of the writes of applyWrites: create, update or delete."""
    kind = f"com.atproto.repo.applyWrites#{action}"
    place = {"$type": kind, "collection": collection, "rkey": rkey}
    return place if value is None else {**place, "value": {"$type": collection, **value}}


@dataclass(frozen=True, slots=True)
class Network:
    plc: str
    hosts: tuple[Host, ...]
    admin_password: str
    data: Path | None = None
    """Where a host's files are (`pds0`, `pds1`, …), where that is known."""
    reference: bool = False
    """Whether the hosts are those that scripts/testnet runs."""
    _numbers: Iterator[int] = field(default_factory=lambda: count(1), repr=False)

    @property
    def http(self) -> httpx.Client:
        return self.hosts[0].http

    def environment(self) -> dict[str, str]:
        """What makes knotless use this network."""
        return {
            "KNOTLESS_PLC_URL": self.plc,
            "KNOTLESS_HANDLE_RESOLVER": " ".join(host.url for host in self.hosts),
        }

    def account(self, stem: str = "user", *, host: int = 0, password: str = PASSWORD) -> Account:
        """A new account; its handle is the stem and a number, under the host's domain."""
        on = self.hosts[host]
        name = f"{stem}{next(self._numbers)}"
        made = on.post(
            "com.atproto.server.createAccount",
            {
                "handle": name + on.domain,
                "email": f"{name}@example.com",
                "password": password,
            },
        )
        return Account(on, made["did"], made["handle"], password, f"Bearer {made['accessJwt']}")

    def mailed(self, account: Account, purpose: str) -> str:
        """The token that the account's host mailed it: `plc_operation` or `delete_account`."""
        assert self.data
        number = self.hosts.index(account.host)
        name = f"pds{number}.{account.did.replace(':', '_')}.{purpose}"
        if (self.data / "mail").is_dir():
            return (self.data / "mail" / name).read_text().strip()
        with closing(sqlite3.connect(self.data / f"pds{number}" / "account.sqlite")) as database:
            query = "SELECT token FROM email_token WHERE did = ? AND purpose = ?"
            token: str = database.execute(query, (account.did, purpose)).fetchone()[0]
        return token

    def admin(self, host: Host, nsid: str, body: Mapping[str, Any]) -> dict[str, Any]:
        auth = httpx.BasicAuth("admin", self.admin_password)
        return answer(host.http.post(f"{host.url}/xrpc/{nsid}", json=body, auth=auth))


class Moving:
    """An account on its way to another host, one step after another, as a person's tool takes it.

    Its handle stays as it is, as one does that no host gives out; `handle` is another for it.
    """

    def __init__(
        self, network: Network, account: Account, host: int = 1, *, handle: str | None = None
    ) -> None:
        self.network = network
        self.old = account
        self.handle = handle or account.handle
        self.new = self._create(network.hosts[host])

    def _create(self, host: Host) -> Account:
        method, old = "com.atproto.server.createAccount", self.old
        audience = host.get("com.atproto.server.describeServer")["did"]
        granted = old.get("com.atproto.server.getServiceAuth", aud=audience, lxm=method)
        # A host takes a handle of its own only; what counts is the one in the DID document.
        name = old.handle.partition(".")[0] + host.domain
        body = {"did": old.did, "handle": name, "email": f"{name}@example.com"}
        body["password"] = old.password
        made = host.post(method, body, auth=f"Bearer {granted['token']}")
        return Account(host, old.did, self.handle, old.password, f"Bearer {made['accessJwt']}")

    def bring_records(self) -> None:
        query = {"params": {"did": self.old.did}}
        car = self.old.host.send("GET", "com.atproto.sync.getRepo", **query).content
        kind = {"Content-Type": "application/vnd.ipld.car"}
        options = {"content": car, "headers": kind, "auth": self.new.auth}
        answer(self.new.host.send("POST", "com.atproto.repo.importRepo", **options))

    def bring_blobs(self) -> int:
        """How many there were; a host that was left still hands them to their owner."""
        missing = self.new.get("com.atproto.repo.listMissingBlobs", limit=500)["blobs"]
        for blob in missing:
            query = {"params": {"did": self.old.did, "cid": blob["cid"]}, "auth": self.old.auth}
            found = self.old.host.send("GET", "com.atproto.sync.getBlob", **query)
            self.new.upload(found.content, "application/x-git-pack")
        return len(missing)

    def point(self) -> None:
        """Have the DID document name the new host, its keys and the handle."""
        _call(self.old, "com.atproto.identity.requestPlcOperationSignature")
        wanted = self.new.get("com.atproto.identity.getRecommendedDidCredentials")
        wanted["alsoKnownAs"] = [f"at://{self.handle}"]
        wanted["token"] = self.network.mailed(self.old, "plc_operation")
        signed = self.old.post("com.atproto.identity.signPlcOperation", wanted)["operation"]
        posted = self.network.http.post(f"{self.network.plc}/{self.old.did}", json=signed)
        assert posted.status_code == 200, posted.text

    def activate(self) -> None:
        _call(self.new, "com.atproto.server.activateAccount")

    def leave(self) -> None:
        self.old.post("com.atproto.server.deactivateAccount")

    def finish(self) -> Account:
        """All that comes after the records."""
        self.bring_blobs()
        self.point()
        self.activate()
        self.leave()
        return self.new


def _call(account: Account, nsid: str) -> None:
    """One that takes no body, and no empty one either."""
    answer(account.host.send("POST", nsid, auth=account.auth))


@contextmanager
def connect(
    described: Mapping[str, Any], data: Path | None = None, *, reference: bool = False
) -> Iterator[Network]:
    """The network that a line of JSON describes, in the words of `scripts/testnet --json`."""
    # trust_env: a proxy of the developer's knows nothing of localhost.
    with httpx.Client(timeout=60, trust_env=False) as http:
        hosts = tuple(Host(pds["url"], pds["domain"], http) for pds in described["pds"])
        yield Network(described["plc"], hosts, described["adminPassword"], data, reference)


def start_testnet(
    *options: str, env: Mapping[str, str] = ENVIRONMENT, stderr: int | None = None
) -> AbstractContextManager[subprocess.Popen[str]]:
    """A scripts/testnet, ended with the block."""
    return _started([sys.executable, str(TESTNET), *options], env, stderr)


def start_sandbox(
    *options: str,
    env: Mapping[str, str] = ENVIRONMENT,
    stderr: int | None = None,
    forked: bool = False,
) -> AbstractContextManager[subprocess.Popen[str]]:
    """A sandbox of ours, ended with the block. One that is to be killed is no fork."""
    fork, program = [f"{stand_ins()}/{SANDBOX}"], [sys.executable, "-m", "git_knotless.sandbox"]
    return _started([*(fork if forked else program), *options], env, stderr)


@contextmanager
def _started(
    command: Sequence[str], env: Mapping[str, str], stderr: int | None
) -> Iterator[subprocess.Popen[str]]:
    """It ends by itself too when pytest is killed, as its standard input is then closed."""
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        env=env,
        start_new_session=True,  # a Ctrl-C is pytest's, which then ends it in order
    ) as process:
        try:
            yield process
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()


def ready(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The line that it prints when it is ready."""
    assert process.stdout
    readable, _, _ = select.select([process.stdout], [], [], READY_WITHIN)
    line = process.stdout.readline() if readable else ""
    if not line:
        raise RuntimeError(f"the network is not ready (exit code {process.poll()})")
    described: dict[str, Any] = json.loads(line)
    return described


@contextmanager
def run_testnet(*options: str, data: Path | None = None) -> Iterator[Network]:
    places: Sequence[str] = () if data is None else ("--dir", str(data))
    with (
        start_testnet("--json", *places, *options) as process,
        connect(ready(process), data, reference=True) as network,
    ):
        yield network


@contextmanager
def run_sandbox(*options: str, data: Path, pds: int = 2) -> Iterator[Network]:
    """One in a fork. Beside the answers, `data` holds what its hosts mailed."""
    places = ("--dir", str(data), "--pds", str(pds))
    with (
        start_sandbox("--json", *places, *options, forked=True) as process,
        connect(ready(process), data) as network,
    ):
        yield network
