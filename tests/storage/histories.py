"""Commits that several people push beside each other, and what is known of them."""

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from git_knotless.storage.git import Git
from git_knotless.storage.packs.packrecord import PackRecord
from tests.gitenv import DATE, GitEnv
from tests.storage.packs import noise

PUSHERS = 3

# Commits and their parents; what every pusher has, and one's own, of which the last is large.
SHARED = {"root": (), "one": ("root",), "two": ("one",), "side": ("one",), "both": ("two", "side")}
OWN = {"mine": ("one",), "more": ("mine",), "large": ("mine",)}


def commits(pusher: int) -> dict[str, tuple[str, ...]]:
    """What one of them has to push."""
    own = {f"{name}{pusher}": parents for name, parents in OWN.items()}
    return SHARED | {
        name: tuple(f"{each}{pusher}" if each in OWN else each for each in parents)
        for name, parents in own.items()
    }


def _stream(graph: dict[str, tuple[str, ...]]) -> bytes:
    marks = {name: number for number, name in enumerate(graph, 1)}
    return b"".join(_commit(name, parents, marks) for name, parents in graph.items())


def _commit(name: str, parents: Sequence[str], marks: dict[str, int]) -> bytes:
    text = noise(60_000, int(name[-1])) if name.startswith("large") else f"{name}\n".encode()
    lines = [f"commit refs/heads/{name}", f"mark :{marks[name]}"]
    lines += [f"committer Test Person <person@example.com> {DATE}", f"data {len(name)}\n{name}"]
    lines += [f"{'merge' if at else 'from'} :{marks[each]}" for at, each in enumerate(parents)]
    head = "\n".join([*lines, f"M 644 inline {name}", f"data {len(text)}", ""])
    return head.encode() + text + b"\n"


class Histories:
    """A repository for each who pushes, and one of `all`. No ref of them ever moves.

    `env` is the machine that they are on.
    """

    def __init__(self, root: Path, env: GitEnv | None = None) -> None:
        self.root = root
        self.env = env or GitEnv(root)
        everything = dict(item for n in range(PUSHERS) for item in commits(n).items())
        self.all = self._repository("all", everything)
        self.oids = self._oids()
        self.paths = [self._repository(f"pusher{n}", commits(n)) for n in range(PUSHERS)]
        self.gits = [Git(path, env=self.env.env) for path in self.paths]
        self._objects: dict[str, frozenset[str]] = {}
        self.closure = cache(self._closure)

    def _repository(self, name: str, graph: dict[str, tuple[str, ...]]) -> Path:
        path = self.env.repository(name, commits=0, bare=True)
        self.env.git("fast-import", "--quiet", cwd=path, stdin=_stream(graph))
        return path

    def _oids(self) -> dict[str, str]:
        refs = self.env.refs(self.all)
        return {ref.removeprefix("refs/heads/"): oid for ref, oid in refs.items()}

    def _closure(self, oid: str) -> frozenset[str]:
        listed = self.env.git("rev-list", "--objects", oid, cwd=self.all).out
        return frozenset(line.split(" ")[0] for line in listed.splitlines())

    def is_ancestor(self, old: str, new: str) -> bool:
        return old in self.closure(new)

    def objects(self, pack: PackRecord, data: Callable[[], bytes]) -> frozenset[str]:
        """What a pack holds."""
        if pack.checksum not in self._objects:
            path = self.env.repository(f"pack{len(self._objects)}", commits=0, bare=True)
            self.env.git("index-pack", "--stdin", cwd=path, stdin=data())
            form = "--batch-check=%(objectname)"
            listed = self.env.git("cat-file", "--batch-all-objects", form, cwd=path).out
            self._objects[pack.checksum] = frozenset(listed.split())
        return self._objects[pack.checksum]
