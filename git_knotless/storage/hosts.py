"""What hosts have said of themselves, remembered for a day in a file of the cache."""

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from git_knotless.atproto.files import read_file, replace_cache
from git_knotless.storage.store import HostFacts

_SECONDS = 86_400.0  # an operator's change of a limit is seen the day after
_MOST_HOSTS = 256
_LARGEST_FILE = 1 << 20


class HostCache:
    """A file that cannot be read is as none, and one that cannot be written is left."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def facts(self, host: str) -> HostFacts | None:
        """Of a host by its origin; None where nothing is known, or not since yesterday."""
        match self._entries().get(host):
            case {"blobLimit": int() | None as limit, "checked": float() as checked}:
                return HostFacts(limit) if 0 <= time.time() - checked < _SECONDS else None
        return None

    def keep(self, host: str, facts: HostFacts) -> None:
        entries = self._entries()
        entries.pop(host, None)
        kept = dict(list(entries.items())[1 - _MOST_HOSTS :])
        kept[host] = {"blobLimit": facts.blob_limit, "checked": time.time()}
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            replace_cache(self._path, json.dumps(kept).encode())

    def _entries(self) -> dict[str, Any]:
        with suppress(OSError, ValueError, RecursionError):
            entries = json.loads(read_file(self._path, _LARGEST_FILE))
            if isinstance(entries, dict):
                return entries
        return {}
