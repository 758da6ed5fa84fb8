"""What a host is to those who read from it: looked at without writing anything."""

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, pairwise
from statistics import median
from typing import Any

from git_knotless import limits
from git_knotless.atproto import repo
from git_knotless.atproto.auth import Auth
from git_knotless.atproto.commit import Proof, verify_proof
from git_knotless.atproto.errors import (
    AtprotoError,
    BadAnswer,
    RateLimited,
    ScopeMissing,
    XrpcError,
)
from git_knotless.atproto.hosts import host_of
from git_knotless.atproto.identity import Resolver
from git_knotless.atproto.keys import PublicKey, signing_key
from git_knotless.atproto.oauth_metadata import NoOAuth, discover
from git_knotless.atproto.syntax import Did, Nsid, Rkey, is_did, is_nsid
from git_knotless.atproto.xrpc import Client
from git_knotless.storage.checkup.checks import Check, Verdict, fail, ok, skipped, warn

_ASKINGS = 5  # of which the median tells how fast a host answers
_SLOW = 2.0  # seconds: a push takes three or four requests, one after the other
_REPOS = 20  # of a host's accounts, among which one is looked for that has a record
_TRIED = 5  # of these
_COLLECTIONS = 500  # of one account, of which the first is taken
_USUAL_LIMIT = 5 * 1024 * 1024  # of the reference PDS, where nobody has set another
# Seconds that nobody minds, and after which authorization servers refuse what is signed here.
_CLOCK_SLOPPY, _CLOCK_WRONG = 60.0, 180.0
# The greatest character of a record key: with it behind a key comes what sorts next to that.
_AFTER = "~"


@dataclass(frozen=True, slots=True)
class Sample:
    """Some of an account's records: the least keys of a collection, in the host's order."""

    did: Did
    collection: Nsid
    keys: tuple[Rkey, ...]

    @property
    def made_up(self) -> Rkey:
        """A key that is none of the account's, amid those that are."""
        return Rkey(self.keys[len(self.keys) // 2][:500] + _AFTER)


class HostChecks:
    """Of `host`, an origin; by the records of `did`, or of any account there.

    `auth` is of an account there, where one is logged in.
    """

    def __init__(
        self, client: Client, resolver: Resolver, host: str, did: Did | None, auth: Auth | None
    ) -> None:
        self._client = client
        self._resolver = resolver
        self._host = host
        self._did = did
        self._auth = auth
        self._described: dict[str, Any] | None = None
        self._sample: Sample | None = None

    @property
    def answers(self) -> bool:
        """Whether it is a PDS that answers, once that has been looked at."""
        return self._described is not None

    def checks(self) -> Iterator[Check]:
        describing = f"curl -i {self._host}/xrpc/com.atproto.server.describeServer"
        yield Check("host", self._describe, mend=f"look at what it answers: {describing}")
        if not self.answers:
            why = f"{host_of(self._host)} does not answer as a PDS does"
            names = ("latency", "blob limit", "logins", "cursors", "proofs", "spaces")
            yield from (Check(name, lambda: skipped(why)) for name in names)
            return
        for name, look in (
            ("latency", self._latency),
            ("blob limit", self._blob_limit),
            ("logins", self._logins),
            ("cursors", self._cursors),
            ("proofs", self._proofs),
            ("spaces", self._spaces),
        ):
            yield Check(name, look, mend=ASK_THE_OPERATOR)

    def _describe(self) -> Verdict:
        answer = self._client.get(self._host, "com.atproto.server.describeServer")
        did = answer.get("did")
        if not (isinstance(did, str) and did.startswith("did:")):
            return fail(f"{host_of(self._host)} is no PDS: it does not say which service it is")
        self._described = answer
        return ok(f"{host_of(self._host)} is a PDS")

    def _latency(self) -> Verdict:
        """Over a connection that stands, as all but the first request of a command has it."""
        taken = []
        for _ in range(_ASKINGS):
            began = time.perf_counter()
            self._client.get(self._host, "com.atproto.server.describeServer")
            taken.append(time.perf_counter() - began)
        told = f"{median(taken) * 1000:.0f} ms a request"
        return warn(f"{told}: each push takes several") if median(taken) > _SLOW else ok(told)

    def _blob_limit(self) -> Verdict:
        limit = repo.describe_server(self._client, self._host).blob_limit
        if limit is None:
            return ok(f"it does not say; {_size(_USUAL_LIMIT)} is usual, and larger is tried first")
        return ok(f"{_size(limit)}; a larger pack is cut")

    def _logins(self) -> Verdict:
        try:
            server = discover(self._client, self._host)
        except NoOAuth:
            return ok("app passwords only")
        except BadAnswer as error:
            return warn(f"app passwords only, as {error.message}", ASK_THE_OPERATOR)
        return ok(f"in a browser, at {host_of(server.issuer)}; app passwords")

    def _cursors(self) -> Verdict:
        sample = self._sample = self._find_sample()
        if sample is None:
            return skipped(_NOTHING_TO_TELL_BY)
        if not seeks(self._client, self._host, sample):
            return warn(
                "a listing does not begin where it is asked to: every listing is read whole, "
                "which is slow in an account of many records"
            )
        return ok("a listing begins where it is asked to, and keys are in order")

    def _proofs(self) -> Verdict:
        sample = self._sample
        if sample is None:
            return skipped(_NOTHING_TO_TELL_BY)
        return prove(self._client, self._resolver, self._host, sample)

    def _spaces(self) -> Verdict:
        if self._auth is None:
            return skipped("only an account that is logged in there can find out")
        nsid = "com.atproto.space.listSpaces"
        try:
            self._client.get(self._host, nsid, auth=self._auth)
        except ScopeMissing as error:
            # A host that knows the method asks for a scope of spaces; one that passes it on to
            # somebody else, for a scope of calls.
            if "space:" not in error.message:
                return ok(_NO_SPACES)
        except RateLimited:
            raise
        except XrpcError:
            return ok(_NO_SPACES)
        return ok("it has spaces")

    def _find_sample(self) -> Sample | None:
        """Of the account asked about alone, where there is one."""
        if self._did is not None:
            return self._sample_of(self._did)
        for did in islice(self._accounts(), _TRIED):
            with suppress(AtprotoError):
                if (sample := self._sample_of(did)) is not None:
                    return sample
        return None

    def _accounts(self) -> Iterator[Did]:
        answer = self._client.get(self._host, "com.atproto.sync.listRepos", {"limit": _REPOS})
        listed = answer.get("repos")
        for each in listed if isinstance(listed, list) else []:
            match each:
                case {"did": str(did)} if is_did(did) and each.get("active") is not False:
                    yield Did(did)

    def _sample_of(self, did: Did) -> Sample | None:
        answer = self._client.get(self._host, "com.atproto.repo.describeRepo", {"repo": did})
        listed = answer.get("collections")
        if not isinstance(listed, list):
            raise BadAnswer(f"{host_of(self._host)} does not say what the account holds")
        names = (name for name in listed[:_COLLECTIONS] if isinstance(name, str) and is_nsid(name))
        for name in islice(names, _TRIED):
            if (sample := sample_of(self._client, self._host, did, Nsid(name))) is not None:
                return sample
        return None


_NOTHING_TO_TELL_BY = "there is no record to tell by"
_NO_SPACES = "none; private repositories need them"
ASK_THE_OPERATOR = "tell whoever runs the host, or move the account to another"


def directory(client: Client, url: str) -> Verdict:
    """Of accounts: that it answers is enough, whatever it says, unless it has had too much."""
    try:
        client.get_json(f"{url}/_health")
    except XrpcError as error:
        if error.status >= 500 or isinstance(error, RateLimited):
            raise
    return ok(f"{host_of(url)} answers")


def clock(client: Client, host: str | None, directory: str) -> Verdict:
    """By what the host's last answer said of the time, and, as to who is wrong, the directory's."""
    second = client.clock_offset(directory)
    first = client.clock_offset(host) if host is not None else second
    if first is None:
        return skipped("nobody has answered who knows the time")
    if abs(first) <= _CLOCK_SLOPPY:
        return ok("right to the minute")
    if second is not None and abs(second) <= _CLOCK_SLOPPY and host is not None:
        which = "ahead" if first > 0 else "behind"
        return warn(f"the clock of {host_of(host)} is {_span(first)} {which}", ASK_THE_OPERATOR)
    told = f"this machine's clock is {_span(first)} {'behind' if first > 0 else 'ahead'}"
    verdict = fail if abs(first) > _CLOCK_WRONG else warn
    return verdict(told, "timedatectl set-ntp true, or set the clock by hand")


def sample_of(client: Client, host: str, did: Did, collection: Nsid) -> Sample | None:
    page = repo.list_records(client, host, did, collection, reverse=True)
    keys = tuple(record.rkey for record in page.records)
    return Sample(did, collection, keys) if keys else None


def seeks(client: Client, host: str, sample: Sample) -> bool:
    """Whether both ways of listing are in order, and begin at a key that is not there."""
    up = _keys(client, host, sample, ascending=True)
    down = _keys(client, host, sample, ascending=False)
    made_up, known = sample.made_up, sample.keys
    above = [key for key in known if key > made_up]
    below = [key for key in reversed(known) if key < made_up]
    in_order = all(a < b for a, b in pairwise(known))
    return in_order and up[: len(above)] == above and down == below


def prove(client: Client, resolver: Resolver, host: str, sample: Sample) -> Verdict:
    """By the key that the DID document names now."""
    there = sample.keys[len(sample.keys) // 2]
    key = signing_key(resolver.document(sample.did), sample.did)
    proof = read_proof(client, host, sample, there, key)
    if proof.value is None:
        return fail("the host proves that there is no record where it lists one")
    if read_proof(client, host, sample, sample.made_up, key).value is not None:
        return fail("the host proves a record at a key where it lists none")
    return ok("a record, and that another is absent, are signed by the account's key")


def read_proof(client: Client, host: str, sample: Sample, rkey: Rkey, key: PublicKey) -> Proof:
    """Raises BadData for one that does not hold."""
    params = {"did": sample.did, "collection": sample.collection, "rkey": rkey}
    car = client.get_file(host, "com.atproto.sync.getRecord", params, limit=limits.PROOF)
    return verify_proof(car, did=sample.did, key=key, collection=sample.collection, rkey=rkey)


def _keys(client: Client, host: str, sample: Sample, *, ascending: bool) -> Sequence[Rkey]:
    page = repo.list_records(
        client,
        host,
        sample.did,
        sample.collection,
        cursor=sample.made_up,
        reverse=ascending,
    )
    return [record.rkey for record in page.records]


def _size(count: int) -> str:
    return f"{count >> 20} MiB" if count % (1 << 20) == 0 else f"{count:,} bytes"


def _span(seconds: float) -> str:
    seconds = abs(seconds)
    return f"{seconds:.0f} seconds" if seconds < 120 else f"{seconds / 60:.0f} minutes"
