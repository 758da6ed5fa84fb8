from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.network import Network, run_sandbox, run_testnet


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    with run_testnet(data=tmp_path_factory.mktemp("reference")) as network:
        yield network


@pytest.fixture(scope="session")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    with run_sandbox(data=tmp_path_factory.mktemp("sandbox")) as network:
        yield network


Start = Callable[..., AbstractContextManager[Network]]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Starts a sandbox of this test, with options; again on the same data if asked again."""
    return lambda *options, pds=1: run_sandbox(*options, data=tmp_path / "sandbox", pds=pds)
