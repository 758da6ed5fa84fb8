"""Many small packs as one: one `git index-pack` for a thousand pushes."""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from git_knotless.storage.packs.packfile import HEADER, TRAILER, BadPack, check_header, header
from git_knotless.storage.packs.packrecord import PackRecord
from git_knotless.storage.packs.spool import Spool
from git_knotless.value import value


@value
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
        self.members.append(Member(pack.rkey, pack.objects, self._spool.size, len(body)))
        self._spool.append(body)

    def stream(self, members: Sequence[Member]) -> Iterator[bytes]:
        """`members`, which came one after another, as one pack; one alone is as it came."""
        objects = sum(member.objects for member in members)
        return self._pack(objects, members[0].offset, sum(member.size for member in members))

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
