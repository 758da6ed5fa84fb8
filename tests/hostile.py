"""A host that lies, one lie at a time, between git and a PDS that does not; and what it costs
whoever believes it."""

import json
import struct
import sys
import zlib
from base64 import b32encode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha1, sha256
from itertools import islice
from pathlib import Path
from typing import Any

from git_knotless.atproto.syntax import tid
from tests.gitenv import GitEnv
from tests.network import Account
from tests.proxy import Answer, Exchange, Proxy

REPO, REF, PACK = "dev.knotless.repo", "dev.knotless.ref", "dev.knotless.pack"
NOW = "2026-01-02T03:04:05.678Z"
CID = "bafyreidfayvfuwqa7qlnopdjiqrxzs6blmoeu4rujcjtnci5beludirz2a"

Act = Callable[[Exchange], None]
Values = Mapping[str, Any]

# Runs a command, and writes down what its processes took: the largest in memory, all in time. It is
# a process of its own, since what forks leaves its own size to what it forks.
_RUNNER = """
import ctypes, os, resource, sys
ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: git that fails waits for no helper
pid = os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ)
_, status = os.waitpid(pid, 0)
try:
    while True:
        os.waitpid(-1, 0)
except ChildProcessError:
    pass
used = resource.getrusage(resource.RUSAGE_CHILDREN)
with open(sys.argv[1], "w") as file:
    file.write(f"{used.ru_maxrss} {used.ru_utime + used.ru_stime}")
sys.exit(os.waitstatus_to_exitcode(status) % 256)
"""


@dataclass(frozen=True, slots=True)
class Told:
    """`peak` is in bytes: the most that any process held, git's and ours, files included. `cpu` is
    in seconds, of all of them together."""

    code: int
    err: str
    peak: int
    cpu: float

    @property
    def errors(self) -> list[str]:
        """What was said of it, without git's own last word on us."""
        lines = [line for line in self.err.splitlines() if line.startswith(("error: ", "fatal: "))]
        return [line for line in lines if "remote helper" not in line]


def told(machine: GitEnv, *args: str, cwd: Path | None = None, timeout: float = 120) -> Told:
    report = machine.root / "peak"
    command = (sys.executable, "-ISc", _RUNNER, str(report), "git", *args)
    ran = machine.run(*command, cwd=cwd, code=None, timeout=timeout)
    peak, cpu = report.read_text().split()
    return Told(ran.code, ran.err, int(peak) * 1024, float(cpu))


@dataclass
class Liar:
    """It passes on whatever it is asked for, but for what is forged.

    `records` are all of a collection; `blobs` are by their CIDs; `instead` is by the end of a
    call's name, or `did` for a DID document.
    """

    host: Proxy
    account: Account
    key: str
    records: dict[str, Values] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    instead: dict[str, Act] = field(default_factory=dict)

    def tell_the_truth(self) -> None:
        for forged in (self.records, self.blobs, self.instead):
            forged.clear()
        self.host.act(self._act)
        self.host.on_document(self._document)

    def forge(self, collection: str, change: Callable[[str, dict[str, Any]], Values]) -> None:
        """`change` makes other records of each, by its key."""
        real = self.account.records(collection)
        changed = (change(rkey, json.loads(json.dumps(value))) for rkey, value in real.items())
        self.records[collection] = {k: v for each in changed for k, v in each.items()}

    def add_pack(self, data: bytes, *, size: int | None = None, **fields: Any) -> str:
        """A record of a pack, newer than all others, which is one blob."""
        link = blob_cid(data)
        self.blobs[link] = data
        said = len(data) if size is None else size
        blob = {"$type": "blob", "ref": {"$link": link}, "mimeType": "application/x-git-pack"}
        value = {"$type": PACK, "repo": self.key, "epoch": 1, "size": said, "createdAt": NOW}
        value |= {"objects": int.from_bytes(data[8:12], "big"), "checksum": data[-20:].hex()}
        value |= {"blobs": [blob | {"size": said}], **fields}
        rkey = f"{self.key}.{tid(4_000_000_000_000_000 + len(self.blobs), 0)}"
        self.records[PACK] = {**self.account.records(PACK), rkey: value}
        return rkey

    def _act(self, exchange: Exchange) -> None:
        with suppress(ConnectionError):
            for name, act in self.instead.items():
                if exchange.nsid.endswith(name):
                    return act(exchange)
            return self._answer(exchange)

    def _document(self, exchange: Exchange) -> None:
        with suppress(ConnectionError):
            did = exchange.path[1:]
            plain = Answer.json(200, self.host.told(did))
            self.instead.get("did", lambda e: e.answer(plain))(exchange)

    def _answer(self, exchange: Exchange) -> None:
        forged = self.records.get(exchange.query.get("collection", ""))
        if exchange.nsid.endswith("getBlob") and exchange.query["cid"] in self.blobs:
            exchange.answer(Answer(200, self.blobs[exchange.query["cid"]]))
        elif forged is not None and exchange.nsid.endswith("listRecords"):
            exchange.answer(Answer.json(200, self._page(exchange.query, forged)))
        elif forged is not None and exchange.query.get("rkey") in forged:
            rkey = exchange.query["rkey"]
            exchange.answer(
                Answer.json(200, self.found(exchange.query["collection"], rkey, forged))
            )
        else:
            exchange.pass_on()

    def _page(self, query: Mapping[str, str], forged: Values) -> Any:
        cursor, ascending = query.get("cursor", ""), query.get("reverse") == "true"
        keys = sorted(forged, reverse=not ascending)
        if cursor:
            keys = [key for key in keys if (key > cursor if ascending else key < cursor)]
        page = keys[:100]
        found = [self.found(query["collection"], key, forged) for key in page]
        return {"records": found, **({"cursor": page[-1]} if page else {})}

    def found(self, collection: str, rkey: str, values: Values) -> Any:
        uri = f"at://{self.account.did}/{collection}/{rkey}"
        return {"uri": uri, "cid": CID, "value": values[rkey]}


def blob_cid(data: bytes) -> str:
    raw = b"\x01\x55\x12\x20" + sha256(data).digest()
    return "b" + b32encode(raw).decode().lower().rstrip("=")


def inline(data: bytes) -> Any:
    return {"$bytes": b64encode(data).decode().rstrip("=")}


# What never ends, or not soon.

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


def endlessly(data: bytes, *, head: bytes = b"", every: float = 0) -> Act:
    """The same again and again, for as long as anybody listens."""

    def act(exchange: Exchange) -> None:
        exchange.read()
        exchange.say(head)
        while not exchange.is_left(every):
            exchange.say(data)

    return act


def chunked(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def large(size: int, around: bytes = b'{"a":"%s"}') -> Act:
    """A body of about so many bytes, in its length and in truth."""

    def act(exchange: Exchange) -> None:
        exchange.read()
        begin, end = around.split(b"%s")
        exchange.say(OK + b"Content-Length: %d\r\n\r\n" % (size + len(begin) + len(end)) + begin)
        for _ in range(size >> 16):
            exchange.say(b"x" * (1 << 16))
        exchange.say(end)

    return act


def says(body: bytes, status: int = 200, kind: str = "application/json", **headers: str) -> Act:
    return lambda exchange: exchange.answer(Answer(status, body, {"Content-Type": kind, **headers}))


def redirects(where: str) -> Act:
    return lambda exchange: exchange.answer(Answer(302, b"", {"Location": where}))


def changed(change: Callable[[dict[str, Any]], Any]) -> Act:
    """The PDS's own answer, changed."""

    def act(exchange: Exchange) -> None:
        answer = exchange.passed_on()
        exchange.answer(Answer.json(answer.status, change(json.loads(answer.body))))

    return act


# Packs.

COMMIT, TREE, BLOB, OFS_DELTA = 1, 2, 3, 6


def pack(entries: Iterable[bytes], *, count: int | None = None) -> bytes:
    """Whatever the entries are; `count` is what its header says of them."""
    held = list(entries)
    data = struct.pack(">4sLL", b"PACK", 2, len(held) if count is None else count)
    data += b"".join(held)
    return data + sha1(data).digest()


def entry(kind: int, data: bytes, *, size: int | None = None) -> bytes:
    """`size` is what it says of its data."""
    return _entry_head(kind, len(data) if size is None else size) + zlib.compress(data)


def zeroes(size: int) -> bytes:
    """A blob of them, deflated as far as it goes; `size` is of whole pieces of 16 MiB."""
    piece = 1 << 24
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    repeated = deflate.compress(bytes(piece)) + deflate.flush(zlib.Z_FULL_FLUSH)
    end = zlib.compressobj(9, zlib.DEFLATED, -15).flush()
    check = ((size % 65521) << 16) | 1
    body = b"\x78\x9c" + repeated * (size // piece) + end + check.to_bytes(4, "big")
    return _entry_head(BLOB, size) + body


def deltas(base: bytes, results: Iterable[tuple[int, bytes]]) -> Iterator[bytes]:
    """A blob, and deltas each of which says how large it makes the one before it, and how."""
    first = entry(BLOB, base)
    yield first
    distance, before = len(first), len(base)
    for size, instructions in results:
        delta = _varint(before) + _varint(size) + instructions
        head = _entry_head(OFS_DELTA, len(delta)) + _offset(distance)
        made = head + zlib.compress(delta)
        yield made
        distance, before = len(made), size


def copy(size: int) -> bytes:
    """A delta's instruction: the first bytes of its base, 16 MiB less one at most."""
    return b"\xf0" + size.to_bytes(3, "little")


def insert(data: bytes) -> bytes:
    return bytes([len(data)]) + data


def sharing(base: bytes, count: int, size: int) -> Iterator[bytes]:
    """A blob, and so many deltas on it, each of another object of about `size` bytes."""
    first = entry(BLOB, base)
    yield first
    distance = len(first)
    copies = copy(len(base)) * (size // len(base))
    for number in range(count):
        ending = insert(number.to_bytes(4, "big"))
        result = len(base) * (size // len(base)) + 4
        delta = _varint(len(base)) + _varint(result) + copies + ending
        made = _entry_head(OFS_DELTA, len(delta)) + _offset(distance) + zlib.compress(delta)
        yield made
        distance += len(made)


def _entry_head(kind: int, size: int) -> bytes:
    byte, size = kind << 4 | size & 15, size >> 4
    head = bytearray()
    while size:
        head.append(byte | 0x80)
        byte, size = size & 0x7F, size >> 7
    return bytes([*head, byte])


def _varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _offset(number: int) -> bytes:
    """As OFS_DELTA has it: each continuation counts one more."""
    out = [number & 0x7F]
    while number := number >> 7:
        number -= 1
        out.append(number & 0x7F | 0x80)
    return bytes(reversed(out))


def pages(records: Callable[[int], Any], cursor: Callable[[int], str]) -> Act:
    """A listing without end: page after page of what `records` makes of its number."""
    asked = iter(range(10**9))

    def act(exchange: Exchange) -> None:
        number = next(asked)
        exchange.answer(Answer.json(200, {"records": records(number), "cursor": cursor(number)}))

    return act


def hundred(make: Callable[[int], Any], page: int) -> list[Any]:
    return list(islice(map(make, range(page * 100, page * 100 + 100)), 100))
