"""The section that measures the sandbox: its start, writes, and proofs in a large account."""

import http.client
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from scripts._bench.lab import Lab
from scripts._bench.machine import Failed
from scripts._bench.report import OURS, Figure
from scripts._bench.servers import PASSWORD, first_line, serving

_START = 1.0  # seconds
_BATCH = 5.0  # milliseconds: 200 a second, one after another
_PROOF = 20.0  # milliseconds
_FEW = 1_000  # records in the account that is written to
_MOST_AT_ONCE = 200  # writes of a batch
_NOTE = "com.example.note"
_APPLY, _PROVE = "com.atproto.repo.applyWrites", "com.atproto.sync.getRecord"


def sandbox(lab: Lab) -> Iterator[Figure]:
    yield _cold_starts(lab)
    with _running(lab, "writes") as (client, pid):
        yield from _small_batches(lab, client, pid)
    with _running(lab, "proofs") as (client, _):
        yield from _proofs(lab, client)


def _cold_starts(lab: Lab) -> Figure:
    """From nothing at all; the first is not counted: it compiles what it imports."""
    taken = []
    for number in range(lab.sizes.runs + 1):
        began = time.perf_counter()
        with _started(lab, f"cold{number}") as (client, _):
            client.get("_health")
            taken.append(time.perf_counter() - began)
    runs = taken[1:]
    name = "cold start to the first answer"
    return Figure("sandbox", name, median(runs), "s", _START, {OURS: runs})


def _small_batches(lab: Lab, client: "_Client", pid: int) -> Iterator[Figure]:
    """By one client, each once the one before is answered, of one to three writes."""
    for at in range(0, _FEW, _MOST_AT_ONCE):
        client.apply(*(_write("create", f"r{at + n:04}", n) for n in range(_MOST_AT_ONCE)))
    spent, began = _processor_seconds(pid), time.perf_counter()
    taken = [_timed(client.apply, *_batch(number)) for number in range(lab.sizes.batches)]
    rate = lab.sizes.batches / (time.perf_counter() - began)
    spent = (_processor_seconds(pid) - spent) / lab.sizes.batches
    name = f"applyWrites of 1 to 3, beside {_FEW:,} records"
    note = f"{rate:,.0f} a second"
    yield Figure("sandbox", name, 1000 / rate, "ms", _BATCH, {OURS: taken}, note)
    yield Figure("sandbox", "… the server's processor time of each", 1000 * spent, "ms", _BATCH)


def _proofs(lab: Lab, client: "_Client") -> Iterator[Figure]:
    """Of records all over the account, and of keys between them that have none."""
    count = lab.sizes.records
    car = lab.root / "planted.car"
    program = str(Path(__file__).with_name("planted.py"))
    lab.machine({}).run(str(lab.programs.python), "-P", program, _NOTE, str(count), str(car))
    client.send("com.atproto.repo.importRepo", car.read_bytes(), "application/vnd.ipld.car")
    step = max(count // lab.sizes.proofs, 1)
    for name, behind in (("of a record", ""), ("that there is none", "-none")):
        keys = [f"{number:07}{behind}" for number in range(0, count, step)]
        paths = [f"{_PROVE}?did={client.did}&collection={_NOTE}&rkey={key}" for key in keys]
        # The field that a planted record has, and no node of a tree.
        if (b"fnumber" in client.get(paths[0])) == bool(behind):
            raise Failed(f"what should be a proof {name} is none")
        taken = [_timed(client.get, path) for path in paths]
        called = f"proof {name} among {count:,}"
        yield Figure("sandbox", called, 1000 * median(taken), "ms", _PROOF, {OURS: taken})


def _batch(number: int) -> list[dict[str, Any]]:
    """A new record, and for two of three an old one again, and for one of them another."""
    writes = [
        _write("create", f"n{number}", number),
        _write("update", f"r{7 * number % _FEW:04}", -1 - number),
        _write("create", f"m{number}", number),
    ]
    return writes[: 1 + number % 3]


def _write(action: str, key: str, number: int) -> dict[str, Any]:
    value = {"$type": _NOTE, "number": number, "text": "x" * 100}
    kind = f"{_APPLY}#{action}"
    return {"$type": kind, "collection": _NOTE, "rkey": key, "value": value}


@dataclass
class _Client:
    """Of one connection, that does no more than HTTP: what is measured is the server."""

    connection: http.client.HTTPConnection
    headers: Mapping[str, str]
    did: str = ""

    def get(self, path: str) -> bytes:
        return self._ask("GET", path, None, {})

    def send(self, nsid: str, body: bytes, mime: str) -> bytes:
        return self._ask("POST", nsid, body, {"Content-Type": mime})

    def post(self, nsid: str, body: Mapping[str, Any]) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(
            self.send(nsid, json.dumps(body).encode(), "application/json")
        )
        return said

    def apply(self, *writes: Mapping[str, Any]) -> None:
        self.post(_APPLY, {"repo": self.did, "writes": writes})

    def _ask(self, verb: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> bytes:
        self.connection.request(verb, f"/xrpc/{path}", body, {**self.headers, **headers})
        response = self.connection.getresponse()
        data = response.read()
        if response.status != 200:
            raise Failed(f"{path}: {response.status} {data[:300]!r}")
        return data


@contextmanager
def _running(lab: Lab, name: str) -> Iterator[tuple[_Client, int]]:
    """With an account, that the client is logged in to."""
    with _started(lab, name) as (client, pid):
        body = {"handle": "bench.test", "email": "bench@example.com", "password": PASSWORD}
        made = client.post("com.atproto.server.createAccount", body)
        client.did = made["did"]
        client.headers = {"Authorization": f"Bearer {made['accessJwt']}"}
        yield client, pid


@contextmanager
def _started(lab: Lab, name: str) -> Iterator[tuple[_Client, int]]:
    place = lab.root / name
    command = [str(lab.programs.python), "-P", "-m", "git_knotless.sandbox", "--json"]
    env = lab.machine({}).env
    with serving(
        [*command, "--dir", str(place)], env=env, cwd=lab.root, stdout=subprocess.PIPE
    ) as process:
        port = int(json.loads(first_line(process))["pds"][0]["url"].rpartition(":")[2])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        try:
            yield _Client(connection, {}), process.pid
        finally:
            connection.close()


def _timed(deed: Callable[..., object], *args: Any) -> float:
    began = time.perf_counter()
    deed(*args)
    return time.perf_counter() - began


def _processor_seconds(pid: int) -> float:
    """Of all the threads of a process, in the program and in the system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


SECTIONS: Mapping[str, Callable[[Lab], Iterator[Figure]]] = {"sandbox": sandbox}
