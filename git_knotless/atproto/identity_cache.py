"""Who was found where, and when: kept in a file, so that a command need not ask again."""

import json
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from git_knotless.atproto.files import read_file, replace_cache
from git_knotless.atproto.hosts import parse_origin
from git_knotless.atproto.syntax import Did, Handle, parse_did, parse_handle
from git_knotless.errors import KnotlessError
from git_knotless.value import value

# Of each kind, the newest: more accounts than a person meets in the hour that an entry lasts.
_MOST_ENTRIES = 256
_LARGEST_FILE = 1 << 20

_GARBAGE = (KeyError, KnotlessError)
_Section = dict[str, dict[str, Any]]


@value
class Naming:
    """Whom a handle named when it was asked for; nobody, if `did` is None."""

    did: Did | None
    checked: float  # unix time


@value
class Document:
    """What matters of a DID document. `claims` is the handle in it, checked by nobody; `key` is how
    it spells the account's signing key: its type, and its multibase."""

    pds: str
    claims: Handle | None
    checked: float  # unix time
    key: tuple[str, str] | None = None


class IdentityCache:
    """`path` None keeps it in memory, as does a path that cannot be written.

    Whatever is in the file is believed no more than an answer from the network; garbage is as
    nothing.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._entries: dict[str, _Section] | None = None

    def naming(self, handle: Handle) -> Naming | None:
        entry = self._section("handles").get(handle)
        with suppress(*_GARBAGE):
            if entry is not None:
                did = entry["did"]
                return Naming(None if did is None else parse_did(did), entry["checked"])
        return None

    def document(self, did: Did) -> Document | None:
        entry = self._section("dids").get(did)
        with suppress(*_GARBAGE):
            if entry is not None:
                claims = entry["claims"]
                return Document(
                    parse_origin(entry["pds"] or ""),
                    None if claims is None else parse_handle(claims),
                    entry["checked"],
                    _key(entry),
                )
        return None

    def keep_naming(self, handle: Handle, naming: Naming) -> None:
        self._put("handles", handle, {"did": naming.did, "checked": naming.checked})

    def keep_document(self, did: Did, document: Document) -> None:
        entry = {"pds": document.pds, "claims": document.claims, "checked": document.checked}
        if document.key is not None:
            entry["keyType"], entry["key"] = document.key
        self._put("dids", did, entry)

    def forget(self, did: Did) -> None:
        """Drop where `did` lives, and every handle that named it."""

        def change(entries: dict[str, _Section]) -> None:
            entries["dids"].pop(did, None)
            handles = entries["handles"]
            for handle in [name for name, entry in handles.items() if entry.get("did") == did]:
                del handles[handle]

        self._change(change)

    def _put(self, section: str, key: str, entry: dict[str, Any]) -> None:
        def change(entries: dict[str, _Section]) -> None:
            entries[section][key] = entry
            entries[section] = _newest(entries[section])

        self._change(change)

    def _section(self, name: str) -> Mapping[str, dict[str, Any]]:
        with self._lock:
            if self._entries is None:
                self._entries = self._read()
            return self._entries[name]

    def _change(self, change: Callable[[dict[str, _Section]], None]) -> None:
        """On the file as it is now, since other processes write it too."""
        with self._lock:
            entries = self._read()
            change(entries)
            self._entries = entries
            self._write(entries)

    def _read(self) -> dict[str, _Section]:
        if self._path is None:
            return self._entries or {"handles": {}, "dids": {}}
        try:
            value = json.loads(read_file(self._path, _LARGEST_FILE))
        except (OSError, ValueError, RecursionError):
            value = None
        return {"handles": _entries(value, "handles"), "dids": _entries(value, "dids")}

    def _write(self, entries: dict[str, _Section]) -> None:
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            replace_cache(self._path, json.dumps({"version": 1, **entries}).encode())
        except OSError:
            # The cache spares time; nothing may fail for want of it.
            self._path = None


def _entries(value: Any, section: str) -> _Section:
    found = value.get(section) if isinstance(value, dict) and value.get("version") == 1 else None
    if not isinstance(found, dict):
        return {}
    return _newest({key: entry for key, entry in found.items() if _is_entry(entry)})


def _is_entry(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("checked"), float):
        return False
    return all(isinstance(text, str | None) for key, text in value.items() if key != "checked")


def _key(entry: Mapping[str, Any]) -> tuple[str, str] | None:
    kind, key = entry.get("keyType"), entry.get("key")
    return None if kind is None or key is None else (kind, key)


def _newest(section: _Section) -> _Section:
    kept = sorted(section, key=lambda key: section[key]["checked"])[-_MOST_ENTRIES:]
    return {key: section[key] for key in kept}
