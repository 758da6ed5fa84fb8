"""CAR archives, version 1: a commit's CID as the one root, or none; then blocks, each with its CID.

https://ipld.io/specs/transport/car/carv1/
"""

from collections.abc import Iterable, Iterator

from git_knotless.atproto.dag_cbor import CID_LENGTH, CID_PREFIX, BadData, cid_of

# DAG-CBOR has one spelling of {"roots": [root], "version": 1}, so there is nothing to parse.
_BEFORE_ROOT = b"\x3a\xa2\x65roots\x81\xd8\x2a\x58\x25\x00"
_AFTER_ROOT = b"\x67version\x01"
_NO_ROOT = b"\x11\xa2\x65roots\x80" + _AFTER_ROOT
_LONGEST_VARINT = 5  # bytes: 35 bits, past any length that is read here


def read_car(data: bytes, *, limit: int) -> tuple[bytes, dict[bytes, bytes]]:
    """The root's CID, whose block need not be there, and the blocks by CID, each hashed.

    `limit`, in bytes, bounds time and memory. Only blocks of DAG-CBOR are taken.
    """
    _check_size(data, limit)
    at = len(_BEFORE_ROOT) + CID_LENGTH + len(_AFTER_ROOT)
    root = data[len(_BEFORE_ROOT) : len(_BEFORE_ROOT) + CID_LENGTH]
    if data[:at] != _header(root) or not root.startswith(CID_PREFIX):
        raise BadData("not a CAR of version 1 with one root")
    return root, _blocks(data, at)


def read_blocks(data: bytes, *, limit: int) -> dict[bytes, bytes]:
    """The same of an archive without a root."""
    _check_size(data, limit)
    if not data.startswith(_NO_ROOT):
        raise BadData("not a CAR of version 1 without a root")
    return _blocks(data, len(_NO_ROOT))


def write_car(root: bytes | None, blocks: Iterable[tuple[bytes, bytes]]) -> Iterator[bytes]:
    """`blocks` are pairs of CID and block, and go out in their order."""
    yield _NO_ROOT if root is None else _header(root)
    for cid, block in blocks:
        yield _varint(len(cid) + len(block)) + cid + block


def _check_size(data: bytes, limit: int) -> None:
    if len(data) > limit:
        raise BadData(f"a CAR of {len(data)} bytes: at most {limit} are read")


def _blocks(data: bytes, at: int) -> dict[bytes, bytes]:
    blocks: dict[bytes, bytes] = {}
    while at < len(data):
        size, at = _read_varint(data, at)
        if not CID_LENGTH <= size <= len(data) - at:
            raise BadData("a CAR with a section of a wrong length")
        cid, block = data[at : at + CID_LENGTH], data[at + CID_LENGTH : at + size]
        if cid_of(block) != cid:
            raise BadData("a CAR with a block that does not hash to its CID")
        blocks[cid] = block
        at += size
    return blocks


def _header(root: bytes) -> bytes:
    return _BEFORE_ROOT + root + _AFTER_ROOT


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at `at`, which is spelt as shortly as can be, and where it ends."""
    number = 0
    for index, byte in enumerate(data[at : at + _LONGEST_VARINT]):
        number |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            if not byte and index:
                break
            return number, at + index + 1
    raise BadData("a CAR with a malformed varint")
