"""The servers that are measured against, on loopback; each ends with its block, by its own id."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts._bench.machine import GIT, Failed
from scripts._bench.programs import ROOT

_READY_WITHIN = 60.0  # seconds
PASSWORD = "correct horse battery staple"
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # no proxy knows loopback
_LIGHTTPD = """\
server.document-root = "{root}"
server.port = {port}
server.bind = "127.0.0.1"
server.errorlog = "{root}/errors"
server.upload-dirs = ( "{root}/uploads" )
server.modules = ( "mod_alias", "mod_cgi", "mod_setenv" )
# A pack goes out as it is made. One that comes in is read first: it comes in chunks, and a CGI
# is told the length.
server.stream-response-body = 2
alias.url = ( "/git" => "{backend}" )
cgi.assign = ( "" => "" )
setenv.set-environment = ( "GIT_PROJECT_ROOT" => "{root}/git", "GIT_HTTP_EXPORT_ALL" => "1" )
"""


@dataclass(frozen=True, slots=True)
class Account:
    handle: str
    password: str


class Network:
    """The reference PDS and PLC directory."""

    def __init__(self, described: Mapping[str, Any]) -> None:
        self.plc: str = described["plc"]
        self.pds: str = described["pds"][0]["url"]
        self._domain: str = described["pds"][0]["domain"]

    def account(self, stem: str) -> Account:
        account = Account(f"{stem}{self._domain}", PASSWORD)
        body = {"handle": account.handle, "password": PASSWORD, "email": f"{stem}@example.com"}
        ask(f"{self.pds}/xrpc/com.atproto.server.createAccount", body)
        return account


def ask(url: str, body: Mapping[str, Any] | None = None) -> Any:
    """What a GET is answered, or a POST of JSON."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with DIRECT.open(request, timeout=60) as response:
        return json.load(response)


@contextmanager
def serving(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, text=True, start_new_session=True, **options
    ) as process:
        try:
            yield process
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()


@contextmanager
def network(folder: Path, *, blob_limit: int | None = None) -> Iterator[Network]:
    limit = [] if blob_limit is None else ["--blob-limit", str(blob_limit)]
    command = [str(ROOT / "scripts/testnet"), "--json", "--pds", "1", "--dir", str(folder), *limit]
    with serving([sys.executable, *command], stdout=subprocess.PIPE) as process:
        yield Network(json.loads(first_line(process)))


@contextmanager
def proxy(network: Network) -> Iterator[str]:
    """The URL of a proxy that counts what the account's host and the directory are asked."""
    command = [sys.executable, "-m", "scripts._bench.proxy", network.plc, network.pds]
    with serving(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
        yield first_line(process).strip()


@contextmanager
def smart_http(root: Path) -> Iterator[str]:
    """The URL below which the repositories in `root`/git are served, to be pushed to as well."""
    for name in ("git", "uploads"):
        (root / name).mkdir(parents=True)
    exec_path = subprocess.run([GIT, "--exec-path"], check=True, capture_output=True, text=True)
    backend = Path(exec_path.stdout.strip()) / "git-http-backend"
    port = _free_port()
    (root / "conf").write_text(_LIGHTTPD.format(root=root, port=port, backend=backend))
    server = shutil.which("lighttpd")
    if server is None:
        raise Failed("lighttpd not found; on Debian: apt-get install lighttpd")
    env = {"PATH": os.environ["PATH"], "HOME": str(root), "GIT_CONFIG_NOSYSTEM": "1"}
    with serving([server, "-D", "-f", str(root / "conf")], env=env) as process:
        _wait_for(port, process)
        yield f"http://127.0.0.1:{port}/git"


@contextmanager
def s3(moto_server: Path, root: Path) -> Iterator[dict[str, str]]:
    """What makes git-remote-s3 use a moto server with a bucket named `bench`."""
    root.mkdir(parents=True)
    port = _free_port()
    url = f"http://127.0.0.1:{port}"
    command = [str(moto_server), "--host", "127.0.0.1", "--port", str(port)]
    with (
        open(root / "log", "wb") as log,
        serving(command, stdout=log, stderr=log, cwd=root) as process,
    ):
        _wait_for(port, process)
        make_bucket = urllib.request.Request(f"{url}/bench", method="PUT")
        with DIRECT.open(make_bucket, timeout=60):
            pass
        keys = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench"}
        yield {"AWS_ENDPOINT_URL": url, "AWS_DEFAULT_REGION": "us-east-1", **keys}


def first_line(process: subprocess.Popen[str]) -> str:
    line = process.stdout.readline() if process.stdout else ""
    if not line:
        raise RuntimeError(f"{process.args!r} did not start")
    return line


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def _wait_for(port: int, process: subprocess.Popen[str]) -> None:
    def answers() -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True
        return False

    _wait_until(answers, process)


def _wait_until(done: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    ends = time.monotonic() + _READY_WITHIN
    while not done():
        if process.poll() is not None or time.monotonic() > ends:
            raise RuntimeError(f"{process.args!r} did not start")
        time.sleep(0.05)  # it does not say when it is ready
