"""Uploads and downloads side by side."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import Self, TypeVar

# More gain little on one connection to one host, and each may hold a part on disk.
SIDE_BY_SIDE = 4

Item = TypeVar("Item")
Result = TypeVar("Result")


class Transfers:
    """At most SIDE_BY_SIDE at a time. Leaving it calls off what still runs, and waits for none.

    What runs is to call `check` at every chunk.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(SIDE_BY_SIDE, "transfer")
        self._left = threading.Event()

    def submit(self, transfer: Callable[[], Result]) -> Future[Result]:
        return self._pool.submit(transfer)

    def map(self, transfer: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """The results in the order of `items`.

        No more than SIDE_BY_SIDE are begun before the first is wanted: what has come in takes
        room. One that fails is told of at once, whatever is still waited for.
        """
        begun: deque[Future[Result]] = deque()
        for item in items:
            begun.append(self._pool.submit(transfer, item))
            if len(begun) == SIDE_BY_SIDE:
                yield _first(begun)
        while begun:
            yield _first(begun)

    def check(self) -> None:
        """Raises CancelledError once nobody waits for the transfer any more."""
        if self._left.is_set():
            raise CancelledError

    def close(self) -> None:
        self._left.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _first(begun: deque[Future[Result]]) -> Result:
    while True:
        done = {future: future.result() for future in begun if future.done()}
        if begun[0] in done:
            return done[begun.popleft()]
        wait([future for future in begun if future not in done], return_when=FIRST_COMPLETED)
