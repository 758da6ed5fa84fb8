"""Marks that say on which of the networks a test runs, where that is not both."""

import pytest

from tests.network import run_sandbox

# What no host's answer has a part in: words, what is typed, and what is kept on this machine.
sandbox_only = pytest.mark.parametrize(
    "network", [pytest.param(run_sandbox, id="sandbox")], indirect=True
)
