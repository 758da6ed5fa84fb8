"""What git says to a remote helper, as values; nothing here acts on it.

Lines come as gitremote-helpers(7) has them:

    capabilities
    option NAME [VALUE]             answered at once, before anything else is read
    list [for-push]
    stateless-connect SERVICE
    fetch OID NAME                  a batch: lines of one verb, up to a blank line
    push [+]SRC:DST                 a batch
    a blank line, or the end        git has no more to ask

A batch is read whole before a command comes out of it. Where the input ends inside one,
or inside a line, git is gone and nothing comes out.
"""

import re
from collections.abc import Iterator
from typing import BinaryIO

from git_knotless.errors import KnotlessError
from git_knotless.value import value

# Far beyond what fits into an argument of a command, which is what git makes its lines from.
MAX_LINE = 1 << 20
_OID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_ESCAPED = re.compile(r'\\([abtnvfr"\\]|[0-3][0-7]{2})')
_ESCAPES = {"a": 7, "b": 8, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13, '"': 34, "\\": 92}


class BadCommand(KnotlessError):
    """A line that no git sends."""


class GitGone(Exception):
    """git has left in the middle: no error of ours, and nobody is there to tell."""


@value
class Capabilities:
    """Which commands do you know?"""


@value
class Option:
    name: str
    value: str


@value
class List:
    for_push: bool


@value
class Connect:
    """Speak protocol v2 as `service` would, from here on."""

    service: str


@value
class Fetch:
    """Object ids, each once, in the order git named them."""

    wants: tuple[str, ...]


@value
class Refspec:
    """One move of a ref. `src` is any name of a revision; None deletes `dst`."""

    src: str | None
    dst: str
    force: bool


@value
class Push:
    refspecs: tuple[Refspec, ...]


Command = Capabilities | Option | List | Connect | Fetch | Push


def read_command(stream: BinaryIO) -> Command | None:
    """The next command, or None once git has no more; raises BadCommand and GitGone."""
    line = _read_line(stream)
    if not line:
        return None
    verb, _, rest = line.partition(" ")
    match verb:
        case "capabilities" if not rest:
            return Capabilities()
        case "option" if rest:
            name, _, value = rest.partition(" ")
            return Option(name, unquote(value))
        case "list" if rest in ("", "for-push"):
            return List(for_push=bool(rest))
        case "stateless-connect" if rest:
            return Connect(rest)
        case "fetch":
            return Fetch(tuple(dict.fromkeys(map(_want, _batch(stream, verb, rest)))))
        case "push":
            return Push(tuple(map(_refspec, _batch(stream, verb, rest))))
    raise BadCommand(f"git sent a command that is not known here: {line}")


def _read_line(stream: BinaryIO) -> str | None:
    """One line without its end; None at the end of the input, which may have torn a line."""
    raw = stream.readline(MAX_LINE)
    if len(raw) == MAX_LINE:
        raise BadCommand("git sent a line that does not end")
    # Names of refs are bytes: those that are not UTF-8 come back out as they went in.
    return raw[:-1].decode("utf-8", "surrogateescape") if raw.endswith(b"\n") else None


def _batch(stream: BinaryIO, verb: str, first: str) -> Iterator[str]:
    """What follows the verb in each line of a batch whose first line has been read."""
    yield first
    while line := _read_line(stream):
        other, _, rest = line.partition(" ")
        if other != verb:
            raise BadCommand(f"git sent {line} among the lines of a {verb}")
        yield rest
    if line is None:
        raise GitGone


def _want(rest: str) -> str:
    oid, _, name = rest.partition(" ")
    if not _OID.fullmatch(oid) or not name:
        raise BadCommand(f"git asked to fetch what is not an object: {rest}")
    return oid


def _refspec(rest: str) -> Refspec:
    # A source may hold a colon (`main:README`, `:/fix the bug`), the name of a ref none.
    src, colon, dst = rest.removeprefix("+").rpartition(":")
    if not colon or not dst:
        raise BadCommand(f"git asked to push what is not a refspec: {rest}")
    return Refspec(src or None, dst, force=rest.startswith("+"))


def unquote(text: str) -> str:
    """`text` out of the C style quotes that git puts around a value that needs them."""
    if not text.startswith('"'):
        return text
    inner = text[1:-1]
    if len(text) < 2 or not text.endswith('"') or re.search(r'["\\]', _ESCAPED.sub("", inner)):
        raise BadCommand(f"git sent a value in quotes that do not match: {text}")
    raw = _ESCAPED.sub(_unescaped, inner)
    # An escape stands for a byte, several of which may make one character.
    return raw.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")


def _unescaped(escape: re.Match[str]) -> str:
    byte = _ESCAPES.get(escape[1]) or int(escape[1], 8)
    return bytes([byte]).decode("utf-8", "surrogateescape")


def quote(text: str) -> str:
    """One line of `text` as git takes a reason, which it unquotes where it begins with a quote."""
    if not text.startswith('"'):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
