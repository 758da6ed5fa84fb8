"""What scripts/testnet promises."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from email.utils import parsedate_to_datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.gitenv import GitEnv
from tests.network import (
    ENVIRONMENT,
    TESTNET,
    Network,
    XrpcFailure,
    ready,
    run_testnet,
    start_testnet,
    write,
)

MANIFESTS = TESTNET.parent / "_testnet"
SKEW = 600  # seconds


def refused(*options: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, TESTNET, *options],
        env=ENVIRONMENT | (env or {}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
    )


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


# --- what it is made of


def test_lock_file_pins_everything_and_names_no_registry() -> None:
    lock = json.loads((MANIFESTS / "package-lock.json").read_text())
    packages = {name: entry for name, entry in lock["packages"].items() if name}
    assert [name for name, entry in packages.items() if "resolved" in entry] == []
    assert [name for name, entry in packages.items() if "integrity" not in entry] == []
    manifest = json.loads((MANIFESTS / "package.json").read_text())
    pinned = manifest["dependencies"] | manifest["optionalDependencies"]
    assert pinned["@atproto/pds"] == "0.5.35"
    assert pinned == {name: packages[f"node_modules/{name}"]["version"] for name in pinned}


# --- the network as it starts without options


@pytest.mark.testnet
def test_hosts_say_of_themselves_what_they_are_called(
    request: pytest.FixtureRequest, network: Network
) -> None:
    assert [host.domain for host in network.hosts] == [".test", ".pds1.test"]
    for host in network.hosts:
        described = host.get("com.atproto.server.describeServer")
        assert described["availableUserDomains"] == [host.domain]
        assert described["blobUploadLimit"] == 5 * 1024 * 1024
        assert described["inviteCodeRequired"] is False
        assert re.fullmatch(r"http://localhost:\d+", host.url)
        if "sandbox" not in request.node.callspec.id:  # which takes app passwords only
            oauth = network.http.get(f"{host.url}/.well-known/oauth-authorization-server").json()
            assert oauth["issuer"] == host.url


@pytest.mark.testnet
@pytest.mark.parametrize("address", ["localhost", "127.0.0.1", "[::1]"])
def test_hosts_answer_at_once_however_localhost_resolves(network: Network, address: str) -> None:
    if address == "[::1]" and not has_ipv6():
        pytest.skip("no IPv6 here")
    url = network.hosts[0].url.replace("localhost", address)
    began = time.monotonic()
    assert network.http.get(f"{url}/xrpc/_health").status_code == 200
    assert time.monotonic() - began < 2  # a host that drops a family takes seconds


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.testnet
@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="not Linux")
def test_nothing_listens_beyond_loopback(network: Network) -> None:
    for url in (network.plc, *(host.url for host in network.hosts)):
        addresses = listening_on(int(url.rpartition(":")[2]))
        assert "0100007F" in addresses
        assert addresses <= {"0100007F", "0" * 24 + "01000000"}


def listening_on(port: int) -> set[str]:
    """The local addresses of the sockets that listen on a port, as the kernel writes them."""
    tables = [Path("/proc/net", name) for name in ("tcp", "tcp6")]
    text = "".join(table.read_text() for table in tables if table.exists())
    rows = [row.split() for row in text.splitlines()]
    listening = [row[1].split(":") for row in rows if row[3] == "0A"]
    return {address for address, number in listening if int(number, 16) == port}


@pytest.mark.testnet
def test_plc_directory_knows_the_accounts(network: Network) -> None:
    alice, bob = network.account("alice"), network.account("bob", host=1)
    for account in (alice, bob):
        document = network.http.get(f"{network.plc}/{account.did}").json()
        assert document["alsoKnownAs"] == [f"at://{account.handle}"]
        assert document["service"][0]["serviceEndpoint"] == account.pds
    assert bob.handle.endswith(".pds1.test")


@pytest.mark.testnet
def test_unlimited_and_with_an_appview_that_is_down(network: Network) -> None:
    host = network.hosts[0]
    answer = host.send("GET", "com.atproto.space.listSpaces")
    assert (answer.status_code, answer.json()["error"]) == (401, "AuthMissing")
    assert not [name for name in answer.headers if name.startswith("ratelimit")]
    with pytest.raises(XrpcFailure, match="502 UpstreamFailure"):
        network.account().get("com.atproto.space.listSpaces")


@pytest.mark.testnet
def test_raw_records_and_blobs(network: Network) -> None:
    alice, kind = network.account("alice"), "dev.knotless.test"
    alice.apply(*(write("create", kind, f"key{n:03}", {"n": n}) for n in range(101)))
    assert [value["n"] for value in alice.records(kind).values()] == list(range(101))
    alice.delete(kind, "key000")
    assert alice.record(kind, "key000") is None
    with pytest.raises(XrpcFailure, match="500 InternalServerError"):
        alice.create(kind, "key001", {"n": 0})
    blob = alice.upload(b"PACK and more", "application/x-git-pack")
    alice.put(kind, "key001", {"blob": blob})
    assert alice.record(kind, "key001") == {"$type": kind, "blob": blob}
    assert alice.blob(blob["ref"]["$link"]) == b"PACK and more"


@pytest.mark.testnet
def test_admin_takes_accounts_down(network: Network) -> None:
    alice = network.account("alice")
    subject = {"$type": "com.atproto.admin.defs#repoRef", "did": alice.did}
    takedown = {"subject": subject, "takedown": {"applied": True, "ref": "test"}}
    network.admin(alice.host, "com.atproto.admin.updateSubjectStatus", takedown)
    with pytest.raises(XrpcFailure, match="400 RepoTakendown"):
        alice.host.get("com.atproto.sync.getLatestCommit", did=alice.did)


# --- options


@pytest.fixture(scope="module")
def client_host() -> Iterator[SimpleNamespace]:
    """A server with the metadata of an OAuth client, and the paths that it was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            client = {
                "client_id": "https://gateway.knotless-test.com/client.json?v=1",
                "redirect_uris": ["https://gateway.knotless-test.com/callback"],
                "scope": "atproto",
                "grant_types": ["authorization_code"],
                "response_types": ["code"],
                "application_type": "web",
                "token_endpoint_auth_method": "none",
                "dpop_bound_access_tokens": True,
            }
            body = json.dumps(client).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield SimpleNamespace(url=f"http://127.0.0.1:{server.server_port}", asked=asked)
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def ports() -> list[int]:
    return [free_port(), free_port()]


@pytest.fixture(scope="module")
def varied(
    client_host: SimpleNamespace, ports: list[int], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Network]:
    """A network with every option set."""
    data = tmp_path_factory.mktemp("varied")
    with run_testnet(
        *("--pds", "3"),
        *("--plc-port", str(ports[0])),
        *("--pds-port", str(ports[1])),
        *("--blob-limit", "1000"),
        "--rate-limits",
        "--no-appview",
        *("--clock-skew", str(SKEW)),
        *("--client-metadata", f"gateway.knotless-test.com={client_host.url}"),
        *("--log", str(data.parent / "varied.log")),
        data=data,
    ) as started:
        yield started


@pytest.mark.testnet
def test_number_of_hosts_and_their_ports(varied: Network, ports: list[int]) -> None:
    assert [host.domain for host in varied.hosts] == [".test", ".pds1.test", ".pds2.test"]
    assert [varied.plc, varied.hosts[0].url] == [f"http://localhost:{port}" for port in ports]
    assert len({host.url for host in varied.hosts}) == 3


@pytest.mark.testnet
def test_blob_limit_is_said_and_kept(varied: Network) -> None:
    alice = varied.account("alice")
    assert alice.get("com.atproto.server.describeServer")["blobUploadLimit"] == 1000
    assert alice.upload(b"P" * 1000, "application/x-git-pack")["size"] == 1000
    with pytest.raises(XrpcFailure, match="413 PayloadTooLarge"):
        alice.upload(b"P" * 1001, "application/x-git-pack")


@pytest.mark.testnet
def test_rate_limits_are_said(varied: Network) -> None:
    alice = varied.account("alice")
    body = {"repo": alice.did, "writes": [write("create", "dev.knotless.test", "a", {})]}
    answer = alice.host.send("POST", "com.atproto.repo.applyWrites", auth=alice.auth, json=body)
    assert answer.headers["RateLimit-Policy"] == "3000;w=300"
    assert 0 < int(answer.headers["RateLimit-Remaining"]) < 3000


@pytest.mark.testnet
def test_no_appview(varied: Network) -> None:
    with pytest.raises(XrpcFailure, match="400 InvalidRequest: No service configured"):
        varied.account().get("com.atproto.space.listSpaces")


@pytest.mark.testnet
def test_clock_shows_in_date_header_and_revisions(varied: Network) -> None:
    alice = varied.account("alice")
    answer = alice.host.send("GET", "com.atproto.sync.getLatestCommit", params={"did": alice.did})
    said = parsedate_to_datetime(answer.headers["Date"]).timestamp()
    assert said - time.time() == pytest.approx(SKEW, abs=10)
    assert tid_seconds(answer.json()["rev"]) - time.time() == pytest.approx(SKEW, abs=10)


def tid_seconds(tid: str) -> float:
    number = 0
    for letter in tid:
        number = number * 32 + "234567abcdefghijklmnopqrstuvwxyz".index(letter)
    return (number >> 10) / 1e6


@pytest.mark.testnet
def test_client_metadata_is_found_at_the_other_url(
    varied: Network, client_host: SimpleNamespace
) -> None:
    form = {
        "client_id": "https://gateway.knotless-test.com/client.json?v=1",
        "redirect_uri": "https://gateway.knotless-test.com/callback",
        "response_type": "code",
        "scope": "atproto",
        "state": "state",
        "code_challenge": "x" * 43,
        "code_challenge_method": "S256",
    }
    answer = varied.http.post(f"{varied.hosts[0].url}/oauth/par", data=form)
    assert answer.status_code == 201, answer.text
    assert client_host.asked == ["/client.json?v=1"]


@pytest.mark.testnet
def test_dir_holds_the_data_and_log_the_log(varied: Network) -> None:
    assert varied.data
    assert {path.name for path in varied.data.iterdir()} == {"pds0", "pds1", "pds2"}
    assert (varied.data / "pds0" / "account.sqlite").exists()
    assert (varied.data.parent / "varied.log").stat().st_size


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--pds", "0"], "argument --pds: invalid count value: '0'"),
        (["--pds-port", "70000"], "argument --pds-port: invalid port value: '70000'"),
        (["--pds", "1", "--pds-port", "1", "--pds-port", "2"], "more --pds-port than PDSes"),
        (["--client-metadata", "example.com"], "invalid host_and_url value: 'example.com'"),
        (["--dir", "."], ". is not an empty folder"),
    ],
)
def test_wrong_usage(options: list[str], words: str) -> None:
    result = refused(*options)
    assert (result.returncode, result.stdout) == (2, "")
    assert words in result.stderr.splitlines()[-1]


@pytest.mark.testnet
def test_taken_port(network: Network) -> None:
    port = network.plc.rpartition(":")[2]
    result = refused("--json", "--plc-port", port)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == f"testnet: port {port} is already taken\n"


# --- its end


@pytest.fixture
def scratch(tmp_path: Path) -> dict[str, str]:
    """An environment whose temporary folder is the test's own."""
    return {**ENVIRONMENT, "TMPDIR": str(tmp_path)}


@pytest.mark.slow
@pytest.mark.testnet
@pytest.mark.parametrize("way", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, "closed pipe"])
def test_ends_in_order_and_leaves_nothing(
    way: signal.Signals | str, scratch: dict[str, str], tmp_path: Path
) -> None:
    with start_testnet("--json", "--pds", "1", env=scratch, stderr=subprocess.PIPE) as process:
        ready(process)
        assert len(list(tmp_path.glob("knotless-testnet-*/pds0/account.sqlite"))) == 1
        if isinstance(way, signal.Signals):
            process.send_signal(way)
        else:
            assert process.stdin
            process.stdin.close()
        assert process.wait(10) == 0
        assert process.stdout
        assert process.stderr
        assert (process.stdout.read(), process.stderr.read()) == ("", "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.testnet
def test_ends_when_its_parent_is_killed(scratch: dict[str, str], tmp_path: Path) -> None:
    parent = f"""import subprocess, sys
child = subprocess.Popen([sys.executable, {str(TESTNET)!r}, "--json", "--pds", "1"],
    stdin=subprocess.PIPE)
child.wait()"""
    with subprocess.Popen(
        [sys.executable, "-c", parent], env=scratch, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        json.loads(process.stdout.readline())
        process.kill()
        assert process.stdout.read() == ""  # held open by the child, so this waits for its end
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.testnet
def test_people_get_the_exports(scratch: dict[str, str]) -> None:
    with start_testnet(env=scratch) as process:
        assert process.stdout
        page = list(iter(process.stdout.readline, "  git knotless login alice.test\n"))
    exports = dict(re.findall(r"export (\w+)='?(.*?)'?\n", "".join(page)))
    assert re.fullmatch(r"http://localhost:\d+", exports["KNOTLESS_PLC_URL"])
    assert len(exports["KNOTLESS_HANDLE_RESOLVER"].split(" ")) == 2


# --- the machines that tests run git on


def test_machine_takes_nothing_from_the_developer(
    gitenv: GitEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Developer")
    monkeypatch.setenv("KNOTLESS_ACCOUNT", "developer.example.com")
    listed = gitenv.git("config", "--list", "--show-origin", "--name-only").out
    assert {line.split("\t")[0] for line in listed.splitlines()} == {
        f"file:{gitenv.home / '.gitconfig'}"
    }
    assert "Developer" not in gitenv.git("var", "GIT_AUTHOR_IDENT").out
    names = [line.partition("=")[0] for line in gitenv.run("env").out.splitlines()]
    assert {name for name in names if name.startswith("KNOTLESS_")} == {
        "KNOTLESS_CONFIG_DIR",
        "KNOTLESS_CACHE_DIR",
    }


def test_machine_makes_the_same_history_everywhere(gitenv: GitEnv) -> None:
    one, other = gitenv.repository("one", commits=3), gitenv.repository("other.git", bare=True)
    assert gitenv.git("status", "--porcelain", cwd=one).out == ""
    assert gitenv.oid(one, "HEAD~2") == gitenv.oid(other)
    tip = gitenv.commit(one, "folder/file", "text\n")
    assert gitenv.refs(one) == {"refs/heads/main": tip}
    assert gitenv.git("rev-parse", "HEAD~9", cwd=one, code=128).err


def test_machine_ends_a_command_and_its_children_in_time(gitenv: GitEnv) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        gitenv.git("-c", "alias.slow=!echo $$ >pid; sleep 60; true", "slow", timeout=1)
    wait_for(partial(gone, int((gitenv.root / "pid").read_text())))


# --- its installation, with an npm that does not get far


@pytest.fixture
def unfit(tmp_path: Path) -> dict[str, str]:
    """An environment with an empty cache, and `bin` as its PATH."""
    (tmp_path / "bin").mkdir()
    path = f"{tmp_path / 'bin'}:/nonexistent"
    return {**ENVIRONMENT, "PATH": path, "XDG_CACHE_HOME": str(tmp_path / "cache")}


def tool(unfit: dict[str, str], name: str, script: str) -> None:
    path = Path(unfit["PATH"].partition(":")[0], name)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def left_in_cache(unfit: dict[str, str]) -> list[str]:
    return sorted(path.name for path in Path(unfit["XDG_CACHE_HOME"]).glob("git-knotless/*/*"))


def test_says_what_is_missing(unfit: dict[str, str]) -> None:
    result = refused("--install", env=unfit)
    assert result.returncode == 1
    assert result.stderr == (
        "testnet: npm, make, c++ not found; on Debian: apt-get install npm make g++\n"
    )


def test_failed_installation_says_why_and_leaves_nothing(unfit: dict[str, str]) -> None:
    for name in ("make", "c++"):
        tool(unfit, name, "exit 1")
    tool(unfit, "npm", "echo 'npm error network is down' >&2; exit 1")
    result = refused("--install", env=unfit)
    assert result.returncode == 1
    assert result.stderr.splitlines()[1:] == ["testnet: npm failed:", "  npm error network is down"]
    assert left_in_cache(unfit) == ["lock"]


def test_installations_wait_for_each_other_and_end_with_their_children(
    unfit: dict[str, str], tmp_path: Path
) -> None:
    for name in ("make", "c++"):
        tool(unfit, name, "exit 1")
    pids = tmp_path / "pids"
    tool(unfit, "npm", f"echo $$ >> {pids}; /bin/sleep 60; echo unreachable")
    install = partial(start_testnet, "--install", env=unfit, stderr=subprocess.PIPE)
    with install() as one:
        assert one.stderr
        assert "installing" in one.stderr.readline()
        wait_for(lambda: pids.exists() and pids.read_text())
        with install() as other:
            assert other.stderr
            assert other.stderr.readline() == "testnet: waiting for another installation\n"
            one.terminate()
            assert one.wait(10) == 143
            assert "installing" in other.stderr.readline()
        assert other.returncode == 143
    for pid in map(int, pids.read_text().split()):
        wait_for(partial(gone, pid))
    assert left_in_cache(unfit) == ["lock"]


def wait_for(condition: Callable[[], object], within: float = 10) -> None:
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)  # between two looks at another process


def gone(pid: int) -> bool:
    """Whether a process has ended, be it that nobody has asked for its exit code yet."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z")
    except ProcessLookupError:
        return True
    except FileNotFoundError:  # not Linux, or just gone
        return False
