"""What is said of the page that a login waits for."""

import sys
import time

import pytest

from git_knotless.porcelain import page

URL = "https://pds.example/authorize?request=1"
ENDS_AT = "http://127.0.0.1:1/callback"
Captured = pytest.CaptureFixture[str]


def said(program: str, capsys: Captured, *, until: str = "", seconds: float = 10.0) -> str:
    """While a page that `program` opens is waited for: up to `until`, or for so long."""
    shown, ends = "", time.monotonic() + seconds
    with page.show(URL, ENDS_AT, [sys.executable, "-c", program], on_purpose=False):
        while time.monotonic() < ends and not (until and until in shown):
            time.sleep(0.01)  # a thread says it
            shown += capsys.readouterr().err
    return shown + capsys.readouterr().err


def test_a_browser_that_opens_nothing(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "_SILENT_SECONDS", 0.05)
    first, second, _, address, _, last = said("", capsys, until="Ctrl-C").splitlines()
    assert first == "opening pds.example in your browser…"
    assert second == "no answer yet; if no page has opened, open this address yourself:"
    assert address == f"    {URL}"
    assert last == "waiting for the answer, up to 5 minutes; Ctrl-C ends it"


def test_a_browser_that_fails_is_told_once(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "_SILENT_SECONDS", 0.5)
    shown = said("raise SystemExit(1)", capsys, seconds=1.5)
    assert shown.count(URL) == 1
    assert "the browser could not be started" in shown


def test_an_answer_that_comes_soon_is_all(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "_SILENT_SECONDS", 0.5)
    said("", capsys, seconds=0.01)
    time.sleep(0.7)  # past when it would have been said
    assert capsys.readouterr().err == ""
