"""Packs whose batch has not landed yet, kept for a day with what is known to be on the host.

`<git common dir>/knotless/spool/<checksum>.pack` is a pack, and beside it `<checksum>.log` says in
its first line what was asked for, and in one more for each blob that the host has taken where in
the pack it begins. Hosts keep a blob that no record names for hours: whoever pushes the same again
names it, and uploads it only where it has gone. git makes another pack of the same objects each
time, so it is the pack itself that is found again. Nothing of it is believed before it is hashed.
"""

import hashlib
import json
import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from git_knotless.errors import KnotlessError
from git_knotless.storage.fields import BadRecord, an_object, integer, items, text
from git_knotless.storage.packs.packfile import TRAILER
from git_knotless.storage.packs.packrecord import PACK_MIME, blob_from, blob_json
from git_knotless.storage.packs.spool import Slice, Spool
from git_knotless.storage.store import BlobRef
from git_knotless.value import value

_SECONDS = 86_400.0  # longer than a host keeps a blob that no record names
_MOST_BYTES = 4 << 30  # of all that is kept
_MOST_HEADER = 8 << 20  # bytes: what it was built on, of 100,000 refs
_PACK, _LOG = ".pack", ".log"

Landed = tuple[int, BlobRef]  # where in the pack a blob begins


@value
class Asked:
    """What a pack was made for: what `tips` reach and `bases`, which are all here, do not.

    `account` is whose host has the blobs.
    """

    account: str
    tips: Sequence[str]
    bases: Sequence[str]

    def serves(self, other: "Asked") -> bool:
        """Whether a pack that was made for this is one for `other`.

        Of more tips it is none: a branch that is not pushed this time is not to be published.
        """
        return set(other.tips) == set(self.tips) and set(self.bases) <= set(other.bases)

    def to_json(self) -> dict[str, Any]:
        return {"account": self.account, "tips": list(self.tips), "bases": list(self.bases)}


class Kept:
    """One pack that is kept, by the file that says what became of it."""

    def __init__(self, log: Path, asked: Asked) -> None:
        self._log = log
        self._asked = asked
        self.pack = log.with_suffix(_PACK)

    def add(self, offset: int, blob: BlobRef) -> None:
        """The host has taken a blob. Where that cannot be noted, it is uploaded once more."""
        line = json.dumps({"at": offset, "blob": blob_json(blob)}) + "\n"
        with suppress(OSError):
            # Whoever has landed the same meanwhile has removed it.
            log = os.open(self._log, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            with open(log, "wb", buffering=0) as file:
                file.write(line.encode())

    def landed(self, account: str, spool: Spool) -> list[Landed]:
        """The blobs that the account's host had, in the order of the pack, none beside another's.

        Each is what the pack has there.
        """
        if self._asked.account != account:
            return []
        found, end = list[Landed](), 0
        for offset, blob in sorted(self._noted(), key=lambda each: each[0]):
            fits = end <= offset and offset + blob.size <= spool.size
            if fits and _is_there(spool, offset, blob):
                found.append((offset, blob))
                end = offset + blob.size
        return found

    def drop(self) -> None:
        for path in (self._log, self.pack):
            _remove(path)
        with suppress(OSError):
            self._log.parent.rmdir()

    def _noted(self) -> Iterator[Landed]:
        """A line that was cut as it was written is none."""
        with suppress(OSError):
            for line in self._log.read_bytes().splitlines()[1:]:
                with suppress(ValueError, RecursionError, BadRecord):
                    fields = an_object(json.loads(line), "a line")
                    blob = blob_from(fields.get("blob"), "a line")
                    if blob.mime == PACK_MIME:
                        yield integer(fields, "at", least=0), blob


class Shelf:
    """All that is kept in one repository."""

    def __init__(self, directory: Path, asked: Asked) -> None:
        self._directory = directory
        self._asked = asked
        self.account = asked.account

    @classmethod
    def of(cls, common_dir: Path, account: str, tips: Sequence[str], bases: Sequence[str]) -> Self:
        return cls(common_dir / "knotless" / "spool", Asked(account, tips, bases))

    def find(self) -> tuple[Kept, Spool] | None:
        """A pack that is what is asked for, whole. What is too old goes, or damaged, or landed."""
        for log in self._logs():
            with suppress(OSError, KnotlessError):
                asked = _asked(log)
                kept = Kept(log, asked or self._asked)
                if asked is None or set(asked.tips) <= set(self._asked.bases):
                    kept.drop()
                    continue
                if not asked.serves(self._asked):
                    continue
                spool = Spool.of_file(kept.pack)
                if _is_whole(spool, log.stem):
                    return kept, spool
                spool.close()
                kept.drop()
        return None

    def keep(self, spool: Spool, checksum: str) -> Kept | None:
        """From now on it outlives us; None where there is no room for it, or it is kept already."""
        header = (json.dumps(self._asked.to_json()) + "\n").encode()
        if len(header) > _MOST_HEADER or not self._has_room(spool.size):
            return None
        kept = Kept(self._directory / f"{checksum}{_LOG}", self._asked)
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            with open(self._directory / f"{checksum}{_LOG}", "xb") as log:
                log.write(header)
        except OSError:
            return None
        try:
            spool.keep_as(kept.pack)
        except (OSError, KnotlessError):
            kept.drop()
            return None
        return kept

    def _logs(self) -> list[Path]:
        """Of what is not too old; the rest is removed."""
        oldest, young = time.time() - _SECONDS, list[Path]()
        for path, found in self._files():
            if found.st_mtime < oldest:
                _remove(path)
            elif path.suffix == _LOG:
                young.append(path)
        return young

    def _has_room(self, size: int) -> bool:
        """Whether it has by now: the oldest goes for it."""
        packs = [(found.st_mtime, path, found.st_size) for path, found in self._files(_PACK)]
        total = size + sum(taken for _, _, taken in packs)
        for _, path, taken in sorted(packs):
            if total <= _MOST_BYTES:
                break
            total -= taken
            _remove(path)
            _remove(path.with_suffix(_LOG))
        return total <= _MOST_BYTES

    def _files(self, suffix: str = "") -> list[tuple[Path, os.stat_result]]:
        """Whoever else pushes from here may remove any of them at any moment."""
        files = list[tuple[Path, os.stat_result]]()
        with suppress(OSError):
            for path in sorted(self._directory.glob(f"*{suffix}")):
                with suppress(OSError):
                    found = path.lstat()
                    if stat.S_ISREG(found.st_mode):
                        files.append((path, found))
        return files


def _remove(path: Path) -> None:
    """Where that cannot be, it is in nobody's way."""
    with suppress(OSError):
        path.unlink()


def _asked(log: Path) -> Asked | None:
    """What the first line says; None where it says nothing that makes sense."""
    with open(log, "rb") as file:
        line = file.readline(_MOST_HEADER + 1)
    try:
        fields = an_object(json.loads(line), "a line")
        account = text(fields, "account", limit=2048)
        return Asked(account, *(list(map(str, items(fields, n))) for n in ("tips", "bases")))
    except (ValueError, RecursionError, BadRecord):
        return None


def _is_whole(spool: Spool, checksum: str) -> bool:
    """By the pack's own last bytes, which are a hash of all before them."""
    if spool.size <= TRAILER:
        return False
    digest = hashlib.sha1()
    for chunk in spool.chunks(0, spool.size - TRAILER):
        digest.update(chunk)
    last = spool.read(spool.size - TRAILER, TRAILER)
    return digest.digest() == last and last.hex() == checksum


def _is_there(spool: Spool, offset: int, blob: BlobRef) -> bool:
    body = Slice(spool, offset, blob.size, lambda _: None)
    for _ in body.chunks():
        pass
    return body.cid == blob.cid
