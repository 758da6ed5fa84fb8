"""`option NAME VALUE`: what git wants of the commands that follow.

`unsupported` is no harmless answer: it ends a push that asks for `atomic`, `dry-run`,
`push-option` or `pushcert`, and turns a lease into a plain forced push.

What cuts a fetch short is no matter of ours, but of the `git upload-pack` that git is put through
to (connect.py): it is noted here that git asked for it.
"""

import re
from collections.abc import Mapping
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

# By git's names for them, what the person may have typed.
_CUTS = {
    "depth": "--depth",
    "deepen-since": "--shallow-since",
    "deepen-not": "--shallow-exclude",
    "filter": "--filter",
}
_NOBODY_ASKS = "push options are ignored: no server stands between this push and the account"


@value
class Options:
    """`leases` has the object id that a ref must still have, or None where it must not exist.

    `cuts` are the options by which less than everything is asked for.
    """

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
    cuts: tuple[str, ...] = ()
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


def set_option(options: Options, name: str, value: str) -> Answer:
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
            cuts = tuple(cut for cut in options.cuts if cut != _CUTS[name])
            return Answer(replace(options, unshallow=value == _UNSHALLOW, cuts=cuts), "ok")
        case "depth" | "deepen-since" | "deepen-not" | "filter":
            cuts = (*options.cuts, _CUTS[name])
            return Answer(replace(options, cuts=tuple(dict.fromkeys(cuts))), "ok")
        case "deepen-relative" | "from-promisor":
            return Answer(options, "ok")
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
