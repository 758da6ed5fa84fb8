"""Names of refs: which git takes, and which cannot stand side by side.

The rules are those of `git check-ref-format`, for names in full (`refs/…`). A name also has to
be text, since a record holds it as text; git itself takes any bytes.
"""

from collections.abc import Collection, Iterator

from git_knotless import limits

BRANCHES = "refs/heads/"
TAGS = "refs/tags/"
# What is our own is told to nobody: refs that hold what a push has brought so far.
_OWN = "refs/knotless"
PUSHES = f"{_OWN}/push/"

_FORBIDDEN = frozenset(" ~^:?*[\\\x7f") | {chr(code) for code in range(0x20)}


def is_ref_name(name: str) -> bool:
    """Whether git takes `name` as a ref's full name, and a record can hold it."""
    if not name.startswith("refs/") or name.endswith((".", "/")) or ".." in name or "@{" in name:
        return False
    if _FORBIDDEN.intersection(name) or not _is_text(name):
        return False
    parts = name.split("/")
    return len(parts) <= limits.REF_DEPTH and all(map(_is_component, parts))


def is_own(name: str) -> bool:
    return name.startswith(_OWN) and name[len(_OWN) : len(_OWN) + 1] in ("", "/")


def _is_component(part: str) -> bool:
    return bool(part) and not part.startswith(".") and not part.endswith(".lock")


def _is_text(name: str) -> bool:
    try:
        return len(name.encode()) <= limits.REF_NAME
    except UnicodeEncodeError:  # surrogates: bytes that are not UTF-8
        return False


def parents(name: str) -> Iterator[str]:
    """The names that may not exist beside `name`: `refs/heads/a` for `refs/heads/a/b`."""
    at = name.find("/", len("refs/"))
    while at != -1:
        yield name[:at]
        at = name.find("/", at + 1)


def blocker_of(name: str, names: Collection[str]) -> str | None:
    """The shorter one of `names` that keeps `name` from existing beside it."""
    return next((parent for parent in parents(name) if parent in names), None)
