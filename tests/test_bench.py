"""What scripts/bench measures is what is there: counts, bytes, order, and the shape of its answer.

Its figures are not looked at here, but for those that do not depend on the machine.
"""

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from git_knotless.atproto import mst
from git_knotless.atproto.blocks import Blocks
from git_knotless.atproto.car import read_car
from git_knotless.atproto.commit import Commit
from scripts._bench.history import Synthetic, copied, imported, noise
from scripts._bench.lab import Contest
from scripts._bench.machine import Failed, Machine, Ran
from scripts._bench.report import Figure, ratio, table
from scripts._bench.sizes import MIB
from scripts._bench.watch import Watch
from tests.atproto.trees import planted
from tests.gitenv import GitEnv
from tests.network import ENVIRONMENT

ROOT = Path(__file__).parents[1]
DID = "did:plc:ewvi7nxzyoun6zhxrhs64oiz"


@pytest.fixture
def maker(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "machine", (), {})


# --- the proxy that counts


class _Host(BaseHTTPRequestHandler):
    """A host and a directory: says back what it was sent, in chunks where it is asked to."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path.startswith("/did:"):
            services = [{"id": "#atproto_pds", "serviceEndpoint": "http://elsewhere.test"}]
            self._answer(json.dumps({"id": self.path[1:], "service": services}).encode())
        elif self.path == "/xrpc/chunks":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"3\r\none\r\nc; extension=1\r\n, two, three\r\n0\r\n\r\n")
        elif self.path == "/xrpc/nothing":
            self.send_response(304)
            self.end_headers()
        else:
            self._answer(self.headers["Host"].encode())

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers["Content-Length"])))

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "12345")
        self.end_headers()

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Not to stderr, which is the test's."""


@pytest.fixture
def host() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Host) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def proxied(host: str) -> Iterator[HTTPConnection]:
    """One connection through the proxy: all that a test sends goes over it."""
    with subprocess.Popen(
        [sys.executable, "-m", "scripts._bench.proxy", host, host],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin
        assert process.stdout
        connection = HTTPConnection(urlsplit(process.stdout.readline().strip()).netloc, timeout=30)
        yield connection
        connection.close()
        process.stdin.close()
        assert process.wait(10) == 0


def ask(connection: HTTPConnection, method: str, path: str, body: bytes | None = None) -> bytes:
    connection.request(method, path, body)
    return connection.getresponse().read()


def test_the_proxy_hands_on_what_it_gets_and_says_what_it_saw(
    proxied: HTTPConnection, host: str
) -> None:
    body = bytes(range(256)) * (3 * MIB // 256)
    assert ask(proxied, "POST", "/xrpc/upload", body) == body
    assert ask(proxied, "GET", "/xrpc/chunks") == b"one, two, three"
    assert ask(proxied, "HEAD", "/xrpc/head") == b""
    assert ask(proxied, "GET", "/xrpc/nothing") == b""
    assert ask(proxied, "GET", "/xrpc/who?are=you") == urlsplit(host).netloc.encode()
    seen = json.loads(ask(proxied, "GET", "/seen"))
    assert seen == ["POST upload", "GET chunks", "HEAD head", "GET nothing", "GET who"]
    assert json.loads(ask(proxied, "GET", "/seen")) == []


def test_the_proxy_takes_the_hosts_place_in_documents(proxied: HTTPConnection) -> None:
    document = json.loads(ask(proxied, "GET", f"/{DID}"))
    own = f"http://localhost:{proxied.port}"
    assert (document["id"], document["service"][0]["serviceEndpoint"]) == (DID, own)
    assert json.loads(ask(proxied, "GET", "/seen")) == [f"GET {DID}"]


# --- memory, histories, turns


def test_the_watch_sees_what_a_child_held_and_gave_back(maker: Machine) -> None:
    # Longer held than the watch is away between two looks.
    holds = "import time; held = bytearray(b'x') * (64 << 20); time.sleep(0.3); del held"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {holds!r}])"
    with Watch() as watch:
        maker.run(sys.executable, "-c", child, watch=watch)
    assert len(watch.highest) == 2
    least, most = sorted(watch.highest.values())
    assert least < 64 * MIB <= most < 90 * MIB
    assert watch.most == most


def test_the_watch_minds_no_other_program(maker: Machine) -> None:
    with Watch() as watch:
        maker.run("/bin/sh", "-c", "sleep 0.1")
    assert (watch.highest, watch.most) == ({}, 0)


def test_a_history_is_the_same_each_time(maker: Machine) -> None:
    one, two = (imported(maker, name, Synthetic(4).stream(110)) for name in ("one", "two"))
    assert maker.refs(one) == maker.refs(two)
    assert set(maker.refs(one)) == {"refs/heads/main", "refs/tags/v100"}
    assert maker.git("rev-list", "--count", "main", cwd=one).out == "110\n"
    maker.git("fsck", "--strict", cwd=one)


def test_noise_has_its_size_and_does_not_shrink(maker: Machine) -> None:
    place = imported(maker, "noise", noise(5 * MIB, each=2 * MIB))
    sizes = maker.git("ls-tree", "-l", "main", cwd=place).out.split()[3::5]
    assert sorted(map(int, sizes)) == [MIB, 2 * MIB, 2 * MIB]
    (pack,) = (place / "objects/pack").glob("*.pack")
    assert 5 * MIB < pack.stat().st_size < 5.1 * MIB


def test_contestants_take_turns_and_the_first_round_does_not_count() -> None:
    turns: list[tuple[str, int]] = []

    def deed(name: str, number: int) -> Ran:
        turns.append((name, number))
        return Ran(float(number), "", "")

    deeds = {"a": lambda n: deed("a", n), "b": lambda n: deed("b", n)}
    assert Contest(deeds).run(2) == {"a": [1.0, 2.0], "b": [1.0, 2.0]}
    assert turns == [("a", 0), ("b", 0), ("b", 1), ("a", 1), ("a", 2), ("b", 2)]


def test_a_command_that_fails_is_no_figure(maker: Machine) -> None:
    with pytest.raises(Failed, match="exit code 3"):
        maker.run("/bin/sh", "-c", "exit 3")


# --- figures


def test_a_ratio_is_that_of_the_medians() -> None:
    runs = {"knotless": [3.0, 1.0, 2.0], "http": [1.0, 9.0, 1.0]}
    figure = ratio("push", "a push", runs, beside="http", most=1.5)
    assert (figure.value, figure.unit, figure.ok) == (2.0, "x http", False)
    document = figure.to_json()
    assert (document["target"], document["ok"], document["runs"]) == (1.5, False, runs)


def test_the_table_says_what_was_missed() -> None:
    met = Figure("requests", "a fetch", 3, "requests", 4)
    missed = Figure("push", "a push", 1.25, "x http", 1)
    free = Figure("scale", "5,000 refs", 2.0, "s", runs={"knotless": [2.0], "http": [1.0]})
    lines = [" ".join(line.split()) for line in table([met, missed, free]).splitlines()]
    assert lines[1:] == [
        "requests a fetch 3 requests ≤ 4 ok",
        "push a push 1.25 x http ≤ 1 missed",
        "scale 5,000 refs 2 s knotless 2 s; http 1 s",
    ]


# --- all of it, small


def bench(*args: str) -> dict[str, Any]:
    ran = subprocess.run(
        [sys.executable, "-m", "scripts._bench", "--quick", "--json", *args],
        cwd=ROOT,
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    document: dict[str, Any] = json.loads(ran.stdout)
    return document


def by_name(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {figure["name"]: figure for figure in document["figures"]}


def test_a_section_that_is_not_there_is_named() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "scripts._bench", "pull"], cwd=ROOT, capture_output=True, text=True
    )
    assert ran.returncode == 2
    assert ran.stderr.splitlines()[-1].startswith("bench: error: no section pull: there are push,")


@pytest.mark.parametrize(
    ("make", "why"),
    [
        ([], "is no git repository"),
        (["init"], "has no commit on its branch"),
        (["commit", "shallow"], "is a shallow clone"),
        (["commit", "detach"], "has no branch checked out"),
    ],
)
def test_what_cannot_be_measured_is_said(
    gitenv: GitEnv, maker: Machine, tmp_path: Path, make: list[str], why: str
) -> None:
    place = tmp_path / "an odd place"
    place.mkdir()
    if "commit" in make:
        place = gitenv.repository("measured", commits=2)
    elif make:
        gitenv.git("init", "--quiet", str(place))
    if "shallow" in make:
        gitenv.git("clone", "--quiet", "--depth=1", f"file://{place}", str(tmp_path / "shallow"))
        place = tmp_path / "shallow"
    if "detach" in make:
        gitenv.git("checkout", "--quiet", "--detach", cwd=place)
    with pytest.raises(Failed, match=f"{place} {why}"):
        copied(maker, "copy", place)


def test_a_tag_may_be_called_as_its_branch_is(gitenv: GitEnv, maker: Machine) -> None:
    source = gitenv.repository("source", commits=2)
    gitenv.git("tag", "main", "HEAD~1", cwd=source)
    copy = copied(maker, "copy", source)
    assert maker.git("symbolic-ref", "HEAD", cwd=copy).out == "refs/heads/main\n"


@pytest.mark.slow
@pytest.mark.testnet
@pytest.mark.timeout(900)
def test_the_counts_are_those_promised() -> None:
    document = bench("requests", "pushes", "memory", "verified")
    assert document.keys() == {"machine", "repository", "quick", "figures"}
    assert document["quick"] is True
    assert document["repository"]["commits"] == 60
    figures = by_name(document)
    missed = [name for name, figure in figures.items() if figure.get("ok") is False]
    assert missed == []
    times = [figure for figure in figures.values() if figure["unit"].startswith("x ")]
    assert times
    assert not any("ok" in figure for figure in times), "one run of each says nothing of times"
    assert figures["fetch of nothing new"]["value"] > 0
    assert figures["small push: reads"]["value"] > 0
    assert figures["small push: all else"]["value"] == 1
    assert figures["uploads of a large push"]["value"] == 3
    assert figures["describeServer, first push"]["value"] == 1
    assert 5 < figures["push of 12 MiB: memory"]["value"] < 150
    assert 0 < figures["more for a clone of one ref"]["value"] <= 3
    assert figures["fetch of one push among 1,500 refs"]["value"] > 0


@pytest.mark.slow
@pytest.mark.testnet
@pytest.mark.timeout(900)
@pytest.mark.skipif(shutil.which("lighttpd") is None, reason="needs lighttpd")
def test_times_come_with_every_run(gitenv: Any) -> None:
    source = gitenv.repository("source", commits=3)
    document = bench("push", "list", "--runs", "2", "--repo", str(source))
    assert document["repository"]["commits"] == 3
    figures = by_name(document)
    assert set(figures) == {"first push of a history", "ls-remote", "fetch of nothing new"}
    for figure in figures.values():
        assert {name: len(runs) for name, runs in figure["runs"].items()} == {
            "knotless": 2,
            "http": 2,
            "s3": 2,
        }
        assert figure["value"] > 0


@pytest.mark.slow
@pytest.mark.testnet
@pytest.mark.timeout(900)
def test_the_sandbox_is_measured_in_an_account_as_large_as_it_says() -> None:
    figures = by_name(bench("sandbox"))
    assert [len(figure["runs"].get("knotless", ())) for figure in figures.values()] == [
        1,
        20,
        0,
        20,
        20,
    ]
    assert all(figure["value"] > 0 for figure in figures.values())
    assert {"proof of a record among 500", "proof that there is none among 500"} <= figures.keys()


def test_a_planted_repo_is_the_one_that_its_records_make(tmp_path: Path) -> None:
    program = ROOT / "scripts" / "_bench" / "planted.py"
    place, collection = tmp_path / "car", "com.example.note"
    subprocess.run([sys.executable, program, collection, "300", place], check=True, cwd=ROOT)
    root, blocks = read_car(place.read_bytes(), limit=1 << 20)
    tree = Commit.decode(blocks[root]).data
    records = dict(mst.walk(Blocks(blocks), tree))
    assert [key.decode() for key in records] == [f"{collection}/{n:07}" for n in range(300)]
    assert planted({key.decode(): cid for key, cid in records.items()})[1] == tree
