"""People who do things with the repositories of one account at once, each from a machine of their
own, and what must hold of it whatever the order of their requests was."""

import itertools
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from git_knotless.atproto.syntax import Handle, Rkey
from git_knotless.atproto.xrpc import Client
from git_knotless.storage.creation import AlreadyExists, create
from git_knotless.storage.deletion import delete, delete_rest
from git_knotless.storage.editing import edit
from git_knotless.storage.git import Git
from git_knotless.storage.hosts import HostCache
from git_knotless.storage.packs.folding import fold
from git_knotless.storage.packs.intake import take
from git_knotless.storage.packs.packrecord import PackRecord
from git_knotless.storage.packs.pruning import prune
from git_knotless.storage.places.renaming import rename
from git_knotless.storage.proofs.large import LargeSnapshots
from git_knotless.storage.proofs.revs import Revs
from git_knotless.storage.proofs.verified import Verified
from git_knotless.storage.public import PublicStore
from git_knotless.storage.pushing.push import push
from git_knotless.storage.pushing.updates import Update
from git_knotless.storage.records import REPO
from git_knotless.storage.repositories import Repository
from git_knotless.storage.store import Record, RecordStore
from git_knotless.storage.url import RepoUrl
from tests.storage.clocks import Clocks
from tests.storage.histories import PUSHERS, Histories
from tests.storage.inprocess import Home, Homes, Town
from tests.storage.judging import judge
from tests.storage.ledger import Ledger
from tests.storage.packs import SILENT
from tests.storage.steps import Network, Task

NAMES = ("repo", "other")
BRANCHES = tuple(f"refs/heads/{name}" for name in ("main", "a", "b", "b/x"))
GRACE = 3600.0
DAY = 86_400.0


class Ground(Histories):
    """With a host: what outlasts all that is done there."""

    def __init__(self, root: Path, town: Town) -> None:
        super().__init__(root)
        self.town = town
        self.numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Deed:
    """`name` is the repository's, `to` the name that it is to have; `specs` are of a push: a ref,
    a commit by its name or None, and whether it is forced."""

    verb: str
    name: str = "repo"
    to: str = ""
    pusher: int = 0
    specs: tuple[tuple[str, str | None, bool], ...] = ()
    atomic: bool = False


class World:
    """One account, and what is done there from its beginning to its end."""

    def __init__(self, ground: Ground, home: Home) -> None:
        self.ground = ground
        self.home = home
        self.clocks = Clocks(ground.town.network)
        self.ledger = Ledger(ground.closure, self._held_by, self._latest, GRACE)
        self.network = Network(ground.town.network, self.ledger.landed)
        self.hosts = HostCache(ground.root / f"hosts{next(ground.numbers)}.json")
        self.revs = Revs(ground.root / f"revs{next(ground.numbers)}.json")
        self.verify("never")
        self.tasks: list[Task] = []
        self.begun: dict[Task, int] = {}
        self._ahead: dict[Task, float] = {}

    def _held_by(self, rkey: str, value: Any) -> frozenset[str]:
        pack = PackRecord.from_record(Record(Rkey(rkey), dict(value)))

        def data() -> bytes:
            return pack.data or b"".join(self.home.blob(blob.cid) for blob in pack.blobs)

        return self.ground.objects(pack, data)

    def _latest(self, task: Task) -> float:
        """The host's time, at its latest since the task began."""
        return self.clocks.at_host() - self.clocks.hosts + self._ahead[task]

    def set_host_clock(self, jump: float) -> None:
        self.clocks.hosts += jump
        for task in self.running:
            self._ahead[task] = max(self._ahead[task], self.clocks.hosts)

    def verify(self, setting: str) -> None:
        """Of whoever begins from now on."""
        large = LargeSnapshots(self.ground.root / "snapshots")
        self.verified = Verified(setting, self.revs, large)

    # --- what is done

    def begin(self, deed: Deed) -> Task:
        """As far as its first request."""
        task = Task(partial(self._do, deed), self.network, self._open, what=deed)
        self.begun[task] = len(self.ledger.batches) + 1
        self._ahead[task] = self.clocks.hosts
        self.tasks.append(task)
        task.start()
        return task

    def do(self, deed: Deed) -> Task:
        """To its end; nobody is in its way but those that are under way."""
        task = self.begin(deed)
        task.finish()
        return task

    @property
    def running(self) -> list[Task]:
        return [task for task in self.tasks if not task.over]

    def _open(self, client: Client) -> RecordStore:
        home = self.home
        return PublicStore(client, home.identity, home.auth, self.hosts, Homes(home), self.revs)

    def url(self, name: str) -> RepoUrl:
        assert isinstance(self.home.identity.handle, str)
        return RepoUrl(Handle(self.home.identity.handle), Rkey(name))

    def _repository(self, store: RecordStore, name: str) -> Repository:
        return Repository(
            self.url(name), store, writable=True, claim_grace=GRACE, verified=self.verified
        )

    def _do(self, deed: Deed, store: RecordStore) -> Any:
        repository = self._repository(store, deed.name)
        match deed.verb:
            case "push":
                return self._push(repository, deed)
            case "edit":
                number = str(next(self.ground.numbers))
                return edit(repository, lambda repo: repo.changed(description=number))
            case "create":
                return create(store, self.url(deed.name))
            case "rename":
                return rename(repository, deed.to)
            case "delete":
                return delete(repository)
            case "delete rest":
                return delete_rest(repository)
            case "fold":
                return fold(repository, self._scratch(), progress=SILENT, at_least=2)
            case "prune":
                return prune(repository, self._scratch(), progress=SILENT)
            case "clone" | "fetch":
                return self._take(repository, clone=deed.verb == "clone")
        raise AssertionError(deed.verb)

    def _scratch(self) -> Path:
        made = self.ground.root / f"scratch{next(self.ground.numbers)}"
        made.mkdir()
        return made

    def _push(self, repository: Repository, deed: Deed) -> dict[str, str | None]:
        snapshot = repository.snapshot()
        outcomes = push(
            repository,
            self.ground.gits[deed.pusher],
            snapshot,
            [
                Update(ref, self.ground.oids[commit] if commit else None, force=force)
                for ref, commit, force in deed.specs
            ],
            atomic=deed.atomic,
            progress=SILENT,
            notify=lambda line: None,
        )
        return {outcome.name: outcome.error for outcome in outcomes}

    def _take(self, repository: Repository, *, clone: bool) -> dict[str, str]:
        """What it shows, all of it there and sound; into a new repository, or one that has been
        fetched into before."""
        snapshot, git = repository.snapshot(), self._clone() if clone else self._fetcher
        wants: dict[str, list[str]] = {}
        for name, oid in snapshot.live.items():
            wants.setdefault(oid, []).append(name)
        key = snapshot.repo.key
        taken = take(git, repository.store, key, wants, progress=SILENT, clone=clone)
        refs = "".join(f"update refs/took/{oid} {oid}\n" for oid in wants)
        git.run("update-ref", "--stdin", input=refs.encode())
        taken.release()
        git.run("fsck", "--full", "--strict", "--no-dangling")
        return snapshot.live

    def _clone(self) -> Git:
        name = f"clone{next(self.ground.numbers)}"
        return Git(self.ground.env.repository(name, commits=0, bare=True), env=self.ground.env.env)

    @cached_property
    def _fetcher(self) -> Git:
        return self._clone()

    # --- what must hold

    def close(self) -> None:
        for task in self.running:
            task.kill()

    def settle(self) -> None:
        """All that is under way comes to its end, what was lost in between too."""
        for task in self.running:
            task.finish()
        while self.network.late:
            self.network.bring()

    def story(self) -> str:
        """What each task asked, was told and did."""
        return "\n".join(self._told(task) for task in self.tasks)

    def _told(self, task: Task) -> str:
        moved = [
            f"{m.batch} {m.name} {m.old} -> {m.new}" for m in self.ledger.moves if m.task is task
        ]
        came = "killed" if task.killed else repr(task.error or task.result)
        return "\n    ".join([repr(task.what), " ".join(task.requests), came, *moved])

    def check(self, *, thorough: bool = True) -> None:
        """Of all that was done, once it is settled; and what is done then works."""
        self.settle()
        self.judge()
        assert self.ledger.records == self.home.records()
        if thorough:
            self._read_all("fetch", "clone")
            self._push_again()
        self._go_on(*(("edit", "fold", "prune") if thorough else ()))
        self._end()

    def judge(self) -> None:
        for task in self.tasks:
            judge(task, self.ledger, self.ground, since=self.begun[task])

    def _read_all(self, *verbs: str) -> None:
        for name, value in self.ledger.of(REPO).items():
            shown = self.ledger.shown(value["key"])
            for verb in verbs:
                done = self.do(Deed(verb, name))
                assert done.error is None, done.error
                assert done.result == shown

    def _push_again(self) -> None:
        """Each that was reported, and that nobody has moved on from: again it writes nothing."""
        for task in [task for task in self.tasks if _reported(task) and self._stands(task.what)]:
            before = len(self.ledger.batches)
            again = self.do(task.what)
            assert again.result == task.result, (again.result, again.error)
            assert len(self.ledger.batches) == before

    def _stands(self, deed: Deed) -> bool:
        repo = self.ledger.of(REPO).get(deed.name)
        there = self.ledger.targets(repo["key"]) if repo else {}
        wanted = {
            ref: self.ground.oids[commit] if commit else None for ref, commit, _ in deed.specs
        }
        return repo is not None and all(there.get(ref) == oid for ref, oid in wanted.items())

    def _go_on(self, *verbs: str) -> None:
        """Nothing is locked: whatever was cut, what comes after it works."""
        made = self.do(Deed("create"))
        assert made.error is None or isinstance(made.error, AlreadyExists), made.error
        pusher = len(self.tasks) % PUSHERS
        specs = ((BRANCHES[0], f"more{pusher}", True), ("refs/heads/new", f"large{pusher}", True))
        pushed = self.do(Deed("push", pusher=pusher, specs=specs))
        wanted = dict.fromkeys(name for name, _, _ in specs)
        assert pushed.result == wanted, pushed.result or pushed.error
        for verb in verbs:
            done = self.do(Deed(verb))
            assert done.error is None, done.error
        self._read_all("fetch", "clone")

    def _end(self) -> None:
        """All of it can be deleted, and nothing is left then."""
        for name in self.ledger.of(REPO):
            deleted = self.do(Deed("delete", name))
            if name in self.ledger.of(REPO):  # what another of that name had left went first
                deleted = self.do(Deed("delete", name))
            assert deleted.error is None, deleted.error
        for name in NAMES:
            self.do(Deed("delete rest", name))
        left = [rkey for _, rkey in self.ledger.records if not rkey.endswith(".epoch.0")]
        assert left == []


def _reported(task: Task) -> bool:
    done = task.what.verb == "push" and isinstance(task.result, dict)
    return done and all(error is None for error in task.result.values())
