"""Log lines on a terminal."""

import logging
import sys

from git_knotless.atproto.log import PrintableFormatter

FORMATTER = PrintableFormatter("%(name)s: %(message)s")


def line(message: str, *args: object, failed: bool = False) -> str:
    info = sys.exc_info() if failed else None
    record = logging.LogRecord("httpx", logging.INFO, __file__, 1, message, args, info)
    return FORMATTER.format(record)


def test_a_hosts_words_are_harmless() -> None:
    said = line(
        'HTTP Request: GET /x "%s"', "HTTP/1.1 200 \x1b[31mRED\x1b]0;t\x07\u202e\x9b\nfatal: x"
    )
    assert said == 'httpx: HTTP Request: GET /x "HTTP/1.1 200 [31mRED ]0;t fatal: x"'


def test_nothing_is_cut() -> None:
    assert line("x" * 2000) == f"httpx: {'x' * 2000}"


def test_a_traceback_keeps_its_lines() -> None:
    try:
        raise ValueError("a\x1b[31m")
    except ValueError:
        said = line("failed", failed=True).splitlines()
    assert said[:2] == ["httpx: failed", "Traceback (most recent call last):"]
    assert said[2].startswith("  File ")
    assert said[-1] == "ValueError: a [31m"
