"""Repositories to measure with: the same seed gives the same ids everywhere."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random

from scripts._bench.machine import Failed, Machine
from scripts._bench.sizes import MIB

_SEED = 20260102
_EPOCH = 1_600_000_000
_FILES = 150
_LONGEST = 150  # lines of a file, however long the history
FEW_FILES = 16  # so few that even the first pack travels in its record
_NOISE_FILE = 16 * MIB
_WORDS = ["".join(Random(_SEED + number).choices("aeioulnrstdkmp", k=6)) for number in range(800)]


class Synthetic:
    """Text files in folders, of which each commit changes a few lines in one to three."""

    def __init__(self, files: int = _FILES) -> None:
        self._random = Random(_SEED)
        self._files = {
            f"part{number % 12}/{self._words(1)}{number}.txt": self._lines(80)
            for number in range(files)
        }

    def stream(self, commits: int, branch: str = "main") -> Iterator[bytes]:
        """For `git fast-import`: a chain of commits on `branch`, a tag at every hundredth."""
        for number in range(1, commits + 1):
            changed = list(self._files) if number == 1 else self._change()
            yield _commit(number, branch, self._words(6))
            for name in changed:
                body = "\n".join(self._files[name]).encode() + b"\n"
                yield f"M 644 inline {name}\n".encode() + _data(body)
            if number % 100 == 0:
                yield f"tag v{number}\nfrom :{number}\n".encode() + _tagger(number)
                yield _data(self._words(4).encode())

    def _change(self) -> list[str]:
        names = self._random.sample(sorted(self._files), self._random.randint(1, 3))
        for name in names:
            lines = self._files[name]
            at = self._random.randrange(len(lines))
            lines[at : at + self._random.randint(0, 3)] = self._lines(self._random.randint(1, 4))
            del lines[_LONGEST:]
        return names

    def _lines(self, count: int) -> list[str]:
        return [self._words(self._random.randint(3, 9)) for _ in range(count)]

    def _words(self, count: int) -> str:
        return " ".join(self._random.choices(_WORDS, k=count))


def noise(size: int, *, each: int = _NOISE_FILE) -> Iterator[bytes]:
    """Commits of one incompressible file each, `size` bytes together."""
    random = Random(_SEED)
    for number, start in enumerate(range(0, size, each), 1):
        yield _commit(number, "main", f"Noise {number}")
        length = min(each, size - start)
        yield f"M 644 inline noise{number}.bin\ndata {length}\n".encode()
        for at in range(0, length, MIB):
            yield random.randbytes(min(MIB, length - at))
        yield b"\n"


def orphans(count: int, size: int) -> Iterator[bytes]:
    """Commits without a parent, on branches f1, f2, …: each with one incompressible file."""
    random = Random(_SEED)
    for number in range(1, count + 1):
        yield _commit(number, f"f{number}", f"File {number}")
        yield f"M 644 inline file.bin\ndata {size}\n".encode()
        for at in range(0, size, MIB):
            yield random.randbytes(min(MIB, size - at))
        yield b"\n"


def _commit(number: int, branch: str, message: str) -> bytes:
    head = f"commit refs/heads/{branch}\nmark :{number}\n"
    when = f"committer Bench <bench@example.com> {_EPOCH + number * 3600} +0000\n"
    return f"{head}{when}".encode() + _data(message.encode())


def _tagger(number: int) -> bytes:
    return f"tagger Bench <bench@example.com> {_EPOCH + number * 3600} +0000\n".encode()


def _data(body: bytes) -> bytes:
    return b"data %d\n%b\n" % (len(body), body)


def imported(machine: Machine, name: str, stream: Iterator[bytes]) -> Path:
    """A bare repository that holds what a `git fast-import` stream says, in one pack."""
    place = machine.root / name
    machine.git("init", "--quiet", "--bare", "--template=", str(place))
    # No delta is tried on, and no time spent to compress, what cannot become smaller.
    settings = ("core.bigFileThreshold=1m", "core.compression=1", "fastimport.unpackLimit=0")
    options = [word for setting in settings for word in ("-c", setting)]
    command = ["git", *options, "fast-import", "--quiet"]
    with subprocess.Popen(
        command, cwd=place, env=machine.env, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as process:
        assert process.stdin
        for piece in stream:
            process.stdin.write(piece)
        process.stdin.close()
        if process.wait() != 0:
            raise RuntimeError("git fast-import failed")
    return place


def synthetic(machine: Machine, name: str, commits: int) -> Path:
    place = imported(machine, name, Synthetic().stream(commits))
    machine.git("repack", "-q", "-a", "-d", "-f", cwd=place)  # as a repository in use is packed
    return place


def copied(machine: Machine, name: str, source: Path) -> Path:
    """The branches and tags of a repository of the user's, in one pack; HEAD as there."""
    head = _head(machine, source)
    place = machine.root / name
    machine.git("init", "--quiet", "--bare", "--template=", str(place))
    wanted = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
    machine.git("fetch", "--quiet", "--no-tags", str(source.resolve()), *wanted, cwd=place)
    machine.git("symbolic-ref", "HEAD", head, cwd=place)
    machine.git("repack", "-q", "-a", "-d", cwd=place)
    return place


def _head(machine: Machine, source: Path) -> str:
    """The full name of the branch that HEAD names. Raises Failed, in words, where nothing can be
    measured of it."""

    def said(*args: str) -> str:
        try:
            return machine.git(*args, cwd=source).out.strip()
        except (Failed, OSError):
            return ""

    wrong = {
        "is no git repository": not said("rev-parse", "--git-dir"),
        "is a shallow clone": said("rev-parse", "--is-shallow-repository") == "true",
        "has no branch checked out": not said("symbolic-ref", "HEAD"),
        "has no commit on its branch": not said("rev-parse", "--verify", "HEAD^{commit}"),
    }
    if why := next((words for words, is_so in wrong.items() if is_so), None):
        raise Failed(f"{source} {why}")
    return said("symbolic-ref", "HEAD")
