"""What `git knotless doctor` says, for tests to look at."""

import json
from typing import Any

from tests.gitenv import GitEnv, Result
from tests.network import Account

CLAIM, PACK, REPO = "dev.knotless.claim", "dev.knotless.pack", "dev.knotless.repo"
COLLECTIONS = (REPO, "dev.knotless.ref", CLAIM, PACK)

Found = dict[str, dict[str, Any]]


def doctor(machine: GitEnv, *arguments: str, code: int = 0, **options: Any) -> Found:
    """What it finds, by check."""
    done = machine.git("knotless", "doctor", "--json", *arguments, code=code, **options)
    return found_in(done)


def found_in(done: Result) -> Found:
    said = json.loads(done.out)
    assert list(said) == ["items", "ok"]
    assert said["ok"] == (done.code == 0)
    for item in said["items"]:
        assert list(item) == ["check", "status", "detail", "hint"]
        assert item["hint"] or item["status"] in ("ok", "skipped"), item
    found = {item["check"]: item for item in said["items"]}
    assert len(found) == len(said["items"])
    return found


def failed(found: Found) -> set[str]:
    return {name for name, item in found.items() if item["status"] == "fail"}


def not_ok(found: Found) -> dict[str, str]:
    return {name: item["status"] for name, item in found.items() if item["status"] != "ok"}


def records(account: Account) -> dict[str, Any]:
    blobs = account.host.get("com.atproto.sync.listBlobs", did=account.did)["cids"]
    return {"blobs": blobs, **{each: account.records(each) for each in COLLECTIONS}}
