"""The two ends of a git pack: `PACK`, a version and a count; and a SHA-1 of all before it."""

import struct
from collections.abc import Iterable, Iterator

from git_knotless.errors import KnotlessError
from git_knotless.storage.packs.packrecord import PackRecord

HEADER = 12  # bytes
TRAILER = 20

_HEADER = struct.Struct(">4sLL")


def header(objects: int) -> bytes:
    return _HEADER.pack(b"PACK", 2, objects)


def objects_in(head: bytes) -> int | None:
    """How many objects a pack with this header holds; None where it is not a pack's, or not v2."""
    if len(head) != HEADER:
        return None
    magic, version, objects = _HEADER.unpack(head)
    return int(objects) if (magic, version) == (b"PACK", 2) else None


class BadPack(KnotlessError):
    """What the host gave for a pack is not that pack, or no pack that git takes."""

    def __init__(self, rkey: str, why: str, source: str = "") -> None:
        self.rkey = rkey
        self.why = why
        super().__init__(f"{source}: pack {rkey}: {why}" if source else f"pack {rkey}: {why}")

    def said_by(self, source: str) -> "BadPack":
        """The same, with who had it: an account, or the repository's address."""
        return BadPack(self.rkey, self.why, source)


def checked(pack: PackRecord, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """A pack as it streams in, if header and trailer are what the record says.

    The trailer comes last, once everything else has been looked at: without it nothing that
    was passed on is a pack.
    """
    held, begun = b"", False
    for chunk in chunks:
        held += chunk
        if not begun and len(held) >= HEADER:
            check_header(pack, held[:HEADER])
            begun = True
        if begun and len(held) > TRAILER:
            yield held[:-TRAILER]
            held = held[-TRAILER:]
    if held.hex() != pack.checksum:
        raise BadPack(pack.rkey, "its checksum is not its record's")
    yield held


def check_header(pack: PackRecord, head: bytes) -> None:
    if objects_in(head) != pack.objects:
        raise BadPack(pack.rkey, f"it does not begin as a pack of {pack.objects} objects")
