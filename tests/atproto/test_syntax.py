"""What is an identifier, and what only looks like one."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from git_knotless.atproto.syntax import (
    AtUri,
    InvalidSyntax,
    Nsid,
    Rkey,
    format_time,
    is_cid,
    is_did,
    is_handle,
    is_nsid,
    is_rkey,
    is_tid,
    parse_did,
    parse_handle,
    parse_identifier,
    parse_time,
    tid,
    tid_microseconds,
)

PLC = "did:plc:ewvi7nxzyoun6zhxrhs64oiz"


@pytest.mark.parametrize(
    "text",
    [
        PLC,
        "did:web:example.com",
        "did:web:a-b.c.example.com",
        "did:web:localhost",
        "did:web:localhost%3A2583",
        "did:web:localhost%3A65535",
    ],
)
def test_dids(text: str) -> None:
    assert parse_did(text) == text == parse_identifier(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "did:",
        "did:plc:",
        PLC[:-1],
        PLC + "a",
        PLC.upper(),
        PLC.replace("z", "1"),
        PLC + "\n",
        " " + PLC,
        PLC + "#atproto",
        "did:key:zQ3shokFTS3brHcDQrn82RUDfCZESWL1ZdCEJwekUDPQiYBme",
        "did:web:",
        "did:web:com",
        "did:web:EXAMPLE.com",
        "did:web:example.com:path",
        "did:web:example.com%3A443",
        "did:web:example.com/../x",
        "did:web:127.0.0.1%3A80",
        "did:web:localhost:2583",
        "did:web:localhost%3a2583",
        "did:web:localhost%3A0",
        "did:web:localhost%3A65536",
        "did:web:localhost%3A080",
        "did:web:localhost%3A٣",
        "did:web:-a.com",
        "did:web:" + ".".join(["a" * 63] * 4) + ".com",
    ],
)
def test_not_dids(text: str) -> None:
    assert not is_did(text)
    with pytest.raises(InvalidSyntax):
        parse_did(text)


@pytest.mark.parametrize(
    ("text", "handle"),
    [
        ("alice.test", "alice.test"),
        ("Alice.BSKY.social", "alice.bsky.social"),
        ("8.cn", "8.cn"),
        ("xn--ls8h.com", "xn--ls8h.com"),
        ("a." * 125 + "co", "a." * 125 + "co"),
    ],
)
def test_handles(text: str, handle: str) -> None:
    assert parse_handle(text) == handle == parse_identifier(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "alice",
        "@alice.test",
        "alice.test.",
        ".alice.test",
        "alice..test",
        "alice.test\n",
        "alice_x.test",
        "-alice.test",
        "alice-.test",
        "alice.0",
        "127.0.0.1",
        "handle.invalid",
        "alice.localhost",
        "alice.local",
        "alice.onion",
        "alice.example",
        "josé.com",
        "ali\u212ae.test",  # the Kelvin sign, which lowers to k
        "a" * 64 + ".com",
        "a." * 126 + "co",
        "did:plc:x",
    ],
)
def test_not_handles(text: str) -> None:
    with pytest.raises(InvalidSyntax):
        parse_handle(text)


def test_an_error_shows_what_was_given_on_one_short_line() -> None:
    with pytest.raises(InvalidSyntax) as caught:
        parse_handle("\x1b[31m\n" + "x" * 500)
    assert caught.value.message.startswith(r"'\x1b[31m\nxxx")
    assert len(caught.value.message) < 120


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("dev.knotless.repo", True),
        ("com.atproto.repo.getRecord", True),
        ("a.b.c", True),
        ("a-0.b-1.c1", True),
        ("com.atproto", False),
        ("com.atproto.3d", False),
        ("com.atproto.get-record", False),
        ("1com.atproto.x", False),
        ("com.atproto.x\n", False),
        ("com..x.y", False),
        ("com.example." + "a" * 63, True),
        ("com.example." + "a" * 64, False),
        ("com." + "a." * 150 + "name", True),
        ("com." + "a." * 155 + "name", False),
    ],
)
def test_nsids(text: str, *, valid: bool) -> None:
    assert is_nsid(text) is valid


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("self", True),
        ("a.b_c~d:e-F9", True),
        ("...", True),
        (".", False),
        ("..", False),
        ("", False),
        ("a/b", False),
        ("a b", False),
        ("a\n", False),
        ("é", False),
        ("a" * 512, True),
        ("a" * 513, False),
    ],
)
def test_rkeys(text: str, *, valid: bool) -> None:
    assert is_rkey(text) is valid


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("3jzfcijpj2z2a", True),
        ("7777777777777", True),
        ("2222222222222", True),
        ("3jzfcijpj2z21", False),
        ("3jzfcijpj2z2", False),
        ("3JZFCIJPJ2Z2A", False),
        ("kjzfcijpj2z2a", False),
    ],
)
def test_tids(text: str, *, valid: bool) -> None:
    assert is_tid(text) is valid


@given(st.integers(0, (1 << 53) - 1), st.integers(0, 1023))
def test_a_tid_is_its_time(microseconds: int, clock_id: int) -> None:
    made = tid(microseconds, clock_id)
    assert is_tid(made)
    assert tid_microseconds(made) == microseconds


@given(*[st.tuples(st.integers(0, (1 << 53) - 1), st.integers(0, 1023))] * 2)
def test_tids_sort_as_their_times_do(one: tuple[int, int], other: tuple[int, int]) -> None:
    assert (tid(*one) < tid(*other)) == (one < other)


@pytest.mark.parametrize("bad", [(-1, 0), (1 << 53, 0), (0, 1024), (0, -1)])
def test_no_tid_for_what_does_not_fit(bad: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="no TID holds"):
        tid(*bad)


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku", True),
        ("bafyreiidwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku", False),
        ("bafyreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku", True),
        ("bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvykv", False),
        ("bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku\n", False),
        ("QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWnPbdG", False),
        ("../../etc/passwd", False),
    ],
)
def test_cids(text: str, *, valid: bool) -> None:
    assert is_cid(text) is valid


def test_at_uris() -> None:
    uri = AtUri.parse(f"at://{PLC}/dev.knotless.repo/work")
    assert uri == AtUri(parse_did(PLC), Nsid("dev.knotless.repo"), Rkey("work"))
    assert str(uri) == f"at://{PLC}/dev.knotless.repo/work"
    assert str(AtUri.parse("at://alice.test")) == "at://alice.test"
    assert str(AtUri.parse("at://Alice.test/a.b.c")) == "at://alice.test/a.b.c"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "at://",
        "at:/alice.test",
        "http://alice.test",
        "at://alice.test/",
        "at://alice.test/a.b.c/",
        "at://alice.test/a.b.c/d/e",
        "at://alice.test/a.b.c/..",
        "at://alice.test/repo",
        "at://alice.test//x",
        "at://alice.test/a.b.c/x?y",
        "at://alice.test/a.b.c/x#y",
        "at://user@alice.test",
    ],
)
def test_not_at_uris(text: str) -> None:
    with pytest.raises(InvalidSyntax):
        AtUri.parse(text)


@given(st.from_regex(r"[A-Za-z0-9._~:-]{1,40}", fullmatch=True).filter(is_rkey))
def test_at_uris_survive_being_written(rkey: str) -> None:
    uri = AtUri(parse_did(PLC), Nsid("dev.knotless.claim"), Rkey(rkey))
    assert AtUri.parse(str(uri)) == uri


@given(st.text(max_size=60))
def test_no_text_makes_a_parser_fail_otherwise(text: str) -> None:
    for parse in (parse_did, parse_handle, parse_identifier, AtUri.parse, parse_time):
        with suppress(InvalidSyntax):
            parse(text)
    assert is_handle(text) <= text.isascii()


def test_times_are_written_in_utc_with_milliseconds() -> None:
    moment = datetime(2026, 1, 2, 5, 4, 5, 678_999, tzinfo=timezone(timedelta(hours=2)))
    assert format_time(moment) == "2026-01-02T03:04:05.678Z"


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-01-02T03:04:05.678Z", datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)),
        ("2026-01-02T03:04:05Z", datetime(2026, 1, 2, 3, 4, 5, 0, UTC)),
        ("2026-01-02T03:04:05.1234567899Z", datetime(2026, 1, 2, 3, 4, 5, 123_456, UTC)),
        ("2026-01-02T03:04:05+02:00", datetime(2026, 1, 2, 1, 4, 5, 0, UTC)),
        ("2024-02-29T23:59:59-00:30", datetime(2024, 3, 1, 0, 29, 59, 0, UTC)),
    ],
)
def test_times_are_read(text: str, moment: datetime) -> None:
    assert parse_time(text) == moment
    assert parse_time(text).tzinfo is UTC


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-02",
        "2026-01-02T03:04:05",
        "2026-01-02 03:04:05Z",
        "2026-01-02t03:04:05z",
        "2026-01-02T03:04:05-00:00",
        "2026-01-02T24:00:00Z",
        "2026-01-02T03:04:60Z",
        "2026-13-02T03:04:05Z",
        "2026-02-30T03:04:05Z",
        "2026-01-02T03:04:05.Z",
        "2026-01-02T03:04:05+25:00",
        "0001-01-01T00:00:00+12:00",
        "0000-01-01T00:00:00Z",
        "٢٠٢٦-01-02T03:04:05Z",
        "2026-01-02T03:04:05Z\n",
    ],
)
def test_not_times(text: str) -> None:
    with pytest.raises(InvalidSyntax):
        parse_time(text)


@given(st.datetimes(timezones=st.just(UTC)))
def test_times_survive_being_written(moment: datetime) -> None:
    written = format_time(moment)
    assert parse_time(written) == moment.replace(microsecond=moment.microsecond // 1000 * 1000)
