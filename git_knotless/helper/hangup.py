"""git that is killed says nothing: what works on its answer is to end all the same."""

import os
import select
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ended_with_git() -> Iterator[None]:
    """SIGTERM to ourselves once nobody is left to read our stdout.

    For what the main thread does while git waits for an answer: when it has no more to ask, it
    closes its end before we have left.
    """
    stop, stopping = os.pipe()
    args = (sys.stdout.fileno(), stop, threading.get_ident())
    watcher = threading.Thread(target=_watch, args=args, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        os.close(stopping)
        watcher.join()
        os.close(stop)


def _watch(stdout: int, stop: int, worker: int) -> None:
    poll = select.poll()
    poll.register(stdout, 0)  # that it is broken is always told
    poll.register(stop, 0)
    if all(fd != stop for fd, _ in poll.poll()):
        # To the thread itself: it may be waiting for a host.
        signal.pthread_kill(worker, signal.SIGTERM)
