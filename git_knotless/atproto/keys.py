"""Signing keys of atproto, on secp256k1 (K-256) and P-256, and their names in DID documents.

A signature is 64 bytes, r and s, of SHA-256, with the lower of the two s that would verify:
whoever holds one cannot make another of it. https://atproto.com/specs/cryptography
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any, Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)
from cryptography.hazmat.primitives.hashes import SHA256, HashAlgorithm

from git_knotless.atproto.dag_cbor import BadData
from git_knotless.atproto.did_document import signing_method
from git_knotless.value import value


class BadKey(BadData):
    """Text, or a DID document, that holds no key of a kind that atproto uses."""


class BadSignature(BadData):
    """Not signed by the key; or the key that was asked is an old one."""


class Curve(Enum):
    K256 = (
        "ES256K",
        b"\xe7\x01",
        "EcdsaSecp256k1VerificationKey2019",
        0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141,
        ec.SECP256K1(),
    )
    P256 = (
        "ES256",
        b"\x80\x24",
        "EcdsaSecp256r1VerificationKey2019",
        0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551,
        ec.SECP256R1(),
    )

    def __init__(
        self, algorithm: str, codec: bytes, suite: str, order: int, math: ec.EllipticCurve
    ) -> None:
        self.algorithm = algorithm  # as JWTs name it
        self.codec = codec  # before a public key in a Multikey
        self.suite = suite  # of a verification method, as DID documents had it before Multikey
        self.order = order
        self.math = math


_BY_CODEC = {curve.codec: curve for curve in Curve}
_BY_SUITE = {curve.suite: curve for curve in Curve}


class _OfSha256(ec.ECDSA):
    """What verifies and signs. The base's own `__init__` imports all of OpenSSL's back end, to ask
    it for what is not wanted here: 6 ms of the 20 that it takes to verify anything."""

    def __init__(self) -> None:
        pass

    @property
    def algorithm(self) -> HashAlgorithm:
        return SHA256()

    @property
    def deterministic_signing(self) -> bool:
        return False


_SHA256 = _OfSha256()
_COMPRESSED = 33  # bytes of a point: which of two, and x
_SCALAR = 32
_DID_KEY = "did:key:"
_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_LONGEST_BASE58 = 90  # characters: an uncompressed point of 65 bytes takes 89


@value
class PublicKey:
    curve: Curve
    point: ec.EllipticCurvePublicKey

    @classmethod
    def from_multikey(cls, text: str) -> Self:
        raw = _from_multibase(text)
        curve = _BY_CODEC.get(raw[:2])
        if curve is None or len(raw) != 2 + _COMPRESSED:
            raise BadKey("a Multikey of another kind than atproto's")
        return cls._at(curve, raw[2:])

    @classmethod
    def from_did_key(cls, text: str) -> Self:
        if not text.startswith(_DID_KEY):
            raise BadKey("not a did:key")
        return cls.from_multikey(text.removeprefix(_DID_KEY))

    @classmethod
    def from_suite(cls, suite: str, text: str) -> Self:
        """The `publicKeyMultibase` of a verification method whose type is `suite`."""
        if suite == "Multikey":
            return cls.from_multikey(text)
        curve = _BY_SUITE.get(suite)
        if curve is None:
            raise BadKey("a verification method of another kind than atproto's")
        return cls._at(curve, _from_multibase(text))

    @classmethod
    def _at(cls, curve: Curve, point: bytes) -> Self:
        try:
            return cls(curve, ec.EllipticCurvePublicKey.from_encoded_point(curve.math, point))
        except ValueError as error:
            raise BadKey("a public key that is no point of its curve") from error

    @property
    def multikey(self) -> str:
        # Half of what cryptography takes to import, and nobody who verifies needs it.
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        point = self.point.public_bytes(Encoding.X962, PublicFormat.CompressedPoint)
        return "z" + _to_base58(self.curve.codec + point)

    @property
    def did_key(self) -> str:
        return _DID_KEY + self.multikey

    def verify(self, signature: bytes, message: bytes) -> None:
        """Raises BadSignature. OpenSSL would take the higher s too."""
        r, s = (
            int.from_bytes(signature[:_SCALAR], "big"),
            int.from_bytes(signature[_SCALAR:], "big"),
        )
        half = self.curve.order // 2
        if len(signature) != 2 * _SCALAR or not (0 < r < self.curve.order and 0 < s <= half):
            raise BadSignature("a signature is not 64 bytes of ECDSA with a low s")
        try:
            self.point.verify(encode_dss_signature(r, s), message, _SHA256)
        except InvalidSignature as error:
            raise BadSignature("a signature is not by the account's key") from error


@value
class PrivateKey:
    curve: Curve
    scalar: ec.EllipticCurvePrivateKey

    @classmethod
    def generate(cls, curve: Curve) -> Self:
        return cls(curve, ec.generate_private_key(curve.math))

    @classmethod
    def from_bytes(cls, curve: Curve, raw: bytes) -> Self:
        number = int.from_bytes(raw, "big")
        if len(raw) != _SCALAR or not 0 < number < curve.order:
            raise BadKey("not a private key of 32 bytes")
        return cls(curve, ec.derive_private_key(number, curve.math))

    def to_bytes(self) -> bytes:
        return self.scalar.private_numbers().private_value.to_bytes(_SCALAR, "big")

    @property
    def public(self) -> PublicKey:
        return PublicKey(self.curve, self.scalar.public_key())

    def sign(self, message: bytes) -> bytes:
        r, s = decode_dss_signature(self.scalar.sign(message, _SHA256))
        s = min(s, self.curve.order - s)
        return r.to_bytes(_SCALAR, "big") + s.to_bytes(_SCALAR, "big")


def signing_key(document: Mapping[str, Any], did: str) -> PublicKey:
    """The key that signs an account's commits and tokens, from its DID document (untrusted)."""
    if document.get("id") != did:
        raise BadKey("the DID document is of another account")
    method = signing_method(document, did)
    if method is not None:
        return PublicKey.from_suite(*method)
    raise BadKey("the DID document names no signing key")


def _to_base58(raw: bytes) -> str:
    number, text = int.from_bytes(raw, "big"), ""
    while number:
        number, digit = divmod(number, 58)
        text = _BASE58[digit] + text
    return "1" * (len(raw) - len(raw.lstrip(b"\0"))) + text


def _from_multibase(text: str) -> bytes:
    if not text.startswith("z") or len(text) > _LONGEST_BASE58 or not set(text) <= set(_BASE58):
        raise BadKey("a key that is not in base58btc")
    digits, number = text[1:], 0
    for digit in digits:
        number = number * 58 + _BASE58.index(digit)
    zeros = len(digits) - len(digits.lstrip("1"))
    return bytes(zeros) + number.to_bytes((number.bit_length() + 7) // 8, "big")
