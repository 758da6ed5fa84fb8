"""What a check-up is made of: checks, each with a name, and what each finds.

A check looks at one thing and answers with a verdict; an error that it meets is a verdict too, so
that one fault ends no check-up.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

from git_knotless.atproto.errors import NotAsked, NotRenewed
from git_knotless.errors import KnotlessError

Status = Literal["ok", "warn", "fail", "skipped"]


class Verdict(NamedTuple):
    """`hint` is what mends it."""

    status: Status
    detail: str
    hint: str | None = None


class Check(NamedTuple):
    """`mend` is the hint of a verdict that needs one and has none."""

    name: str
    look: Callable[[], Verdict]
    mend: str | None = None

    def verdict(self) -> Verdict:
        try:
            found = self.look()
        except KnotlessError as error:
            found = _of(error)
        except OSError as error:
            name = f"{error.filename}: " if error.filename else ""
            found = fail(f"{name}{error.strerror or error}")
        if found.status in ("ok", "skipped") or found.hint is not None:
            return found
        return found._replace(hint=self.mend)


def _of(error: KnotlessError) -> Verdict:
    """A host that is not asked again, perhaps for a token first, is known to be slow by now."""
    asked = error.__cause__ if isinstance(error, NotRenewed) else error
    if isinstance(asked, NotAsked):
        return skipped(asked.message)
    return fail(error.message, error.hint)


def ok(detail: str) -> Verdict:
    return Verdict("ok", detail)


def warn(detail: str, hint: str | None = None) -> Verdict:
    return Verdict("warn", detail, hint)


def fail(detail: str, hint: str | None = None) -> Verdict:
    return Verdict("fail", detail, hint)


def skipped(why: str) -> Verdict:
    return Verdict("skipped", why)
