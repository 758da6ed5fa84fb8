"""Which accounts this machine has looked up before it claimed an address for them: emails.json."""

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from git_knotless.atproto.files import replace_cache
from git_knotless.atproto.syntax import Did

_MOST_ACCOUNTS = 256
_LARGEST_FILE = 1 << 16


class LookedUp:
    """A file that cannot be read is as none, and one that cannot be written is left."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __contains__(self, did: Did) -> bool:
        return did in self._entries()

    def remember(self, did: Did) -> None:
        entries = self._entries()
        kept = dict(list(entries.items())[1 - _MOST_ACCOUNTS :])
        kept[did] = int(time.time())
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            replace_cache(self._path, json.dumps(kept).encode())

    def _entries(self) -> dict[str, Any]:
        with suppress(OSError, ValueError, RecursionError):
            with self._path.open("rb") as file:
                entries = json.loads(file.read(_LARGEST_FILE))
            if isinstance(entries, dict):
                return entries
        return {}
