"""What a sandbox is beside its answers: starting, ending, being killed, and its switches."""

import gzip
import os
import re
import shutil
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from git_knotless.atproto.car import read_car
from git_knotless.atproto.commit import Commit, verify_proof
from git_knotless.atproto.dag_cbor import cid_of, cid_text, encode
from git_knotless.atproto.keys import Curve, PrivateKey, signing_key
from git_knotless.atproto.syntax import Did, Nsid, Rkey
from git_knotless.sandbox import plc
from tests.network import (
    ENVIRONMENT,
    Host,
    Network,
    XrpcFailure,
    connect,
    ready,
    run_sandbox,
    start_sandbox,
    write,
)
from tests.sandbox.conversation import MISSING

NOTE = "com.example.note"
APPLY = "com.atproto.repo.applyWrites"
LISTING = "com.atproto.repo.listRecords"

Start = Callable[..., AbstractContextManager[Network]]


def batch(did: str, *writes: dict[str, Any]) -> dict[str, Any]:
    return {"repo": did, "writes": list(writes)}


def test_the_same_again(tmp_path: Path) -> None:
    """Ports, keys, accounts and passwords are kept; the files are for their owner alone."""
    options = ("--json", "--dir", str(tmp_path / "data"), "--pds", "2", "--account", "alice.test")
    lines = []
    for _ in range(2):
        with start_sandbox(*options, "--account", "bob.pds1.test") as process:
            lines.append(ready(process))
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == 0
    assert lines[0] == lines[1]
    alice, bob = lines[0]["accounts"]
    assert (alice["handle"], bob["pds"]) == ("alice.test", lines[0]["pds"][1]["url"])
    assert re.fullmatch("[a-z2-7]{4}(-[a-z2-7]{4}){3}", alice["password"])
    data = tmp_path / "data"
    assert stat.S_IMODE(data.stat().st_mode) == 0o700
    for name in ("sandbox.sqlite", "passwords.json"):
        assert stat.S_IMODE((data / name).stat().st_mode) == 0o600


def test_one_at_a_time_in_a_folder(tmp_path: Path) -> None:
    with (
        run_sandbox(data=tmp_path),
        start_sandbox("--dir", str(tmp_path), stderr=subprocess.PIPE) as second,
    ):
        assert second.stderr is not None
        assert second.wait(20) == 1
        assert second.stderr.read() == f"sandbox: another sandbox runs in {tmp_path}\n"


def test_it_ends_with_its_standard_input_and_on_ctrl_c(tmp_path: Path) -> None:
    for end in (lambda p: p.stdin.close(), lambda p: p.send_signal(signal.SIGINT)):
        with start_sandbox("--json", "--dir", str(tmp_path)) as process:
            ready(process)
            end(process)
            assert process.wait(10) == 0


def test_only_loopback_is_listened_on(sandbox: Network) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing; says which address would
            address = probe.getsockname()[0]
        except OSError:
            address = "127.0.0.1"
    if address.startswith("127."):
        pytest.skip("this machine has no address but loopback")
    port = int(sandbox.hosts[0].url.rpartition(":")[2])
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((address, port), timeout=5)


def test_ports_are_kept(tmp_path: Path) -> None:
    """Those of more hosts follow, where the first were asked for."""
    base = _free_ports(3)
    options = ("--json", "--dir", str(tmp_path), "--port", str(base))
    for hosts in (1, 2):
        with start_sandbox(*options, "--pds", str(hosts), forked=True) as process:
            described = ready(process)
    urls = [described["plc"], *(pds["url"] for pds in described["pds"])]
    assert urls == [f"http://localhost:{base + at}" for at in range(3)]


def test_it_goes_to_other_ports(tmp_path: Path) -> None:
    """Old and new ones overlap, so that the one host is where the other was."""
    base = _free_ports(4)
    options = ("--json", "--dir", str(tmp_path), "--pds", "2")
    accounts = ("--account", "alice.test", "--account", "bob.pds1.test")
    for port in (base, base + 1):
        with start_sandbox(*options, *accounts, "--port", str(port), forked=True) as process:
            described = ready(process)
            urls = [f"http://localhost:{port + at}" for at in range(3)]
            assert [described["plc"], *(pds["url"] for pds in described["pds"])] == urls
            for account, url in zip(described["accounts"], urls[1:], strict=True):
                document = httpx.get(f"{urls[0]}/{account['did']}").json()
                assert document["service"][0]["serviceEndpoint"] == url
    with start_sandbox(*options, forked=True) as process:
        assert ready(process)["plc"] == urls[0]


def test_ports_that_a_did_is_held_at_are_kept(tmp_path: Path) -> None:
    """By its owner, who has taken the host's keys out of it."""
    base = _free_ports(4)
    options = ("--json", "--dir", str(tmp_path), "--account", "alice.test")
    with start_sandbox(*options, "--port", str(base), forked=True) as process:
        described = ready(process)
        did = described["accounts"][0]["did"]
        log = httpx.get(f"{described['plc']}/{did}/log/last").json()
        _take_over(tmp_path, did, log)
    with start_sandbox(
        "--dir", str(tmp_path), "--port", str(base + 2), stderr=subprocess.PIPE
    ) as other:
        assert other.stderr is not None
        assert other.wait(20) == 1
        assert other.stderr.read() == (
            f"sandbox: {did} is at http://localhost:{base + 1} by keys that are not the sandbox's,"
            " so it keeps its ports\n"
        )
    with start_sandbox(*options, forked=True) as process:
        assert ready(process)["plc"] == f"http://localhost:{base}"


def _take_over(folder: Path, did: str, last: dict[str, Any]) -> None:
    with sqlite3.connect(folder / "sandbox.sqlite") as connection:
        (scalar,) = connection.execute("SELECT rotation_key FROM host").fetchone()
        (prev,) = connection.execute("SELECT cid FROM operation").fetchone()
    key = PrivateKey.from_bytes(Curve.K256, scalar)
    own = PrivateKey.generate(Curve.K256).public.did_key
    operation = plc.sign({**last, "rotationKeys": [own], "prev": prev}, key)
    plc_url = last["services"]["atproto_pds"]["endpoint"]
    plc_port = int(plc_url.rpartition(":")[2]) - 1
    httpx.post(f"http://localhost:{plc_port}/{did}", json=operation).raise_for_status()


def _free_ports(count: int) -> int:
    """The first of some that follow each other."""
    for base in range(20_000, 30_000, count):
        with ExitStack() as stack, suppress(OSError):
            for port in range(base, base + count):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
            return base
    raise AssertionError("no free ports")


def test_nobody_is_there_to_hear_that_it_is_ready(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "git_knotless.sandbox", "--dir", tmp_path],
        stdin=subprocess.DEVNULL,
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
        timeout=60,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (
        1,
        "sandbox: cannot say that it is ready: Broken pipe\n",
    )


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs to mount a file system")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_disk_that_is_full(small_disk: Path) -> None:
    """Is said; what landed is there, and there is more once there is room."""
    (rest := small_disk / "rest").write_bytes(bytes(400_000))
    with run_sandbox(data=small_disk / "data", pds=1) as network:
        alice, landed = network.account(), 0
        refused = None
        while refused is None:
            body = batch(alice.did, write("create", NOTE, f"k{landed}", {"text": "x" * 5_000}))
            answer = alice.host.send("POST", APPLY, auth=alice.auth, json=body)
            landed += answer.status_code == 200
            refused = answer if answer.status_code != 200 else None
        expected = {
            "error": "InternalServerError",
            "message": "no space left on the sandbox's disk",
        }
        assert (refused.status_code, refused.json()) == (500, expected)
        with pytest.raises(XrpcFailure, match="500 InternalServerError: no space left"):
            alice.upload(bytes(900_000), "text/plain")
        assert len(alice.records(NOTE)) == landed > 10
        rest.unlink()
        alice.create(NOTE, "more", {})
    with run_sandbox(data=small_disk / "data", pds=1) as network:
        assert len(replace(alice, host=network.hosts[0]).records(NOTE)) == landed + 1


def test_a_disk_that_was_full_before(small_disk: Path) -> None:
    (small_disk / "rest").write_bytes(bytes((1 << 20) - 20_000))
    with start_sandbox("--dir", str(small_disk / "data"), stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        assert process.wait(20) == 1
        said, place = process.stderr.read(), small_disk / "data" / "sandbox.sqlite"
        # Which of the two depends on which of its files it is.
        wordings = ("database or disk is full", "disk I/O error")
        assert said in [f"sandbox: {place}: {words}\n" for words in wordings]


def test_killed_while_it_writes(tmp_path: Path) -> None:
    """What was answered with 200 is there, records and blobs, and the repo verifies."""
    options = ("--json", "--dir", str(tmp_path), "--account", "alice.test")
    landed: dict[str, str] = {}
    for enough in (10, 25, 40):
        with start_sandbox(*options) as process:
            described = ready(process)
            killer = threading.Thread(target=kill_after, args=(process, landed, enough))
            with connect(described) as network, suppress(httpx.TransportError):
                killer.start()
                write_until_it_ends(network.hosts[0], described["accounts"][0], landed)
            killer.join()
    with start_sandbox(*options) as process, connect(ready(process)) as network:
        did = described["accounts"][0]["did"]
        assert len(landed) >= 40
        for key, cid in landed.items():
            assert proven(network, did, key) is not None
            params = {"did": did, "cid": cid}
            assert network.hosts[0].send("GET", "com.atproto.sync.getBlob", params=params).content


def kill_after(process: subprocess.Popen[str], landed: dict[str, str], enough: int) -> None:
    while len(landed) < enough and process.poll() is None:
        time.sleep(0.001)  # at any moment of the write after
    process.kill()


def write_until_it_ends(host: Host, account: dict[str, str], landed: dict[str, str]) -> None:
    did = account["did"]
    login = {"identifier": did, "password": account["password"]}
    auth = "Bearer " + host.post("com.atproto.server.createSession", login)["accessJwt"]
    mime = {"Content-Type": "text/plain"}
    for n in count(len(landed)):
        options: dict[str, Any] = {"content": f"blob {n}".encode(), "headers": mime}
        sent = host.send("POST", "com.atproto.repo.uploadBlob", auth=auth, **options)
        blob, key = sent.json()["blob"], f"k{n}"
        record = {"$type": NOTE, "blob": blob}
        body = {"repo": did, "collection": NOTE, "rkey": key, "record": record}
        host.post("com.atproto.repo.putRecord", body, auth=auth)
        landed[key] = blob["ref"]["$link"]


def proven(network: Network, did: str, key: str) -> Any:
    place = {"did": did, "collection": NOTE, "rkey": key}
    car = network.hosts[0].send("GET", "com.atproto.sync.getRecord", params=place).content
    signer = signing_key(network.http.get(f"{network.plc}/{did}").json(), did)
    proof = verify_proof(car, did=Did(did), key=signer, collection=Nsid(NOTE), rkey=Rkey(key))
    return proof.value


def test_what_a_kill_leaves_behind_is_swept(start: Start, tmp_path: Path) -> None:
    with start() as network:
        alice = network.account()
        alice.create(NOTE, "k", {"blob": alice.upload(b"kept", "text/plain")})
    (kept,) = (tmp_path / "sandbox" / "blobs").glob("*/*")
    orphan = kept.with_name(MISSING)
    half = tmp_path / "sandbox" / "incoming" / "half"
    for path in (orphan, half):
        path.write_bytes(b"left behind")
    with start():
        assert kept.exists()
        assert not orphan.exists()
        assert not half.exists()


def test_blobs_let_go_of_leave_no_file(start: Start, tmp_path: Path) -> None:
    with start() as network:
        alice, bob = network.account(), network.account()
        for account in (alice, bob):
            account.create(NOTE, "k", {"blob": account.upload(b"twice", "text/plain")})
        assert len(list((tmp_path / "sandbox" / "blobs").glob("*/*"))) == 2
        alice.delete(NOTE, "k")
        assert len(list((tmp_path / "sandbox" / "blobs").glob("*/*"))) == 1
        network.admin(bob.host, "com.atproto.admin.deleteAccount", {"did": bob.did})
        assert not list((tmp_path / "sandbox" / "blobs").glob("*/*"))


def test_clean_errors(start: Start) -> None:
    with start("--clean-errors") as network:
        alice = network.account()
        alice.create(NOTE, "k", {})
        for action, key, name in (
            ("create", "k", "RecordAlreadyExists"),
            ("update", "x", "RecordNotFound"),
        ):
            body = batch(alice.did, write(action, NOTE, key, {}))
            refused = alice.host.send("POST", APPLY, auth=alice.auth, json=body)
            assert (refused.status_code, refused.json()["error"]) == (400, name)


def test_creates_that_update(start: Start) -> None:
    """Some hosts do; the type of the result tells."""
    with start("--create-updates") as network:
        alice = network.account()
        kinds = [
            alice.apply(write("create", NOTE, "k", {"n": n}))["results"][0]["$type"]
            for n in range(2)
        ]
        assert [kind.partition("#")[2] for kind in kinds] == ["createResult", "updateResult"]
        assert alice.record(NOTE, "k") == {"$type": NOTE, "n": 1}


def test_cursors_that_do_not_seek(start: Start) -> None:
    with start("--no-seek") as network:
        alice = network.account()
        keys = [f"k{n}" for n in range(9)]
        alice.apply(*(write("create", NOTE, key, {}) for key in keys))
        sought = alice.get(LISTING, repo=alice.did, collection=NOTE, cursor="k3", reverse=True)
        assert sought["records"][0]["uri"].endswith("/k0")
        found, page = [], {"cursor": ""}
        while page.get("cursor") is not None:
            page = alice.get(
                LISTING, repo=alice.did, collection=NOTE, limit=2, cursor=page["cursor"]
            )
            found += [each["uri"].rpartition("/")[2] for each in page["records"]]
        assert found == keys[::-1]


def test_a_blob_limit(start: Start) -> None:
    with start("--blob-limit", "10") as network:
        alice = network.account()
        assert alice.host.get("com.atproto.server.describeServer")["blobUploadLimit"] == 10
        assert alice.upload(b"a" * 10, "text/plain")["size"] == 10
        packed = {"Content-Type": "text/plain", "Content-Encoding": "gzip"}
        chunked = iter([b"a" * 6, b"a" * 6])
        for content, headers in (
            (b"a" * 11, packed | {"Content-Encoding": "identity"}),
            (chunked, packed | {"Content-Encoding": "identity"}),
            (gzip.compress(bytes(1 << 24)), packed),
        ):
            refused = alice.host.send(
                "POST",
                "com.atproto.repo.uploadBlob",
                auth=alice.auth,
                content=content,
                headers=headers,
            )
            assert (refused.status_code, refused.json()["error"]) == (413, "PayloadTooLarge")


def test_rate_limits(start: Start) -> None:
    with start("--rate-limit") as network:
        alice = network.account()
        answer = alice.host.send("GET", "com.atproto.server.describeServer")
        assert answer.headers["RateLimit-Policy"] == "3000;w=300"
        big = batch(alice.did, *(write("create", NOTE, f"k{n}", {}) for n in range(200)))
        sizes, refused = [], None
        for _ in range(9):
            refused = alice.host.send("POST", APPLY, auth=alice.auth, json=big)
            sizes.append(refused.headers["RateLimit-Limit"])
            if refused.status_code == 429:
                break
            # The first landed; the others are refused, and cost their points all the same.
            assert refused.status_code == (200 if len(sizes) == 1 else 500)
        assert refused is not None
        assert (refused.status_code, refused.json()["error"]) == (429, "RateLimitExceeded")
        assert (refused.headers["RateLimit-Policy"], refused.headers["RateLimit-Remaining"]) == (
            "5000;w=3600",
            "0",
        )
        assert 3500 < int(refused.headers["Retry-After"]) <= 3600
        assert network.account().apply(write("create", NOTE, "k", {}))


def test_a_body_refused_for_its_shape_costs_no_points(start: Start) -> None:
    with start("--rate-limit") as network:
        alice = network.account()
        writes = [write("create", NOTE, f"k{n}", {}) for n in range(150)]
        for _ in range(20):
            body = batch(alice.did, *writes, write("create", NOTE, "a b", {}))
            refused = alice.host.send("POST", APPLY, auth=alice.auth, json=body)
            assert refused.status_code == 400


@pytest.mark.parametrize(
    "body",
    [b"[" * 500_000, b'{"a":' * 100_000, b'"\\ud800"', b"NaN", b"\xff", b"1e999", b""],
    ids=["arrays", "objects", "half a character", "NaN", "not UTF-8", "infinity", "nothing"],
)
def test_bodies_that_are_made_to_break_it(sandbox: Network, body: bytes) -> None:
    alice = sandbox.account()
    place = f'{{"repo":"{alice.did}","collection":"{NOTE}","record":{{"v":'.encode()
    headers = {"Content-Type": "application/json"}
    for content in (body, place + body + b"}}"):
        refused = alice.host.send(
            "POST",
            "com.atproto.repo.createRecord",
            auth=alice.auth,
            content=content,
            headers=headers,
        )
        assert refused.status_code == 400, refused.text


def test_a_key_above_undoes_what_one_below_has_signed(sandbox: Network) -> None:
    """The directory: `prev`, signatures, the hash of the first operation, and recovery."""
    plc, http = sandbox.plc, sandbox.http
    strong, weak, other = (
        PrivateKey.generate(each) for each in (Curve.P256, Curve.K256, Curve.K256)
    )

    def signed(key: PrivateKey, **fields: Any) -> dict[str, Any]:
        operation = {
            "type": "plc_operation",
            "rotationKeys": [strong.public.did_key, weak.public.did_key],
            "verificationMethods": {"atproto": other.public.did_key},
            "alsoKnownAs": ["at://someone.test"],
            "services": {},
            "prev": None,
        } | fields
        return operation | {
            "sig": urlsafe_b64encode(key.sign(encode(operation))).decode().rstrip("=")
        }

    def submit(operation: dict[str, Any]) -> int:
        return http.post(f"{plc}/{did}", json=operation).status_code

    first = signed(weak)
    did = _did_of(first)
    assert submit(signed(other)) == 400
    assert submit(first | {"sig": _high_s(first["sig"])}) == 400
    assert submit(first) == 200
    prev = cid_text(cid_of(encode(first)))
    taken = signed(weak, prev=prev, alsoKnownAs=["at://thief.test"])
    assert submit(signed(other, prev=prev)) == 400
    assert submit(signed(weak, prev=MISSING)) == 400
    assert submit(taken) == 200
    assert submit(signed(weak, prev=prev, alsoKnownAs=["at://again.test"])) == 400
    assert submit(signed(strong, prev=prev, alsoKnownAs=["at://back.test"])) == 200
    assert http.get(f"{plc}/{did}").json()["alsoKnownAs"] == ["at://back.test"]
    assert [each["nullified"] for each in http.get(f"{plc}/{did}/log/audit").json()] == [
        False,
        True,
        False,
    ]
    assert len(http.get(f"{plc}/{did}/log").json()) == 2
    gone = {"type": "plc_tombstone", "prev": http.get(f"{plc}/{did}/log/audit").json()[2]["cid"]}
    assert (
        submit(gone | {"sig": urlsafe_b64encode(strong.sign(encode(gone))).decode().rstrip("=")})
        == 200
    )
    assert http.get(f"{plc}/{did}").status_code == 404


def _did_of(operation: dict[str, Any]) -> str:
    from base64 import b32encode
    from hashlib import sha256

    return "did:plc:" + b32encode(sha256(encode(operation)).digest()).decode().lower()[:24]


def _high_s(signature: str) -> str:
    raw = urlsafe_b64decode(signature + "==")
    s = Curve.K256.order - int.from_bytes(raw[32:], "big")
    return urlsafe_b64encode(raw[:32] + s.to_bytes(32, "big")).decode().rstrip("=")


@pytest.mark.testnet
def test_the_same_records_have_the_same_root(sandbox: Network, reference: Network) -> None:
    roots = []
    for network in (sandbox, reference):
        alice = network.account()
        alice.apply(*(write("create", NOTE, f"k{n}", {"n": n}) for n in range(200)))
        alice.apply(*(write("delete", NOTE, f"k{n}") for n in range(0, 200, 3)))
        alice.apply(*(write("update", NOTE, f"k{n}", {"n": "new"}) for n in range(1, 200, 6)))
        params = {"did": alice.did}
        car = alice.host.send("GET", "com.atproto.sync.getRepo", params=params).content
        root, blocks = read_car(car, limit=10_000_000)
        document = network.http.get(f"{network.plc}/{alice.did}").json()
        key = signing_key(document, alice.did)
        roots.append((Commit.verify(blocks[root], did=Did(alice.did), key=key).data, len(blocks)))
    assert roots[0] == roots[1]
