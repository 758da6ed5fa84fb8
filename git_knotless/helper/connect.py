"""`stateless-connect git-upload-pack`, for a repository that has no refs.

A list without refs cannot say where HEAD points; protocol v2 can (`unborn`). So git is put
through to a real, empty repository whose HEAD is the default branch. What is said then is in
gitprotocol-v2(5), and in gitremote-helpers(7) for the response-end packet.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol

from git_knotless.helper.protocol import BadCommand, GitGone
from git_knotless.storage.git import Git
from git_knotless.storage.refname import BRANCHES, is_ref_name
from git_knotless.storage.snapshot import Snapshot
from git_knotless.value import value

SERVICE = "git-upload-pack"
FLUSH = b"0000"
RESPONSE_END = b"0002"
_LENGTH = re.compile(rb"[0-9a-fA-F]{4}")


class UploadPack(Protocol):
    """A server that keeps nothing from one request to the next."""

    def advertise(self) -> bytes: ...

    def answer(self, request: bytes) -> bytes: ...


def is_served(snapshot: Snapshot) -> bool:
    """The same for as long as the snapshot is: git asks again before it fetches."""
    return not snapshot.live and is_ref_name(snapshot.repo.head)


def converse(stdin: BinaryIO, server: UploadPack) -> Iterator[bytes]:
    """What to say, piece by piece, until git closes its end.

    A blank line says that git is put through. The advertisement has no response-end.
    """
    yield b"\n" + server.advertise()
    while request := read_request(stdin):
        yield server.answer(request) + RESPONSE_END


def read_request(stdin: BinaryIO) -> bytes:
    """The pkt-lines up to the flush that ends them; empty at the end of the input."""
    packets: list[bytes] = []
    while packet := _read_packet(stdin):
        packets.append(packet)
        if packet == FLUSH:
            return b"".join(packets)
    if packets:
        raise GitGone
    return b""


def _read_packet(stdin: BinaryIO) -> bytes:
    head = stdin.read(4)
    if len(head) == 4 and not _LENGTH.fullmatch(head):
        raise BadCommand("git sent a packet without a length")
    # Lengths count themselves; those below four are marks, which hold nothing.
    rest = max(int(head, 16) - 4, 0) if len(head) == 4 else 0
    packet = head + stdin.read(rest)
    if head and len(packet) != 4 + rest:
        raise GitGone
    return packet


@value
class EmptyRepository:
    """`git upload-pack` on a repository that holds nothing."""

    git: Git
    directory: Path

    def advertise(self) -> bytes:
        return self._upload_pack("--advertise-refs")

    def answer(self, request: bytes) -> bytes:
        return self._upload_pack(request=request)

    def _upload_pack(self, *options: str, request: bytes = b"") -> bytes:
        directory = str(self.directory)
        return self.git.run("upload-pack", "--stateless-rpc", *options, directory, input=request)


@contextmanager
def empty_repository(ref: str, env: Mapping[str, str]) -> Iterator[EmptyRepository]:
    """Its HEAD is `ref`. Nothing of the user's git counts in it: no config, template or hook."""
    import tempfile  # 8 ms, for repositories that have nothing yet

    with tempfile.TemporaryDirectory(prefix="knotless-") as name:
        git = Git(None, env=_plain(env))
        branch = ref.removeprefix(BRANCHES)
        made = ("--bare", "--object-format=sha1", "--template=", f"--initial-branch={branch}")
        git.run("init", "--quiet", *made, name)
        yield EmptyRepository(git, Path(name))


def _plain(env: Mapping[str, str]) -> dict[str, str]:
    kept = {name: text for name, text in env.items() if not name.startswith("GIT_")}
    kept |= {name: env[name] for name in ("GIT_EXEC_PATH",) if name in env}
    kept |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"}
    return kept | {"GIT_PROTOCOL": "version=2"}
