"""Indexes of packs, version 2: gitformat-pack(5)."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import BinaryIO

from git_knotless.storage.child import GitError

_MAGIC = b"\xfftOc\0\0\0\2"
_FANOUT = 256 * 4  # 256 counts come next: of the ids whose first byte is at most so much
_NAMES = len(_MAGIC) + _FANOUT
_OID = 20
_CRC, _NEAR, _FAR = 4, 4, 8  # of each object, between and after the names
_IS_FAR = 1 << 31


def oids_in(index: Path) -> Iterator[bytes]:
    """The object ids of a pack in their order; twice what is in it twice."""
    with index.open("rb") as file:
        count = _fanout(file)[-1]
        for _ in range(count):
            yield _whole(file.read(_OID))


def held(index: Path, oids: Iterable[str]) -> list[str]:
    """Those of `oids` that are in the pack."""
    with index.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as names:
        counts = _fanout(file)
        _whole(names[_at(counts[-1] - 1) : _at(counts[-1])] if counts[-1] else bytes(_OID))
        return [oid for oid in oids if _finds(names, counts, bytes.fromhex(oid))]


def _finds(names: mmap, counts: Sequence[int], oid: bytes) -> bool:
    first, end = (counts[oid[0] - 1] if oid[0] else 0), counts[oid[0]]
    places = range(first, end)
    at = bisect_left(places, oid, key=lambda place: names[_at(place) : _at(place + 1)])
    return at < len(places) and names[_at(first + at) : _at(first + at + 1)] == oid


def _at(place: int) -> int:
    return _NAMES + place * _OID


def _fanout(file: BinaryIO) -> list[int]:
    magic, counts = file.read(len(_MAGIC)), file.read(_FANOUT)
    if magic != _MAGIC or len(counts) != _FANOUT:
        raise GitError("git index-pack made no index that is known here")
    return [int.from_bytes(counts[at : at + 4], "big") for at in range(0, _FANOUT, 4)]


def _whole(oid: bytes) -> bytes:
    if len(oid) != _OID:
        raise GitError("git index-pack made an index that is cut short")
    return oid


def placed(index: Path) -> Iterator[tuple[int, bytes]]:
    """Where in the pack each object lies, and its id, in the order of the pack."""
    with index.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
        count = _fanout(file)[-1]
        offsets = _offsets(data, count)
        for place in sorted(range(count), key=offsets.__getitem__):
            yield offsets[place], _whole(data[_at(place) : _at(place + 1)])


def _offsets(data: mmap, count: int) -> Sequence[int]:
    """Those from 2 GiB on stand in a table of their own, behind the others'."""
    begin = _at(count) + count * _CRC
    far = begin + count * _NEAR
    near = [int.from_bytes(data[at : at + _NEAR], "big") for at in range(begin, far, _NEAR)]
    if len(near) != count:
        raise GitError("git index-pack made an index that is cut short")
    places = (far + (offset & ~_IS_FAR) * _FAR for offset in near)
    return [
        int.from_bytes(data[place : place + _FAR], "big") if offset & _IS_FAR else offset
        for offset, place in zip(near, places, strict=True)
    ]
