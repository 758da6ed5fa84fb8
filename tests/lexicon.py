"""Lexicons, as far as records need them: whether a schema is well formed, whether a value fits one.

From https://atproto.com/specs/lexicon and /specs/data-model, and on purpose from nothing in
`git_knotless`: the tests hold the code to it. Every check is a generator of complaints, each
beginning with the path of what is wrong; nothing to say means that it fits.
"""

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

Schema = Mapping[str, Any]
Complaints = Iterator[str]

FOLDER = Path(__file__).parents[1] / "lexicons"

_COMMON = {"type", "description"}
_ALLOWED = {
    "record": {"key", "record"},
    "object": {"properties", "required", "nullable"},
    "array": {"items", "minLength", "maxLength"},
    "string": {"format", "minLength", "maxLength", "knownValues", "enum", "const", "default"},
    "integer": {"minimum", "maximum", "enum", "const", "default"},
    "boolean": {"const", "default"},
    "bytes": {"minLength", "maxLength"},
    "blob": {"accept", "maxSize"},
    "ref": {"ref"},
}

# An object stands in a property by reference only; its own schema is a definition.
_IN_A_PROPERTY = _ALLOWED.keys() - {"record", "object"}
_LARGEST_INTEGER = 2**53 - 1  # of every host: JavaScript's

_SEGMENT = r"[a-zA-Z](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_NSID = rf"{_SEGMENT}(?:\.{_SEGMENT})+\.[a-zA-Z][a-zA-Z0-9]{{0,62}}"
_DID = r"did:[a-z]+:[a-zA-Z0-9._:%-]*[a-zA-Z0-9._-]"
_HANDLE = rf"(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]{{0,61}}[a-zA-Z0-9])?\.)+{_SEGMENT}"
_RECORD_KEY = r"(?!\.{1,2}$)[a-zA-Z0-9._:~-]{1,512}"
_DAY = r"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])"
_CLOCK = r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?"
FORMATS = {
    "at-uri": rf"at://(?:{_DID}|{_HANDLE})(?:/{_NSID}(?:/{_RECORD_KEY})?)?",
    "datetime": rf"(?!0000){_DAY}T{_CLOCK}(?:Z|(?!-00:00)[+-](?:[01]\d|2[0-3]):[0-5]\d)",
    "did": _DID,
    "handle": _HANDLE,
    "nsid": _NSID,
    "record-key": _RECORD_KEY,
    "tid": r"[234567abcdefghij][234567abcdefghijklmnopqrstuvwxyz]{12}",
}
_CID = re.compile(r"b[a-z2-7]{58}")  # CIDv1 with a SHA-256, in base32


def read_all(folder: Path = FOLDER) -> dict[str, Schema]:
    """The lexicons by their NSID, which the path of each must spell."""
    return {_nsid_of(path, folder): json.loads(path.read_text()) for path in folder.rglob("*.json")}


def _nsid_of(path: Path, folder: Path) -> str:
    return ".".join(path.relative_to(folder).with_suffix("").parts)


class Lexicons:
    """All the lexicons, for references lead from one to another."""

    def __init__(self, documents: Mapping[str, Schema]) -> None:
        self.documents = documents

    def find(self, reference: str, *, within: str) -> tuple[str, Schema] | None:
        nsid, _, name = reference.partition("#")
        document = self.documents.get(nsid or within, {})
        schema = document.get("defs", {}).get(name or "main")
        return None if schema is None else (nsid or within, schema)

    # Schemas.

    def complaints(self, nsid: str) -> Complaints:
        document = self.documents[nsid]
        if document.get("lexicon") != 1:
            yield f"{nsid}: not lexicon 1"
        if document.get("id") != nsid or not re.fullmatch(_NSID, nsid):
            yield f"{nsid}: its id is {document.get('id')}"
        if extra := document.keys() - {"lexicon", "id", "description", "defs"}:
            yield f"{nsid}: unknown {extra}"
        for name, schema in document["defs"].items():
            if schema.get("type") == "record" and name != "main":
                yield f"{nsid}#{name}: a record that is not main"
            yield from self._schema(schema, f"{nsid}#{name}", nsid)

    def _schema(self, schema: Schema, where: str, nsid: str) -> Complaints:
        kind = schema.get("type", "")
        if kind not in _ALLOWED:
            yield f"{where}: unknown type {kind!r}"
            return
        if extra := schema.keys() - _ALLOWED[kind] - _COMMON:
            yield f"{where}: a {kind} has no {extra}"
        low, high = schema.get("minLength", 0), schema.get("maxLength", _LARGEST_INTEGER)
        if not 0 <= low <= high:
            yield f"{where}: from {low} to {high}"
        if kind == "record":
            if schema["key"] not in {"any", "nsid", "tid"} and schema["key"][:8] != "literal:":
                yield f"{where}: key {schema['key']}"
            yield from self._schema(schema["record"], where, nsid)
        elif kind == "object":
            yield from self._object_schema(schema, where, nsid)
        elif kind == "array":
            yield from self._property_schema(schema["items"], f"{where}[]", nsid)
        elif kind == "ref" and self.find(schema["ref"], within=nsid) is None:
            yield f"{where}: nothing is called {schema['ref']}"
        elif kind == "string" and schema.get("format", "did") not in FORMATS:
            yield f"{where}: unknown format {schema['format']}"

    def _object_schema(self, schema: Schema, where: str, nsid: str) -> Complaints:
        properties = schema["properties"]
        for name in schema.get("required", []):
            if name not in properties:
                yield f"{where}: requires {name}, which it does not have"
        for name, inner in properties.items():
            yield from self._property_schema(inner, f"{where}.{name}", nsid)

    def _property_schema(self, schema: Schema, where: str, nsid: str) -> Complaints:
        if schema.get("type") not in _IN_A_PROPERTY:
            yield f"{where}: {schema.get('type')} is no type of a property"
        else:
            yield from self._schema(schema, where, nsid)

    # Values.

    def misfits(self, value: Mapping[str, Any]) -> Complaints:
        """Of a record, which says in `$type` what it is."""
        nsid = value["$type"]
        found = self.find(nsid, within=nsid)
        if found is None or found[1]["type"] != "record":
            yield f"{nsid} is no record"
            return
        yield from self._value(found[1]["record"], value, nsid, nsid)
        yield from _beyond_the_data_model(value, nsid)

    def _value(self, schema: Schema, value: Any, where: str, nsid: str) -> Complaints:
        if schema["type"] == "ref":
            target = self.find(schema["ref"], within=nsid)
            assert target is not None
            nsid, schema = target
        match schema["type"]:
            case "object":
                yield from self._object(schema, value, where, nsid)
            case "array":
                yield from self._array(schema, value, where, nsid)
            case "string":
                yield from _string(schema, value, where)
            case "integer":
                yield from _integer(schema, value, where)
            case "boolean":
                if not isinstance(value, bool):
                    yield f"{where}: not a boolean"
            case "bytes":
                yield from _bytes(schema, value, where)
            case "blob":
                yield from _blob(schema, value, where)
            case other:
                yield f"{where}: a value of type {other}"

    def _object(self, schema: Schema, value: Any, where: str, nsid: str) -> Complaints:
        if not isinstance(value, dict):
            yield f"{where}: not an object"
            return
        for name in schema.get("required", []):
            if name not in value:
                yield f"{where}: has no {name}"
        for name, inner in schema["properties"].items():
            if name in value:
                yield from self._value(inner, value[name], f"{where}.{name}", nsid)

    def _array(self, schema: Schema, value: Any, where: str, nsid: str) -> Complaints:
        if not isinstance(value, list):
            yield f"{where}: not an array"
            return
        yield from _length(schema, len(value), where)
        for at, item in enumerate(value):
            yield from self._value(schema["items"], item, f"{where}[{at}]", nsid)

    def unknown_fields(self, value: Mapping[str, Any]) -> set[str]:
        """What a record holds that its lexicon does not name."""
        schema = self.documents[value["$type"]]["defs"]["main"]["record"]
        return value.keys() - schema["properties"].keys() - {"$type"}


def _length(schema: Schema, length: int, where: str) -> Complaints:
    low, high = schema.get("minLength", 0), schema.get("maxLength", length)
    if not low <= length <= high:
        yield f"{where}: {length} long, not {low} to {high}"


def _string(schema: Schema, value: Any, where: str) -> Complaints:
    if not isinstance(value, str):
        yield f"{where}: not a string"
        return
    yield from _length(schema, len(value.encode()), where)
    pattern = FORMATS.get(schema.get("format", ""), "(?s:.*)")
    if not re.fullmatch(pattern, value):
        yield f"{where}: {value!r} is no {schema['format']}"


def _integer(schema: Schema, value: Any, where: str) -> Complaints:
    low, high = schema.get("minimum", -_LARGEST_INTEGER), schema.get("maximum", _LARGEST_INTEGER)
    if not isinstance(value, int) or isinstance(value, bool):
        yield f"{where}: not an integer"
    elif not low <= value <= high:
        yield f"{where}: {value} is not {low} to {high}"


def _bytes(schema: Schema, value: Any, where: str) -> Complaints:
    if not isinstance(value, dict) or value.keys() != {"$bytes"}:
        yield f"{where}: not bytes"
        return
    text = value["$bytes"]
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except binascii.Error:
        yield f"{where}: not base64"
    else:
        yield from _length(schema, len(data), where)


def _blob(schema: Schema, value: Any, where: str) -> Complaints:
    keys = {"$type", "ref", "mimeType", "size"}
    if not isinstance(value, dict) or value.keys() != keys or value["$type"] != "blob":
        yield f"{where}: not a blob"
        return
    if not _CID.fullmatch(value["ref"].get("$link", "")):
        yield f"{where}: {value['ref']} is no link"
    if not {"*/*", value["mimeType"]} & {*schema.get("accept", ["*/*"])}:
        yield f"{where}: {value['mimeType']} is not accepted"
    yield from _integer({"minimum": 0}, value["size"], f"{where}.size")


def _beyond_the_data_model(value: Any, where: str) -> Complaints:
    """What no host stores, in a known field or another."""
    match value:
        case dict():
            for name, inner in value.items():
                yield from _beyond_the_data_model(inner, f"{where}.{name}")
        case list():
            for at, inner in enumerate(value):
                yield from _beyond_the_data_model(inner, f"{where}[{at}]")
        case None | bool() | str():
            pass
        case int() if abs(value) <= _LARGEST_INTEGER:
            pass
        case _:
            yield f"{where}: {value!r} is outside the data model"
