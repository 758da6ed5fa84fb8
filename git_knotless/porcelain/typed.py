"""The command line that was typed, for hints that are all of it but for what was wrong."""

import shlex
from collections.abc import Sequence

PROGRAM = "git knotless"
_words: list[str] = []


def remember(words: Sequence[str]) -> None:
    """What stands after `git knotless`, as it is about to be run."""
    _words[:] = words


def with_more(*more: str) -> str:
    return _command([*_words, *more])


def with_instead(old: str, new: str) -> str:
    """`new` in every place of `old`, which may be an option's value behind a `=`."""
    return _command([_changed(word, old, new) for word in _words])


def _changed(word: str, old: str, new: str) -> str:
    if word == old:
        return new
    option, equals, value = word.partition("=")
    return f"{option}={new}" if option.startswith("-") and equals and value == old else word


def _command(words: Sequence[str]) -> str:
    return f"{PROGRAM} {shlex.join(words)}"
