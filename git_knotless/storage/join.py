"""Many small packs as one: one `git index-pack` for a thousand pushes."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from git_knotless.storage.packfile import HEADER, TRAILER, BadPack, check_header, header
from git_knotless.storage.records import PackRecord
from git_knotless.storage.spool import Spool

_FANOUT = 8 + 256 * 4  # of a pack index, version 2: a magic number and 256 counts
_OID = 20


@dataclass(frozen=True, slots=True)
class Member:
    """Where the objects of one pack lie in the joined stream."""

    rkey: str
    objects: int
    offset: int
    size: int


class JoinedPacks:
    """Packs without their ends, one after another: deltas name their bases by distance or id.

    Each is whole by its own checksum before it is let in.
    """

    def __init__(self, directory: Path) -> None:
        self.members: list[Member] = []
        self._spool = Spool(directory)

    def add(self, pack: PackRecord, data: bytes) -> None:
        """Raises BadPack unless `data` is the pack that the record describes."""
        if len(data) != pack.size:
            raise BadPack(pack.rkey, f"it is {len(data)} bytes long, not {pack.size}")
        check_header(pack, data[:HEADER])
        body, trailer = data[HEADER:-TRAILER], data[-TRAILER:]
        if trailer.hex() != pack.checksum:
            raise BadPack(pack.rkey, "its checksum is not its record's")
        if hashlib.sha1(data[:-TRAILER], usedforsecurity=False).digest() != trailer:
            raise BadPack(pack.rkey, "its checksum is not that of its bytes")
        if pack.objects > len(body):  # else a few records could say more than a header can
            raise BadPack(pack.rkey, f"{len(body)} bytes hold no {pack.objects} objects")
        self.members.append(Member(pack.rkey, pack.objects, self._spool.size, len(body)))
        self._spool.append(body)

    def stream(self) -> Iterator[bytes]:
        """All of them as one pack."""
        return self._pack(sum(member.objects for member in self.members), 0, self._spool.size)

    def stream_of(self, member: Member) -> Iterator[bytes]:
        """One of them, as it came."""
        return self._pack(member.objects, member.offset, member.size)

    def close(self) -> None:
        self._spool.close()

    def _pack(self, objects: int, offset: int, size: int) -> Iterator[bytes]:
        head = header(objects)
        digest = hashlib.sha1(head, usedforsecurity=False)
        yield head
        for chunk in self._spool.chunks(offset, size):
            digest.update(chunk)
            yield chunk
        yield digest.digest()


def oids_in(index: Path) -> Iterator[bytes]:
    """The object ids of a pack in their order, from its index; twice what is in it twice."""
    with index.open("rb") as file:
        count = int.from_bytes(file.read(_FANOUT)[-4:], "big")
        for _ in range(count):
            yield file.read(_OID)
