"""What a clone has seen of each ref, to notice one that goes back.

Generations count the moves of a ref, and never fall. A lower one than was seen comes of a host
that does not know of a push that landed: as when an account moved, and the host that it left took
a push after the account had been copied to the next. The same one with another target does too,
once another push has landed where the first was not known.

The file is of one repository, and has what each account that held it said of its refs, by the
host that said it: `{"accounts": {did: {host: {ref: [generation, target]}}}}`; and through which
accounts each was found: `{"through": {did: [did]}}`. What another account said counts only where
the one led to the other, as both said: anybody can have something of that key. It is a memory and
no more: garbage in it is as nothing, and without it nothing is noticed.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from git_knotless.atproto.files import replace_cache
from git_knotless.atproto.syntax import Did
from git_knotless.errors import KnotlessError
from git_knotless.storage.fields import is_sha1
from git_knotless.storage.git import Git
from git_knotless.storage.records import RefRecord
from git_knotless.storage.refname import is_own, is_ref_name
from git_knotless.value import value

_VERSION = 1
_LARGEST_FILE = 64 << 20  # as many refs as a repository may have, and their names, take half of it


class WentBack(KnotlessError):
    """Refs are not what they were, nor anything later."""


@value
class Sighting:
    """A ref at some moment: `generation` 0 where it was not there. `target` None: deleted."""

    generation: int
    target: str | None
    host: str

    def __str__(self) -> str:
        what = self.target or ("deleted" if self.generation else "not there")
        return f"generation {self.generation} ({what}) at {self.host}"


@value
class Lost:
    name: str
    was: Sighting
    now: Sighting

    def __str__(self) -> str:
        changed = "went back" if self.was.generation > self.now.generation else "was changed"
        return f"{self.name} {changed} from {self.was} to {self.now}"


_Refs = Mapping[str, tuple[int, str | None]]
_Accounts = dict[str, dict[str, _Refs]]


class Seen:
    """Of the repository of `key` in an account, which is at `host` now.

    `through` are the accounts that have led there.
    """

    def __init__(
        self, git: Git, key: str, did: Did, host: str, through: Sequence[Did] = ()
    ) -> None:
        self.path = git.common_dir / "knotless" / f"{key}.seen"
        self._did = did
        self._host = host
        self._through: dict[str, list[str]] = {}
        self._accounts = self._read()
        self._led = [str(each) for each in through]

    def lost(self, refs: Mapping[str, RefRecord]) -> list[Lost]:
        """The refs that were seen later than they are in `refs`, or otherwise though no move came
        between, by name.

        One that points where it was last seen to point is none: it was pushed again.
        """
        found = []
        for name, was in sorted(self._sightings().items()):
            ref = refs.get(name)
            now = Sighting(ref.generation, ref.target, self._host) if ref else self._nothing
            has_gone_back = was.generation >= now.generation and was.target != now.target
            if has_gone_back and _is_sound(name, was):
                found.append(Lost(name, was, now))
        return found

    def news(self, live: Mapping[str, str]) -> dict[str, list[str]]:
        """What refs point at since the last time that any were seen, each with their names."""
        last = self._sightings()
        found: dict[str, list[str]] = {}
        for name, target in live.items() if last else ():
            if name not in last or last[name].target != target:
                found.setdefault(target, []).append(name)
        return found

    def listed(self, refs: Mapping[str, RefRecord]) -> None:
        """Remember `refs`, which are all that there are; our own come and go."""
        told = ((name, ref) for name, ref in refs.items() if not is_own(name))
        all_of_them = {name: (ref.generation, ref.target) for name, ref in told}
        self._write({**self._accounts, self._did: {self._host: all_of_them}})

    def pushed(self, refs: _Refs) -> None:
        """Remember what has just been made of some, whatever was seen of them before."""
        hosts = {
            host: {name: seen for name, seen in of_host.items() if name not in refs}
            for host, of_host in self._accounts.get(self._did, {}).items()
        }
        hosts[self._host] = {**hosts.get(self._host, {}), **refs}
        self._write({**self._accounts, self._did: {host: of for host, of in hosts.items() if of}})

    @property
    def _nothing(self) -> Sighting:
        return Sighting(0, None, self._host)

    def _sightings(self) -> dict[str, Sighting]:
        """The latest that this account said, or one that led here, or one that this led to."""
        latest: dict[str, Sighting] = {}
        for did, hosts in self._accounts.items():
            if did not in (self._did, *self._led) and self._did not in self._through.get(did, ()):
                continue
            for host, refs in hosts.items():
                for name, (generation, target) in refs.items():
                    if name not in latest or latest[name].generation < generation:
                        latest[name] = Sighting(generation, target, host)
        return latest

    def _read(self) -> _Accounts:
        try:
            with self.path.open("rb") as file:
                held = json.loads(file.read(_LARGEST_FILE))
        except (OSError, ValueError, RecursionError):
            return {}
        if not isinstance(held, dict) or held.get("version") != _VERSION:
            return {}
        for did, through in _members(held.get("through")):
            self._through[did] = through if isinstance(through, list) else []
        return {
            did: {host: dict(_refs(refs)) for host, refs in _members(hosts)}
            for did, hosts in _members(held.get("accounts"))
        }

    def _write(self, accounts: _Accounts) -> None:
        """What cannot be written now is not remembered: nothing fails for want of it."""
        through = {**self._through, self._did: self._led}
        if (accounts, through) == (self._accounts, self._through):
            return
        self._accounts, self._through = accounts, through
        held = {"version": _VERSION, "accounts": accounts, "through": through}
        data = json.dumps(held).encode()
        with suppress(OSError):
            self.path.parent.mkdir(exist_ok=True)
            replace_cache(self.path, data)


def _members(held: Any) -> Iterator[tuple[str, Any]]:
    yield from held.items() if isinstance(held, dict) else ()


def _refs(held: Any) -> Iterator[tuple[str, tuple[int, str | None]]]:
    for name, seen in _members(held):
        match seen:
            case [int(generation), (str() | None) as target]:
                yield name, (generation, target)


def _is_sound(name: str, seen: Sighting) -> bool:
    """What is told of, and typed, is looked at more closely than what is only kept."""
    return is_ref_name(name) and (seen.target is None or is_sha1(seen.target))
