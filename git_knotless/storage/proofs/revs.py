"""The newest revision that was seen of an account, so that a host cannot show an older one again.

A proof says what an account has signed at some time, not that it is the newest. So the `rev` of
each commit that was verified, and of each that our own writes have made, is kept in `revs.json` of
the config directory, by the account and the key of the repository: `{"revs": {"did key": rev}}`.
Garbage in it is as nothing; what cannot be written is not remembered.
"""

import json
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from git_knotless.atproto.files import read_file, replace_cache
from git_knotless.atproto.syntax import Did, is_tid

_VERSION = 1
_MOST = 4096  # repositories, those that were seen last
_LARGEST_FILE = 4 << 20


class Revs:
    def __init__(self, path: Path) -> None:
        self._path = path

    def newest(self, did: Did, key: str) -> str | None:
        return self._read().get(f"{did} {key}")

    def saw(self, did: Did, key: str, rev: str) -> None:
        """Revisions are TIDs, which are in the order of time as texts."""
        self._keep(did, key, rev, back=False)

    def accept(self, did: Did, key: str, rev: str) -> None:
        """From here on, an older one than was seen too."""
        self._keep(did, key, rev, back=True)

    def _keep(self, did: Did, key: str, rev: str, *, back: bool) -> None:
        name = f"{did} {key}"
        with suppress(OSError), self._locked():
            revs = self._read()
            known = revs.pop(name, "")
            if known == rev or (known > rev and not back):
                return
            revs = dict(list(revs.items())[1 - _MOST :])
            held = {"version": _VERSION, "revs": {**revs, name: rev}}
            replace_cache(self._path, json.dumps(held).encode())

    def _read(self) -> dict[str, str]:
        try:
            held = json.loads(read_file(self._path, _LARGEST_FILE))
        except (OSError, ValueError, RecursionError):
            return {}
        revs = held.get("revs") if isinstance(held, dict) and held.get("version") == 1 else None
        if not isinstance(revs, dict):
            return {}
        return {name: rev for name, rev in revs.items() if isinstance(rev, str) and is_tid(rev)}

    def _locked(self) -> AbstractContextManager[None]:
        """One at a time reads it and writes what comes of that."""
        # Not filelock, which takes 60 ms to import: more than a small clone has to spare.
        from git_knotless.storage.filelocks import alone

        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return alone(self._path.with_suffix(".lock"), waiting=lambda: None)
