"""What of a clone is known to be whole, so that nobody need walk it.

`index-pack --check-self-contained-and-connected` refuses a pack with an object that names what is
nowhere, and tells whether all that its objects name is in the pack itself. So in a repository that
has nothing else, packs that come in the order in which they were pushed prove one another.
"""

from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from pathlib import Path

from git_knotless.storage.packs.packindex import held

NEEDS_NONE, NEEDS_OTHERS = 0, 1  # the command's status for a pack that it takes
_MOST_TIPS = 64  # of one pack: a push names no more


class Closure:
    """The packs of a new repository. One is closed if all that it reaches is in closed packs.

    `alone`: no other object can be seen from there.
    """

    def __init__(self, *, alone: bool) -> None:
        self._alone = alone
        self._begun = False
        self._open = False
        self._tips: dict[str, None] = {}

    @property
    def holds_all(self) -> bool:
        """Whether packs have come, all of them closed."""
        return self._begun and not self._open

    @property
    def tips(self) -> Sequence[str]:
        """Objects of which it is known that nothing that they reach is missing."""
        return list(self._tips)

    def expects(self, bases: Iterable[str]) -> bool:
        """Whether the next pack is worth the check, by what its record says it was built on.

        A record that is wrong about it costs time: a pack that fails comes again.
        """
        return self._tips.keys() >= set(bases) and (bool(bases) or not self._begun)

    def add(self, index: Path, tips: Iterable[str], status: int | None) -> None:
        """A pack that git took, with what a record says are its tips; None: it was not checked."""
        self._begun = True
        if status == NEEDS_NONE or (status == NEEDS_OTHERS and self._alone and not self._open):
            self._tips |= dict.fromkeys(held(index, islice(tips, _MOST_TIPS)))
        else:
            self._open = True


def most_wanted(indexes: Collection[Path], wants: Iterable[str]) -> list[Path]:
    """`indexes` with the one first whose pack holds the most of `wants`."""
    if len(indexes) < 2:
        return list(indexes)
    return sorted(indexes, key=lambda index: -len(held(index, wants)))
