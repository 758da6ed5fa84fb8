"""Every hint of ours that has a command is one to copy: what is said comes first, and the command
ends the line."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.main import get_command

from git_knotless.porcelain.commands import app

PACKAGE = Path(__file__).parents[1] / "git_knotless"
PROGRAM = "git knotless"
PROGRAMS = "chmod|curl|env|eval|export|git|pip|pipx|rm|unset"
PROGRAMS = "chmod|curl|env|eval|export|git|pip|pipx|rm|unset"
COMMAND = re.compile(rf"(?:^|(?<=[ (`]))(?:{PROGRAMS}) [a-z\"/'-].*")
PROSE = re.compile(r"[,;:] |\b(?:then|that|which|it is|takes|changes|has|or) ")


def hints() -> Iterator[tuple[str, str]]:
    """Where each is, and its text with STAND-IN for what is put into it."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            for value in _texts_of(node):
                yield f"{path.relative_to(PACKAGE)}:{value.lineno}", _text(value)


def _texts_of(node: ast.AST) -> Iterator[ast.expr]:
    """`hint=…`, `hint = …`, `say("hint", …)`, `say("hint: …")`, `fail(detail, …)`."""
    match node:
        case ast.keyword(arg="hint" | "mend", value=value):
            yield value
        case ast.Assign(targets=[ast.Name(id="hint")], value=value):
            yield value
        case ast.Call(func=ast.Name(id="say"), args=[ast.Constant(value="hint"), value]):
            yield value
        case ast.Call(func=ast.Name(id="say"), args=[value]) if _text(value).startswith("hint: "):
            yield value
        case ast.Call(func=ast.Name(id="fail" | "warn"), args=[_, value]):
            yield value


def _text(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text.removeprefix("hint: ")
        case ast.JoinedStr(values=values):
            return "".join(_text(value) for value in values).removeprefix("hint: ")
        case ast.FormattedValue():
            return "STAND-IN"
    return ""


HINTS = [(where, text) for where, text in hints() if COMMAND.search(text)]


def test_there_are_some() -> None:
    assert len(HINTS) > 30


@pytest.mark.parametrize(("where", "text"), HINTS, ids=[where for where, _ in HINTS])
def test_a_command_ends_its_line(where: str, text: str) -> None:
    """One in the midst of prose, with `: ` and another behind it, is part of the prose."""
    last = text.rpartition(": ")[2]
    found = COMMAND.search(last)
    assert found is not None, "what comes last is the command"
    assert found.start() == 0, "what comes before a command ends with a colon"
    assert not PROSE.search(last), "nothing is said behind it"
    if last.startswith(f"{PROGRAM} ") and not last.startswith(f"{PROGRAM} STAND-IN"):
        _check_parses(shlex.split(last.partition(" && ")[0])[2:])


def _check_parses(words: list[str]) -> None:
    """By the very commands: no word is too many, and no option unknown."""
    command, context = get_command(app), None
    while subcommands := getattr(command, "commands", None):
        assert words, "which command?"
        command = subcommands[words[0]]
        words = words[1:]
    if "-h" in words:
        return
    try:
        context = command.make_context("x", list(words))
    except typer.TyperException as error:
        pytest.fail(error.format_message())
    assert context is not None
