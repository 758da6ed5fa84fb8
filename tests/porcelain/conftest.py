"""Whom most commands are tried as, and on what."""

from collections.abc import Callable, Iterator

import pytest

from tests.gitenv import GitEnv
from tests.network import Account, Network
from tests.proxy import Proxy, proxy


@pytest.fixture
def alice(account: Callable[..., Account]) -> Account:
    return account("alice")


@pytest.fixture
def one(machine: Callable[[], GitEnv], alice: Account) -> GitEnv:
    """A machine that alice is logged in on."""
    made = machine()
    made.log_in(alice)
    return made


@pytest.fixture
def between(network: Network, alice: Account, one: GitEnv) -> Iterator[Proxy]:
    """A host that the account is on, and that does as it is told."""
    with proxy(network, alice) as host:
        one.env |= host.environment()
        one.log_in(alice)
        yield host
