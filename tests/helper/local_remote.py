"""A remote helper on our conversation whose other side is a bare repository of this machine.

git runs it as `git-remote-local`, for addresses `local://PATH`: what git makes of our answers is
seen with git itself, and without a network.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from git_knotless.helper.connect import is_partial
from git_knotless.helper.conversation import Conversation
from git_knotless.helper.options import Options
from git_knotless.helper.service import revisions
from git_knotless.helper.stderr import say, tell
from git_knotless.storage.git import Git
from git_knotless.storage.mirrors.upload_pack import UploadPack, upload_pack
from git_knotless.storage.packs.bare import Refs
from git_knotless.storage.pushing.updates import Outcome, Update, judge
from git_knotless.storage.records import RefRecord, RepoRecord
from git_knotless.storage.snapshot import Snapshot, hidden_among

KEY = "3jzfcijpj2z2a"


@dataclass(frozen=True)
class Taken:
    keeps: tuple[Path, ...]
    connected: bool
    left_out: tuple[str, ...] = ()


@dataclass
class LocalRemote:
    there: Git
    here: Git

    def snapshot(self, *, for_push: bool) -> Snapshot:
        listed = self.there.run("for-each-ref", "--format=%(objectname) %(refname)").decode()
        pairs = [line.split(" ", 1) for line in listed.splitlines()]
        refs = {name: RefRecord(KEY, name, oid, 1, "") for oid, name in pairs}
        head = self.there.run("symbolic-ref", "HEAD").decode().strip()
        default = head.removeprefix("refs/heads/")
        repo = RepoRecord("local", {"key": KEY, "epoch": 1, "defaultBranch": default})
        return Snapshot(repo, refs, hidden_among(refs), 0.0)

    def fetch(self, wants: Sequence[str], options: Options) -> Taken:
        pack = self.there.run("pack-objects", "--all", "--stdout", "-q", input=b"")
        kept = self.here.run("index-pack", "--stdin", "--keep", input=pack).decode().split()[1]
        keep = self.here.objects_dir / "pack" / f"pack-{kept}.keep"
        return Taken((keep,), not self.here.missing(wants))

    def is_shallow(self) -> bool:
        return self.here.is_shallow()

    def resolve(self, sources: Sequence[str]) -> dict[str, str | None]:
        return revisions(self.here, sources)

    def push(self, updates: Sequence[Update], options: Options) -> Sequence[Outcome]:
        moves, outcomes = judge(self.snapshot(for_push=True), updates, self.here)
        if options.atomic and any(outcome.error for outcome in outcomes):
            return [Outcome(update.name, "atomic push failed") for update in updates]
        if not options.dry_run:
            tips = "".join(f"{move.new}\n" for move in moves if move.new).encode()
            pack = self.here.run("pack-objects", "--revs", "--stdout", "-q", input=tips)
            self.there.run("unpack-objects", "-q", input=pack)
            for move in moves:
                self.there.run(
                    "update-ref",
                    *(("-d",) if move.new is None else ()),
                    move.name,
                    *(() if move.new is None else (move.new,)),
                )
        return [*outcomes, *(Outcome(move.name) for move in moves)]

    def is_partial(self) -> bool:
        return is_partial(self.here)

    @contextmanager
    def upload_pack(self, options: Options) -> Iterator[UploadPack]:
        snapshot = self.snapshot(for_push=False)
        with upload_pack(os.environ) as server:
            server.show(Refs.of(snapshot.repo.head, snapshot.live))
            server.use(self.there.objects_dir)
            yield server

    def warn(self, text: str) -> None:
        say("warning", text)


def main() -> int:
    there = Path(sys.argv[2].removeprefix("local://"))
    env = {name: text for name, text in os.environ.items() if not name.startswith("GIT_")}
    remote = LocalRemote(Git(there, env=env), Git(None, env=os.environ))
    try:
        Conversation(sys.stdin.buffer, sys.stdout.buffer, remote).run()
    except Exception as error:  # noqa: BLE001 - an entry point, as in main.py
        tell(error)
        return 128
    return 0


if __name__ == "__main__":
    sys.exit(main())
