"""What reaches a terminal, a pipe and a script."""

import io
import json
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from git_knotless.porcelain.output import (
    print_columns,
    print_error,
    print_fields,
    print_items,
    print_rows,
    printable,
    working,
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, with ümläuts and 漢字", "plain, with ümläuts and 漢字"),
        ("\x1b]0;owned\x07", r"\x1b]0;owned\x07"),
        ("a\x9b31mred", r"a\x9b31mred"),
        ("two\nlines\r", r"two\nlines\r"),
        ("turned \u202e round", r"turned \u202e round"),
        ("half a pair \ud83d", r"half a pair \ud83d"),
        ("a family \U0001f468\u200d\U0001f469", "a family \U0001f468\u200d\U0001f469"),
    ],
)
def test_text_of_others_is_shown_and_does_nothing(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text())
def test_what_is_shown_is_one_line_that_can_be_written(text: str) -> None:
    shown = printable(text)
    shown.encode()
    assert len(shown.splitlines()) <= 1
    assert shown.replace("\u200d", "").isprintable()


def test_of_one_thing_within_another_the_whole_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    monkeypatch.setattr("git_knotless.porcelain.output._MOMENT", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    for name in ("one", "another"):
        with working(name), working("a part"):
            until = time.monotonic() + 10
            while name not in terminal.getvalue() and time.monotonic() < until:
                time.sleep(0.01)  # another thread says it
        assert name in terminal.getvalue()
    assert "a part" not in terminal.getvalue()


def test_for_a_program_a_row_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([("a", "tab\there"), ("b", "")])
    assert capsys.readouterr().out == "a\ttab\\there\nb\t\n"


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """What stdout and stderr are from now on, 40 columns wide."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "40")
    return terminal


def test_columns_have_headings_and_take_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    print_columns(("name", "what"), [("a", "[red]x[/red]")], cut="what")
    head, row = terminal.getvalue().splitlines()
    assert head.split() == ["name", "what"]
    assert row.split() == ["a", "[red]x[/red]"]


def test_a_row_is_one_line_however_long(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    rows = [
        ("a-long-name-that-stays", "漢字 and so on " * 9, "2026-01-02"),
        ("b", "2\n3", ""),
    ]
    print_columns(("name", "what", "when"), rows, cut="what")
    _, first, second = terminal.getvalue().splitlines()
    assert first.startswith("a-long-name-that-stays")
    assert "…" in first
    assert first.rstrip().endswith("2026-01-02")
    assert r"2\n3" in second


def test_what_takes_long_is_said_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    monkeypatch.setattr("git_knotless.porcelain.output._MOMENT", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    with working("deleting [b]it[/b]"):
        until = time.monotonic() + 10
        while "deleting [b]it[/b]" not in terminal.getvalue() and time.monotonic() < until:
            time.sleep(0.01)  # another thread says it
    assert "deleting [b]it[/b]" in terminal.getvalue()


def test_what_is_over_soon_is_not_mentioned(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    with working("deleting"):
        pass
    assert terminal.getvalue() == ""


def test_nothing_of_it_reaches_a_pipe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("git_knotless.porcelain.output._MOMENT", 0.0)
    with working("deleting"):
        pass
    assert capsys.readouterr() == ("", "")


def test_fields_stand_below_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    print_fields([("url", "x"), ("description", "")])
    assert capsys.readouterr().out == "url          x\ndescription\n"


def test_items_are_one_document_in_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    print_items([{"name": "\x9bé"}])
    out = capsys.readouterr().out
    assert json.loads(out) == {"items": [{"name": "\x9bé"}]}
    assert out.isascii()


def test_an_error_is_two_lines_or_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    print_error("Sort", "what\nis wrong", "what mends it", as_json=False)
    assert capsys.readouterr().err == "error: what\\nis wrong\nhint: what mends it\n"
    print_error("Sort", "what is wrong", None, as_json=True)
    shown = json.loads(capsys.readouterr().err)
    assert shown == {"error": "Sort", "message": "what is wrong", "hint": None}
