"""Archives and blocks: what is written is read, and what is not an archive is refused in time."""

from collections.abc import Iterator
from time import perf_counter
from typing import Any

import pytest
from cbrrr import CID, encode_dag_cbor
from hypothesis import given, settings
from hypothesis import strategies as st

from git_knotless.atproto import dag_cbor
from git_knotless.atproto.car import read_car, write_car
from git_knotless.atproto.dag_cbor import BadData, Link, cid_of, cid_text

LIMIT = 1_000_000
ROOT = cid_of(b"root")
HEADER = b"".join(write_car(ROOT, []))


def section(block: bytes, cid: bytes | None = None) -> bytes:
    return b"".join(write_car(ROOT, [(cid or cid_of(block), block)]))[len(HEADER) :]


def test_an_archive_by_the_letter() -> None:
    header = encode_dag_cbor({"version": 1, "roots": [CID(ROOT)]})
    block = b"\xa0"
    expected = bytes([len(header)]) + header + b"\x25" + cid_of(block) + block
    assert b"".join(write_car(ROOT, [(cid_of(block), block)])) == expected
    assert read_car(expected, limit=LIMIT) == (ROOT, {cid_of(block): block})


@given(st.lists(st.binary(max_size=300) | st.integers(0, 1 << 15).map(bytes), max_size=6))
@settings(deadline=None)
def test_what_is_written_is_read(blocks: list[bytes]) -> None:
    by_cid = {cid_of(block): block for block in blocks}
    car = b"".join(write_car(ROOT, by_cid.items()))
    assert read_car(car, limit=len(car)) == (ROOT, by_cid)
    with pytest.raises(BadData, match="at most"):
        read_car(car, limit=len(car) - 1)


def refused() -> Iterator[tuple[str, bytes]]:
    one = section(b"\xa0")
    raw = b"\x01\x55\x12\x20"  # a blob's codec
    header = HEADER[1:]
    yield "nothing", b""
    yield "a header cut short", HEADER[:-1]
    yield "another version", HEADER[:-1] + b"\x02"
    yield "a header of two roots", two_roots()
    yield "a header of no root", car_header({"version": 1, "roots": []})
    yield "a header with more", car_header({"version": 1, "roots": [CID(ROOT)], "x": 1})
    yield "a header not minimal", b"\xba\x00" + header
    yield "a root of another codec", HEADER.replace(ROOT[:4], raw)
    yield "a section cut short", HEADER + one[:-1]
    yield "a varint cut short", HEADER + one + b"\xa5"
    yield "a section of no length", HEADER + b"\x00"
    yield "a section shorter than a CID", HEADER + b"\x23" + one[1:-2]
    yield "a length not minimal", HEADER + b"\xa5\x00" + one[1:]
    yield "a length past the end", HEADER + b"\x26" + one[1:]
    yield "a huge length", HEADER + b"\xff" * 4 + b"\x0f" + one[1:]
    yield "an endless varint", HEADER + b"\xff" * 1000
    yield "another block", HEADER + section(b"\xa0", cid_of(b"\xa1"))
    yield "another codec", HEADER + section(b"\xa0", raw + cid_of(b"\xa0")[4:])
    yield "another hash", HEADER + section(b"\xa0", b"\x01\x71\x13\x20" + cid_of(b"\xa0")[4:])


def car_header(value: Any) -> bytes:
    header = encode_dag_cbor(value)
    return bytes([len(header)]) + header


def two_roots() -> bytes:
    return car_header({"version": 1, "roots": [CID(ROOT), CID(ROOT)]})


@pytest.mark.parametrize("car", [pytest.param(car, id=what) for what, car in refused()])
def test_what_is_no_archive(car: bytes) -> None:
    with pytest.raises(BadData):
        read_car(car, limit=LIMIT)


@given(st.binary(max_size=200) | st.binary(max_size=200).map(HEADER.__add__))
@settings(deadline=None)
def test_no_bytes_do_worse_than_be_refused(data: bytes) -> None:
    try:
        root, blocks = read_car(data, limit=LIMIT)
    except BadData:
        return
    assert b"".join(write_car(root, blocks.items())) == data


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.text(max_size=10)
    | st.binary(max_size=10)
    | st.binary(max_size=40).map(Link),
    lambda values: (
        st.lists(values, max_size=4) | st.dictionaries(st.text(max_size=5), values, max_size=4)
    ),
    max_leaves=20,
)


@given(VALUES)
@settings(deadline=None)
def test_a_value_has_one_block(value: Any) -> None:
    block = dag_cbor.encode(value)
    assert dag_cbor.decode(block) == value
    assert dag_cbor.encode(dag_cbor.decode(block)) == block


@given(VALUES, st.data())
@settings(deadline=None)
def test_a_block_has_one_value(value: Any, data: st.DataObject) -> None:
    block = dag_cbor.encode(value)
    at = data.draw(st.integers(0, len(block)))
    block = (
        block[:at] + data.draw(st.binary(max_size=3)) + block[at + data.draw(st.integers(0, 2)) :]
    )
    try:
        decoded = dag_cbor.decode(block)
    except BadData:
        return
    assert dag_cbor.encode(decoded) == block


def test_json_has_links_and_bytes_by_name() -> None:
    cid = cid_of(b"x")
    value = {"a": [Link(cid), b"\xff\xfe\xfd\xfc"], "$link": "kept", "n": None, "t": True, "i": -3}
    expected = {**value, "a": [{"$link": cid_text(cid)}, {"$bytes": "//79/A"}]}
    assert dag_cbor.to_json(dag_cbor.decode(dag_cbor.encode(value))) == expected
    with pytest.raises(BadData, match="float"):
        dag_cbor.to_json({"a": [1.5]})


def nested(announced: int) -> bytes:
    """Arrays in arrays, each of which announces as many items as there are bytes left."""
    return b"".join(
        b"\x9a" + (announced - 5 * at).to_bytes(4, "big") for at in range(1, announced // 10)
    ) + bytes(announced // 2)


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"\xff",
        b"\x18",
        b"\x1f",
        b"\x9f\xff",  # of no stated length
        b"\x00\x00",
        b"\x18\x01",  # not minimal
        b"\x61\xff",  # not UTF-8
        b"\xa1\x01\x02",  # a key that is no text
        b"\xa2\x61b\x01\x61a\x02",  # keys out of order
        b"\xa2\x61a\x01\x61a\x02",
        b"\xf7",
        b"\xf9\x00\x00",
        b"\xfb\x7f\xf8" + bytes(6),
        b"\xc1\x00",
        b"\xd8\x2a\x40",
        b"\xd8\x2a\x41\x01",
        b"\x9b" + b"\xff" * 8,
        b"\xbb" + b"\xff" * 8,
        b"\x5b" + b"\xff" * 8,
        b"\x7b\x7f" + b"\xff" * 7,
        b"\x9a\xff\xff\xff\xff" + bytes(1000),
        b"\xba\x00\x00\x03\x00" + bytes(1000),
        b"\x81" * LIMIT,
        b"\xa1\x61a" * (LIMIT // 3),
        b"\xd8\x2a" * (LIMIT // 2),
        nested(LIMIT),
    ],
    ids=lambda block: f"{len(block)}-{block[:6].hex()}",
)
def test_what_is_no_block_is_refused_at_once(block: bytes) -> None:
    started = perf_counter()
    with pytest.raises(BadData):
        dag_cbor.decode(block)
    assert perf_counter() - started < 5  # a decoder that believes what is announced takes minutes


def test_a_value_that_nests_deeper_than_any_record_is_refused() -> None:
    for deep in (b"\x81" * 100_000 + b"\x80", b"\xa1\x61a" * 100_000 + b"\xa0"):
        value = dag_cbor.decode(deep)
        with pytest.raises(BadData, match="nests deeper"):
            dag_cbor.to_json(value)
