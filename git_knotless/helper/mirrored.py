"""What git is put through to: an upload pack, on a mirror that holds all of the repository.

The mirror is brought up once git asks for more than it holds. In a partial clone most runs of ours
are for a few objects that are needed now, by their ids: where it has them, nobody else is asked.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, Self

from git_knotless.atproto.syntax import Did
from git_knotless.helper.connect import Request
from git_knotless.helper.hangup import ended_with_git
from git_knotless.helper.options import Options
from git_knotless.helper.stderr import looking, note, progress, warn
from git_knotless.storage.git import Git, GitError
from git_knotless.storage.mirrors.mirror import Mirror
from git_knotless.storage.mirrors.mirrors import Mirrors
from git_knotless.storage.mirrors.upload_pack import upload_pack
from git_knotless.storage.packs.bare import Refs, git_in
from git_knotless.storage.snapshot import Snapshot

if TYPE_CHECKING:
    from git_knotless.helper.service import Reading


class Mirrored:
    """A `Server` for the repository that `read` reads: at once, or as soon as that is needed.

    `place` is the account and the key of what was read the last time, where git is to ask for
    objects by their ids, which are the same at any time. `brought` is told of what is read, and
    given the mirror that has it.
    """

    def __init__(
        self,
        mirrors: Mirrors,
        options: Options,
        env: Mapping[str, str],
        read: "Callable[[], Reading]",
        place: tuple[Did, str] | None,
        brought: Callable[[Git, Snapshot], None],
    ) -> None:
        self._mirrors = mirrors
        self._options = options
        self._read = read
        self._env = env
        self._place = place
        self._brought = brought
        self._stack = ExitStack()
        self._mirror: Mirror | None = None
        self._is_current = False

    def __enter__(self) -> Self:
        with self._stack:
            self._server = self._stack.enter_context(upload_pack(self._env))
            if self._place is not None:
                self._mirror = self._use(*self._place)
            self._stack = self._stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def advertise(self) -> bytes:
        """What is wrong is better said now than in the middle of the conversation."""
        if self._mirror is None:
            self._bring_up()
        return self._server.advertise()

    def answer(self, request: Request) -> Iterator[bytes]:
        if not self._is_current and not self._holds(request):
            self._bring_up()
        try:
            with ended_with_git():
                yield from self._server.answer(request)
        except GitError:
            if self._mirror is not None:
                self._mirror.doubt()
            raise

    def _holds(self, request: Request) -> bool:
        wants = request.wants()
        first = next(wants, None)
        if first is None or self._mirror is None:
            return False
        return self._mirror.has(chain([first], wants))

    def _bring_up(self) -> None:
        with looking(self._options):
            reading = self._read()
        snapshot, store = reading.snapshot, reading.repository.store
        self._server.show(Refs.of(snapshot.repo.head, snapshot.live))
        if snapshot.live:
            self._mirror = self._use(store.did, snapshot.repo.key)
            with ended_with_git():
                left_out = self._mirror.sync(
                    store,
                    snapshot,
                    progress=progress(self._options),
                    source=str(reading.repository.url),
                    waiting=self._wait,
                )
            if left_out is not None:
                self._mirrors.trim()
            for line in left_out or ():
                warn(line)
            self._brought(git_in(self._mirror.path, self._env), snapshot)
        self._is_current = True

    def _use(self, did: Did, key: str) -> Mirror:
        mirror = self._stack.enter_context(self._mirrors.of(did, key))
        self._server.use(mirror.objects)
        return mirror

    def _wait(self) -> None:
        if self._options.shows_progress:
            note("another git is fetching the same repository: waiting for it")
