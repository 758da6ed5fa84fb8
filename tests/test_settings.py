"""Where a setting comes from, which of several values counts, and what is said of a bad one."""

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from git_knotless import settings
from git_knotless.atproto.syntax import Handle
from git_knotless.settings import BadSetting, Password, Settings, load

ROOT = Path(__file__).parents[1]
DIRS = {"KNOTLESS_CONFIG_DIR": "/c", "KNOTLESS_CACHE_DIR": "/k"}


def config(*entries: tuple[str, str, str | None]) -> bytes:
    """As git prints them: scope, key in lower case, and the value, unless the key has none."""
    return b"".join(
        f"{scope}\0{key.lower()}{'' if value is None else chr(10) + value}\0".encode()
        for scope, key, value in entries
    )


def test_without_any_the_defaults_hold() -> None:
    assert load(DIRS, b"") == Settings(config_dir=Path("/c"), cache_dir=Path("/k"))


def test_the_folders_are_where_the_system_keeps_such_things(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/config")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    found = load({}, b"")
    assert found.config_dir.name == found.cache_dir.name == "knotless"


def test_a_relative_folder_is_one_of_where_we_are() -> None:
    found = load({**DIRS, "KNOTLESS_CACHE_DIR": "here"}, b"")
    assert found.cache_dir == Path.cwd() / "here"


def test_a_variable_overrides_its_twin_and_an_empty_one_does_not() -> None:
    entries = config(("global", "knotless.account", "alice.test"))
    assert load({**DIRS, "KNOTLESS_ACCOUNT": "bob.test"}, entries).account == "bob.test"
    assert load({**DIRS, "KNOTLESS_ACCOUNT": ""}, entries).account == "alice.test"


def test_an_account_is_taken_with_its_at() -> None:
    assert load({**DIRS, "KNOTLESS_ACCOUNT": "@alice.test"}, b"").account == "alice.test"


def test_of_several_values_the_last_counts() -> None:
    entries = config(
        ("system", "knotless.identityTtlSecs", "1"),
        ("local", "knotless.identityTtlSecs", "2"),
        ("command", "knotless.identityTtlSecs", "3"),
    )
    assert load(DIRS, entries).identity_ttl == 3


@pytest.mark.parametrize("value", ["", None])
def test_an_empty_value_takes_back_those_before_it(value: str | None) -> None:
    entries = config(
        ("global", "knotless.handleResolver", "https://a.example"),
        ("global", "knotless.handleResolver", value),
        ("global", "knotless.handleResolver", "https://b.example"),
    )
    assert load(DIRS, entries).handle_resolvers == ("https://b.example",)


def test_resolvers_are_separated_by_spaces() -> None:
    given = {**DIRS, "KNOTLESS_HANDLE_RESOLVER": " http://localhost:1  https://b.example/ "}
    assert load(given, b"").handle_resolvers == ("http://localhost:1", "https://b.example")


@pytest.mark.parametrize("scope", ["local", "worktree", "submodule", "unknown", ""])
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("knotless.plcUrl", "https://evil.example"),
        ("knotless.handleResolver", "https://evil.example"),
        ("knotless.browser", "./evil"),
    ],
)
def test_no_repository_chooses_the_servers_that_are_asked_or_what_is_run(
    scope: str, key: str, value: str
) -> None:
    assert load(DIRS, config((scope, key, value))) == load(DIRS, b"")
    assert load(DIRS, config(("global", key, value))) != load(DIRS, b"")


def test_a_browser_is_a_command_line_without_a_shell() -> None:
    given = {**DIRS, "KNOTLESS_BROWSER": """firefox --profile "my profile" '%s' $HOME; x"""}
    assert load(given, b"").browser == (
        "firefox", "--profile", "my profile", "%s", "$HOME;", "x",
    )  # fmt: skip


def test_what_others_keep_there_is_let_be() -> None:
    entries = config(("local", "knotless.sub.plcUrl", "x"), ("local", "knotless.other", "x\ny\nz"))
    assert load(DIRS, entries) == load(DIRS, b"")


def test_the_key_is_found_however_it_is_written(tmp_path: Path) -> None:
    """What git itself prints, of a file where every letter is another case."""
    file = tmp_path / "config"
    file.write_text('[KNOTLESS]\n\tPLCURL = "http://localhost:2582/"\n[knotless]\n\tlog = debug\n')
    printed = subprocess.run(
        ["git", "config", "--show-scope", "-z", "--get-regexp", r"^knotless\."],
        env={"GIT_CONFIG_GLOBAL": str(file), "PATH": "/usr/bin:/bin"},
        cwd=tmp_path,
        capture_output=True,
        check=True,
    ).stdout
    found = load(DIRS, printed)
    assert (found.plc_url, found.log) == ("http://localhost:2582", "debug")


BAD = [
    ("KNOTLESS_PLC_URL", "knotless.plcUrl", "plc.directory"),
    ("KNOTLESS_PLC_URL", "knotless.plcUrl", "http://plc.directory"),
    ("KNOTLESS_PLC_URL", "knotless.plcUrl", "https://u:p@plc.directory"),
    ("KNOTLESS_PLC_URL", "knotless.plcUrl", "https://plc.directory:99999"),
    ("KNOTLESS_PLC_URL", "knotless.plcUrl", "file:///etc/passwd"),
    ("KNOTLESS_HANDLE_RESOLVER", "knotless.handleResolver", "https://a.example b.example"),
    ("KNOTLESS_BROWSER", "knotless.browser", " "),
    ("KNOTLESS_BROWSER", "knotless.browser", "firefox 'x"),
    ("KNOTLESS_ACCOUNT", "knotless.account", "alice"),
    ("KNOTLESS_ACCOUNT", "knotless.account", "--upload-pack=x"),
    ("KNOTLESS_IDENTITY_TTL_SECS", "knotless.identityTtlSecs", "an hour"),
    ("KNOTLESS_IDENTITY_TTL_SECS", "knotless.identityTtlSecs", "-1"),
    ("KNOTLESS_IDENTITY_TTL_SECS", "knotless.identityTtlSecs", "1_000"),
    ("KNOTLESS_IDENTITY_TTL_SECS", "knotless.identityTtlSecs", "\u0663"),
    ("KNOTLESS_CLAIM_GRACE_SECS", "knotless.claimGraceSecs", "1e9"),
    ("KNOTLESS_LOG", "knotless.log", "loud"),
]


@pytest.mark.parametrize(("variable", "key", "value"), BAD)
def test_a_bad_value_is_told_by_where_it_stands(variable: str, key: str, value: str) -> None:
    with pytest.raises(BadSetting) as caught:
        load({**DIRS, variable: value}, b"")
    assert caught.value.message.startswith(f"{variable}: ")
    with pytest.raises(BadSetting) as caught:
        load(DIRS, config(("global", key, value)))
    assert caught.value.message.startswith(f"{key}: ")
    assert "\n" not in caught.value.message


def test_a_bad_value_that_is_overridden_is_not_looked_at() -> None:
    entries = config(("global", "knotless.log", "loud"))
    assert load({**DIRS, "KNOTLESS_LOG": "error"}, entries).log == "error"


@given(st.binary())
def test_no_config_breaks_it(raw: bytes) -> None:
    load(DIRS, raw)


def test_the_password_is_not_shown() -> None:
    found = load({**DIRS, "KNOTLESS_PASSWORD": "s3cret"}, b"")
    assert found.password == Password("s3cret", None)
    assert "s3cret" not in repr(found) + repr(found.password)


def test_a_password_is_of_the_account_beside_it_and_of_no_other() -> None:
    entries = config(("local", "knotless.account", "bob.test"))
    env = {**DIRS, "KNOTLESS_PASSWORD": "s3cret"}
    found = load(env, entries)
    assert (found.account, found.password) == ("bob.test", Password("s3cret", None))
    found = load({**env, "KNOTLESS_ACCOUNT": "alice.test"}, entries)
    assert found.password == Password("s3cret", Handle("alice.test"))
    assert load({**DIRS, "KNOTLESS_ACCOUNT": "alice.test"}, entries).password is None


def test_each_setting_has_its_field_its_row_and_a_key_of_our_section() -> None:
    assert {setting.field for setting in settings.TABLE} == set(Settings.__match_args__)
    rows = settings.markdown().splitlines()
    assert len(rows) == 2 + len(settings.TABLE)
    for setting, row in zip(settings.TABLE, rows[2:], strict=True):
        assert row.startswith(f"| `{setting.variable}` |")
        assert row.count("|") == 5
        assert setting.key is None or setting.key.startswith("knotless.")


def test_a_user_without_a_home_has_no_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs under a number of nobody's: reading works all the same."""
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 54_321)
    found = load({}, b"")
    assert not found.config_dir.exists()
    with pytest.raises(NotADirectoryError):
        found.cache_dir.mkdir(parents=True)
