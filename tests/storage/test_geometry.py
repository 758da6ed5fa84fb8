"""Which packs are folded, and what that costs in the long run."""

import math
from itertools import pairwise
from random import Random

import pytest

from git_knotless.storage.packs.geometry import LARGEST, foldable


def chosen(*sizes: int) -> list[int]:
    return [sizes[at] for at in foldable(dict(enumerate(sizes)))]


@pytest.mark.parametrize(
    ("sizes", "folded"),
    [
        ((), []),
        ((5,), []),
        ((1, 2, 4, 8), []),  # a progression stays
        ((1, 1), [1, 1]),
        ((1, 3, 3), [1, 3, 3]),
        ((3, 100, 1, 2), [1, 2, 3]),
        ((1, 1, 1, 100), [1, 1, 1]),
        ((1, 1, 1, 5, 100), [1, 1, 1, 5]),  # 5 would not be twice the three
        ((1, 1, 1, 6, 100), [1, 1, 1]),
        ((10, 10, 10, 45, 130, 1000), [10, 10, 10, 45, 130]),
        ((1, 1, LARGEST + 1, LARGEST + 1), [1, 1]),
    ],
)
def test_what_is_chosen(sizes: tuple[int, ...], folded: list[int]) -> None:
    assert chosen(*sizes) == folded


@pytest.mark.parametrize("seed", range(20))
def test_what_is_left_is_in_progression(seed: int) -> None:
    random = Random(seed)
    sizes = {n: random.randint(1, 3 ** random.randint(1, 12)) for n in range(40)}
    folded = foldable(sizes)
    left = sorted(size for n, size in sizes.items() if n not in folded and size <= LARGEST)
    if folded:
        left.insert(0, sum(sizes[n] for n in folded))
    assert all(larger >= 2 * smaller for smaller, larger in pairwise(left))


@pytest.mark.parametrize(
    "size", [lambda n, random: 3_000, lambda n, random: random.randint(1, 40_000)]
)
def test_what_three_thousand_pushes_cost(size: object) -> None:
    """Each byte is written again as often as the whole can be halved into what is folded, at most;
    and there are never more packs than the fifty that are let be, and a few."""
    assert callable(size)
    random, packs = Random(1), dict[int, int]()
    pushed = written = most = 0
    for n in range(3_000):
        packs[n] = size(n, random)
        pushed += packs[n]
        folded = foldable(packs)
        if len(folded) > 50:
            packs[-n] = sum(packs.pop(key) for key in folded)
            written += packs[-n]
        most = max(most, len(packs))
    assert written <= pushed * math.log2(3_000 / 50)
    assert most <= 50 + math.log2(3_000) + pushed // LARGEST * 2
