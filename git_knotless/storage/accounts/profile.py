"""An account's profile: its `dev.knotless.profile` record over Bluesky's, field by field.

A field that is set there takes the place of Bluesky's; one that is absent or '' shows Bluesky's
(spec: naming.md). Either record may hold anything: a field that is not what the lexicon says is
as none.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from git_knotless.atproto.errors import BadAnswer
from git_knotless.atproto.syntax import is_cid
from git_knotless.errors import KnotlessError
from git_knotless.storage.accounts.own_record import PROFILE, SELF, OwnRecords, change
from git_knotless.storage.packs.spool import blob_cid
from git_knotless.storage.store import BlobBody, BlobRef

COLLECTION = PROFILE
BLUESKY = "app.bsky.actor.profile"
PICTURES = ("image/png", "image/jpeg", "image/webp", "image/gif")
LARGEST_PICTURE = 1_000_000  # bytes, as Bluesky has it

# In bytes, as Bluesky has them.
TEXTS = {"displayName": 640, "description": 2560, "pronouns": 200, "website": 2048}
BLOBS = ("avatar", "banner")
FIELDS = (*TEXTS, *BLOBS)

_WEBSITE = re.compile(r"https?://[^\s/?#]+([/?#]\S*)?", re.IGNORECASE)
_JOINER = "\u200d"  # not printable by itself, and part of many an emoji


class BadProfile(KnotlessError):
    """What a field of a profile cannot hold."""


class BadPicture(KnotlessError):
    """A file that cannot be a picture of a profile."""


class PictureRecords(OwnRecords, Protocol):
    def upload(self, body: BlobBody, *, mime: str) -> BlobRef: ...


@dataclass(frozen=True, slots=True)
class Field:
    """`value` is a text, or a blob as its record names it; None where neither record has one.

    `source` is the collection that it is from.
    """

    value: Any
    source: str | None


def read_profile(records: OwnRecords) -> dict[str, Field]:
    """Every field there is, by its name."""
    sources = {
        collection: {} if record is None else record.value
        for collection in (COLLECTION, BLUESKY)
        for record in [records.get(collection, SELF)]
    }
    return {name: _merged(name, sources) for name in FIELDS}


def _merged(name: str, sources: Mapping[str, Mapping[str, Any]]) -> Field:
    for collection, value in sources.items():
        if _is_set(name, held := value.get(name)):
            return Field(held, collection)
    return Field(None, None)


def _is_set(name: str, held: Any) -> bool:
    if name in TEXTS:
        return isinstance(held, str) and bool(held) and _fault(name, held) is None
    match held:
        case {
            "$type": "blob",
            "ref": {"$link": str(cid)},
            "mimeType": str(mime),
            "size": int(size),
        }:
            return is_cid(cid) and mime in PICTURES and 0 <= size <= LARGEST_PICTURE
    return False


def set_profile(
    records: PictureRecords, texts: Mapping[str, str], files: Mapping[str, bytes]
) -> None:
    """Set fields of the account's own record to texts and pictures; to '' or b'' unsets one.

    The others, also those that are not known here, stay. Raises BadProfile and BadPicture, and
    nothing is changed then.
    """
    for name, text in texts.items():
        if fault := _fault(name, text):
            raise BadProfile(fault)
    pictures = {name: Picture(name, data) for name, data in files.items() if data}
    fields: dict[str, Any] = dict(texts)
    fields |= {name: _upload(records, pictures.get(name)) for name in files}

    def changed(value: Mapping[str, Any]) -> Mapping[str, Any] | None:
        kept = {name: held for name, held in value.items() if name not in fields}
        new = kept | {name: held for name, held in fields.items() if held}
        return None if new == value else new

    change(records, COLLECTION, changed)


def _fault(name: str, text: str) -> str | None:
    """What keeps `text` from being the field `name`."""
    lines = text.replace("\r\n", "\n").split("\n") if name == "description" else [text]
    if not all(c.isprintable() or c in (_JOINER, "\t") for line in lines for c in line):
        return f"{name}: it holds a character that cannot be shown"
    if len(text.encode(errors="replace")) > TEXTS[name]:
        return f"{name}: it has more than {TEXTS[name]} bytes"
    if name == "website" and text and not _WEBSITE.fullmatch(text):
        return f"{name}: {text!a} is not an address that begins with https:// or http://"
    return None


class Picture:
    """A picture by its bytes, which say of which type it is; raises BadPicture."""

    def __init__(self, name: str, data: bytes) -> None:
        if len(data) > LARGEST_PICTURE:
            raise BadPicture(f"{name}: a picture has at most {LARGEST_PICTURE:,} bytes")
        mime = next((mime for mime, looks in _LOOKS.items() if looks(data)), None)
        if mime is None:
            raise BadPicture(f"{name}: it is no PNG, JPEG, WebP or GIF")
        self.name = name
        self.mime = mime
        self.size = len(data)
        self._data = data

    def chunks(self) -> Iterator[bytes]:
        yield self._data

    @property
    def cid(self) -> str:
        return blob_cid(hashlib.sha256(self._data).digest())


_LOOKS: Mapping[str, Callable[[bytes], bool]] = {
    "image/png": lambda data: data.startswith(b"\x89PNG\r\n\x1a\n"),
    "image/jpeg": lambda data: data.startswith(b"\xff\xd8\xff"),
    "image/webp": lambda data: data.startswith(b"RIFF") and data[8:12] == b"WEBP",
    "image/gif": lambda data: data.startswith((b"GIF87a", b"GIF89a")),
}


def _upload(records: PictureRecords, picture: Picture | None) -> dict[str, Any] | None:
    """The picture as a record names it; hosts find its type out by themselves."""
    if picture is None:
        return None
    blob = records.upload(picture, mime=picture.mime)
    if (blob.cid, blob.size) != (picture.cid, picture.size) or blob.mime not in PICTURES:
        raise BadAnswer(f"the host keeps another {picture.name} than it was given")
    ref = {"$link": blob.cid}
    return {"$type": "blob", "ref": ref, "mimeType": blob.mime, "size": blob.size}
