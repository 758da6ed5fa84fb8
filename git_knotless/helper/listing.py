"""`list` and `list for-push`: the refs of the remote, and where its HEAD points."""

from collections.abc import Iterator

from git_knotless.helper.options import OBJECT_FORMAT, Options
from git_knotless.helper.protocol import List
from git_knotless.storage.brief import brief
from git_knotless.storage.snapshot import Snapshot


def lines(snapshot: Snapshot, command: List, options: Options) -> Iterator[str]:
    """HEAD comes first, as from any git server, and only where its ref is listed.

    Of any other ref, `git clone` would make a broken repository and exit 0; and a push would
    take HEAD for a ref of its own, which `git push --mirror` deletes.
    """
    if options.object_format:
        yield f":object-format {OBJECT_FORMAT}"
    if snapshot.head and not command.for_push:
        yield f"@{snapshot.head} HEAD"
    for name, oid in snapshot.live.items():
        yield f"{oid} {name}"


def left_out(snapshot: Snapshot) -> list[str]:
    """A few words on refs that a race let in, each beside one that it cannot stand beside."""
    hidden = snapshot.hidden.items()
    return brief([f"{name} is left out: it cannot stand beside {other}" for name, other in hidden])
