"""A host that lies in each way that it can, and git on the other side: what it says is refused in
half a minute and little memory, by a line that says what was wrong and who said it, and nothing of
it is in the user's repository.

What hosts merely fail at is in test_faults.py.
"""

import json
import random
import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.atproto.wire import Server, answering
from tests.e2e.conftest import Person
from tests.e2e.lies import (
    BRANCH,
    GET,
    GET_BLOB,
    LARGE,
    LIST,
    MEMORY,
    REFUSED,
    Lie,
    Stage,
    a_call,
    clone,
    only,
    ref,
)
from tests.gitenv import GitEnv
from tests.hostile import (
    OK,
    REF,
    REPO,
    Act,
    Liar,
    Told,
    changed,
    endlessly,
    hundred,
    pages,
    redirects,
    told,
)
from tests.marks import sandbox_only
from tests.network import Network
from tests.proxy import Answer, Exchange, proxy

pytestmark = sandbox_only


@pytest.fixture(scope="module")
def published(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    account = network.account("mallory")
    machine = GitEnv(tmp_path_factory.mktemp("mallory"), network)
    machine.log_in(account)
    mallory = Person(account, machine)
    work = mallory.published()
    noise = random.Random(7)
    for size in (100_000, 1_500_000):
        machine.commit(work, f"noise{size}", noise.randbytes(size))
        machine.push_main(work)
    (repo,) = account.records(REPO).values()
    with proxy(network, account) as host:
        liar = Liar(host, account, repo["key"])
        names = ("main", "main^{tree}", "main:file1")
        yield Stage(
            liar, network, mallory.url(), work, *(machine.oid(work, n) for n in names), machine
        )


@pytest.fixture
def stage(published: Stage) -> Stage:
    published.liar.tell_the_truth()
    return published


# One for each way in which something is refused; the others are slow, as they are many.
QUICK = {
    *("another pack", "a blob of 10 GB in 10 MB", "packs without an object", "a cursor that loops"),
    *("a blob at 169.254.169.254", "a DID document of a gigabyte", "a host at a private address"),
}
each = [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.slow, id=name) for name in REFUSED
]


@pytest.mark.parametrize("name", each)
def test_what_is_refused(stage: Stage, tmp_path: Path, name: str) -> None:
    lie, words = REFUSED[name]
    lie(stage)
    result = clone(stage, tmp_path)
    whose = {"url": stage.url, "host": stage.liar.host.url.partition("//")[2]}
    assert result.code == 128
    (said,) = result.errors
    assert re.search(words.format(**{k: re.escape(v) for k, v in whose.items()}), said)


def test_a_redirect_that_a_user_allows_is_followed(stage: Stage, tmp_path: Path) -> None:
    """To where another service of that network keeps blobs; before that it is not asked."""
    blob = stage.liar.account.blob(stage.blob_of(LARGE))
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(blob)
    with Server(answering(head + blob)) as storage:

        def lead(exchange: Exchange) -> None:
            other = exchange.query["cid"] != stage.blob_of(LARGE)
            (Exchange.pass_on if other else redirects(storage.url + "/x"))(exchange)

        stage.liar.instead[GET_BLOB] = lead
        reader = stage.reader(tmp_path)
        words = ("clone", "-q", stage.url, "clone")
        refused = told(reader, *words)
        (hint,) = (line for line in refused.err.splitlines() if line.startswith("hint: git "))
        reader.git(*hint.removeprefix("hint: git ").split())
        assert storage.connections == 0
        assert told(reader, *words).code == 0
        assert storage.connections == 1


# What is left out, or put in order, and does no harm.

NAMES = (
    *("refs/heads/a b", "refs/heads/../x", "refs/../../x", "../x", "refs/heads/a\nb", "HEAD"),
    *("refs/heads/a.lock", "refs/heads/.a", "refs/heads/a\x07", "refs/heads/a~1", "refs/heads//a"),
    *("/etc/passwd", "refs/heads/", "refs/heads/" + "x" * 1001, "refs/heads" + "/x" * 64, "--all"),
    *("refs/heads/@{u}", "refs/heads/a\0b", "config", "refs/heads/-\n\n"),
)


def shown(stage: Stage, root: Path) -> tuple[Told, dict[str, str]]:
    result = clone(stage, root)
    assert result.code == 0, result.err
    return result, stage.machine.refs(root / "reader" / "clone")


def test_names_that_git_would_refuse_are_left_out(stage: Stage, tmp_path: Path) -> None:
    bad = {key: value for name in NAMES for key, value in ref(stage, name).items()}
    bad |= ref(stage, "refs/heads/good", rkey=f"{stage.liar.key}.{'0' * 32}")  # another's key
    stage.liar.records[REF] = {**stage.liar.account.records(REF), **bad}
    _, refs = shown(stage, tmp_path)
    assert set(refs) == {BRANCH, "refs/remotes/origin/HEAD", "refs/remotes/origin/main"}


def test_refs_that_cannot_stand_side_by_side(stage: Stage, tmp_path: Path) -> None:
    longer_ones = ref(stage, f"{BRANCH}/x") | ref(stage, f"{BRANCH}/x/y")
    stage.liar.records[REF] = {**stage.liar.account.records(REF), **longer_ones}
    result, refs = shown(stage, tmp_path)
    assert set(refs) == {BRANCH, "refs/remotes/origin/HEAD", "refs/remotes/origin/main"}
    assert f"{BRANCH}/x is left out: it cannot stand beside {BRANCH}" in result.err


def twice(answer: dict[str, Any]) -> dict[str, Any]:
    return answer | {"records": answer["records"] * 2}


def backwards(answer: dict[str, Any]) -> dict[str, Any]:
    return answer | {"records": answer["records"][::-1]}


@pytest.mark.parametrize("change", [twice, pytest.param(backwards, marks=pytest.mark.slow)])
def test_pages_in_no_order(
    stage: Stage, tmp_path: Path, change: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    stage.liar.instead[LIST] = changed(change)
    _, refs = shown(stage, tmp_path)
    assert refs[BRANCH] == stage.tip


# Listings without end.


def refs_without_end(stage: Stage) -> Act:
    def record(number: int) -> Any:
        ((rkey, value),) = ref(stage, f"refs/heads/b{number}").items()
        return stage.liar.found(REF, rkey, {rkey: value})

    return pages(lambda page: hundred(record, page), str)


def nonsense_without_end(stage: Stage) -> Act:
    def record(number: int) -> Any:
        rkey = f"{stage.liar.key}.{number:09}"
        return stage.liar.found(REF, rkey, {rkey: {}})

    return pages(lambda page: hundred(record, page), lambda page: f"{stage.liar.key}.{page}")


@pytest.mark.slow
@pytest.mark.parametrize("act", [refs_without_end, nonsense_without_end])
def test_listings_without_end(stage: Stage, tmp_path: Path, act: Callable[[Stage], Act]) -> None:
    stage.liar.instead[LIST] = only(REF, act(stage))
    result = clone(stage, tmp_path)
    assert result.code == 128
    assert f"error: {stage.url}: more refs than a repository may have" in result.err


# Time, memory and the processor.


@pytest.mark.slow
def test_a_blob_that_drips(stage: Stage, tmp_path: Path) -> None:
    head = OK + b"Content-Length: 50\r\n\r\n"
    stage.liar.instead[GET_BLOB] = endlessly(b"x", head=head, every=1)
    began = time.monotonic()
    result = clone(stage, tmp_path)
    assert time.monotonic() - began < 40, "25 s, and what a busy machine takes to start"
    assert result.code == 128
    host = stage.liar.host.url.partition("//")[2]
    assert f"error: {host} is too slow: its answer does not end" in result.err


@pytest.mark.slow
def test_as_large_a_page_as_is_taken(stage: Stage, tmp_path: Path) -> None:
    """Of text, and of as many values as their text leaves room for."""
    values = [{f"{number:06}": []} for number in range(60_000)]
    stage.liar.forge(REF, lambda rkey, value: {rkey: value | {"x": "x" * 17_000_000, "y": values}})
    result, refs = shown(stage, tmp_path)
    assert refs[BRANCH] == stage.tip
    assert result.peak > 80 << 20, "it is as large as can be"


# Objects that are what they are called, and mean harm.


@dataclass(frozen=True, slots=True)
class Harm:
    """A commit, and the pack that has it."""

    commit: str
    data: bytes

    def is_told(self, stage: Stage) -> None:
        stage.liar.add_pack(self.data)
        stage.liar.forge(REF, lambda rkey, value: {rkey: value | {"target": self.commit}})


def harm(machine: GitEnv, tree: bytes, *more: str) -> Harm:
    """`tree` as it is written, whatever git thinks of it."""
    repository = machine.repository("harm", commits=0)

    def write(kind: str, data: bytes) -> str:
        words = ("hash-object", "-t", kind, "-w", "--literally", "--stdin")
        return machine.git(*words, cwd=repository, stdin=data).out.strip()

    blob = write("blob", b"#!/bin/sh\ntouch harmed\n")
    hooks = write("tree", b"100755 post-checkout\0" + bytes.fromhex(blob))
    inner = write("tree", b"40000 hooks\0" + bytes.fromhex(hooks))
    names = {b"BLOB": bytes.fromhex(blob), b"TREE": bytes.fromhex(inner)}
    for name, oid in names.items():
        tree = tree.replace(name, oid)
    root = write("tree", tree)
    who = b"Mallory <m@example.com> 1767323045 +0000"
    commit = write("commit", b"tree %s\nauthor %s\ncommitter %s\n\nx\n" % (root.encode(), who, who))
    objects = "\n".join((blob, hooks, inner, root, commit)) + "\n"
    packed = repository / "p"
    machine.git("pack-objects", "-q", str(packed), cwd=repository, stdin=objects)
    (file,) = repository.glob("p-*.pack")
    return Harm(commit, file.read_bytes())


HARMFUL = {
    "a folder .git": b"40000 .git\0TREE",
    "a folder .GIT": b"40000 .GIT\0TREE",
    "a folder ..": b"40000 ..\0TREE",
    "a link .gitmodules": b"120000 .gitmodules\0BLOB",
    "a path in a name": b"100755 .git/hooks/post-checkout\0BLOB",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HARMFUL)
def test_trees_that_mean_harm(stage: Stage, tmp_path: Path, name: str) -> None:
    """git examines objects where it is told to, and checks out nothing of the kind in any case."""
    made = harm(GitEnv(tmp_path / "maker"), HARMFUL[name])
    made.is_told(stage)
    examined = clone(stage, tmp_path / "one", "-c", "fetch.fsckObjects=true")
    assert examined.code == 128
    assert re.search(r"work: .*git index-pack: .*(fsck|git|full path|name)", examined.err)
    plain = clone_and_keep(stage, tmp_path / "two")
    assert not list((tmp_path / "two").rglob("post-checkout"))
    assert not list(tmp_path.rglob("harmed"))
    assert "invalid path" in plain.err or name == "a link .gitmodules"


def clone_and_keep(stage: Stage, root: Path) -> Told:
    return told(stage.reader(root), "clone", "-q", stage.url, "clone")


# In a repository that there is already.


@pytest.fixture(scope="module")
def cloned(published: Stage, tmp_path_factory: pytest.TempPathFactory) -> Path:
    published.liar.tell_the_truth()
    root = tmp_path_factory.mktemp("cloned")
    assert clone(published, root).code == 0
    return root / "reader" / "clone"


def files(repository: Path) -> dict[str, int]:
    """All of it but what is written of any fetch: what it was told last, and what was seen."""
    found = (path for path in (repository / ".git").rglob("*") if path.is_file())
    kept = (path for path in found if path.name != "FETCH_HEAD" and path.suffix != ".seen")
    return {str(path.relative_to(repository)): path.stat().st_size for path in kept}


def going_back(stage: Stage) -> None:
    """main as it was a push ago."""
    before = stage.machine.oid(stage.work, "main~1")
    stage.liar.forge(
        REF,
        lambda rkey, value: {
            rkey: value | {"target": before, "generation": value["generation"] - 1}
        },
    )


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        (REFUSED["a branch at a tree"][0], "main points at a tree"),
        (REFUSED["a ref at what is nowhere"][0], "is in no pack"),
        pytest.param(going_back, "went back|older state", id="a stale list"),
    ],
)
def test_a_repository_is_as_it_was(
    stage: Stage, cloned: Path, tmp_path: Path, lie: Lie, words: str
) -> None:
    repository = tmp_path / "clone"
    shutil.copytree(cloned, repository, symlinks=True)
    before = files(repository)
    lie(stage)
    result = told(stage.reader(tmp_path), "fetch", "-q", cwd=repository)
    assert result.code != 0
    assert re.search(words, result.err)
    assert result.peak < MEMORY
    assert files(repository) == before


# Pushing.


@pytest.fixture(scope="module")
def pusher(published: Stage, tmp_path_factory: pytest.TempPathFactory) -> tuple[GitEnv, Path]:
    published.liar.tell_the_truth()
    machine = GitEnv(tmp_path_factory.mktemp("pusher"), published.network)
    machine.env |= published.liar.host.environment()
    machine.log_in(published.liar.account)
    machine.git("clone", "-q", published.url, "work")
    return machine, machine.root / "work"


def claims(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Lie:
    """Batches fail, and whoever asks for their claims is told of others."""

    def lie(stage: Stage) -> None:
        sent: dict[str, Any] = {}

        def take(exchange: Exchange) -> None:
            writes = json.loads(exchange.read())["writes"]
            sent.update(
                {w["rkey"]: w["value"] for w in writes if w["collection"].endswith("claim")}
            )
            error = {"error": "InternalServerError", "message": "Internal Server Error"}
            exchange.answer(Answer.json(500, error))

        def show(exchange: Exchange) -> None:
            rkey = exchange.query.get("rkey", "")
            if rkey not in sent:
                exchange.pass_on()
                return
            found = stage.liar.found("dev.knotless.claim", rkey, {rkey: change(sent[rkey])})
            exchange.answer(Answer.json(200, found))

        stage.liar.instead |= {"repo.applyWrites": take, GET: show}

    return lie


def overwritten(answer: dict[str, Any]) -> dict[str, Any]:
    kind = "com.atproto.repo.applyWrites#updateResult"
    return answer | {"results": [result | {"$type": kind} for result in answer["results"]]}


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        pytest.param(
            claims(lambda claim: claim | {"nonce": "another's"}),
            "others push too often",
            id="another's claim",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            claims(lambda claim: {}),
            "remote rejected",
            id="a claim of nothing",
            marks=pytest.mark.slow,
        ),
        pytest.param(a_call("repo.applyWrites", changed(overwritten)), "overwrote", id="an update"),
    ],
)
def test_a_push_that_is_lied_to(
    stage: Stage, pusher: tuple[GitEnv, Path], lie: Lie, words: str
) -> None:
    machine, work = pusher
    before = machine.oid(work, "origin/main")
    machine.commit(work, "file", f"{random.random()}")
    lie(stage)
    result = told(machine, "push", "origin", "main", cwd=work)
    assert result.code == 1
    assert re.search(words, result.err)
    assert machine.oid(work, "origin/main") == before
