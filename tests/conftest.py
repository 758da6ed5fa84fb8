"""Fixtures. A test that needs hosts takes `account` or `network`, one that runs git `gitenv`, one
that runs `git knotless` or a remote of ours `machine`:

    def test_push(machine, account):
        alice = account("alice")
        one = machine()
        one.login(alice)
        one.git("push", f"knotless://{alice.handle}/work", "main", cwd=one.repository())
        assert alice.records("dev.knotless.ref")
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests import forked
from tests.gitenv import GitEnv
from tests.leftovers import leftovers
from tests.network import Account, Network, run_sandbox, run_testnet

Run = Callable[..., AbstractContextManager[Network]]
Start = Callable[[Run], Network]

_LEFT = pytest.StashKey[list[str]]()

# Started in the background of a script, we are to ignore Ctrl-C, and so would be all that we start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# How long an example takes says how busy the machine is.
hypothesis.settings.register_profile("knotless", deadline=None)
# For scripts/test --fast; a test with a number of its own keeps it.
hypothesis.settings.register_profile("quick", deadline=None, max_examples=30)
hypothesis.settings.load_profile("knotless")


@pytest.fixture(scope="session")
def networks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Starts each kind of network once, for whoever takes it first, and keeps it to the end."""
    with ExitStack() as stack:

        @cache
        def started(run: Run) -> Network:
            return stack.enter_context(run(data=tmp_path_factory.mktemp("network")))

        yield started


@pytest.fixture(
    scope="session",
    params=[
        pytest.param(run_sandbox, id="sandbox"),
        pytest.param(run_testnet, id="testnet", marks=pytest.mark.testnet),
    ],
)
def network(request: pytest.FixtureRequest, networks: Start) -> Network:
    """Two hosts, shared by the tests of a session (with xdist: of a worker). Each param is a
    context manager that is given an empty folder for its data."""
    return networks(request.param)


@pytest.fixture
def account(network: Network) -> Callable[..., Account]:
    """Makes accounts: `account()`, `account("alice", host=1)`."""
    return network.account


@pytest.fixture
def gitenv(tmp_path: Path) -> GitEnv:
    """A machine that knows no network."""
    return GitEnv(tmp_path / "machine")


@pytest.fixture
def machine(tmp_path: Path, network: Network) -> Callable[[], GitEnv]:
    """Makes machines on the network, each with a home of its own and nobody logged in."""
    numbers = count(1)
    return lambda: GitEnv(tmp_path / f"machine{next(numbers)}", network)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """What a worker of xdist has found."""
    left = getattr(node, "workeroutput", {}).get("left", [])
    node.config.stash.setdefault(_LEFT, []).extend(left)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A run fails that leaves a process behind, whatever its tests say."""
    forked.end()
    config = session.config
    if config.pluginmanager.hasplugin("dsession"):  # its workers have looked, and are ending
        left = config.stash.get(_LEFT, [])
    else:
        left = config.stash[_LEFT] = leftovers()
    if hasattr(config, "workeroutput"):
        config.workeroutput["left"] = left
    elif left and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    for process in config.stash.get(_LEFT, []):
        terminalreporter.write_line(f"LEFT RUNNING: {process}", red=True)
