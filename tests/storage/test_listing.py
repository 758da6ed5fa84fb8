"""Whatever a host makes of cursors, a listing holds each record of the prefix once."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from git_knotless import limits
from git_knotless.atproto.syntax import Rkey
from git_knotless.storage.listing import Page, UnreadableListing, under
from git_knotless.storage.store import Record
from tests.storage.account import Account

REF = "dev.knotless.ref"


def account(keys: Sequence[str], *, seeks: bool = True, page: int = 3) -> Account:
    made = Account(seeks=seeks, page=page)
    made.records[REF] = {key: {"n": key} for key in keys}
    return made


def listed(pages: Iterator[Sequence[Record]]) -> list[str]:
    return [record.rkey for page in pages for record in page]


keys = st.sets(st.sampled_from([f"{a}.{n}" for a in "abc" for n in range(8)]))


@given(keys, st.booleans(), st.integers(1, 5))
def test_each_record_once_and_in_order(keys: set[str], newest_first: bool, page: int) -> None:
    pages = account(sorted(keys), page=page).list(REF, "b.", newest_first=newest_first)
    expected = sorted((key for key in keys if key.startswith("b.")), reverse=newest_first)
    assert listed(pages) == expected


@given(keys, st.booleans())
def test_each_record_once_from_a_host_in_no_order(keys: set[str], newest_first: bool) -> None:
    host = account(sorted(keys), seeks=False, page=100)
    found = listed(host.list(REF, "b.", newest_first=newest_first))
    assert sorted(found) == sorted(key for key in keys if key.startswith("b."))


def test_a_seek_reads_no_other_repository() -> None:
    host = account([f"{a}.{n}" for a in "abc" for n in "1234567"], page=100)
    listed(host.list(REF, "b."))
    assert len(host.requests) == 1
    host.requests.clear()
    listed(host.list(REF, "c."))
    assert len(host.requests) == 2  # its last page is known by an empty one alone


def test_nothing_of_ours_beyond_many_others_takes_two_requests() -> None:
    host = account([f"a.{n:04}" for n in range(1000)], page=100)
    assert listed(host.list(REF, "b.")) == []
    assert len(host.requests) == 2


def test_a_host_without_seeking_is_read_whole() -> None:
    host = account([f"{a}.{n:02}" for a in "ab" for n in range(60)], seeks=False, page=50)
    assert len(listed(host.list(REF, "b."))) == 60


def test_a_cursor_that_loops_ends() -> None:
    def read(cursor: str | None, ascending: bool) -> Page:
        return Page([Record(Rkey("a.1"), {}), Record(Rkey("a.1"), {})], "again")

    with pytest.raises(UnreadableListing):
        listed(under("a.", read))


def test_pages_of_others_records_end_somewhere() -> None:
    """From a host that does not seek, and has no end."""
    asked = iter(range(10**9))

    def read(cursor: str | None, ascending: bool) -> Page:
        at = next(asked)
        return Page([Record(Rkey(f"z.{at:06}"), {}), Record(Rkey(f"c.{at:06}"), {})], str(at))

    with pytest.raises(UnreadableListing):
        listed(under("b.", read))
    assert next(asked) == limits.PAGES + 1


@settings(max_examples=20)
@given(st.lists(st.text("abc", min_size=1, max_size=2), min_size=60, max_size=150))
def test_what_does_not_descend_is_read_to_its_end(keys: list[str]) -> None:
    """However late it shows: what is looked for may come last."""
    rkeys = [f"y.{number:03}" for number in range(100, 30, -1)] + keys + ["b.last"]

    def read(cursor: str | None, ascending: bool) -> Page:
        at = int(cursor) if cursor and cursor.isdigit() else 0
        page = [Record(Rkey(key), {}) for key in rkeys[at : at + 7]]
        return Page(page, str(at + 7) if at + 7 < len(rkeys) else None)

    descends = all(a > b for a, b in pairwise(rkeys[:-1]))
    assert descends or "b.last" in listed(under("b.", read))
