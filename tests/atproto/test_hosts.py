"""Which hosts are spoken to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from git_knotless.atproto.hosts import (
    host_of,
    is_public,
    on_loopback,
    origin_of,
    parse_origin,
    redirected,
)
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
        ("https://[2001:DB8::1]", "https://[2001:db8::1]"),
        ("https://1.example.com", "https://1.example.com"),
        ("https://0x7f.example.com", "https://0x7f.example.com"),
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
        "http://[",
        "http://\u2100.com/",
        "https://127.1",
        "https://2130706433",
        "https://0x7f.1",
        "https://0x7f000001",
        "https://0x",
        "https://0177.0.0.1",
        "https://127.0.0.01",
        "https://127.0.0.1.2",
        "https://256.1.1.1",
        "https://example.1",
        "https://0.0.0.0",
        "https://[::]",
        "http://[::ffff:127.0.0.1]",
        "http://[::ffff:7f00:1]",
        "http://[0:0:0:0:0:0:0:1]",
        "https://[::127.0.0.1]",
        "https://pds.localhost",
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


@pytest.mark.parametrize("url", ["http://[", "https://a]b.example.com/", "http://\u2100.com/", ""])
def test_no_url_at_all(url: str) -> None:
    for ask in (parse_origin, origin_of):
        with pytest.raises(InvalidSyntax):
            ask(url)


@pytest.mark.parametrize(
    ("url", "public"),
    [
        ("https://pds.example.com:8443", True),
        ("https://9.9.9.9", True),
        ("https://[2620:fe::fe]", True),
        ("http://localhost:2583", False),
        ("https://router", False),
        ("https://printer.local", False),
        ("https://pds.corp.internal", False),
        ("https://127.0.0.1", False),
        ("https://10.0.0.1", False),
        ("https://172.16.0.1", False),
        ("https://192.168.1.1", False),
        ("https://169.254.169.254", False),
        ("https://100.64.0.1", False),
        ("https://[::1]", False),
        ("https://[fe80::1]", False),
        ("https://[fd00::1]", False),
    ],
)
def test_hosts_that_all_may_know(url: str, public: bool) -> None:
    assert is_public(url) == public


HERE = "https://pds.example.com/xrpc/x?a=b"


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("/y?c=d#e", "https://pds.example.com/y?c=d"),
        ("y", "https://pds.example.com/xrpc/y"),
        ("//storage.example.com/y", "https://storage.example.com/y"),
        ("HTTPS://Storage.example.com/y", "https://Storage.example.com/y"),
        (" https://storage.example.com/y", "https://storage.example.com/y"),
    ],
)
def test_redirects(location: str, url: str) -> None:
    assert redirected(HERE, location) == url


PIECES = st.sampled_from(
    [
        *("http", "https", ":", "//", "/", "[", "]", "@", "\\", "?", "#", "%", "..", ":99999"),
        *("pds.example.com", "127.0.0.1", "localhost", "0x7f.1", "::1"),
        *("\u2100", "\0", "\n", " ", "\ud800", "é"),
    ]
)


@given(
    st.lists(PIECES | st.text(max_size=5), max_size=8).map("".join), st.sampled_from([HERE, "x"])
)
def test_any_location_leads_to_a_host_or_is_refused(location: str, here: str) -> None:
    try:
        url = redirected(here, location)
    except InvalidSyntax:
        return
    assert parse_origin(origin_of(url)) == origin_of(url)
