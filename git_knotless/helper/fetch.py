"""`fetch`: what git hears once the objects are here."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from git_knotless.helper.options import Options

_EVERYTHING = "everything is fetched"
_AS_SHALLOW = "history stays cut off where it is (git fetch --unshallow)"


def lines(keeps: Sequence[Path], *, connected: bool, options: Options) -> Iterator[str]:
    """git takes one `lock` line, and removes that file; it warns of every further one.

    A path that is not one plain line cannot be told. git also warns of a `connectivity-ok` that
    it did not ask for.
    """
    if keeps and str(keeps[0]).isprintable():
        yield f"lock {keeps[0]}"
    if connected and options.check_connectivity:
        yield "connectivity-ok"


def not_honoured(options: Options, *, is_shallow: Callable[[], bool]) -> Iterator[str]:
    """git says nothing of it. Only protocol v2 is put through to what could (connect.py)."""
    for cut in options.cuts:
        comes = _AS_SHALLOW if cut != "--filter" and is_shallow() else _EVERYTHING
        yield f"{cut} is not honoured without protocol version 2 (protocol.version): {comes}"
