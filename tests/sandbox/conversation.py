"""What two networks answer to the same requests, in a form that can be compared: status, error name
and shape. Names, times and keys differ from one network to the next, and so are left out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.network import Account, Host, Network

NOTE = "com.example.note"
REPO = "com.atproto.repo."
SYNC = "com.atproto.sync."
SERVER = "com.atproto.server."
IDENTITY = "com.atproto.identity."
ADMIN = "com.atproto.admin."
MISSING = "bafyreih6kmhtrxzkqmeaq7l4xcqnhozyvnpqnt4zrxjhjfmxqvcm5eq2hu"
NOT_THERE = "did:plc:" + "a" * 24


def batch(alice: Account, *writes: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"repo": alice.did, "writes": list(writes), **more}


@dataclass(slots=True)
class Recorder:
    """Asks, and notes each answer under a label."""

    network: Network
    answers: dict[str, Any] = field(default_factory=dict)

    def ask(self, label: str, host: Host, method: str, nsid: str, **options: Any) -> httpx.Response:
        assert label not in self.answers, label
        response = host.send(method, nsid, **options)
        self.answers[label] = summary(response)
        return response

    def get(self, label: str, at: Account | Host, nsid: str, /, **params: Any) -> httpx.Response:
        host, auth = (at.host, at.auth) if isinstance(at, Account) else (at, None)
        return self.ask(label, host, "GET", nsid, auth=auth, params=params)

    def post(
        self, label: str, at: Account | Host, nsid: str, body: Any = None, **options: Any
    ) -> httpx.Response:
        host, auth = (at.host, at.auth) if isinstance(at, Account) else (at, None)
        if body is not None:
            options["json"] = body
        return self.ask(label, host, "POST", nsid, **{"auth": auth, **options})


def summary(response: httpx.Response) -> dict[str, Any]:
    kind = response.headers.get("content-type", "").partition(";")[0]
    said: dict[str, Any] = {"status": response.status_code, "type": kind}
    if kind == "application/json" and response.content:  # none after HEAD
        body = response.json()
        if response.status_code >= 400:
            said["error"] = body.get("error")
            said["keys"] = sorted(body)
        else:
            said["shape"] = shape(body)
    return said


def shape(value: Any) -> Any:
    """Names and types of what JSON holds, and the `$type`s."""
    match value:
        case dict():
            return {
                name: each if name in ("$type", "status", "validationStatus") else shape(each)
                for name, each in sorted(value.items())
                if name != "@context"  # of a DID document: as many as kinds of keys in it
            }
        case list():
            return [shape(each) for each in value]
    return type(value).__name__


Conversation = Callable[[Recorder], None]


def differences(have: Conversation, networks: Sequence[Network], meant: Mapping[str, str]) -> str:
    """Where two networks answer differently in a conversation, and are not meant to; or where they
    answer alike what is meant to differ."""
    recorders = [Recorder(network) for network in networks]
    for recorder in recorders:
        have(recorder)
    theirs, ours = (recorder.answers for recorder in recorders)
    assert ours.keys() == theirs.keys(), ours.keys() ^ theirs.keys()
    differ = {label for label in theirs if theirs[label] != ours[label]}
    wrong = differ ^ {label for label in theirs if f"{have.__name__}: {label}" in meant}
    return "".join(
        f"\n{label}\n  {networks[0].plc} {theirs[label]}\n  {networks[1].plc} {ours[label]}"
        for label in sorted(wrong)
    )
