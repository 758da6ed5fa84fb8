"""Keys and signatures against published vectors, and what must pass for neither."""

from contextlib import suppress
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st

from git_knotless.atproto.keys import (
    BadKey,
    BadSignature,
    Curve,
    PrivateKey,
    PublicKey,
    signing_key,
)

DID = "did:plc:ewvi7nxzyoun6zhxrhs64oiz"
MESSAGE = b"oh hey"
BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"

of_each_curve = pytest.mark.parametrize("curve", Curve, ids=lambda curve: curve.name)


def multibase(raw: bytes) -> str:
    """Base58btc, for bytes that begin with none of zero."""
    number, text = int.from_bytes(raw, "big"), ""
    while number:
        text, number = BASE58[number % 58] + text, number // 58
    return "z" + text


def point(key: PublicKey, form: PublicFormat) -> bytes:
    return key.point.public_bytes(Encoding.X962, form)


def halves(signature: bytes) -> tuple[int, int]:
    return int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")


# https://github.com/w3c-ccg/did-method-key/tree/main/test-vectors
@pytest.mark.parametrize(
    ("curve", "private", "did_key"),
    [
        (
            Curve.K256,
            "9085d2bef69286a6cbb51623c8fa258629945cd55ca705cc4e66700396894e0c",
            "did:key:zQ3shokFTS3brHcDQrn82RUDfCZESWL1ZdCEJwekUDPQiYBme",
        ),
        (
            Curve.K256,
            "f0f4df55a2b3ff13051ea814a8f24ad00f2e469af73c363ac7e9fb999a9072ed",
            "did:key:zQ3shtxV1FrJfhqE1dvxYRcCknWNjHc3c5X1y3ZSoPDi2aur2",
        ),
        (
            Curve.P256,
            "82ebbd63ebbd9ff60141a69bd4c9be282f2415e8eafa9d42c0ed396daccca979",
            "did:key:zDnaeTiq1PdzvZXUaMdezchcMJQpBdH2VN4pgrrEhMCCbmwSb",
        ),
    ],
)
def test_public_keys_by_name(curve: Curve, private: str, did_key: str) -> None:
    key = PrivateKey.from_bytes(curve, bytes.fromhex(private))
    assert key.to_bytes().hex() == private
    assert key.public.did_key == did_key
    assert PublicKey.from_did_key(did_key) == key.public
    assert PublicKey.from_did_key(did_key).curve is curve
    assert PublicKey.from_multikey(did_key.removeprefix("did:key:")) == key.public


@of_each_curve
def test_what_is_signed_verifies(curve: Curve) -> None:
    key = PrivateKey.generate(curve)
    again = PublicKey.from_did_key(PrivateKey.from_bytes(curve, key.to_bytes()).public.did_key)
    for number in range(20):  # half of them are high before they are mended
        signature = key.sign(b"%d" % number)
        again.verify(signature, b"%d" % number)
        assert len(signature) == 64
        assert halves(signature)[1] <= curve.order // 2


@of_each_curve
def test_another_signature_of_the_same_message_is_refused(curve: Curve) -> None:
    """Nobody who has one can make another: the high s verifies as mathematics goes."""
    key = PrivateKey.generate(curve)
    r, s = halves(key.sign(MESSAGE))
    high = curve.order - s
    key.public.point.verify(encode_dss_signature(r, high), MESSAGE, ec.ECDSA(SHA256()))
    for forged in (
        r.to_bytes(32, "big") + high.to_bytes(32, "big"),
        encode_dss_signature(r, s),
        r.to_bytes(33, "big") + s.to_bytes(32, "big"),
        r.to_bytes(32, "big") + s.to_bytes(33, "big"),
    ):
        with pytest.raises(BadSignature, match="64 bytes"):
            key.public.verify(forged, MESSAGE)


@of_each_curve
def test_what_is_no_signature_is_refused(curve: Curve) -> None:
    key = PrivateKey.generate(curve)
    good = key.sign(MESSAGE)
    n = curve.order.to_bytes(32, "big")
    one = (1).to_bytes(32, "big")
    out_of_range = (bytes(64), b"\xff" * 64, bytes(32) + good[32:], good[:32] + bytes(32))
    for bad in (
        b"",
        good[:-1],
        good + b"\0",
        *out_of_range,
        n + good[32:],
        good[:32] + n,
        one + one,
    ):
        with pytest.raises(BadSignature):
            key.public.verify(bad, MESSAGE)
    with pytest.raises(BadSignature, match="not by the account's key"):
        key.public.verify(good, MESSAGE + b".")
    with pytest.raises(BadSignature, match="not by the account's key"):
        PrivateKey.generate(curve).public.verify(good, MESSAGE)


@of_each_curve
@pytest.mark.parametrize("raw", [b"", bytes(32), b"\1" * 31, b"\xff" * 32, b"\1" * 33])
def test_what_is_no_private_key(curve: Curve, raw: bytes) -> None:
    with pytest.raises(BadKey):
        PrivateKey.from_bytes(curve, raw)


@of_each_curve
def test_verification_methods_of_either_age(curve: Curve) -> None:
    key = PrivateKey.generate(curve).public
    for form in (PublicFormat.UncompressedPoint, PublicFormat.CompressedPoint):
        assert PublicKey.from_suite(curve.suite, multibase(point(key, form))) == key
    assert PublicKey.from_suite("Multikey", key.multikey) == key


@of_each_curve
def test_what_is_no_public_key(curve: Curve) -> None:
    key = PrivateKey.generate(curve).public
    compressed = point(key, PublicFormat.CompressedPoint)
    uncompressed = point(key, PublicFormat.UncompressedPoint)
    for text in (
        "",
        "z",
        "f" + compressed.hex(),
        key.multikey[1:],
        key.multikey + "0",
        key.multikey + " ",
        key.multikey + "é",
        "z1" + key.multikey[1:],
        "z" * 1_000_000,
        multibase(curve.codec + uncompressed),
        multibase(curve.codec + compressed[:-1]),
        multibase(curve.codec + compressed + b"\0"),
        multibase(curve.codec + b"\x05" + compressed[1:]),
        multibase(curve.codec + compressed[:1] + b"\xff" * 32),  # beyond the field
        multibase(b"\xed\x01" + compressed[1:]),  # an Ed25519 key
    ):
        with pytest.raises(BadKey):
            PublicKey.from_multikey(text)
        with pytest.raises(BadKey):
            PublicKey.from_did_key("did:key:" + text)
    off_the_curve = uncompressed[:-1] + bytes([uncompressed[-1] ^ 1])
    for raw in (off_the_curve, b"\x06" + uncompressed[1:], uncompressed + b"\0", b"\1"):
        with pytest.raises(BadKey):
            PublicKey.from_suite(curve.suite, multibase(raw))
    for suite in ("", "Ed25519VerificationKey2020", "JsonWebKey2020"):
        with pytest.raises(BadKey, match="another kind"):
            PublicKey.from_suite(suite, key.multikey)
    with pytest.raises(BadKey):
        PublicKey.from_did_key(key.multikey)


@given(st.text(max_size=60) | st.text(BASE58, max_size=95).map("z".__add__))
@settings(deadline=None)
def test_no_text_does_worse_than_be_refused(text: str) -> None:
    for suite in ("Multikey", *(curve.suite for curve in Curve)):
        with suppress(BadKey):
            PublicKey.from_suite(suite, text)


KEY = PrivateKey.generate(Curve.K256).public
METHOD = {
    "id": f"{DID}#atproto",
    "type": "Multikey",
    "controller": DID,
    "publicKeyMultibase": KEY.multikey,
}


@pytest.mark.parametrize(
    "methods",
    [
        [METHOD],
        [{**METHOD, "id": "#atproto"}],
        [{**METHOD, "id": "#other", "publicKeyMultibase": "z"}, METHOD, {**METHOD, "type": "x"}],
        ["x", {}, {**METHOD, "controller": "did:plc:other"}, METHOD],
        [
            {
                **METHOD,
                "type": Curve.K256.suite,
                "publicKeyMultibase": multibase(point(KEY, PublicFormat.UncompressedPoint)),
            }
        ],
    ],
)
def test_the_signing_key_of_a_did_document(methods: list[Any]) -> None:
    assert signing_key({"id": DID, "verificationMethod": methods}, DID) == KEY


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"id": DID},
        {"id": DID, "verificationMethod": None},
        {"id": DID, "verificationMethod": METHOD},
        {"id": DID, "verificationMethod": []},
        {"id": DID, "verificationMethod": [{**METHOD, "id": "#other"}]},
        {"id": DID, "verificationMethod": [{**METHOD, "id": "atproto"}]},
        {"id": DID, "verificationMethod": [{**METHOD, "controller": "did:web:example.com"}]},
        {"id": DID, "verificationMethod": [{**METHOD, "publicKeyMultibase": 1}]},
        {"id": DID, "verificationMethod": [{**METHOD, "publicKeyMultibase": "z1"}]},
        {"id": DID, "verificationMethod": [{**METHOD, "type": "JsonWebKey2020"}]},
        {"id": "did:web:example.com", "verificationMethod": [METHOD]},
    ],
)
def test_a_did_document_without_a_signing_key(document: dict[str, Any]) -> None:
    with pytest.raises(BadKey):
        signing_key(document, DID)
