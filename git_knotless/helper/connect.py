"""`stateless-connect git-upload-pack`: git is put through to a real upload pack of our own.

A list of refs and objects cannot say all that protocol v2 can: where HEAD of an empty repository
points (`unborn`), that history is to be cut off somewhere, and that some objects are to stay where
they are until they are needed. What is said then is in gitprotocol-v2(5), and in
gitremote-helpers(7) for the response-end packet.
"""

import re
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from typing import IO, BinaryIO, Protocol, Self

from git_knotless.helper.options import Options
from git_knotless.helper.protocol import BadCommand, GitGone
from git_knotless.storage.git import Git
from git_knotless.storage.refname import is_ref_name
from git_knotless.storage.snapshot import Snapshot

SERVICE = "git-upload-pack"
FLUSH = b"0000"
RESPONSE_END = b"0002"
_LENGTH = re.compile(rb"[0-9a-fA-F]{4}")
_WANT = re.compile(rb"....want ([0-9a-f]{40,64})\n?", re.DOTALL)
_IN_MEMORY = 1 << 20  # bytes of a request; one that asks for many objects has more
_CHUNK = 1 << 16


class Server(Protocol):
    """A server that keeps nothing from one request to the next."""

    def advertise(self) -> bytes: ...

    def answer(self, request: "Request") -> Iterator[bytes]: ...


def is_asked(options: Options) -> bool:
    """Whether git asks for less than everything."""
    return bool(options.cuts)


def is_partial(git: Git) -> bool:
    """Whether the repository that git is in lacks history, or content that it was promised.

    A list of refs waits for no git to say so.
    """
    inside = "GIT_DIR" in git.env  # git tells whom it runs
    return inside and (git.is_partial or (git.common_dir / "shallow").exists())


def is_empty(snapshot: Snapshot) -> bool:
    """Whether there is nothing to list, and a HEAD that can be told."""
    return not snapshot.live and is_ref_name(snapshot.repo.head)


def converse(stdin: BinaryIO, server: Server) -> Iterator[bytes]:
    """What to say, piece by piece, until git closes its end.

    A blank line says that git is put through. The advertisement has no response-end.
    """
    yield b"\n" + server.advertise()
    while (request := Request.read(stdin)) is not None:
        with request:
            yield from server.answer(request)
        yield RESPONSE_END


class Request:
    """The pkt-lines up to the flush that ends them, on disk where they are many."""

    def __init__(self, spool: IO[bytes]) -> None:
        self._spool = spool

    @classmethod
    def read(cls, stdin: BinaryIO) -> Self | None:
        """None at the end of the input; raises GitGone where that tears one."""
        packet = _read_packet(stdin)
        if not packet:
            return None
        with ExitStack() as stack:
            spool = stack.enter_context(tempfile.SpooledTemporaryFile(_IN_MEMORY))
            while packet:
                spool.write(packet)
                if packet == FLUSH:
                    stack.pop_all()  # closed with the request
                    return cls(spool)
                packet = _read_packet(stdin)
        raise GitGone

    def __iter__(self) -> Iterator[bytes]:
        self._spool.seek(0)
        return iter(lambda: self._spool.read(_CHUNK), b"")

    def wants(self) -> Iterator[str]:
        """The objects that it asks for by name; none of a request that is not a fetch's."""
        self._spool.seek(0)
        while packet := _read_packet(self._spool):
            if want := _WANT.fullmatch(packet):
                yield want[1].decode()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._spool.close()


def _read_packet(stream: IO[bytes]) -> bytes:
    head = stream.read(4)
    if len(head) == 4 and not _LENGTH.fullmatch(head):
        raise BadCommand("git sent a packet without a length")
    # Lengths count themselves; those below four are marks, which hold nothing.
    rest = max(int(head, 16) - 4, 0) if len(head) == 4 else 0
    packet = head + stream.read(rest)
    if head and len(packet) != 4 + rest:
        raise GitGone
    return packet
