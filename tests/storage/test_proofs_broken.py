"""Answers of a host, broken byte by byte and block by block: whatever comes of it is the truth."""

from collections.abc import Iterator

import httpx
import pytest

from git_knotless.atproto.car import read_blocks, read_car, write_car
from git_knotless.atproto.errors import AtprotoError
from git_knotless.atproto.syntax import Did
from git_knotless.context import Context
from git_knotless.settings import Settings
from git_knotless.storage.proofs.signed import Signed, begin, of_repository, read_newest, under
from git_knotless.storage.records import REF
from git_knotless.storage.store import Archive, Proofs
from tests.atproto.fakes import DID, PLC, client_for
from tests.storage.signing import KEY, Host, car, ref

A = "a" * 40
FLIPS = (0x01, 0x80, 0xFF)
LIMIT = 1 << 20


@pytest.fixture(scope="module")
def host() -> Host:
    """With so many refs that their tree takes more than one answer."""
    host = Host()
    host.write(dict(ref(f"b{n}", A) for n in range(40)))
    return host


@pytest.fixture(scope="module")
def proofs(host: Host, tmp_path_factory: pytest.TempPathFactory) -> Proofs:
    folder = tmp_path_factory.mktemp("cache")
    context = Context(Settings(config_dir=folder, cache_dir=folder, plc_url=PLC))
    context.__dict__["client"] = client_for(host)
    return context.store(context.identify(Did(DID))).proofs


def read(proofs: Proofs) -> Signed:
    def begun() -> Archive:
        return begin(proofs, under(REF, KEY))

    return read_newest(proofs, Did(DID), of_repository(KEY, "notes", REF), begun, {})


def broken(data: bytes, step: int) -> Iterator[bytes]:
    for at in range(0, len(data), step):
        for flip in FLIPS:
            yield data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :]
        yield data[:at]
    yield data + b"\0"


def without_each_block(data: bytes, *, rooted: bool) -> Iterator[bytes]:
    root, blocks = read_car(data, limit=LIMIT) if rooted else (None, read_blocks(data, limit=LIMIT))
    for cid in blocks:
        left = {other: block for other, block in blocks.items() if other != cid}
        yield b"".join(write_car(root, left.items()))


def check(host: Host, proofs: Proofs, method: str, answers: Iterator[bytes]) -> int:
    """How many of the answers were refused; the others have to say what is so."""
    truth, refused = read(proofs), 0
    try:
        for answer in answers:
            host.bend[method] = lambda _, __, answer=answer: car(answer)  # type: ignore[misc] # bound
            try:
                assert read(proofs).entries == truth.entries
            except AtprotoError:
                refused += 1
    finally:
        host.bend.clear()
    return refused


def answer_of(host: Host, proofs: Proofs, method: str) -> bytes:
    said: list[bytes] = []

    def listen(_: httpx.Request, answer: httpx.Response) -> httpx.Response:
        said.append(answer.content)
        return answer

    host.bend[method] = listen
    read(proofs)
    host.bend.clear()
    return said[0]


@pytest.mark.parametrize(
    ("method", "step"),
    [
        ("sync.getRecord", 37),
        ("sync.getBlocks", 37),
        pytest.param("sync.getRecord", 1, marks=pytest.mark.slow),
        pytest.param("sync.getBlocks", 1, marks=pytest.mark.slow),
    ],
)
def test_bytes_that_are_changed_or_cut(host: Host, proofs: Proofs, method: str, step: int) -> None:
    data = answer_of(host, proofs, method)
    answers = list(broken(data, step))
    assert check(host, proofs, method, iter(answers)) >= 0.99 * len(answers)


@pytest.mark.parametrize("method", ["sync.getRecord", "sync.getBlocks"])
def test_blocks_that_are_left_out(host: Host, proofs: Proofs, method: str) -> None:
    """What a proof lacks is asked for by its hash, where it is not what was asked for."""
    data = answer_of(host, proofs, method)
    rooted = method == "sync.getRecord"
    answers = list(without_each_block(data, rooted=rooted))
    assert len(answers) > 1
    refused = check(host, proofs, method, iter(answers))
    assert refused == (1 if rooted else len(answers)), "the commit, or any"


def test_what_came_after_may_be_broken_too(host: Host, proofs: Proofs) -> None:
    rev = host.state.rev
    host.write(dict([ref("b3", "b" * 40, 2)]))
    truth = read(proofs)
    archive = proofs.since(rev, limit=LIMIT)
    data = b"".join(write_car(archive[0], archive[1].items()))
    refused = 0
    answers = list(broken(data, 37))
    for answer in answers:
        host.bend["sync.getRepo"] = lambda _, __, answer=answer: car(answer)  # type: ignore[misc] # bound

        def begun() -> Archive:
            return proofs.since(rev, limit=LIMIT)

        try:
            found = read_newest(proofs, Did(DID), of_repository(KEY, "notes", REF), begun, {})
            assert found.entries == truth.entries
        except AtprotoError:
            refused += 1
    host.bend.clear()
    assert refused >= 0.99 * len(answers)
