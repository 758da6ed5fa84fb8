"""The rules that the source keeps, beyond what ruff, mypy and import-linter hold."""

import ast
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from importlib.metadata import packages_distributions
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "git_knotless"
MODULES = sorted(PACKAGE.rglob("*.py"))
BELOW_THE_COMMANDS = [
    path
    for path in MODULES
    if path.relative_to(PACKAGE).parts[0] not in {"helper", "lfs", "porcelain"}
]
TESTS = sorted((ROOT / "tests").rglob("*.py"))
SOURCES = [*MODULES, *TESTS, *sorted((ROOT / "scripts").rglob("*.py"))]

# A module imports what is on its own line and below, never what stands above or beside it.
LAYERS = (
    {"helper", "lfs", "porcelain"},
    {"context"},
    {"logins"},
    {"settings"},
    {"sandbox", "storage"},
    {"atproto"},
    {"errors", "limits", "value"},
)

# The only places that end the program, print, or catch whatever may come.
ENTRY_POINTS = {
    "helper/main.py",
    "lfs/main.py",
    "porcelain/main.py",
    "sandbox/__main__.py",
    "sandbox/app.py",
}

# A module has one subject; what is longer has two, or a reason. Tests have tables.
LONGEST = 400
LONGEST_TEST = 700
LONG_FOR_A_REASON: dict[str, str] = {}


Rule = Callable[[Path], None]


def by_path(paths: list[Path]) -> Callable[[Rule], Callable[[], None]]:
    """One test of all the files, which names each that breaks the rule: a thousand tests of a
    millisecond would take seconds."""

    def made(rule: Rule) -> Callable[[], None]:
        def test() -> None:
            broken = [said for path in paths for said in _broken(rule, path)]
            assert not broken, "\n".join(broken)

        test.__doc__ = rule.__doc__
        return test

    return made


def _broken(rule: Rule, path: Path) -> Iterator[str]:
    try:
        rule(path)
    except AssertionError as error:
        said, *_ = str(error).splitlines() or ["see the test"]
        yield f"{path.relative_to(ROOT)}: {said}"


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imports(tree: ast.AST) -> Iterator[str]:
    """The modules that are imported anywhere in a file, inside functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module or ""
            if node.module == "git_knotless":
                yield from (f"git_knotless.{alias.name}" for alias in node.names)


def layer_of(module: str) -> int | None:
    parts = module.split(".")
    if parts[0] != "git_knotless" or len(parts) == 1:
        return None
    found = [at for at, layer in enumerate(LAYERS) if parts[1] in layer]
    assert found, f"{parts[1]} is in no layer"
    return found[0]


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


@by_path(MODULES)
def test_imports_point_one_way(path: Path) -> None:
    own = module_of(path)
    mine = layer_of(own) if path.parent != PACKAGE or path.stem != "__init__" else 0
    for name in imports(parsed(path)):
        theirs = layer_of(name)
        if theirs is not None and mine is not None:
            same_part = name.split(".")[:2] == own.split(".")[:2]
            assert same_part or theirs > mine, f"{own} imports {name}"


def test_the_layers_here_are_those_of_import_linter() -> None:
    """Two checks of one rule: this one needs no tool and looks at one file at a time."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = next(each for each in config["contracts"] if each["id"] == "layers")["layers"]
    assert [set(layer.split(" | ")) for layer in layers] == list(LAYERS)


@by_path(SOURCES)
def test_no_file_is_long_without_a_reason(path: Path) -> None:
    lines = len(path.read_text().splitlines())
    most = LONGEST_TEST if path in TESTS else LONGEST
    listed = str(path.relative_to(ROOT)) in LONG_FOR_A_REASON
    assert (lines > most) == listed


@by_path(MODULES)
def test_only_entry_points_end_the_program(path: Path) -> None:
    if str(path.relative_to(PACKAGE)) in ENTRY_POINTS:
        return
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ExceptHandler):
            caught = ast.unparse(node.type) if node.type else "everything"
            ends = any(isinstance(inner, ast.Raise) for inner in ast.walk(node))
            assert ends or caught not in {"everything", "Exception", "BaseException"}, node.lineno
        elif isinstance(node, ast.Call):
            assert ast.unparse(node.func) not in {"sys.exit", "os._exit", "exit"}, node.lineno


@by_path(BELOW_THE_COMMANDS)
def test_the_environment_is_read_by_the_commands_alone(path: Path) -> None:
    """Everything below takes it as a mapping."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Attribute):
            assert ast.unparse(node) not in {"os.environ", "sys.argv"}, node.lineno
        elif isinstance(node, ast.Call):
            assert ast.unparse(node.func) not in {"os.getenv", "os.putenv"}, node.lineno


@by_path(SOURCES)
def test_a_silenced_check_says_why(path: Path) -> None:
    """On its line or in a comment above."""
    silenced = re.compile(r"# (?:type: ignore\[[\w-]+\]|noqa: \w+(?:, ?\w+)*)(?P<reason>.*)")
    for above, line in pairwise(["", *path.read_text().splitlines()]):
        if (found := silenced.search(line)) and not above.strip().startswith("#"):
            assert re.search(r"\w{3}", found["reason"]), line


@by_path(TESTS)
def test_a_test_that_sleeps_says_why(path: Path) -> None:
    text = path.read_text()
    lines = ["", *text.splitlines()]
    for node in ast.walk(parsed(path)) if "sleep" in text else ():
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("sleep"):
            above, line = lines[node.lineno - 1 : node.lineno + 1]
            assert "#" in line or above.strip().startswith("#"), f"{node.lineno}: {line.strip()}"


@by_path(MODULES)
def test_nothing_is_left_for_later(path: Path) -> None:
    for node in ast.walk(parsed(path)):
        assert not (isinstance(node, ast.Name) and node.id == "NotImplementedError"), node.lineno
    assert not re.search(r"\b(TODO|FIXME|XXX)\b", path.read_text())


def test_each_dependency_is_used_and_each_import_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = project["dependencies"] + project["optional-dependencies"]["server"]
    declared = {re.split(r"[^\w-]", each)[0].lower() for each in needed}
    named = {name.split(".")[0] for path in MODULES for name in imports(parsed(path))}
    others = named - sys.stdlib_module_names - {"git_knotless"}
    owners = packages_distributions()
    assert {owners[name][0].lower() for name in others} == declared


def test_no_file_names_where_packages_come_from() -> None:
    """A lock file or a setting that names a registry fails wherever another one is used."""
    address = re.compile(
        r'"resolved": *"http|^ *(url|index-url|registry) *[=:] *"?http|--(extra-)?index-url',
        re.MULTILINE,
    )
    patterns = ("*lock*", "*.toml", "*.txt", "*.cfg", ".npmrc", "package.json")
    skipped = {".venv", ".venv-try", ".git", "node_modules", "__pycache__"}
    for path in (each for pattern in patterns for each in ROOT.rglob(pattern)):
        if path.is_file() and not skipped.intersection(path.relative_to(ROOT).parts):
            assert not address.search(path.read_text()), path
