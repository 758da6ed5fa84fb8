"""Bodies on their way in and out."""

import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from git_knotless.sandbox.errors import Refusal, invalid
from git_knotless.sandbox.values import parse_json

_CHUNK = 64 * 1024


def read_object(data: bytes) -> dict[str, Any]:
    body = parse_json(data)
    if not isinstance(body, dict):
        raise invalid("Expected object value type at $")
    return body


def decoder(encoding: str) -> Callable[[bytes], Iterator[bytes]]:
    if encoding == "identity":
        return lambda chunk: iter((chunk,))
    if encoding not in ("gzip", "deflate"):
        raise Refusal(415, "UnsupportedMediaTypeError", f"unsupported encoding: {encoding[:80]}")
    inflate = zlib.decompressobj(31 if encoding == "gzip" else 15)

    def decode(chunk: bytes) -> Iterator[bytes]:
        """A little at a time: what a few bytes unpack to is not bounded."""
        try:
            while chunk and not inflate.eof:
                yield inflate.decompress(chunk, _CHUNK)
                chunk = inflate.unconsumed_tail
        except zlib.error as error:
            raise invalid("request body is not what its Content-Encoding says") from error

    return decode


def pieces(source: Any) -> Iterator[bytes]:
    """Of a file or an iterator, closed at the end."""
    try:
        if not hasattr(source, "read"):
            yield from source
            return
        while piece := source.read(_CHUNK):
            yield piece
    finally:
        with suppress(AttributeError):
            source.close()
