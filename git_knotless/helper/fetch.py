"""`fetch`: what git hears once the objects are here."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from git_knotless.helper.options import Options


def lines(keeps: Sequence[Path], *, connected: bool, options: Options) -> Iterator[str]:
    """git takes one `lock` line, and removes that file; it warns of every further one.

    A path that is not one plain line cannot be told. git also warns of a `connectivity-ok` that
    it did not ask for.
    """
    if keeps and str(keeps[0]).isprintable():
        yield f"lock {keeps[0]}"
    if connected and options.check_connectivity:
        yield "connectivity-ok"
