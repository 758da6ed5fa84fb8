"""Asking hosts as somebody who would rather know than wait."""

import httpx
import pytest

from git_knotless.atproto.errors import HostTimeout, NotAsked, RateLimited, ServerFault
from git_knotless.atproto.xrpc import Client
from tests.atproto.fakes import PDS, Answer, Handler, Script, Waits, fresh, json_answer, xrpc_error

GET = "com.atproto.repo.getRecord"


def hurried(handler: Handler, waits: Waits) -> Client:
    return Client(
        httpx.MockTransport(lambda request: fresh(handler(request))),
        pause=waits.seconds.append,
        hurried=True,
    )


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (httpx.ReadTimeout("slow"), HostTimeout, "it did not answer in time"),
        (xrpc_error(429, "RateLimitExceeded", retry_after="5"), RateLimited, "it asks us to wait"),
        (xrpc_error(429, ""), RateLimited, "it asks us to wait"),
        (xrpc_error(503, "", retry_after="1"), ServerFault, "it asks us to wait"),
    ],
)
def test_a_host_that_takes_time_is_asked_once(
    answer: Answer, kind: type[Exception], words: str
) -> None:
    host, waits = Script([answer]), Waits()
    with hurried(host, waits) as client:
        with pytest.raises(kind) as first:
            client.get(PDS, GET)
        assert not isinstance(first.value, NotAsked)
        with pytest.raises(NotAsked, match=f"localhost:2583 is not asked again: {words}"):
            client.post(PDS, GET, {}, patient=True)
        assert (len(host.requests), waits.seconds) == (1, [])
        with pytest.raises(kind):
            client.get("https://pds.example.com", GET)
        assert len(host.requests) == 2, "another host is another matter"
        host.answers[0] = json_answer({})
        client.take_time()
        assert client.get(PDS, GET) == {}


def test_a_fault_that_passes_is_no_waste_of_time() -> None:
    host, waits = Script([httpx.ReadError("reset"), xrpc_error(500, ""), json_answer({})]), Waits()
    with hurried(host, waits) as client:
        assert client.get(PDS, GET) == {}
    assert len(waits.seconds) == 2
