"""`option NAME VALUE`: what git wants of the commands that follow.

`unsupported` is no harmless answer: it ends a push that asks for `atomic`, `dry-run`,
`push-option` or `pushcert`, and turns a lease into a plain forced push. It is the only safe one
for `filter`, since git takes `ok` as a promise to hand out what is missing later.
"""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from git_knotless.helper.protocol import BadCommand
from git_knotless.value import replace, value

_FLAGS = frozenset(
    {"progress", "dry-run", "cloning", "check-connectivity", "followtags", "atomic", "force"}
)
OBJECT_FORMAT = "sha1"  # the only one that a repository can have so far
_ABSENT = re.compile("0{40}|0{64}")  # git's way to say that a ref must not exist
_LEASE = re.compile(r"(.+):([0-9a-f]{40}|[0-9a-f]{64})")

_UNSHALLOW = str(0x7FFFFFFF)  # the depth that `git fetch --unshallow` asks for

# git does not say what comes of it when these are not supported.
_DEPTHS = {"depth": "--depth", "deepen-since": "--shallow-since", "deepen-not": "--shallow-exclude"}
_EVERYTHING = "is not honoured yet: everything is fetched"
_AS_SHALLOW = "is not honoured yet: history stays cut off where it is (git fetch --unshallow)"
_NOBODY_ASKS = "push options are ignored: no server stands between this push and the account"


@value
class Options:
    """`leases` has the object id that a ref must still have, or None where it must not exist."""

    verbosity: int = 1
    progress: bool = False
    dry_run: bool = False
    cloning: bool = False
    check_connectivity: bool = False
    followtags: bool = False
    atomic: bool = False
    force: bool = False
    object_format: bool = False
    unshallow: bool = False
    leases: Mapping[str, str | None] = MappingProxyType({})
    push_options: tuple[str, ...] = ()

    @property
    def shows_progress(self) -> bool:
        return self.progress and self.verbosity > 0


@value
class Answer:
    """`reply` goes to git; `warning`, where there is one, to the person, once."""

    options: Options
    reply: str
    warning: str | None = None


def set_option(
    options: Options, name: str, value: str, *, is_shallow: Callable[[], bool]
) -> Answer:
    """`is_shallow`: whether the repository that git is in has its history cut off."""
    if name in _FLAGS:
        return _set_flag(options, name, value)
    match name:
        case "verbosity":
            return _set_verbosity(options, value)
        case "cas":
            return Answer(replace(options, leases={**options.leases, **_lease(value)}), "ok")
        case "push-option":
            given = (*options.push_options, value)
            return Answer(replace(options, push_options=given), "ok", _NOBODY_ASKS)
        case "pushcert":
            # `if-asked` and nobody asks; a certificate that must be sent cannot be.
            return Answer(options, "ok" if value in ("if-asked", "false") else "unsupported")
        case "object-format":
            return _set_object_format(options, value)
        case "depth" if value in ("0", _UNSHALLOW):
            # The first is what git says before it comes back for tags.
            return Answer(replace(options, unshallow=value == _UNSHALLOW), "ok")
        case "depth" | "deepen-since" | "deepen-not":
            comes = _AS_SHALLOW if is_shallow() else _EVERYTHING
            return Answer(options, "unsupported", f"{_DEPTHS[name]} {comes}")
        case "filter":
            return Answer(options, "unsupported", f"--filter {_EVERYTHING}")
    return Answer(options, "unsupported")


def _set_flag(options: Options, name: str, value: str) -> Answer:
    if value not in ("true", "false"):
        return Answer(options, f"error {name} is true or false")
    changed: dict[str, Any] = {name.replace("-", "_"): value == "true"}
    return Answer(replace(options, **changed), "ok")


def _set_verbosity(options: Options, value: str) -> Answer:
    if not re.fullmatch(r"-?[0-9]{1,9}", value):  # -q given twice makes it negative
        return Answer(options, "error verbosity is a number")
    return Answer(replace(options, verbosity=int(value)), "ok")


def _set_object_format(options: Options, value: str) -> Answer:
    if value not in ("", "true", OBJECT_FORMAT):
        return Answer(options, f"error {value} is not the object format of this remote")
    return Answer(replace(options, object_format=True), "ok")


def _lease(value: str) -> dict[str, str | None]:
    """Not answered but refused where it is malformed: git does not look at the answer."""
    lease = _LEASE.fullmatch(value)
    if not lease:
        raise BadCommand(f"git sent a lease that cannot be read: {value}")
    name, oid = lease.groups()
    return {name: None if _ABSENT.fullmatch(oid) else oid}
