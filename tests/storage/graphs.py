"""Histories of any shape, and a host that is looked at after each batch that it takes."""

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from random import Random

from git_knotless.storage.records import PACK, REF
from git_knotless.storage.refname import PUSHES
from git_knotless.storage.store import Write
from tests.gitenv import DATE, GitEnv
from tests.storage.account import Account
from tests.storage.pusher import Pusher


def odd_history(gitenv: GitEnv, name: str, seed: int, *, commits: int) -> tuple[Path, list[str]]:
    """A repository with merges, octopuses, criss-crosses and several roots, and refs to push of it:
    branches, and tags of commits, tags, trees and blobs."""
    random = Random(seed)
    path = gitenv.repository(name, commits=0, bare=True)
    parents = {number: _parents(random, number) for number in range(commits)}
    stream = "".join(_commit(random, *each) for each in parents.items())
    gitenv.git("fast-import", "--quiet", cwd=path, stdin=stream)
    heads = set(parents) - {parent for each in parents.values() for parent in each}
    branches = [f"refs/work/{n}" for n in {*heads, random.randrange(commits)}]
    specs = [f"{ref}:refs/heads/{ref.rpartition('/')[2]}" for ref in branches]
    return path, [*specs, *_tags(gitenv, path, random, branches)]


def _parents(random: Random, number: int) -> list[int]:
    recent = range(max(0, number - 6), number)
    count = random.choice([0, 1, 1, 1, 1, 1, 1, 2, 2, 2, 3, 5]) if random.random() > 0.1 else 1
    return random.sample(recent, min(count, len(recent)))


def _commit(random: Random, number: int, parents: Sequence[int]) -> str:
    lines = [f"commit refs/work/{number}", f"mark :{number + 1}"]
    lines += [f"committer Test Person <person@example.com> {DATE}"]
    lines += ["data <<END", f"Commit {number}", "END"]
    for at, parent in enumerate(parents):
        lines.append(f"{'merge' if at else 'from'} :{parent + 1}")
    text = random.randbytes(random.choice([40, 40, 200, 900])).hex()
    lines += [f"M 644 inline file{random.randrange(5)}", "data <<END", text, "END", "", ""]
    return "\n".join(lines)


def _tags(gitenv: GitEnv, path: Path, random: Random, branches: Sequence[str]) -> list[str]:
    branch = random.choice(branches)
    of = {"one": branch, "two": "one", "tree": f"{branch}^{{tree}}", "blob": f"{branch}:"}
    blobs = gitenv.git("ls-tree", "--object-only", branch, cwd=path).out.split()
    of["blob"] = random.choice(blobs)
    for name, target in of.items():
        gitenv.git("tag", "-a", "-m", name, name, target, cwd=path)
    gitenv.git("update-ref", "refs/tags/bare-blob", of["blob"], cwd=path)
    gitenv.git("tag", "bare-tree", f"{branch}^{{tree}}", cwd=path)
    chosen = random.sample([*of], random.randrange(len(of) + 1))
    specs = [f"refs/tags/{name}:refs/tags/{name}" for name in chosen]
    bare = ("refs/tags/bare-blob", "refs/tags/bare-tree")
    return [*specs, *(f"{name}:{name}" for name in bare)]


def _held(gitenv: GitEnv, index: Path) -> list[str]:
    shown = gitenv.git("show-index", stdin=index.read_bytes()).out
    return [line.split()[1] for line in shown.splitlines()]


class Watched:
    """An account whose packs go into a repository as each batch lands.

    After each, all that its refs reach is there, and no object has come twice.
    """

    def __init__(self, gitenv: GitEnv, host: Account) -> None:
        self.gitenv = gitenv
        self.host = host
        self.mirror = gitenv.repository("mirror", commits=0, bare=True)
        self.slices = 0
        self._taken: set[str] = set()
        host.after = self.look

    def look(self, _: Sequence[Write]) -> None:
        for rkey, value in self.host.records.get(PACK, {}).items():
            if rkey not in self._taken:
                self._taken.add(rkey)
                self.gitenv.git("index-pack", "--stdin", cwd=self.mirror, stdin=self._bytes(value))
        refs = self.host.records.get(REF, {}).values()
        targets = [ref["target"] for ref in refs if "target" in ref]
        self.gitenv.git("rev-list", "--objects", "--quiet", *targets, "--", cwd=self.mirror)
        self.slices += any(ref["name"].startswith(PUSHES) for ref in refs)

    def _bytes(self, value: dict[str, object]) -> bytes:
        return Pusher.bytes_of(self.host, value)

    def objects(self) -> set[str]:
        listing = ("cat-file", "--batch-all-objects", "--batch-check=%(objectname)")
        return set(self.gitenv.git(*listing, cwd=self.mirror).out.split())

    def twice(self) -> set[str]:
        """What has come in more than one pack."""
        held = [_held(self.gitenv, path) for path in self.mirror.glob("objects/pack/*.idx")]
        return {oid for oid, times in Counter(chain(*held)).items() if times > 1}

    def own_refs(self) -> list[str]:
        refs = self.host.records.get(REF, {}).values()
        return [ref["name"] for ref in refs if ref["name"].startswith("refs/knotless/")]
