"""`push`: refspecs into updates, and outcomes into the lines that git reports them by."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from git_knotless.errors import KnotlessError
from git_knotless.helper.options import Options
from git_knotless.helper.protocol import BadCommand, Refspec, quote
from git_knotless.helper.stderr import printable
from git_knotless.storage.pushing.updates import Lease, Outcome, Update

# Of these reasons git makes "Everything up-to-date" and exit 0.
_TAKEN_FOR_SUCCESS = ("no match", "up to date")


class UnknownSource(KnotlessError):
    """A push of something that is not in this repository."""


Resolve = Callable[[Sequence[str]], Mapping[str, str | None]]


def updates(refspecs: Sequence[Refspec], options: Options, resolve: Resolve) -> list[Update]:
    """`resolve` gives the object id of each source, None where there is no such thing."""
    counts = Counter(refspec.dst for refspec in refspecs)
    for dst, count in counts.items():
        if count > 1:
            raise BadCommand(f"git asked to push {dst} more than once")
    oids = resolve([refspec.src for refspec in refspecs if refspec.src is not None])
    return [_update(refspec, options, oids) for refspec in refspecs]


def _update(refspec: Refspec, options: Options, oids: Mapping[str, str | None]) -> Update:
    new = None if refspec.src is None else oids[refspec.src]
    if new is None and refspec.src is not None:
        raise UnknownSource(f"src refspec {refspec.src} does not match any")
    return Update(
        name=refspec.dst,
        new=new,
        force=refspec.force or options.force,
        lease=options.leases.get(refspec.dst, Lease.NONE),
    )


def lines(outcomes: Sequence[Outcome]) -> Iterator[str]:
    for outcome in outcomes:
        if outcome.error is None:
            yield f"ok {outcome.name}"
        else:
            yield f"error {outcome.name} {_reason(outcome.error)}"


def _reason(error: str) -> str:
    return f"refused: {error}" if error in _TAKEN_FOR_SUCCESS else quote(printable(error))
