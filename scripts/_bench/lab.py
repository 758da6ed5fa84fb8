"""Where a section measures: a network of its own, machines on it, and contestants."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from scripts._bench import servers
from scripts._bench.machine import Machine, Ran
from scripts._bench.programs import Programs
from scripts._bench.servers import Account, Network, ask
from scripts._bench.sizes import Sizes

HTTP = "http"
S3 = "s3"


class Remote(Protocol):
    def new(self, name: str) -> str:
        """An empty repository's URL."""
        ...


@dataclass(slots=True)
class Lab:
    """`source` is a bare repository with the history to measure with, `branch` its main one."""

    root: Path
    programs: Programs
    sizes: Sizes
    source: Path
    branch: str
    network: Network
    stack: ExitStack
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def ref(self) -> str:
        """The branch by its full name: a tag may have the same short one."""
        return f"refs/heads/{self.branch}"

    def machine(self, env: Mapping[str, str]) -> Machine:
        return Machine(self.root / f"machine{next(self._numbers)}", self.programs.path, env)

    def reader(self, *, through: str | None = None) -> Machine:
        """On the network, with nobody logged in; `through` a proxy that counts."""
        plc, pds = (through, through) if through else (self.network.plc, self.network.pds)
        return self.machine({"KNOTLESS_PLC_URL": plc, "KNOTLESS_HANDLE_RESOLVER": pds})

    def knotless(self, *, through: str | None = None) -> "Knotless":
        """An account that is logged in to."""
        account = self.network.account(f"user{next(self._numbers)}")
        machine = self.reader(through=through)
        login = ("knotless", "login", account.handle, "--password-stdin")
        machine.git(*login, given=f"{account.password}\n".encode())
        return Knotless(machine, account, self.programs.python)

    def counted(self) -> "Counted":
        url = self.stack.enter_context(servers.proxy(self.network))
        return Counted(self.knotless(through=url), url)

    def http(self) -> "SmartHttp":
        root = self.root / f"http{next(self._numbers)}"
        url = self.stack.enter_context(servers.smart_http(root))
        return SmartHttp(self.machine({}), root / "git", url)

    def s3(self) -> "S3Bucket":
        root = self.root / f"s3-{next(self._numbers)}"
        env = self.stack.enter_context(servers.s3(self.programs.moto_server, root))
        return S3Bucket(self.machine(env))


@contextmanager
def lab(
    root: Path,
    programs: Programs,
    sizes: Sizes,
    source: Path,
    branch: str,
    *,
    blob_limit: int | None = None,
) -> Iterator[Lab]:
    with ExitStack() as stack:
        data = root / "network"
        started = stack.enter_context(servers.network(data, blob_limit=blob_limit))
        yield Lab(root, programs, sizes, source, branch, started, stack)


@dataclass(frozen=True, slots=True)
class Knotless:
    machine: Machine
    account: Account
    python: Path

    def new(self, name: str) -> str:
        return self.machine.git("knotless", "create", name).out.strip()

    def drive(self, *args: str) -> Ran:
        """Many small deeds in one process: see driver.py."""
        driver = str(Path(__file__).with_name("driver.py"))
        return self.machine.run(str(self.python), "-P", driver, *args)


@dataclass(frozen=True, slots=True)
class SmartHttp:
    machine: Machine
    folder: Path
    url: str

    def new(self, name: str) -> str:
        place = self.folder / f"{name}.git"
        self.machine.git("init", "--quiet", "--bare", "--template=", str(place))
        self.machine.git("config", "http.receivepack", "true", cwd=place)
        return f"{self.url}/{name}.git"


@dataclass(frozen=True, slots=True)
class S3Bucket:
    machine: Machine

    def new(self, name: str) -> str:
        return f"s3://bench/{name}"


@dataclass(frozen=True, slots=True)
class Counted:
    """An account whose every request is seen."""

    knotless: Knotless
    proxy: str

    def seen(self) -> list[str]:
        """The requests since it was asked last, as `METHOD nsid`."""
        calls: list[str] = ask(f"{self.proxy}/seen")
        return calls


@dataclass(frozen=True, slots=True)
class Contest:
    """Contestants that do the same in turn; the first round warms up and is not counted."""

    deeds: Mapping[str, Callable[[int], Ran]]

    def run(self, rounds: int) -> dict[str, list[float]]:
        names = list(self.deeds)
        seconds: dict[str, list[float]] = {name: [] for name in names}
        for number in range(rounds + 1):
            for name in _rotated(names, number):
                ran = self.deeds[name](number)
                if number:
                    seconds[name].append(ran.seconds)
        return seconds


def _rotated(names: Sequence[str], by: int) -> list[str]:
    """Nobody is always the one that comes after another."""
    by %= len(names)
    return [*names[by:], *names[:by]]
