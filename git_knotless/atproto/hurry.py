"""Asking as somebody does who looks at many things, and would rather know than wait."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from git_knotless.atproto.errors import AtprotoError, HostTimeout, NotAsked
from git_knotless.atproto.guard import Guard
from git_knotless.atproto.hosts import host_of, origin_of
from git_knotless.atproto.retry import takes_time
from git_knotless.atproto.transport import Answer, Transport


class HurriedTransport(Transport):
    """Asks no host again that has once kept us waiting, or has asked us to wait."""

    def __init__(
        self, inner: httpx.BaseTransport | None = None, *, guard: Guard | None = None
    ) -> None:
        super().__init__(inner, guard=guard)
        self.hurried = True
        self._slow: dict[str, str] = {}  # by origin, what it did

    @contextmanager
    def exchange(self, method: str, url: str, **options: Any) -> Iterator[Answer]:
        origin = origin_of(url)
        if self.hurried:
            if (did := self._slow.get(origin)) is not None:
                raise NotAsked(f"{host_of(origin)} is not asked again: it {did}")
            options["answer_within"] = None
        try:
            with super().exchange(method, url, **options) as answer:
                yield answer
        except AtprotoError as error:
            if takes_time(error):
                late = isinstance(error, HostTimeout)
                self._slow[origin] = "did not answer in time" if late else "asks us to wait"
            raise
