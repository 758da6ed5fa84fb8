"""A push that is too large to land at once, in slices of its history.

Each slice is a pack and, in the same batch, hidden refs at the heads of all that has come so far:
`refs/knotless/push/<nonce>`, and `…-1`, `…-2` beside it where history has several heads there. They
make it stay, whatever becomes of the push; git is never told of them. The last batch, which moves
the refs that were pushed, takes them away. A push that was cut finds them in the snapshot and
leaves out what they reach, from this clone or another.
"""

import secrets
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from git_knotless.atproto.syntax import InvalidSyntax, parse_time
from git_knotless.storage.git import Git, GitError
from git_knotless.storage.progress import Progress
from git_knotless.storage.pushing.economy import uploads, warnings
from git_knotless.storage.pushing.shallow import refuse_holes
from git_knotless.storage.pushing.survey import holds_more, survey
from git_knotless.storage.pushing.updates import Move
from git_knotless.storage.records import RefRecord
from git_knotless.storage.refname import PUSHES
from git_knotless.storage.repositories import Repository
from git_knotless.storage.snapshot import Snapshot

# More than this lands in slices, so that one that is cut goes on: minutes on most lines.
AT_ONCE = 256 << 20
SLICE = 128 << 20
_BLOB_LIMIT = 5 << 20  # where the host does not say: what the reference has by default
_MOST_HIDDEN = 100  # each asks git once
# A slice takes a pack, the epoch's update and a ref or two.
_POINTS_A_SLICE = 15


class Slicing:
    """The slices of one push, each made from the repository as it is by then."""

    def __init__(
        self,
        repository: Repository,
        git: Git,
        progress: Progress,
        notify: Callable[[str], None],
    ) -> None:
        self._repository = repository
        self._git = git
        self._progress = progress
        self._notify = notify
        self._tips: Sequence[str] | None = None
        self._cuts: list[Sequence[str]] = []
        self._count = 0  # of slices, the last batch's included
        self._warned = False
        self._anew()

    @property
    def brought(self) -> str:
        done = self._count - 1 - len(self._cuts)
        return f"slice {done} of {self._count} has landed" if done > 0 else ""

    def next(
        self, snapshot: Snapshot, tips: Sequence[str], points: Callable[[], int]
    ) -> Sequence[Move]:
        """The moves of the next slice's hidden refs; none once what is left can land at once.

        `points` gives what the moves of the push itself cost, before anything of it is sent.
        """
        if self._tips != tips:
            self._tips = tips
            self._survey(snapshot, tips, points())
        while self._cuts:
            moves = self._moves(snapshot, self._cuts[0])
            if moves:
                return moves
            self._cuts.pop(0)
        return ()

    def landed(self, moves: Sequence[Move]) -> None:
        """The refs of the slice that was next are this push's, and stay until it is done."""
        self._names += [move.name for move in moves if move.name not in self._names]
        self._cuts.pop(0)
        self._notify(self.brought)

    def done_with(self, snapshot: Snapshot, moves: Sequence[Move]) -> list[Move]:
        """What takes away the hidden refs that are of no use once `moves` are made.

        Whatever they reach is reached by then; or they are of a push that nobody goes on with.
        """
        hidden = _hidden(snapshot)
        if not hidden:
            return []
        after = {n: oid for n, oid in snapshot.targets.items() if not n.startswith(PUSHES)}
        after |= {move.name: move.new or "" for move in moves}
        stay = [oid for oid in set(after.values()) if oid]
        over = (ref for ref in hidden if self._is_reached(ref, stay) or self._is_old(ref, snapshot))
        return [Move(ref.name, ref, None) for ref in over]

    # --- planning

    def _survey(self, snapshot: Snapshot, tips: Sequence[str], points: int) -> None:
        self._cuts, self._count = [], 0
        at_once, piece = self._sizes()
        haves = sorted(set(snapshot.targets.values()))
        size = 0
        if not set(tips) <= set(haves) and holds_more(self._git, at_once):
            found = survey(self._git, tips, haves, piece, self._progress)
            size = found.size
            if found.size > at_once and found.cuts:
                refuse_holes(self._git, tips, frozenset(haves))
                self._cuts, self._count = list(found.cuts), len(found.cuts) + 1
        if not self._warned:
            self._warned = True
            self._tell(snapshot, size, points + _POINTS_A_SLICE * len(self._cuts))

    def _sizes(self) -> tuple[int, int]:
        """What may land at once, and what a slice is to have, in bytes."""
        left = self._repository.store.left("uploads")
        if left is None:
            return AT_ONCE, SLICE
        most = max(left.remaining, 1) * self._blob_limit()
        return min(AT_ONCE, most), min(SLICE, most)

    def _blob_limit(self) -> int:
        return self._repository.store.host().blob_limit or _BLOB_LIMIT

    def _tell(self, snapshot: Snapshot, size: int, points: int) -> None:
        if any(self._is_reached(ref, self._tips or ()) for ref in _hidden(snapshot)):
            self._notify("an earlier push was cut: this one leaves out what that has brought")
        if self._cuts:
            self._notify(f"about {_words(size)} in {self._count} slices, each of which stays")
        blobs = uploads(size, self._blob_limit()) if size else 0
        for warning in warnings(self._repository.store, points, blobs):
            self._notify(warning)

    # --- hidden refs

    def _moves(self, snapshot: Snapshot, heads: Sequence[str]) -> list[Move]:
        """From the refs that this push has to those that are at `heads`, all that has come by then.

        One whose commit is no head any more is free: a head reaches it.
        """
        if any(name not in snapshot.targets for name in self._names):
            self._anew()  # somebody has done with them; a name is never used twice
        there = set(snapshot.targets.values())
        wanted = [head for head in heads if head not in there]
        free = [name for name in self._names if snapshot.targets[name] not in heads]
        names = [*free, *self._new_names(len(wanted) - len(free))]
        return [
            Move(name, snapshot.refs.get(name), head)
            for name, head in zip(names, wanted, strict=False)
        ]

    def _new_names(self, count: int) -> Iterator[str]:
        for number in range(len(self._names), len(self._names) + count):
            yield f"{PUSHES}{self._nonce}" + (f"-{number}" if number else "")

    def _anew(self) -> None:
        self._nonce = secrets.token_hex(8)
        self._names: list[str] = []

    def _is_reached(self, ref: RefRecord, stay: Sequence[str]) -> bool:
        """Whether all that it reaches is reached by `stay`, as far as can be told here."""
        kinds = self._git.types([ref.target or "", *stay])
        if kinds[ref.target or ""] != "commit":
            return False
        asked = [ref.target, *(f"^{oid}" for oid in stay if kinds[oid] in ("commit", "tag"))]
        lines = "".join(f"{line}\n" for line in asked).encode()
        try:
            return not self._git.run("rev-list", "--max-count=1", "--stdin", input=lines)
        except GitError:  # of what is here, not all that it reaches is
            return False

    def _is_old(self, ref: RefRecord, snapshot: Snapshot) -> bool:
        try:
            moved = parse_time(ref.updated_at).timestamp()
        except InvalidSyntax:
            return True
        return snapshot.taken - moved > self._repository.claim_grace


def _hidden(snapshot: Snapshot) -> list[RefRecord]:
    """As many as one push looks after; the next one sees to more."""
    refs = snapshot.refs.items()
    hidden = (ref for name, ref in refs if name.startswith(PUSHES) and ref.target is not None)
    return list(islice(hidden, _MOST_HIDDEN))


def _words(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB" if size >= 1 << 30 else f"{size / (1 << 20):.1f} MiB"
