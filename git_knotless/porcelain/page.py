"""The page that a person is to see, and the address that it ends at, where they bring that back.

It ends at a listener on this machine. A browser on another one cannot reach that; its address,
pasted here, is handed to the listener as a browser would have done it.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Event, Thread
from urllib.parse import urlsplit

from git_knotless.atproto.callback import WAIT_SECONDS
from git_knotless.atproto.hosts import host_of, origin_of
from git_knotless.porcelain import browser
from git_knotless.porcelain.output import say

_LONGEST_LINE = 1 << 16  # bytes; a terminal gives 4096 at most
_SECONDS = 10.0
_SILENT_SECONDS = 5.0  # a browser that opens shows its page sooner
_WAITS = f"waiting for the answer, up to {WAIT_SECONDS / 60:.0f} minutes; Ctrl-C ends it"
_STDIN = 0  # read without Python's buffer, whose lock would outlive us


@contextmanager
def show(
    url: str, ends_at: str, command: Sequence[str] | None, *, on_purpose: bool
) -> Iterator[None]:
    """For as long as the page is waited for; without a `command` it is opened by the person."""
    over = Event()  # or all is said that a person needs
    if command is None:
        if not on_purpose:
            say("there is no screen here to open a browser on")
        _ask_to_open(url)
        Thread(target=_take_pasted, args=(ends_at, over), daemon=True).start()
    else:
        say(f"opening {host_of(origin_of(url))} in your browser…")
        browser.open_page(command, url, os.environ, lambda: _say_failed(url, over))
        Thread(target=_say_waiting, args=(url, over), daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _ask_to_open(url: str) -> None:
    say("open this address in a browser, on any machine:")
    _say_address(url)
    say("the page it ends at cannot be shown on another machine; paste that one's address here")
    say(_WAITS)


def _say_failed(url: str, over: Event) -> None:
    if not over.is_set():
        over.set()
        say("the browser could not be started; open this address yourself:")
        _say_address(url)
        say(_WAITS)


def _say_waiting(url: str, over: Event) -> None:
    """What could not be started may have ended as if it could."""
    if not over.wait(_SILENT_SECONDS):
        over.set()
        say("no answer yet; if no page has opened, open this address yourself:")
        _say_address(url)
        say(_WAITS)


def _say_address(url: str) -> None:
    say("")
    say(f"    {url}")
    say("")


def _take_pasted(ends_at: str, over: Event) -> None:
    for line in _lines():
        if _handed_over(line, ends_at) or over.is_set():
            return
        say(f"that is not it: the address of this login begins with {ends_at}?")


def _lines() -> Iterator[str]:
    """What is typed or piped in, but for empty lines, until there is no more or it is no text."""
    held = b""
    with suppress(OSError):
        while len(held) <= _LONGEST_LINE and (read := os.read(_STDIN, 4096)):
            *whole, held = (held + read).split(b"\n")
            yield from filter(None, (line.decode(errors="replace").strip() for line in whole))
    if last := held.decode(errors="replace").strip():
        yield last


def _handed_over(pasted: str, ends_at: str) -> bool:
    """Whether the listener takes it. Nothing but its query goes anywhere, and that only there."""
    from http.client import HTTPConnection, HTTPException

    place, query = urlsplit(ends_at), pasted.removeprefix(f"{ends_at}?")
    if query == pasted or not query.isascii():
        return False
    connection = HTTPConnection(place.hostname or "", place.port, timeout=_SECONDS)
    try:
        connection.request("GET", f"{place.path}?{query}")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
