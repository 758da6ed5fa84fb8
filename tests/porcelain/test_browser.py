"""Which browser is started, and with what: scripts stand for browsers that are not there."""

import os
from pathlib import Path
from threading import Event

import pytest

from git_knotless.porcelain.browser import NoSuchBrowser, find, open_page

URL = "https://pds.example/oauth/authorize?client_id=http%3A%2F%2Flocalhost&x=%s"


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """A machine on whose PATH are the scripts of a test, and what they need."""
    (tmp_path / "bin").mkdir()
    return {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "TERM": "xterm", "HOME": str(tmp_path)}


def script(tmp_path: Path, name: str, *, status: int = 0) -> Path:
    """It keeps the words that it is given, one a line, and says something."""
    path = tmp_path / "bin" / name
    kept = tmp_path / f"{name}.part"
    path.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" >"{kept}"; mv "{kept}" "{tmp_path}/{name}.given"\n'
        f"echo noise; echo noise >&2\nexit {status}\n"
    )
    path.chmod(0o755)
    return path


def opened(tmp_path: Path, name: str, failed: Event) -> list[str]:
    given = tmp_path / f"{name}.given"
    for _ in range(1000):
        if given.exists() or failed.wait(0.02):
            break
    return given.read_text().splitlines() if given.exists() else []


def test_the_one_that_is_set_is_found_on_the_path_and_given_the_address_last(
    env: dict[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program, failed = script(tmp_path, "mine"), Event()
    command = find(("mine", "--private", "two words"), env)
    assert command == (str(program), "--private", "two words")
    open_page(command, URL, env, failed.set)
    assert opened(tmp_path, "mine", failed) == ["--private", "two words", URL]
    assert capfd.readouterr() == ("", "")


def test_the_address_goes_where_the_setting_says(env: dict[str, str], tmp_path: Path) -> None:
    failed = Event()
    script(tmp_path, "mine")
    open_page(find(("mine", "--url=%s", "--wait"), env) or (), URL, env, failed.set)
    assert opened(tmp_path, "mine", failed) == [f"--url={URL}", "--wait"]


def test_one_that_is_not_there_is_named(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "bin/plain").touch()
    for name in ("nowhere", "plain", f"{tmp_path}/bin"):
        with pytest.raises(NoSuchBrowser, match=name):
            find((name,), env)


def test_one_that_fails_is_told_of(env: dict[str, str], tmp_path: Path) -> None:
    failed = Event()
    script(tmp_path, "mine", status=1)
    open_page(find(("mine",), env) or (), URL, env, failed.set)
    assert failed.wait(20)
    empty = tmp_path / "bin/empty"
    empty.touch(mode=0o755)
    failed.clear()
    open_page((str(empty),), URL, env, failed.set)  # no format that can be run
    assert failed.is_set()


def test_without_a_screen_there_is_none(env: dict[str, str]) -> None:
    assert find((), env) is None
    assert find((), env | {"DISPLAY": ""}) is None


def test_the_systems_is_the_one_that_it_names(env: dict[str, str], tmp_path: Path) -> None:
    program, failed = script(tmp_path, "systems"), Event()
    env["BROWSER"] = str(program)
    open_page(find((), env) or (), URL, env, failed.set)
    assert opened(tmp_path, "systems", failed) == [URL]


def test_a_browser_for_terminals_is_not_taken(env: dict[str, str], tmp_path: Path) -> None:
    """It would wait for somebody to type."""
    failed = Event()
    for name in ("w3m", "lynx", "links", "www-browser"):
        script(tmp_path, name)
    env |= {"DISPLAY": ":99", "PATH": f"{tmp_path}/bin"}
    (tmp_path / "bin/mv").symlink_to("/bin/mv")
    open_page(find((), env) or (), URL, env, failed.set)
    assert failed.wait(20)
    assert not list(tmp_path.glob("*.given"))


def test_no_module_of_the_folder_around_us_is_run(
    env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = tmp_path / "ran"
    (tmp_path / "webbrowser.py").write_text(f"open({str(ran)!r}, 'w')\n")
    monkeypatch.chdir(tmp_path)
    program, failed = script(tmp_path, "systems"), Event()
    env |= {"BROWSER": str(program), "PYTHONPATH": os.fspath(tmp_path)}
    open_page(find((), env) or (), URL, env, failed.set)
    assert opened(tmp_path, "systems", failed) == [URL]
    assert not ran.exists()
