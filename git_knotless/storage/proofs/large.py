"""Large snapshots, kept: the archive that proves what the refs of a repository were.

It is a CAR as a host would send it, of one commit, the nodes above the refs and the refs' records.
Nothing in it is believed: each block is hashed as it is read, and stands where a signed commit has
it, or is of no use. It can be deleted at any time, and garbage is as nothing.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from git_knotless.atproto.files import read_file, replace_cache
from git_knotless.atproto.syntax import Did
from git_knotless.storage.store import Archive

_LARGEST = 64 << 20  # bytes: 100,000 refs take 40 MB
_MOST = 256 << 20  # bytes of all of them; those used longest ago go first


class LargeSnapshots:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def has(self, did: Did, key: str) -> bool:
        return self._path(did, key).exists()

    def load(self, did: Did, key: str) -> Archive | None:
        from git_knotless.atproto.car import read_car  # few repositories are large
        from git_knotless.atproto.dag_cbor import BadData

        path = self._path(did, key)
        try:
            archive = read_car(read_file(path, _LARGEST), limit=_LARGEST)
            os.utime(path)
        except (OSError, BadData):
            return None
        return archive

    def keep(self, did: Did, key: str, commit: bytes, blocks: Mapping[bytes, bytes]) -> None:
        from git_knotless.atproto.car import write_car

        path = self._path(did, key)
        data = b"".join(write_car(commit, blocks.items()))
        with suppress(OSError):
            if len(data) <= _LARGEST:
                self._directory.mkdir(parents=True, exist_ok=True)
                replace_cache(path, data)
                self._make_room(spare=path)

    def drop(self, did: Did, key: str) -> None:
        with suppress(OSError):
            self._path(did, key).unlink()

    def _path(self, did: Did, key: str) -> Path:
        return self._directory / f"{did.replace(':', '_')}.{key}.car"

    def _make_room(self, *, spare: Path) -> None:
        files = [(path.stat(), path) for path in self._directory.glob("*.car")]
        total = sum(stat.st_size for stat, _ in files)
        for stat, path in sorted(files, key=lambda file: file[0].st_mtime):
            if total > _MOST and path != spare:
                path.unlink()
                total -= stat.st_size
