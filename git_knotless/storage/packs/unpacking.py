"""What git may spend on a pack: a small one can hold what becomes large, or never ends.

An object that git holds in memory is refused before it is unpacked: a big allocation by
`GIT_ALLOC_LIMIT`, which all of git's go through, and a blob in a small pack by its being held like
any other (`core.bigFileThreshold`) where git would stream it. Deltas that rebuild the same
object again and again are bounded by the processor's time.
"""

from git_knotless import limits
from git_knotless.storage.child import TooMuchWork
from git_knotless.storage.git import Child, Git, GitError
from git_knotless.storage.progress import Progress

_NO_BLOB = 1 << 53  # bytes, so that none is streamed
_OVER = "over limit"  # in git's words for what GIT_ALLOC_LIMIT keeps it from


def most_unpacked(size: int) -> int:
    """Bytes of one object that a pack of `size` bytes may hold, where git holds it in memory."""
    by_size = min(size * limits.OBJECT_RATIO, limits.OBJECT_NEVER)
    return max(limits.OBJECT_ALWAYS, by_size)


def seconds_for(size: int) -> int:
    return int(limits.UNPACKING) + size // limits.UNPACKING_RATE


def index_pack(git: Git, size: int, *options: str, progress: Progress) -> Child:
    """`git index-pack --stdin` of a pack of so many bytes."""
    most = most_unpacked(size)
    streamed = limits.STREAMED if size > limits.STREAMED else _NO_BLOB
    return git.within({"GIT_ALLOC_LIMIT": str(most)}).popen(
        *("index-pack", "--stdin", *options),
        progress=progress,
        settings=(f"core.bigFileThreshold={streamed}",),
        seconds=seconds_for(size),
    )


def reason(error: GitError, size: int) -> str:
    """Why git would not have a pack of so many bytes, in a user's words."""
    if isinstance(error, TooMuchWork):
        return f"{size:,} bytes are not unpacked in {seconds_for(size)} s of processor time"
    if _OVER in error.message:
        most = limits.in_bytes(most_unpacked(size))
        return f"an object in it unpacks to more than the {most} that {size:,} bytes may"
    return error.message
