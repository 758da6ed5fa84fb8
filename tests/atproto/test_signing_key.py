"""What an account signs with, by its DID document: as it was kept, and as it is now."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from git_knotless.atproto.did_document import signing_method
from git_knotless.atproto.identity import IdentityCache, Resolver
from git_knotless.atproto.keys import BadKey, Curve, PrivateKey, signing_key
from git_knotless.atproto.syntax import Did
from tests.atproto.fakes import DID, PLC, client_for, document, json_answer

ME = Did(DID)


class Directory:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.methods: Any = []
        self.asked = 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked += 1
        return json_answer(document(handle=None) | {"verificationMethod": self.methods})

    def resolver(self) -> Resolver:
        return Resolver(client_for(self), plc_url=PLC, cache=IdentityCache(self.path))


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    return Directory(tmp_path / "identity.json")


def method(key: PrivateKey, **fields: Any) -> dict[str, Any]:
    about = {"id": f"{DID}#atproto", "type": "Multikey", "controller": DID}
    return {**about, "publicKeyMultibase": key.public.multikey, **fields}


@pytest.mark.parametrize("curve", Curve, ids=lambda curve: curve.name)
def test_the_key_is_kept_with_the_document(directory: Directory, curve: Curve) -> None:
    one, two = PrivateKey.generate(curve), PrivateKey.generate(curve)
    directory.methods = [method(two, id="#other"), method(one), method(two)]
    directory.resolver().resolve(DID)
    for _ in range(2):
        assert directory.resolver().signing_key(ME, fresh=False).multikey == one.public.multikey
    assert directory.asked == 1
    directory.methods = [method(two, id="#atproto")]
    assert directory.resolver().signing_key(ME, fresh=True).multikey == two.public.multikey
    assert directory.resolver().signing_key(ME, fresh=False).multikey == two.public.multikey
    assert directory.asked == 2


def test_a_document_that_was_kept_without_it_is_read_again(directory: Directory) -> None:
    key = PrivateKey.generate(Curve.K256)
    directory.methods = [method(key)]
    directory.resolver().resolve(DID)
    held = json.loads(directory.path.read_text())
    for name in ("key", "keyType"):
        del held["dids"][DID][name]
    directory.path.write_text(json.dumps(held))
    assert directory.resolver().signing_key(ME, fresh=False).multikey == key.public.multikey
    assert directory.asked == 2


NO_METHODS: list[Any] = [
    [],
    None,
    {},
    [7],
    [method(PrivateKey.generate(Curve.K256), controller="did:web:else.example")],
    [method(PrivateKey.generate(Curve.K256), id="#other")],
    [method(PrivateKey.generate(Curve.K256), publicKeyMultibase=7)],
    [method(PrivateKey.generate(Curve.K256), publicKeyMultibase="z" * 1000)],
]


@pytest.mark.parametrize("methods", NO_METHODS)
def test_a_document_without_a_key(directory: Directory, methods: Any) -> None:
    directory.methods = methods
    assert signing_method({"verificationMethod": methods}, DID) is None
    with pytest.raises(BadKey, match="names no signing key"):
        signing_key({"id": DID, "verificationMethod": methods}, DID)
    directory.resolver().resolve(DID)
    with pytest.raises(BadKey, match="names no signing key"):
        directory.resolver().signing_key(ME, fresh=False)


def test_a_key_that_is_none(directory: Directory) -> None:
    for fields in ({"type": "Ed25519VerificationKey2020"}, {"publicKeyMultibase": "zQ3"}):
        directory.methods = [method(PrivateKey.generate(Curve.K256), **fields)]
        with pytest.raises(BadKey):
            directory.resolver().signing_key(ME, fresh=True)
