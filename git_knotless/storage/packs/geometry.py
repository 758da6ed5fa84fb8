"""Which packs are worth folding: those that do not grow geometrically, as in `git repack
--geometric=2`.

Folded packs are each twice as large as all smaller ones together, so that there are few of them,
and an object is folded again only into a pack that is so much larger: as often as the size of the
repository can be halved.
"""

from collections.abc import Mapping
from typing import TypeVar

_FACTOR = 2
# Bytes. A larger pack is worth requests of its own, and folding it again would cost more than that.
LARGEST = 4 * 1024 * 1024

Key = TypeVar("Key")


def foldable(sizes: Mapping[Key, int]) -> list[Key]:
    """The packs that are to become one, the smallest first; none where there is but one.

    `sizes` are in bytes.
    """
    small = [key for key, size in sizes.items() if size <= LARGEST]
    small.sort(key=lambda key: sizes[key])
    chosen = small[: _split([sizes[key] for key in small])]
    return chosen if len(chosen) > 1 else []


def _split(sizes: list[int]) -> int:
    """How many of `sizes`, which ascend, go into one for the others to be in progression.

    As git has it (pack-geometry.c): from the largest down as far as each is twice the next; and of
    those, the ones that would not be twice as large as what is made of the others.
    """
    at = len(sizes) - 1
    while at > 0 and sizes[at] >= _FACTOR * sizes[at - 1]:
        at -= 1
    if at <= 0:
        return 0
    at += 1
    total = sum(sizes[:at])
    while at < len(sizes) and sizes[at] < _FACTOR * total:
        total += sizes[at]
        at += 1
    return at
