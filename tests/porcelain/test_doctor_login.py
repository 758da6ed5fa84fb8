"""`git knotless doctor` where it is the login, or what names it, that is wrong."""

from collections.abc import Callable
from pathlib import Path

from tests.gitenv import GitEnv
from tests.marks import sandbox_only
from tests.network import Account
from tests.porcelain.test_doctor import doctor, failed


def test_nobody_who_writes_is_logged_in(
    machine: Callable[[], GitEnv], one: GitEnv, account: Callable[..., Account]
) -> None:
    """What was asked for was not done: that is no success."""
    nobody, other = machine(), account("bob").handle
    found = doctor(nobody, "--write", code=1)
    assert failed(found) == {"writing"}
    assert found["writing"]["hint"] == "git knotless login HANDLE"
    found = doctor(nobody, f"@{other}", "--write", code=1)
    assert failed(found) == {"writing"}
    assert found["writing"]["hint"] == f"git knotless login {other}"
    one.log_in(account("carol"))
    (Path(one.env["KNOTLESS_CONFIG_DIR"]) / "account").unlink(missing_ok=True)
    found = doctor(one, "--write", code=1)
    assert failed(found) == {"writing"}
    assert "several accounts are logged in" in found["writing"]["detail"]


@sandbox_only
def test_a_setting_that_names_nobody_says_which(one: GitEnv) -> None:
    hints = {"KNOTLESS_ACCOUNT": "unset KNOTLESS_ACCOUNT", "knotless.account": "--show-origin"}
    for source, hint in hints.items():
        if source == "knotless.account":
            one.git("config", "--global", source, "nobody.test")
        env = {"KNOTLESS_ACCOUNT": "nobody.test"} if source == "KNOTLESS_ACCOUNT" else {}
        found = doctor(one, code=1, env=env)
        assert failed(found) == {"login"}
        assert (
            found["login"]["detail"] == f"{source} names nobody.test: nobody.test: no such handle"
        )
        assert hint in found["login"]["hint"]


@sandbox_only
def test_a_dead_directory_is_one_fault(one: GitEnv) -> None:
    found = doctor(one, code=1, env={"KNOTLESS_PLC_URL": "http://localhost:1"})
    assert failed(found) == {"directory"}
    assert found["handle"]["status"] == "skipped"


@sandbox_only
def test_two_who_are_logged_in(
    one: GitEnv, alice: Account, account: Callable[..., Account]
) -> None:
    one.log_in(account("bob"))
    found = doctor(one, env={"KNOTLESS_ACCOUNT": alice.handle})
    assert found["login"]["detail"].endswith("; and 1 other")
