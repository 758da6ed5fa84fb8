"""What the pages say can be typed, and what is made from the code is made from this code."""

import importlib.util
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer

from git_knotless.porcelain.commands import app

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PROGRAM = typer.main.get_command(app)
by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)

# What follows the name of the program, up to what a shell makes of the rest.
TYPED = re.compile(r"(?:^|[|;=…] ?)(?:git )?knotless ([^|<>\n]*)", re.MULTILINE)


def load_generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pages", ROOT / "scripts/_pages.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_is_made_from_the_code_is_up_to_date() -> None:
    for path, made in load_generator().PAGES.items():
        assert path.read_text() == made(), "scripts/check --fix writes it again"


def typed_on(page: Path) -> Iterator[list[str]]:
    """The `git knotless` commands on a page, in its blocks of shell and in running text."""
    text = page.read_text()
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    spans = re.findall(r"`((?:git )?knotless [^`…]+)`", re.sub(r"```.*?```", "", text, flags=re.S))
    for source in [*blocks, *spans]:
        for arguments in TYPED.findall(source):
            yield shlex.split(arguments, comments=True)


def find(words: list[str]) -> tuple[Any, list[str]]:
    """The command that `words` name, and what else is typed."""
    command: Any = PROGRAM
    rest = list(words)
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        assert rest[0] in command.commands, f"no such command: {' '.join(words)}"
        command = command.commands[rest.pop(0)]
    return command, rest


def options_of(command: Any) -> set[str]:
    parameters = command.get_params(typer.Context(command))
    return {name for each in parameters for name in (*each.opts, *each.secondary_opts)}


@by_page
def test_every_command_on_a_page_is_one(page: Path) -> None:
    for words in typed_on(page):
        command, rest = find(words)
        given = {word.partition("=")[0] for word in rest if word.startswith("-")}
        assert given <= options_of(command), words


def test_commands_are_found_on_the_pages() -> None:
    found = {" ".join(words[:2]) for page in PAGES for words in typed_on(page)}
    assert {"login alice.example", "repo list", "create notes", "repo edit"} <= found


@by_page
def test_every_link_within_the_repository_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_the_readme_leads_to_every_page() -> None:
    readme = (ROOT / "README.md").read_text()
    for page in (ROOT / "docs").glob("*.md"):
        assert f"docs/{page.name}" in readme
