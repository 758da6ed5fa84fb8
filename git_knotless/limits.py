"""How much of what others say is taken, in one table: `docs/limits.md` is made from it.

What we do ourselves has its numbers beside the code that does it. These hold whoever answers,
the account's own host included: past any of them an answer is refused, by a line that says so.
"""

# Of each: what it is of, the number in words, and why it is that one.
TABLE: list[tuple[str, str, str]] = []

_UNITS = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def _limit(number: int, of: str, why: str) -> int:
    TABLE.append((of, f"{number:,}", why))
    return number


def _bytes(number: int, of: str, why: str) -> int:
    TABLE.append((of, in_bytes(number), why))
    return number


def in_bytes(number: int) -> str:
    """`256 KiB`, `20,000,000 bytes`: as a person counts them, and exact."""
    for size, unit in _UNITS:
        if number >= size and number % size == 0:
            return f"{number // size:,} {unit}"
    return f"{number:,} bytes"


def _seconds(number: float, of: str, why: str) -> float:
    TABLE.append((of, f"{number:g} seconds", why))
    return number


# --- hosts, and what they answer

CONNECT = _seconds(10.0, "connecting to one address", "a host that is up answers within two")
CONNECT_ALL = _seconds(
    20.0, "connecting to a host", "all of its addresses, and TLS: IPv4 is reached where IPv6 fails"
)
ANSWER = _seconds(
    25.0,
    "until an answer begins, and then until it gets on",
    "a busy host takes a few; whoever waits is told within half a minute",
)
WRITE_ANSWER = _seconds(
    120.0,
    "until a batch or an upload is answered",
    "200 writes were seen to queue for 25 s; giving up leaves unknown what became of them",
)
RATE = _bytes(1024, "of anything a second, at the least", "four transfers share a slow line")
ANSWER_RATE = _bytes(
    8 << 10,
    "of an answer that is no blob a second, at the least",
    "the slowest line on which somebody would wait for it",
)
DID_DOCUMENT = _bytes(
    256 << 10, "a DID document, and any other plain one", "it holds a few keys, names and services"
)
HANDLE = _bytes(2 << 10, "the answer to whom a handle names", "it is one DID")
RECORD = _bytes(1 << 20, "a record", "hosts take 1,000,000 bytes in one call")
PAGE = _bytes(20_000_000, "a page of a listing", "100 records with 48 KiB of pack each are 6.6 MB")
ERROR = _bytes(64 << 10, "a refusal", "it is a name and a sentence")
MEMORY = _bytes(
    100_000_000, "an answer once it is decoded", "empty lists take thirty times their size"
)
PROOF = _bytes(2_000_000, "a proof", "one record, and some 10 KB of nodes above it")
COMMIT = _bytes(4 << 10, "what a host calls its newest commit", "it is a CID and a revision")
BLOCKS = _bytes(8 << 20, "200 blocks", "nodes of a tree have 500 bytes, and a ref's record 300")
NODES = _bytes(32 << 20, "all nodes above a repository's records", "100,000 refs take 11 MB")
SINCE = _bytes(16 << 20, "what an account has written since", "a few hundred pushes of small packs")
TEXT = _limit(300, "characters of a host's words in a message", "it is to stay one line or two")
REDIRECTS = _limit(
    5, "redirects of a blob", "a front door, the account's host, its storage, a region of that"
)
CURSOR = _bytes(2 << 10, "a cursor", "on the reference PDS it is a record's key")
PAGES = _limit(1_200, "pages of one listing", "all refs there may be, and 20,000 records more")
URL = _bytes(2 << 10, "an address in a server's OAuth metadata", "no server's is near that")

# --- repositories

REFS = _limit(100_000, "refs of a repository", "so many are some 60 MB in memory")
REF_NAME = _bytes(1_000, "a ref's name", "longer than file systems take one of its parts")
REF_DEPTH = _limit(64, "parts of a ref's name", "each is looked at for a ref that is in the way")
REF_NAMES = _bytes(10_000_000, "the names of all refs together", "100 bytes each")
BAD_REFS = _limit(
    10_000, "records under a repository's key that are no refs of it", "no client of ours makes one"
)
RENAMES = _limit(4, "redirects from name to name in an account", "one is the rule")
MOVES = _limit(4, "moves from account to account", "each is one that a person has accepted")

# --- packs

PACKS = _limit(
    10_000, "packs of a repository", "each is a record to list; folding leaves a few hundred"
)
PACK = _bytes(1 << 53, "a pack", "the largest integer that a record can hold")
BLOBS = _limit(100_000, "blobs of all packs that one fetch lacks", "half a terabyte, or more")
FEW_BLOBS = _limit(16, "blobs of a pack, whatever its size", "a small one may be cut oddly")
BYTES_A_BLOB = _bytes(
    4 << 10, "of a pack for each further blob, at the least", "uploads are cut at 32 KiB or more"
)
BYTES_AN_OBJECT = _bytes(
    9, "of a pack for each object, at the least", "its header, and what deflate makes of nothing"
)
OBJECT_ALWAYS = _bytes(
    1 << 30, "an object unpacked, of any pack", "git holds it in memory to look at it"
)
OBJECT_RATIO = _limit(
    32, "times its pack that an object may be unpacked", "text is a fifth, deflated; logs a 20th"
)
OBJECT_NEVER = _bytes(
    4 << 30, "an object unpacked that has to be held in memory", "what a machine can spare"
)
STREAMED = _bytes(
    512 << 20,
    "a pack from which on blobs are streamed, at any size",
    "whoever has such a blob sent has sent as much",
)
UNPACKING = _seconds(
    120.0,
    "of processor time to unpack any pack",
    "a thousand versions of a file of 10 MB are a small pack, and 10 GB to look at",
)
UNPACKING_RATE = _bytes(
    64 << 10,
    "of a pack for each further second of unpacking it",
    "the longest histories need one for 1 MiB, and a slow machine some more",
)


def markdown() -> str:
    """The table as `docs/limits.md` has it."""
    rows = ["| of | at most | why |", "| --- | --- | --- |"]
    rows += (f"| {of} | {number} | {why} |" for of, number, why in TABLE)
    return "\n".join(rows) + "\n"
