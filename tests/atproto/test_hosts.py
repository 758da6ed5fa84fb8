"""Which hosts are spoken to."""

import pytest

from git_knotless.atproto.hosts import host_of, on_loopback, origin_of, parse_origin
from git_knotless.atproto.syntax import InvalidSyntax


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("https://bsky.social", "https://bsky.social"),
        ("https://bsky.social/", "https://bsky.social"),
        ("https://PDS.example.com:443", "https://pds.example.com"),
        ("https://pds.example.com:8443/", "https://pds.example.com:8443"),
        ("https://192.0.2.1", "https://192.0.2.1"),
        ("http://localhost:2583", "http://localhost:2583"),
        ("http://localhost:80", "http://localhost"),
        ("http://127.0.0.1:1", "http://127.0.0.1:1"),
        ("http://127.8.9.10", "http://127.8.9.10"),
        ("http://[::1]:2583", "http://[::1]:2583"),
    ],
)
def test_origins(text: str, origin: str) -> None:
    assert parse_origin(text) == origin


@pytest.mark.parametrize(
    "text",
    [
        "",
        "bsky.social",
        "https://",
        "ftp://bsky.social",
        "file:///etc/passwd",
        "http://bsky.social",
        "http://127.0.0.1.example.com",
        "http://localhost.example.com",
        "http://0.0.0.0",
        "http://2130706433",
        "http://0x7f.1",
        "https://user@bsky.social",
        "https://user:pass@bsky.social",
        "https://bsky.social/xrpc",
        "https://bsky.social?x",
        "https://bsky.social#x",
        "https://bsky.social:0x50",
        "https://bsky.social:99999",
        "https://bsky.social:",
        "https://bsky.social:080",
        "https://bsky.social\\@evil.example.com",
        "https://bsky.soc\nial",
        " https://bsky.social",
        "https://bsky social",
        "https://bücher.example.com",
        "https://-x.com",
        "https://[::1%25eth0]",
        "https://[::1",
        "https://" + "a" * 64 + ".com",
    ],
)
def test_not_origins(text: str) -> None:
    with pytest.raises(InvalidSyntax):
        parse_origin(text)


def test_what_a_url_and_an_origin_are_of() -> None:
    assert origin_of("https://bsky.social:443/xrpc/x?a=b#c") == "https://bsky.social"
    assert host_of("http://localhost:2583") == "localhost:2583"
    assert on_loopback("http://[::1]:2583")
    assert not on_loopback("https://bsky.social")
