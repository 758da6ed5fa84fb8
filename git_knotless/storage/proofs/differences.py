"""What a listing has otherwise than it is signed, for people."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from git_knotless.atproto.answers import printable
from git_knotless.atproto.dag_cbor import BadData, cid_of, decode_json
from git_knotless.atproto.errors import AtprotoError
from git_knotless.storage.store import Proofs

_MOST_LOOKED_AT = 20  # for what is signed in their place


def differences(
    listed: Mapping[str, bytes], signed: Mapping[str, bytes], proofs: Proofs, *, kind: str = "ref"
) -> dict[str, tuple[str, str]]:
    """What each record is called that is not the same, and what is wrong with it.

    `kind` is what they are records of; `listed` are blocks and `signed` CIDs, by record keys. A
    block of nothing is of no record.
    """
    wrong = [rkey for rkey in signed.keys() | listed.keys() if _differs(rkey, listed, signed)]
    if not wrong:
        return {}
    wrong.sort()
    cids = [signed[rkey] for rkey in wrong[:_MOST_LOOKED_AT] if rkey in signed]
    blocks: dict[bytes, bytes] = {}
    with suppress(AtprotoError):  # it is wrong all the same
        blocks = proofs.blocks(cids) if kind == "ref" else {}
    return {rkey: _word(rkey, listed.get(rkey), signed.get(rkey), blocks, kind) for rkey in wrong}


def _differs(rkey: str, listed: Mapping[str, bytes], signed: Mapping[str, bytes]) -> bool:
    block = listed.get(rkey)
    return not block or signed.get(rkey) != cid_of(block)


def _word(
    rkey: str,
    listed: bytes | None,
    signed: bytes | None,
    blocks: Mapping[bytes, bytes],
    kind: str,
) -> tuple[str, str]:
    theirs = _fields(listed) if kind == "ref" else {}
    ours = _fields(blocks.get(signed or b""))
    named = ours.get("name") or theirs.get("name")
    what = printable(str(named)) if named else f"{kind} {rkey}"
    if listed is None:
        return what, f"is left out, and is signed{_state(ours)}"
    if signed is None:
        return what, f"is listed{_state(theirs)}, and is not signed"
    if _state(theirs) == _state(ours):
        return what, "is listed otherwise than it is signed"
    return what, f"is listed{_state(theirs)}, and is signed{_state(ours) or ' otherwise'}"


def _state(fields: Mapping[str, Any]) -> str:
    if not fields:
        return ""
    target = fields.get("target")
    where = "as deleted" if target is None else f"at {target}"
    return " " + printable(f"{where} (generation {fields.get('generation')})")


def _fields(block: bytes | None) -> dict[str, Any]:
    with suppress(BadData):
        fields = decode_json(block) if block else {}
        return fields if isinstance(fields, dict) else {}
    return {}
