"""What a DID document says of its account's signing key, without reading the key."""

from collections.abc import Mapping
from typing import Any

_LONGEST = 256  # characters: a key takes 90 at most, and its type some 40


def signing_method(document: Mapping[str, Any], did: str) -> tuple[str, str] | None:
    """The type and the multibase of the first `#atproto` key of the account's own."""
    methods = document.get("verificationMethod")
    for method in methods if isinstance(methods, list) else []:
        match method:
            case {
                "id": name,
                "controller": owner,
                "type": str(suite),
                "publicKeyMultibase": str(text),
            } if name in ("#atproto", f"{did}#atproto") and owner == did:
                return (suite, text) if len(suite) + len(text) < _LONGEST else None
    return None
