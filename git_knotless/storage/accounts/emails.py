"""The addresses that an account's commits are authored as, told by nothing but their hashes.

A `dev.knotless.emails` record (spec: naming.md). A hash is salted with the DID: the record names
no address, and the same address is another hash in each account that claims it. A record that is
left empty says that an address was taken back, on whichever machine looks.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from git_knotless.atproto.errors import InvalidSwap
from git_knotless.atproto.syntax import Did
from git_knotless.errors import KnotlessError
from git_knotless.storage.accounts.own_record import EMAILS, SELF, OwnRecords, change

COLLECTION = EMAILS
MOST = 100  # hashes in a record
_LONGEST = 254  # bytes of an address that mail is delivered to (RFC 5321)
_HASH = re.compile(r"[0-9a-f]{64}")


class BadAddress(KnotlessError):
    """What cannot be an address of mail."""


class TooManyAddresses(KnotlessError):
    """The account claims as many as a record takes."""


def parse_address(text: str) -> str:
    """An address as it is hashed: trimmed, in lower case. Raises BadAddress."""
    address = text.strip().lower()
    local, at, domain = address.partition("@")
    if not (local and at and domain) or "@" in domain:
        raise BadAddress(f"{text!a} is not an address: it takes one @ between two names")
    # No surrogate is printable either, which stands for a byte that is not UTF-8.
    if not address.isprintable() or re.search(r"[\s<>]", address):
        raise BadAddress(f"{text!a} holds what no address does")
    if len(address.encode()) > _LONGEST:
        raise BadAddress(f"an address has at most {_LONGEST} bytes, and this {len(address)}")
    return address


def is_anonymous(address: str) -> bool:
    """Whether a parsed address is shared by many people, or names an account by itself."""
    local, _, domain = address.partition("@")
    return local == "noreply" or domain.rpartition(".")[2] == "invalid"


def hash_of(did: Did, address: str) -> str:
    """Of a parsed address in the account `did`."""
    return hashlib.sha256(f"{did}\n{address}".encode()).hexdigest()


def hashes_in(value: Mapping[str, Any]) -> list[str]:
    """What a record claims, each once: whatever else it holds claims nothing."""
    listed = value.get("hashes")
    entries = listed if isinstance(listed, list) else []
    return list(dict.fromkeys(e for e in entries if isinstance(e, str) and _HASH.fullmatch(e)))


def count(records: OwnRecords) -> int:
    """How many addresses the account claims."""
    record = records.get(COLLECTION, SELF)
    return 0 if record is None else len(hashes_in(record.value))


def add(records: OwnRecords, address: str) -> bool:
    """Claim a parsed address; False where it was claimed already. Raises TooManyAddresses."""
    new = hash_of(records.did, address)

    def added(value: Mapping[str, Any]) -> Mapping[str, Any] | None:
        hashes = hashes_in(value)
        if new in hashes:
            return None
        if len(hashes) >= MOST:
            raise TooManyAddresses(
                f"the account claims {len(hashes)} addresses, and a record takes {MOST}",
                hint="git knotless account email remove ADDRESS",
            )
        return {**value, "hashes": [*hashes, new]}

    return change(records, COLLECTION, added)


def remove(records: OwnRecords, address: str) -> bool:
    """Take a parsed address back; False where it was not claimed.

    Also of an account without a record: the empty one keeps every machine from claiming it.
    """
    old, claimed = hash_of(records.did, address), False

    def removed(value: Mapping[str, Any]) -> Mapping[str, Any] | None:
        nonlocal claimed
        hashes = hashes_in(value)
        claimed |= old in hashes
        if old not in hashes and isinstance(value.get("hashes"), list):
            return None
        return {**value, "hashes": [each for each in hashes if each != old]}

    change(records, COLLECTION, removed)
    return claimed


def claim_first(records: OwnRecords, address: str) -> bool:
    """Claim a parsed address in a record that is not there yet; False where it is by now.

    Sent once: raises `AtprotoError` where the host refuses, or does not say what became of it.
    """
    try:
        value = {"hashes": [hash_of(records.did, address)]}
        records.put(COLLECTION, SELF, value, replaces=None)
    except InvalidSwap:
        return False
    return True
