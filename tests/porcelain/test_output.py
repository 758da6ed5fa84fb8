"""What reaches a terminal, a pipe and a script."""

import io
import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from git_knotless.porcelain.output import (
    print_error,
    print_fields,
    print_items,
    print_table,
    printable,
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


def test_a_table_in_a_pipe_is_a_row_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "what"), [("a", "tab\there"), ("b", "")])
    assert capsys.readouterr().out == "a\ttab\\there\nb\t\n"


def test_a_table_on_a_terminal_has_headings_and_takes_no_markup(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "dumb")
    print_table(("name", "what"), [("a", "[red]x[/red]")])
    head, row = terminal.getvalue().splitlines()
    assert head.split() == ["name", "what"]
    assert row.split() == ["a", "[red]x[/red]"]


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
