"""Run by the Python that has git_knotless installed: many small deeds without a start for each.

driver.py pushes URL REPOSITORY COUNT            the next COUNT commits of main, each pushed alone
driver.py folded URL REPOSITORY COUNT            the same, folded as the remote helper does
driver.py forced URL REPOSITORY COUNT            so many branches f1, f2, …, each to main by force
driver.py packs URL REPOSITORY COUNT             the same packs, a hundred and more in one write
driver.py proof URL COUNT                        the seconds of each of COUNT verifications
driver.py repositories ACCOUNT REPOSITORY COUNT  so many new ones, the first commit in each
"""

import json
import os
import sys
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from git_knotless import limits
from git_knotless.atproto.commit import verify_proof
from git_knotless.atproto.syntax import Nsid, Rkey, tid
from git_knotless.context import Context
from git_knotless.helper.autofold import AutoFold, is_due
from git_knotless.helper.options import Options
from git_knotless.storage.creation import create
from git_knotless.storage.git import Git
from git_knotless.storage.packs.outgoing import OutgoingPack
from git_knotless.storage.packs.packrecord import PackRecord
from git_knotless.storage.progress import TextProgress
from git_knotless.storage.pushing.batches import Stamp
from git_knotless.storage.pushing.push import push
from git_knotless.storage.pushing.updates import Update
from git_knotless.storage.records import PACK, REF, RefRecord, prefix_of
from git_knotless.storage.repositories import Repository
from git_knotless.storage.store import BlobBody, BlobRef, Write
from git_knotless.storage.url import parse_target

_MAIN = "refs/heads/main"
_MOST_WRITES = 150
_MOST_DATA = 512 * 1024  # bytes of packs in one write (design of the records)


def main() -> None:
    what, *args = sys.argv[1:]
    with Context.from_environment(os.environ, _say) as context:
        match what, args:
            case "pushes", [url, place, count]:
                pushes(context, url, Path(place), int(count))
            case "folded", [url, place, count]:
                pushes(context, url, Path(place), int(count), folding=True)
            case "forced", [url, place, count]:
                forced(context, url, Path(place), int(count))
            case "packs", [url, place, count]:
                packs(context, url, Path(place), int(count))
            case "proof", [url, count]:
                proof(context, url, int(count))
            case "repositories", [account, place, count]:
                repositories(context, account, Path(place), int(count))
            case _:
                sys.exit(__doc__)


def pushes(context: Context, url: str, place: Path, count: int, *, folding: bool = False) -> None:
    repository = context.open(url, to="push to")
    git = Git(place, env=os.environ)
    first = repository.snapshot()
    tip = first.live.get(_MAIN)
    folder = AutoFold(context, git, url, url, first.repo.key)
    for commit in _commits(git, tip)[:count]:
        _push(repository, git, Update(_MAIN, commit))
        if folding and is_due(git, first.repo.key):
            folder.run(repository, Options())


def forced(context: Context, url: str, place: Path, count: int) -> None:
    git = Git(place, env=os.environ)
    repository = context.open(url, to="push to")
    for number in range(1, count + 1):
        _push(repository, git, Update(_MAIN, git.resolve(f"f{number}"), force=True))


def _push(repository: Repository, git: Git, update: Update) -> None:
    snapshot = repository.snapshot()
    (outcome,) = push(repository, git, snapshot, [update], progress=_silent(), notify=_say)
    if outcome.error is not None:
        sys.exit(f"{update.new}: {outcome.error}")


def packs(context: Context, url: str, place: Path, count: int) -> None:
    """Records as pushes make them, but for their claims; and main, at the last commit."""
    repository = context.open(url, to="push to")
    key, store = repository.record().key, repository.store
    stamp = Stamp(datetime.now(UTC))
    git = Git(place, env=os.environ)
    commits = _commits(git, None)[:count]
    batch: list[Write] = []
    held = 0
    for number, (base, commit) in enumerate(zip([None, *commits], commits, strict=False)):
        pack = _pack(git, key, base, commit, stamp, number)
        batch.append(Write("create", PACK, pack.rkey, pack.to_json()))
        held += pack.size
        if len(batch) == _MOST_WRITES or held > _MOST_DATA:
            store.apply(batch)
            batch, held = [], 0
    ref = RefRecord(key, _MAIN, commits[-1], 1, stamp.at)
    store.apply([*batch, Write("create", REF, ref.rkey, ref.to_json())])


def _pack(
    git: Git, key: str, base: str | None, commit: str, stamp: Stamp, number: int
) -> PackRecord:
    haves = [] if base is None else [base]
    with closing(_built(git, commit, haves)) as pack:
        rkey = prefix_of(key) + tid(int(stamp.time.timestamp() * 1_000_000) + number, 0)
        return PackRecord(
            rkey=Rkey(rkey),
            repo=key,
            epoch=1,
            size=pack.size,
            objects=pack.objects,
            checksum=pack.checksum,
            data=pack.data,
            blobs=(),
            created_at=stamp.at,
            tips=(commit,),
            bases=tuple(haves),
        )


def _built(git: Git, commit: str, haves: list[str]) -> OutgoingPack:
    pack = OutgoingPack.build(
        git, [commit], haves, limit=lambda: None, upload=_no_upload, progress=_silent()
    )
    if pack is None:
        sys.exit(f"{commit} brings nothing")
    return pack


def _no_upload(_: BlobBody) -> BlobRef:
    sys.exit("a pack is too large to travel in its record")


def proof(context: Context, url: str, count: int) -> None:
    """Of its first ref."""
    repository = context.open(url)
    ref = next(iter(repository.snapshot().refs.values()))
    did = repository.store.did
    params = {"did": did, "collection": REF, "rkey": ref.rkey}
    host = context.identify(did).pds
    car = context.client.get_file(host, "com.atproto.sync.getRecord", params, limit=limits.PROOF)
    key = context.signing_key(did, fresh=False)
    taken = []
    for _ in range(count):
        began = time.perf_counter()
        found = verify_proof(car, did=did, key=key, collection=Nsid(REF), rkey=ref.rkey)
        taken.append(time.perf_counter() - began)
        if found.value is None:
            sys.exit("a ref is proven not to be there")
    sys.stdout.write(json.dumps(taken))


def repositories(context: Context, account: str, place: Path, count: int) -> None:
    for number in range(count):
        url = parse_target(f"{account}/other{number}")
        store = context.store(context.identify(url.authority, write=True), write=True)
        create(store, url)
        pushes(context, str(url), place, 1)


def _commits(git: Git, after: str | None) -> list[str]:
    """The chain of main, beyond `after`, the oldest first."""
    less = [] if after is None else [f"^{after}"]
    listed = git.run("rev-list", "--first-parent", "--reverse", "main", *less)
    return listed.decode().split()


def _silent() -> TextProgress:
    return TextProgress(sys.stderr, enabled=False)


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    main()
