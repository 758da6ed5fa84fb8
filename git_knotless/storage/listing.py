"""Listing the records of one repository: seek to its keys, and trust no host that it did.

On the reference PDS a cursor is the last record's key and any string is one, so that the keys
under a prefix are a seek and a stop. Other hosts differ. A seek counts only where the page's
keys go on from the cursor asked for, in order, and its cursor is its own last key; otherwise,
an empty first page included, everything is listed. A listing ends at an absent cursor or at a
key beyond the prefix, never because a page was short.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from git_knotless import limits
from git_knotless.errors import KnotlessError
from git_knotless.storage.store import Record
from git_knotless.value import value

# The greatest character a record key may hold: after it comes no key of the prefix.
_LAST = "~"
# A host that listed this many keys in descending order, and no other, lists in that order.
_ORDER_PROVEN = 50


class UnreadableListing(KnotlessError):
    """A host whose pages never end."""


class WrittenToMeanwhile(KnotlessError):
    """Pages of which it is not known whether they hold every record."""


@value
class Page:
    records: Sequence[Record]
    cursor: str | None


# One request: the cursor to go on from, and whether keys ascend.
ReadPage = Callable[[str | None, bool], Page]


class _Descending:
    """Whether keys descend, for as long as they go on."""

    def __init__(self) -> None:
        self._keys = 0
        self._last = ""
        self._so_far = True

    def go_on(self, keys: Sequence[str]) -> None:
        if keys:
            before = [self._last] if self._keys else []
            self._so_far &= all(a > b for a, b in pairwise([*before, *keys]))
            self._keys += len(keys)
            self._last = keys[-1]

    def has_passed(self, prefix: str) -> bool:
        return self._so_far and self._keys >= _ORDER_PROVEN and self._last < prefix


class _Listing:
    def __init__(self, read: ReadPage, prefix: str, host: str, *, ascending: bool) -> None:
        self.read = read
        self.prefix = prefix
        self.host = host
        self.ascending = ascending
        self.seen: set[str] = set()
        self.sought = True  # as far as it has come

    def pages(self) -> Iterator[Sequence[Record]]:
        """Sought pages as long as the host seeks; then all that they did not hold."""
        cursor = self.prefix if self.ascending else self.prefix + _LAST
        for _ in range(limits.PAGES):
            page = self.read(cursor, self.ascending)
            if not self._goes_on(page, cursor) or (not page.records and not self.seen):
                yield from self._all()
                return
            yield from self._ours(page)
            if not page.records or page.cursor is None or not self._inside(page.records[-1].rkey):
                return
            cursor = page.cursor
        raise UnreadableListing(f"{self.host}: the listing of its records does not end")

    def _goes_on(self, page: Page, cursor: str) -> bool:
        keys = [cursor, *(record.rkey for record in page.records)]
        in_order = all(a < b if self.ascending else a > b for a, b in pairwise(keys))
        return in_order and page.cursor in (None, keys[-1])

    def _all(self) -> Iterator[Sequence[Record]]:
        """Every page, newest first, as hosts list unless told otherwise.

        One that has shown that its keys descend need not be read beyond the prefix.
        """
        self.sought = False
        cursor, cursors = None, set[str]()
        order = _Descending()
        while len(cursors) < limits.PAGES:
            page = self.read(cursor, False)
            order.go_on([record.rkey for record in page.records])
            yield from self._ours(page)
            if page.cursor is None or order.has_passed(self.prefix):
                return
            if page.cursor in cursors:
                break
            cursor = page.cursor
            cursors.add(cursor)
        raise UnreadableListing(f"{self.host}: the listing of its records does not end")

    def _inside(self, key: str) -> bool:
        return key.startswith(self.prefix)

    def _ours(self, page: Page) -> Iterator[Sequence[Record]]:
        fresh = {r.rkey: r for r in page.records if self._inside(r.rkey)}
        new = [record for key, record in fresh.items() if key not in self.seen]
        self.seen.update(fresh)
        if new:
            yield new


def under(
    prefix: str, read: ReadPage, *, newest_first: bool = False, host: str = ""
) -> Iterator[Sequence[Record]]:
    """Pages of the records under `prefix`, each record once, no page empty. `host` is for errors.

    In key order from a host that seeks, newest first where asked for; from another host in
    whatever order it lists.
    """
    return _Listing(read, prefix, host, ascending=not newest_first).pages()


def whole(
    prefix: str, read: ReadPage, rev: Callable[[], str | None], *, host: str = ""
) -> Iterator[Sequence[Record]]:
    """As `under`, raising `WrittenToMeanwhile` at the end of what may have left a record out.

    A seek goes by the keys themselves, which no write moves. The pages of a host that does not
    seek are all there is only where nothing was written between them: `rev` is the account's
    newest revision.
    """
    before = rev()
    listing = _Listing(read, prefix, host, ascending=True)
    yield from listing.pages()
    if not listing.sought and (before is None or rev() != before):
        raise WrittenToMeanwhile(f"{host}: the account was written to while it was listed")


def everything(read: ReadPage, *, host: str = "") -> Iterator[Sequence[Record]]:
    """Every record of a collection, newest first from a host that orders them."""
    return _Listing(read, "", host, ascending=False)._all()
