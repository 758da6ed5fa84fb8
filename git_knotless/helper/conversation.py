"""The helper's side of the conversation: two streams, and a service that does the work.

Whatever a command is answered with is complete before its first byte is written, so that an
error leaves nothing half said.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

from git_knotless.helper import connect, fetch, listing, protocol
from git_knotless.helper.options import Options, set_option
from git_knotless.helper.stderr import looking
from git_knotless.storage.snapshot import Snapshot

if TYPE_CHECKING:  # most runs push nothing, and wait for none of this
    from git_knotless.storage.pushing.updates import Outcome, Update

CAPABILITIES = (
    "option",
    "fetch",
    "push",
    "check-connectivity",
    "object-format",
    "stateless-connect",
)


class Fetched(Protocol):
    """Objects that have come in: what keeps them from being pruned, and whether all are here.

    `left_out` has a few lines on records that could not be read.
    """

    @property
    def keeps(self) -> Sequence[Path]: ...

    @property
    def connected(self) -> bool: ...

    @property
    def left_out(self) -> Sequence[str]: ...


class Service(Protocol):
    """What the helper does; every method raises KnotlessError where it cannot."""

    def snapshot(self, *, for_push: bool) -> Snapshot:
        """One reading for all commands of a run; before a push, one of the account as it is."""
        ...

    def fetch(self, wants: Sequence[str], options: Options) -> Fetched: ...

    def is_shallow(self) -> bool:
        """Whether history is cut off in the local repository."""
        ...

    def is_partial(self) -> bool:
        """Whether that is so, or content is missing there until it is needed."""
        ...

    def resolve(self, sources: Sequence[str]) -> Mapping[str, str | None]:
        """The object id of each revision of the local repository; None for one it has not."""
        ...

    def push(self, updates: "Sequence[Update]", options: Options) -> "Sequence[Outcome]": ...

    def upload_pack(self, options: Options) -> AbstractContextManager[connect.Server]:
        """What git is put through to, for as long as it asks."""
        ...

    def warn(self, text: str) -> None:
        """One line for the person."""
        ...


class Conversation:
    def __init__(self, stdin: BinaryIO, stdout: BinaryIO, service: Service) -> None:
        self._stdin = stdin
        self._stdout = stdout
        self._service = service
        self._options = Options()
        self._warned: set[str] = set()
        self._is_direct = False

    def run(self) -> None:
        """Until git has no more to ask; raises KnotlessError, and GitGone where it has left."""
        while (command := protocol.read_command(self._stdin)) is not None:
            match command:
                case protocol.Capabilities():
                    self._answer(CAPABILITIES)
                case protocol.Option(name, value):
                    self._option(name, value)
                case protocol.List():
                    self._list(command)
                case protocol.Fetch(wants):
                    self._fetch(wants)
                case protocol.Push(refspecs):
                    self._push(refspecs)
                case protocol.Connect(service):
                    if self._connect(service):
                        return

    def _option(self, name: str, value: str) -> None:
        answer = set_option(self._options, name, value)
        self._options = answer.options
        self._warn(() if answer.warning is None else (answer.warning,))
        self._write(f"{answer.reply}\n".encode())

    def _list(self, command: protocol.List) -> None:
        snapshot = self._snapshot(for_push=command.for_push)
        self._warn(listing.left_out(snapshot))
        self._answer(listing.lines(snapshot, command, self._options))

    def _fetch(self, wants: Sequence[str]) -> None:
        self._warn(fetch.not_honoured(self._options, is_shallow=self._service.is_shallow))
        fetched = self._service.fetch(wants, self._options)
        self._warn(fetched.left_out)
        self._answer(fetch.lines(fetched.keeps, connected=fetched.connected, options=self._options))

    def _push(self, refspecs: Sequence[protocol.Refspec]) -> None:
        from git_knotless.helper import push

        updates = push.updates(refspecs, self._options, self._service.resolve)
        self._answer(push.lines(self._service.push(updates, self._options)))

    def _connect(self, service: str) -> bool:
        """Whether git was put through; then it has nothing more to ask here."""
        if service != connect.SERVICE or not self._is_served():
            self._write(b"fallback\n")
            return False
        with self._service.upload_pack(self._options) as server:
            for said in connect.converse(self._stdin, server):
                self._write(said)
        return True

    def _is_served(self) -> bool:
        """git that was sent away asks again before it fetches, and is told the same."""
        self._is_direct = self._is_direct or not (
            connect.is_asked(self._options)
            or self._service.is_partial()
            or connect.is_empty(self._snapshot(for_push=False))
        )
        return not self._is_direct

    def _snapshot(self, *, for_push: bool) -> Snapshot:
        with looking(self._options):
            return self._service.snapshot(for_push=for_push)

    def _answer(self, lines: Iterable[str]) -> None:
        text = "".join(f"{line}\n" for line in lines)
        self._write(f"{text}\n".encode("utf-8", "surrogateescape"))

    def _write(self, said: bytes) -> None:
        try:
            self._stdout.write(said)
            self._stdout.flush()
        except BrokenPipeError as error:
            raise protocol.GitGone from error

    def _warn(self, warnings: Iterable[str]) -> None:
        """Each once: git sets some options twice, and lists twice."""
        for warning in warnings:
            if warning not in self._warned:
                self._warned.add(warning)
                self._service.warn(warning)
