"""What a fetch could not find on the host, in the words of whoever asked for it."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from git_knotless import limits
from git_knotless.atproto.errors import StillMoving
from git_knotless.errors import KnotlessError
from git_knotless.storage.brief import brief

# git's word for what keeps some object ids from being here with all they reach; None: nothing.
BrokenLink = Callable[[Sequence[str]], str | None]


class MissingObjects(KnotlessError):
    """What was asked for, or something that it reaches, is in no pack on the host."""

    def __init__(self, what: Collection[str], *known: Collection[str], source: str = "") -> None:
        """`what` is missing, and what is `known` of the packs, of one kind each."""
        words = (word for kind in (what, *known) for word in brief(kind))
        said = f"objects are missing on the host: {'; '.join(words)}"
        if not source:
            super().__init__(said)
        else:
            super().__init__(f"{source}: {said}", hint=f"git knotless repo verify {source}")


class TooManyPacks(KnotlessError):
    """More than a reader takes on."""

    def __init__(self, source: str) -> None:
        super().__init__(
            f"{source} is in more than {limits.PACKS:,} packs, or in {limits.BLOBS:,} blobs",
            hint="its owner can have it in few: git knotless repo compact",
        )


def still_moving(packs: Collection[str], *known: Collection[str], source: str) -> StillMoving:
    """`packs` stand, and name blobs that their host does not have: that is how an account is for
    as long as it moves, and no other way is a host known to get there but by losing them."""
    gone = [f"pack {rkey}: a blob is not there yet" for rkey in packs]
    words = (word for kind in (gone, *known) for word in brief(kind))
    return StillMoving(
        f"the account is still being moved to its host, it seems: {'; '.join(words)}",
        hint="try again once the move is complete, and where there is none: "
        f"git knotless repo verify {source}",
    )


def in_no_pack(
    wants: Mapping[str, Sequence[str]], kinds: Mapping[str, str | None], broken: BrokenLink
) -> Iterator[str]:
    """Which of `wants`, each with the refs it is for, is not here; or which reaches what is not."""
    absent = [oid for oid, kind in kinds.items() if kind is None]
    for oid in absent:
        yield f"{_called(oid, wants)} is in no pack"
    if not absent:
        oid, why = _culprit(list(wants), broken)
        yield f"{_called(oid, wants)} reaches what is in no pack: {why}"


def _culprit(oids: Sequence[str], broken: BrokenLink) -> tuple[str, str]:
    """One that reaches what is missing, found by halving, and git's word for it."""
    why = broken(oids) or ""
    while len(oids) > 1:
        half = oids[: len(oids) // 2]
        found = broken(half)
        oids, why = (oids[len(half) :], why) if found is None else (half, found)
    return oids[0], why


def _called(oid: str, wants: Mapping[str, Sequence[str]]) -> str:
    return f"{oid} ({', '.join(brief(wants[oid]))})" if wants[oid] else oid
