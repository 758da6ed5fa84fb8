"""Small packs joined into one stream: a shortcut, which says nothing of the packs when it fails."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from git_knotless.errors import KnotlessError
from git_knotless.storage.git import Git
from git_knotless.storage.packs.packfile import BadPack
from git_knotless.storage.packs.packindex import oids_in
from tests.gitenv import GitEnv
from tests.storage.packs import bytes_of, noise, publish, publish_bytes
from tests.storage.reader import KIB, Host, Reader, push_each, rewrite


def with_ref_deltas(gitenv: GitEnv, work: Path, *revisions: str) -> bytes:
    """A pack as many tools write it: deltas name their bases by their ids."""
    lines = "".join(f"{revision}\n" for revision in revisions)
    found = gitenv.git(
        "rev-list", "--objects", "--no-object-names", "--stdin", cwd=work, stdin=lines
    )
    path = gitenv.git("pack-objects", "-q", "../packed", cwd=work, stdin=found.out).out.strip()
    data = (gitenv.root / f"packed-{path}.pack").read_bytes()
    assert data[:8] == b"PACK\0\0\0\2"
    return data


@pytest.fixture
def revised(gitenv: GitEnv) -> Path:
    """Four revisions of one text: three of them are deltas."""
    work = gitenv.repository("revised", commits=0)
    for number in range(4):
        lines = "".join(f"{line * (1 + (line == number))}\n" for line in range(400))
        gitenv.commit(work, "text", lines)
    return work


@pytest.mark.parametrize("times", [2, 5])
@pytest.mark.parametrize("clone", [True, False])
def test_the_same_ref_delta_in_two_packs(
    gitenv: GitEnv, revised: Path, host: Host, reader: Reader, times: int, clone: bool
) -> None:
    git = Git(revised / ".git", env=gitenv.env)
    for _ in range(times):
        publish_bytes(host, with_ref_deltas(gitenv, revised, "main"))
    tip = gitenv.commit(revised, "more")
    publish(host, git, [tip], [gitenv.oid(revised, "main~1")])
    taken = reader.take(tip, clone=clone)
    assert reader.has(tip)
    assert (taken.connected, taken.left_out) == (True, ())
    assert len(taken.keeps) == 1
    assert len(reader.packs()) == 3


def commands(trace: Path, name: str) -> int:
    return sum(f"built-in: git {name} " in line for line in trace.read_text().splitlines())


@pytest.mark.parametrize("at", [0, 20, 39])
def test_one_bad_pack_is_found_by_halving(
    gitenv: GitEnv, git: Git, host: Host, reader: Reader, at: int
) -> None:
    work = gitenv.repository("many", commits=40)
    records = push_each(gitenv, work, Git(work / ".git", env=gitenv.env), host)
    data = bytearray(bytes_of(host, records[at])[:-20])
    data[12] ^= 0x70  # what kind of object the first one is
    sealed = bytes(data) + hashlib.sha1(data).digest()
    rewrite(host, records[at], data=sealed, checksum=sealed[-20:].hex())
    trace = gitenv.root / "trace"
    gitenv.env["GIT_TRACE"] = str(trace)
    with pytest.raises(BadPack, match=f": pack {records[at].rkey}: git index-pack: "):
        reader.take(gitenv.oid(work))
    assert 2 < commands(trace, "index-pack") <= 2 * 6 + 1
    assert reader.packs() == []


SETTINGS = [
    ("pack.indexVersion", "1"),
    ("pack.packSizeLimit", "1m"),
    ("pack.writeReverseIndex", "true"),
    ("pack.allowPackReuse", "false"),
    ("pack.useBitmaps", "false"),
    ("pack.useSparse", "true"),
    ("pack.window", "0"),
    ("pack.depth", "1"),
    ("pack.windowMemory", "1"),
    ("pack.deltaCacheSize", "1"),
    ("pack.compression", "0"),
    ("pack.threads", "1"),
    ("core.compression", "9"),
    ("core.bigFileThreshold", "1"),
    ("core.abbrev", "4"),
    ("core.commitGraph", "false"),
    ("core.sharedRepository", "group"),
    ("core.quotePath", "false"),
    ("color.ui", "always"),
    ("core.pager", "false"),
    ("fetch.unpackLimit", "1"),
    ("transfer.hideRefs", "refs/"),
    ("transfer.fsckObjects", "true"),
]


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(SETTINGS, id="all of them"),
        *(pytest.param([each], id=each[0], marks=pytest.mark.slow) for each in SETTINGS),
    ],
)
def test_what_users_set_does_not_matter(
    gitenv: GitEnv, revised: Path, host: Host, reader: Reader, settings: list[tuple[str, str]]
) -> None:
    """Written and read under it: packs of their own, ones that are joined, and ones made anew."""
    for name, value in settings:
        gitenv.git("config", "--global", name, value)
    as_options = (f"'{name}'='{value}'" for name, value in settings)
    gitenv.env["GIT_CONFIG_PARAMETERS"] = " ".join(as_options)  # as `git -c` hands them on
    git = Git(revised / ".git", env=gitenv.env)
    publish(host, git, [gitenv.oid(revised)])
    publish(host, git, [gitenv.oid(revised)])
    for number in range(2):
        before = gitenv.oid(revised)
        gitenv.commit(revised, f"noise{number}", noise(900 * KIB, number))
        publish(host, git, [gitenv.oid(revised)], [before])
    tip = gitenv.commit(revised, "large", noise(1100 * KIB, 7))
    publish(host, git, [tip], [gitenv.oid(revised, "main~1")])
    assert reader.take(tip, clone=True).connected
    assert reader.has(tip)
    assert len([name for name in reader.packs() if name.endswith(".pack")]) == 2


def cut(data: bytes) -> bytes:
    return data[: 8 + 1024 + 20 + 7]


@pytest.mark.parametrize("change", [cut, lambda data: data[8:], lambda data: data[:500]])
def test_an_index_that_is_none(
    gitenv: GitEnv, work: Path, change: Callable[[bytes], bytes]
) -> None:
    gitenv.git("repack", "-adq", cwd=work)
    (index,) = (work / ".git/objects/pack").glob("*.idx")
    assert len(list(oids_in(index))) == 9
    broken = gitenv.root / "broken.idx"
    broken.write_bytes(change(index.read_bytes()))
    with pytest.raises(KnotlessError, match="^git index-pack made "):
        list(oids_in(broken))
