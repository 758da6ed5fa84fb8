"""Work that is done while other work is."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

Answer = TypeVar("Answer")


class Beside(Generic[Answer]):
    """Begun at once. Nobody has to wait for it: what it asks for ends with the client."""

    def __init__(self, work: Callable[[], Answer]) -> None:
        pool = ThreadPoolExecutor(1, "beside")
        self._begun = pool.submit(work)
        pool.shutdown(wait=False)

    def result(self) -> Answer:
        """Raises what the work has raised."""
        return self._begun.result()
