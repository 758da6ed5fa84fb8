"""The browser that a person logs in with: theirs, or the system's.

It is started in a session of its own, with none of our streams: what it prints is not shown, it
cannot ask on our terminal, and Ctrl-C here does not end it.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from threading import Thread

from git_knotless.errors import KnotlessError

_PLACE = "%s"
# -I: no module of the folder that we happen to be in.
_SYSTEMS = (
    sys.executable,
    "-I",
    "-c",
    "import sys, webbrowser; sys.exit(not webbrowser.open(sys.argv[1]))",
)
# What says that there is a screen, or which browser serves where there is none.
_SCREEN = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


class NoSuchBrowser(KnotlessError):
    """The setting names a command that is not there."""


def find(configured: Sequence[str], env: Mapping[str, str]) -> tuple[str, ...] | None:
    """The command line that opens a page; None on a machine without a screen."""
    if configured:
        return _checked(configured, env)
    has_screen = sys.platform == "darwin" or any(env.get(name) for name in _SCREEN)
    return _SYSTEMS if has_screen else None


def open_page(
    command: Sequence[str], url: str, env: Mapping[str, str], failed: Callable[[], None]
) -> None:
    """Start it and go on; `failed` is called, from another thread, if it could not do it."""
    words = [word.replace(_PLACE, url) for word in command]
    if words == list(command):
        words.append(url)
    try:
        process = subprocess.Popen(
            words,
            env={name: value for name, value in env.items() if name != "TERM"},  # no text browser
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        failed()
        return
    # A daemon: the browser may well outlive us.
    Thread(target=_watch, args=(process, failed), daemon=True).start()


def _watch(process: "subprocess.Popen[bytes]", failed: Callable[[], None]) -> None:
    if process.wait() != 0:
        failed()


def _checked(command: Sequence[str], env: Mapping[str, str]) -> tuple[str, ...]:
    program = shutil.which(command[0], path=env.get("PATH"))
    if program is None:
        raise NoSuchBrowser(
            f"KNOTLESS_BROWSER or knotless.browser names no command: {command[0]!r}",
            hint="set it to one that there is, or log in with --no-browser",
        )
    return (program, *command[1:])
