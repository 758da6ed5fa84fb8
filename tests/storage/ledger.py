"""What a host was told, batch by batch, and what must hold of each: it knows the records, and
nothing of the code that writes them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from git_knotless.atproto.syntax import parse_time
from git_knotless.storage.records import CLAIM, PACK, REDIRECT, REF, REPO
from tests.storage.steps import Task

Records = dict[tuple[str, str], dict[str, Any]]
Value = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Moved:
    """A ref, as one batch moved it."""

    task: Task
    batch: int
    key: str
    name: str
    old: str | None
    new: str | None
    generation: int


@dataclass
class Ledger:
    """`closure` has all that an object id reaches, `objects` what a pack holds; `now` is the
    host's time, as far as a task goes by it, and `grace` in seconds."""

    closure: Callable[[str], frozenset[str]]
    objects: Callable[[str, Value], frozenset[str]]
    now: Callable[[Task], float]
    grace: float
    records: Records = field(default_factory=dict)
    moves: list[Moved] = field(default_factory=list)
    batches: list[tuple[Task, list[dict[str, Any]]]] = field(default_factory=list)
    _generations: dict[str, int] = field(default_factory=dict)
    _claimed: set[str] = field(default_factory=set)
    _packed: dict[str, frozenset[str]] = field(default_factory=dict)

    def landed(self, task: Task, writes: list[dict[str, Any]]) -> None:
        before, self.records = self.records, dict(self.records)
        for write in writes:
            self._write(write)
        self.batches.append((task, writes))
        for write in writes:
            self._look(task, write, before)
        self._see_names()
        for key in {_key_of(write) for write in writes} & self.repos().keys():
            self._see_epoch(key)
            self._see_objects(key, before, self.now(task))

    def repos(self) -> dict[str, Value]:
        """By their keys."""
        return {value["key"]: value for value in self.of(REPO).values()}

    def of(self, collection: str, key: str = "") -> dict[str, dict[str, Any]]:
        """The records of a collection, of one repository if it is named, by their keys."""
        prefix = f"{key}." if key else ""
        return {
            rkey: value
            for (nsid, rkey), value in self.records.items()
            if nsid == collection and rkey.startswith(prefix)
        }

    def targets(self, key: str) -> dict[str, str]:
        refs = self.of(REF, key).values()
        return {ref["name"]: ref["target"] for ref in refs if "target" in ref}

    def shown(self, key: str) -> dict[str, str]:
        """What readers are to see: none of our own, nor what a shorter one stands in the way of."""
        there = self.targets(key)
        names = {name for name in there if not name.startswith("refs/knotless/")}
        hidden = {name for name in names for other in names if name.startswith(f"{other}/")}
        return {name: there[name] for name in names - hidden}

    def wrote(self, task: Task, collection: str) -> list[dict[str, Any]]:
        """What of the task's writes there has landed."""
        written = (write for by, writes in self.batches if by is task for write in writes)
        return [write for write in written if write["collection"] == collection]

    def was(self, name: str, target: str | None, since: int) -> bool:
        """Whether a ref of that name, of any repository, was there, from the batch `since` on."""
        moves = [move for move in self.moves if move.name == name]
        before = {move.key: move.new for move in moves if move.batch < since}
        after = {move.new for move in moves if move.batch >= since}
        return target is None or target in after or target in before.values()

    # --- one batch

    def _write(self, write: dict[str, Any]) -> None:
        place = write["collection"], write["rkey"]
        action = write["$type"].rpartition("#")[2]
        assert (place in self.records) == (action != "create"), f"{action} of {place}"
        if action == "delete":
            del self.records[place]
        else:
            self.records[place] = write["value"]

    def _look(self, task: Task, write: dict[str, Any], before: Records) -> None:
        created = write["$type"].endswith("#create")
        match write["collection"]:
            case "dev.knotless.ref" if "value" in write:
                self._see_move(task, write, before.get((REF, write["rkey"])))
            case "dev.knotless.claim" if created:
                self._see_claim(write, before)
            case "dev.knotless.pack" if created:
                self._see_pack(write["rkey"], write["value"], before)

    def _see_move(self, task: Task, write: dict[str, Any], before: Value | None) -> None:
        """Generations go up by one, each time, and a ref of what is gone moves no more."""
        ref, rkey = write["value"], write["rkey"]
        assert ref["repo"] in self.repos(), "a ref of no repository"
        assert ref["generation"] == self._generations.get(rkey, 0) + 1, (rkey, ref)
        self._generations[rkey] = ref["generation"]
        old = before.get("target") if before else None
        self.moves.append(
            Moved(
                task,
                len(self.batches),
                ref["repo"],
                ref["name"],
                old,
                ref.get("target"),
                ref["generation"],
            )
        )

    def _see_pack(self, rkey: str, pack: Value, before: Records) -> None:
        """A push's carries the epoch; what others went into, the newest of theirs at least."""
        self._packed[rkey] = self.objects(rkey, pack)
        now = self.of(PACK)
        gone = [value for (nsid, key), value in before.items() if nsid == PACK and key not in now]
        epoch = self.repos()[pack["repo"]]["epoch"]
        assert max((each["epoch"] for each in gone), default=epoch) <= pack["epoch"] <= epoch

    def _see_claim(self, write: dict[str, Any], before: Records) -> None:
        """No claim comes again, also of those that were pruned. It is of what it says."""
        claim, rkey = write["value"], write["rkey"]
        if rkey.endswith(".epoch.0"):  # by it a host is proven, before there is a repository
            return
        assert rkey not in self._claimed, f"{rkey} comes again"
        self._claimed.add(rkey)
        if ".epoch." in rkey:
            return
        assert claim["epoch"] == self.repos()[claim["repo"]]["epoch"]
        at = REF, rkey.rpartition(".")[0]
        old, new = before.get(at, {}), self.records[at]
        assert claim["generation"] == old.get("generation", 0) == new["generation"] - 1
        assert (claim.get("old"), claim.get("new")) == (old.get("target"), new.get("target"))

    # --- what is there after it

    def _see_names(self) -> None:
        keys = [value["key"] for value in self.of(REPO).values()]
        assert len(set(keys)) == len(keys), "one repository has two names"
        names = self.of(REPO).keys() & self.of(REDIRECT).keys()
        assert not names, f"{names} are of a repository, and redirects"

    def _see_epoch(self, key: str) -> None:
        """One claim stands for it."""
        stands = {rkey for rkey in self.of(CLAIM, f"{key}.epoch") if not rkey.endswith(".0")}
        assert stands == {f"{key}.epoch.{self.repos()[key]['epoch']}"}

    def _see_objects(self, key: str, before: Records, now: float) -> None:
        """What refs and fresh claims reach is in packs; a batch takes none away of the latter."""
        held = self._held(self.of(PACK, key))
        for name, target in self.targets(key).items():
            assert self.closure(target) <= held, f"{name} is at {target}, which is not all there"
        was = self._held(rkey for nsid, rkey in before if nsid == PACK and _is_of(rkey, key))
        for old in self._reported(key, now):
            reached = self.closure(old)
            assert not reached <= was or reached <= held, f"{old} went within its grace"
        if (CLAIM, f"{key}.epoch.{self.repos()[key]['epoch']}") in before:
            assert was <= held, "objects went without a move of the epoch"

    def _held(self, packs: "Iterator[str] | Mapping[str, Any]") -> frozenset[str]:
        return frozenset().union(*(self._packed[rkey] for rkey in packs))

    def _reported(self, key: str, now: float) -> set[str]:
        claims = self.of(CLAIM, key).values()
        old = (each for each in claims if each.get("old") and self._is_fresh(each, key, now))
        return {claim["old"] for claim in old}

    def _is_fresh(self, claim: Value, key: str, now: float) -> bool:
        age = now - parse_time(claim["createdAt"]).timestamp()
        return claim["epoch"] == self.repos()[key]["epoch"] or age < self.grace


def _is_of(rkey: str, key: str) -> bool:
    return rkey.startswith(f"{key}.")


def _key_of(write: dict[str, Any]) -> str:
    if write["collection"] == REPO:
        return str(write.get("value", {}).get("key", ""))
    return str(write["rkey"]).partition(".")[0]
