"""What a lying host says, and the words in which it is refused."""

import gzip
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from git_knotless.storage.records import ref_rkey
from tests.gitenv import GitEnv
from tests.hostile import (
    BLOB,
    NOW,
    OK,
    PACK,
    REF,
    REPO,
    Act,
    Liar,
    Told,
    changed,
    chunked,
    copy,
    deltas,
    endlessly,
    entry,
    hundred,
    inline,
    large,
    pack,
    pages,
    redirects,
    says,
    told,
    zeroes,
)
from tests.network import Network
from tests.proxy import Answer, Exchange

SECONDS = 30  # of the processor: how long that takes depends on what else runs
MEMORY = 150 << 20
GIGABYTE = 1 << 30
BRANCH = "refs/heads/main"


@dataclass(frozen=True, slots=True)
class Stage:
    """What is really there: a repository with small packs, one of one blob, and a large one."""

    liar: Liar
    network: Network
    url: str
    work: Path
    tip: str
    tree: str
    file: str
    machine: GitEnv

    def reader(self, root: Path) -> GitEnv:
        machine = GitEnv(root / "reader", self.network)
        machine.env |= self.liar.host.environment()
        return machine

    def blob_of(self, least: int) -> str:
        """The CID of the blob of a pack that is larger than so many bytes."""
        packs = self.liar.account.records(PACK).values()
        found = [each for each in packs if each["size"] > least and "blobs" in each]
        return str(min(found, key=lambda each: each["size"])["blobs"][0]["ref"]["$link"])


def clone(stage: Stage, root: Path, *options: str) -> Told:
    """One that fails leaves nothing: neither a repository nor anything in the cache."""
    machine = stage.reader(root)
    result = told(machine, *options, "clone", "-q", stage.url, "clone")
    assert result.cpu < SECONDS
    assert result.peak < MEMORY
    if result.code != 0:
        assert not (machine.root / "clone").exists()
    cache = machine.home / "knotless-cache"
    kept = {path.name for path in cache.rglob("*") if path.is_file()}
    assert kept <= {"identity.json", "hosts.json"}
    return result


Lie = Callable[[Stage], Any]


def a_call(name: str, act: Act) -> Lie:
    def lie(stage: Stage) -> None:
        stage.liar.instead[name] = act

    return lie


def listed(collection: str, change: Callable[[Stage, str, dict[str, Any]], Any]) -> Lie:
    def lie(stage: Stage) -> None:
        stage.liar.forge(collection, lambda rkey, value: change(stage, rkey, value))

    return lie


def with_pack(make: Callable[[], bytes], **fields: Any) -> Lie:
    return lambda stage: stage.liar.add_pack(make(), **fields)


def served(least: int, change: Callable[[bytes], bytes]) -> Lie:
    """Other bytes under the CID of the pack of so many."""

    def lie(stage: Stage) -> None:
        cid = stage.blob_of(least)
        stage.liar.blobs[cid] = change(stage.liar.account.blob(cid))

    return lie


def every_pack(**fields: Any) -> Lie:
    return listed(PACK, lambda _stage, rkey, value: {rkey: value | fields})


def pointing(oid: Callable[[Stage], str]) -> Lie:
    def change(stage: Stage, rkey: str, value: dict[str, Any]) -> dict[str, Any]:
        moved = {"target": oid(stage), "generation": value["generation"] + 1}
        return {rkey: value | moved}

    return listed(REF, change)


def truncated(data: bytes) -> bytes:
    return data[:-1]


def another(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def longer(data: bytes) -> bytes:
    return data + b"x"


def nobodys(_: Stage) -> str:
    return "1234567890" * 4


LARGE, SMALL = 1 << 20, 50_000
GET, LIST, GET_BLOB = "repo.getRecord", "repo.listRecords", "sync.getBlob"
HANDLE, CHUNKED = "resolveHandle", OK + b"Transfer-Encoding: chunked\r\n\r\n"
DEEP = b'{"a":' + b"[" * 100_000

# What is refused, and how: `{url}`, `{did}` and `{host}` are whose word it was.
REFUSED: dict[str, tuple[Lie, str]] = {
    # packs and blobs
    "another pack": (
        served(LARGE, another),
        "{url}: pack .*: the bytes of blob .* are not its own",
    ),
    "another small pack": (
        served(SMALL, another),
        "{url}: pack .* the bytes of blob .* not its own",
    ),
    "a truncated blob": (served(LARGE, truncated), "{url}: pack .*: blob .* is .* bytes long, not"),
    "a longer blob": (served(LARGE, longer), "{url}: pack .*: {host} .* a blob that is too long"),
    "an endless blob": (
        a_call(GET_BLOB, endlessly(bytes(1 << 16), head=OK + b"\r\n")),
        "{url}: pack .*: {host} answers with a blob that is too long",
    ),
    "an endless blob in chunks": (
        a_call(GET_BLOB, endlessly(chunked(bytes(1 << 16)), head=CHUNKED)),
        "{url}: pack .*: {host} answers with a blob that is too long",
    ),
    "a blob of 10 GB in 10 MB": (
        with_pack(lambda: pack([zeroes(10 * GIGABYTE)])),
        "{url}: pack .*: an object in it unpacks to more than the 1 GiB that .* bytes may",
    ),
    "a delta to a terabyte": (
        with_pack(lambda: pack(deltas(b"x" * 99, [(1 << 40, copy(99))]), count=2)),
        "{url}: pack .*: an object in it unpacks to more than the 1 GiB that .* bytes may",
    ),
    "a delta that is longer than it says": (
        with_pack(lambda: pack(deltas(b"x" * 99, [(9, copy(99))]), count=2)),
        "{url}: pack .*: git index-pack: .*delta",
    ),
    "a header of 4e9 objects": (
        with_pack(lambda: pack([entry(BLOB, b"x" * 99)], count=4_000_000_000), objects=1),
        "{url}: pack .*: it does not begin as a pack of 1 objects",
    ),
    "no pack at all": (
        with_pack(lambda: b"x" * 2000, objects=1),
        "{url}: pack .*: it does not begin as a pack of 1 objects",
    ),
    "an object that does not inflate": (
        with_pack(lambda: pack([entry(BLOB, b"x", size=99)])),
        "{url}: pack .*: git index-pack: .*inflate",
    ),
    "records of 4e9 objects": (every_pack(objects=4_000_000_000), "{url}: objects are missing"),
    "records of negative size": (every_pack(size=-1), "{url}: .*size is not a whole number"),
    "records of too many blobs": (
        listed(PACK, lambda _, rkey, value: {rkey: value | blobs_of(500)}),
        "{url}: objects are missing .* 500 blobs are too many for 500 bytes",
    ),
    "records that would fill the memory": (
        listed(PACK, lambda _, rkey, value: {rkey: value | blobs_of(20_000)}),
        "{host} answers with more than we could hold",
    ),
    "a page of a gigabyte": (
        a_call(LIST, large(GIGABYTE)),
        "{host} answers with more than 20,000,000 bytes",
    ),
    "a pack of petabytes": (
        with_pack(lambda: pack([entry(BLOB, b"x" * 99)]), size=1 << 52),
        "no space left: packs of {url} take .* PB, and .* are free",
    ),
    "packs without an object": (
        lambda stage: leave_out(stage),
        "{url}: objects are missing on the host: .*main.* reaches what is in no pack",
    ),
    "more packs than anybody reads": (
        lambda stage: a_call(LIST, only(PACK, endless_packs(stage)))(stage),
        "{url} is in more than 10,000 packs",
    ),
    # refs
    "a ref at what is nowhere": (pointing(nobodys), "{url}: objects are missing .* is in no pack"),
    "a branch at a tree": (pointing(lambda stage: stage.tree), "{url}: .*main points at a tree"),
    "a branch at a blob": (pointing(lambda stage: stage.file), "{url}: .*main points at a blob"),
    # listings
    "a cursor that loops": (
        a_call(LIST, says(json.dumps({"records": [], "cursor": "x"}).encode())),
        "{host}: the listing of its records does not end",
    ),
    # JSON
    "JSON of a great depth": (a_call(GET, says(DEEP)), "{host} answers with something else than"),
    "a number of a million digits": (
        a_call(GET, says(b'{"a":1' + b"0" * 1_000_000 + b"}")),
        "{host} answers with something else than JSON",
    ),
    "NaN": (a_call(LIST, says(b'{"records":[NaN]}')), "{host} answers with something else than"),
    "a name twice": (
        a_call(LIST, says(b'{"records":[],"records":[]}')),
        "{host} answers with an object that names a thing twice",
    ),
    "half of a character": (
        a_call(LIST, says(b'{"records":["\\ud83d"]}')),
        "{host} answers with something else than JSON",
    ),
    "HTML": (
        a_call(GET, says(b"<!doctype html>", kind="text/html")),
        "{host} answers with HTML: is it an atproto host",
    ),
    # redirects
    "a record elsewhere": (
        a_call(GET, redirects("https://10.0.0.1/")),
        "{host} sends com.atproto.repo.getRecord elsewhere",
    ),
    "a blob in a file": (a_call(GET_BLOB, redirects("file:///etc/passwd")), "{host} .* no host"),
    **{
        f"a blob at {where}": (
            a_call(GET_BLOB, redirects(f"https://{where}/latest")),
            f"{{host}} sends a blob to {re.escape(where)}, which is not public",
        )
        for where in ("127.0.0.1:9", "[::1]:9", "169.254.169.254", "10.0.0.1", "localhost:9")
    },
    # bodies and heads
    "a DID document of a gigabyte": (
        a_call("did", large(GIGABYTE)),
        "{host} answers with more than 262,144 bytes",
    ),
    "a handle's answer of a gigabyte": (
        a_call(HANDLE, large(GIGABYTE)),
        "{host} answers with more than 2,048 bytes",
    ),
    "a record of a gigabyte": (
        a_call(GET, large(GIGABYTE)),
        "{host} answers with more than 1,048,576 bytes",
    ),
    "a bomb in gzip": (
        a_call(GET, lambda exchange: gzip_bomb(exchange)),
        "{host} answers with more than 1,048,576 bytes",
    ),
    "heads without end": (
        a_call(GET, endlessly(b"X: " + b"x" * 997 + b"\r\n", head=b"HTTP/1.1 200 OK\r\n")),
        "{host} does not answer in HTTP",
    ),
    # who is who
    "another's DID document": (
        lambda stage: a_document(stage, lambda document: document | {"id": f"did:plc:{'a' * 24}"}),
        "the DID document is of another account",
    ),
    "a host at a private address": (
        lambda stage: moved_to(stage, "https://10.0.0.1"),
        "mallory.* has no usable host: 10.0.0.1 is not public",
    ),
    "a host where clouds keep credentials": (
        lambda stage: moved_to(stage, "https://169.254.169.254"),
        "mallory.* has no usable host: 169.254.169.254 is not public",
    ),
    "a key that is none": (
        a_call(GET, changed(lambda answer: with_value(answer, key="../../x"))),
        "{url}: .*key",
    ),
    "an epoch that is none": (
        a_call(GET, changed(lambda answer: with_value(answer, epoch=-1))),
        "{url}: epoch is not a whole number",
    ),
    "a record of another account": (
        a_call(GET, changed(lambda answer: answer | {"uri": f"at://did:plc:{'a' * 24}/{REPO}/x"})),
        "{host} answers with something else than a record",
    ),
    "another record": (
        a_call(GET, changed(lambda answer: answer | {"uri": answer["uri"] + "x"})),
        "{host} answers with another record than was asked for",
    ),
}


def blobs_of(count: int) -> dict[str, Any]:
    link = {"$link": "bafkreidfayvfuwqa7qlnopdjiqrxzs6blmoeu4rujcjtnci5beludirz2a"}
    blob = {"$type": "blob", "ref": link, "mimeType": "application/x-git-pack", "size": 1}
    return {"blobs": [blob] * count, "size": count, "objects": 1}


def leave_out(stage: Stage) -> None:
    """Of three packs the one in the middle, so that history has a hole."""
    packs = stage.liar.account.records(PACK)
    hole = sorted(packs)[1]
    stage.liar.records[PACK] = {rkey: value for rkey, value in packs.items() if rkey != hole}


def only(collection: str, act: Act) -> Act:
    def choose(exchange: Exchange) -> None:
        (act if exchange.query.get("collection") == collection else Exchange.pass_on)(exchange)

    return choose


def endless_packs(stage: Stage) -> Act:
    data = pack([entry(BLOB, b"x")])
    value = {"$type": PACK, "repo": stage.liar.key, "epoch": 1, "objects": 1, "createdAt": NOW}
    value |= {"size": len(data), "checksum": data[-20:].hex(), "data": inline(data)}

    def record(number: int) -> Any:
        rkey = f"{stage.liar.key}.{9_000_000_000_000 - number}"
        return stage.liar.found(PACK, rkey, {rkey: value})

    return pages(
        lambda page: hundred(record, page), lambda page: record(page * 100 + 99)["uri"][-27:]
    )


def gzip_bomb(exchange: Exchange) -> None:
    body = gzip.compress(b'{"a":"' + bytes(50 << 20), 1)
    says(body, **{"Content-Encoding": "gzip"})(exchange)


def a_document(stage: Stage, change: Callable[[dict[str, Any]], Any]) -> None:
    def act(exchange: Exchange) -> None:
        exchange.answer(Answer.json(200, change(stage.liar.host.told(exchange.path[1:]))))

    stage.liar.instead["did"] = act


def moved_to(stage: Stage, pds: str) -> None:
    service = {"id": "#atproto_pds", "type": "AtprotoPersonalDataServer", "serviceEndpoint": pds}
    a_document(stage, lambda document: document | {"service": [service]})


def with_value(answer: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return answer | {"value": answer["value"] | fields}


def ref(stage: Stage, name: str, *, rkey: str | None = None) -> dict[str, Any]:
    value = {"$type": REF, "repo": stage.liar.key, "name": name, "target": stage.tip}
    made = rkey or ref_rkey(stage.liar.key, name)
    return {made: value | {"generation": 1, "updatedAt": NOW}}
