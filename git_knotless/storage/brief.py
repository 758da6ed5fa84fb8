"""What a host can make as long as it likes, told in a few words."""

from collections.abc import Collection
from itertools import islice

_SHOWN = 3


def brief(lines: Collection[str], *, most: int = _SHOWN) -> list[str]:
    """The first few of `lines`, and how many more there are."""
    shown = list(islice(lines, most))
    rest = len(lines) - len(shown)
    return [*shown, f"… and {rest} more"] if rest else shown
