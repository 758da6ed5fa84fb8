"""The records that an account has one of, and how one is changed against its other machines."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from git_knotless.atproto.errors import (
    AtprotoError,
    BadAnswer,
    HostTimeout,
    HostUnreachable,
    InvalidSwap,
    ServerFault,
)
from git_knotless.atproto.syntax import Did, Rkey
from git_knotless.storage.editing import RacedTooOften
from git_knotless.storage.outcome import OutcomeUnknown
from git_knotless.storage.store import Record

EMAILS = "dev.knotless.emails"
PROFILE = "dev.knotless.profile"

# What stays when a repository goes.
COLLECTIONS_OF_AN_ACCOUNT = (EMAILS, PROFILE)

SELF = Rkey("self")
_READINGS = 8  # of a record that others change at the same time
_SENDINGS = 3  # without an answer that says what became of them
_PAUSE = 0.3  # seconds before the second of them, longer before the third
_UNCLEAR = (HostUnreachable, HostTimeout, BadAnswer, ServerFault)

Make = Callable[[Mapping[str, Any]], Mapping[str, Any] | None]


class OwnRecords(Protocol):
    """An account's records, as its owner changes them."""

    @property
    def did(self) -> Did: ...

    def get(self, collection: str, rkey: Rkey) -> Record | None: ...

    def put(
        self, collection: str, rkey: Rkey, value: Mapping[str, Any], *, replaces: str | None
    ) -> None:
        """Raises `InvalidSwap` where another version is there than `replaces`, None is none."""
        ...


def change(records: OwnRecords, collection: str, make: Make) -> bool:
    """Put what `make` makes of the record's value, `{}` where there is none; whether that was due.

    `make` says None where the record is as it should be. It is asked again each time another
    writer was first, and after an answer that says nothing: a write that went through is seen
    then, and one that comes late replaces a version that is gone.
    """
    unclear = 0
    for _ in range(_READINGS):
        was = _read(records, collection, unsure=unclear > 0)
        value = make({} if was is None else was.value)
        if value is None:
            return unclear > 0
        try:
            records.put(collection, SELF, value, replaces=None if was is None else _version(was))
        except InvalidSwap:
            continue
        except _UNCLEAR as error:
            unclear += 1
            if unclear == _SENDINGS:
                raise _unknown(error) from error
            time.sleep(_PAUSE * unclear)
        else:
            return True
    raise RacedTooOften("others keep changing the account's record: try again")


def _read(records: OwnRecords, collection: str, *, unsure: bool) -> Record | None:
    try:
        return records.get(collection, SELF)
    except AtprotoError as error:
        if unsure:
            raise _unknown(error) from error
        raise


def _version(record: Record) -> str:
    if record.cid is None:
        raise BadAnswer("the host does not say which version of the record it keeps")
    return record.cid


def _unknown(error: AtprotoError) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"it is not known whether the host took the write: {error.message}",
        hint="run the command again: it reads what is there first",
    )
