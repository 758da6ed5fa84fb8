"""The client against hosts that answer anything: what is retried, told apart, and refused."""

import gzip
import json
import math
from typing import Any

import httpx
import pytest

from git_knotless import limits
from git_knotless.atproto.errors import (
    AccountDeactivated,
    AccountNotFound,
    AccountNotHere,
    AccountTakedown,
    AtprotoError,
    AuthRefused,
    BadAnswer,
    BlobNotFound,
    HostTimeout,
    HostUnreachable,
    InvalidSwap,
    PayloadTooLarge,
    RateLimited,
    RecordAlreadyExists,
    RecordNotFound,
    RepoDeactivated,
    RepoNotFound,
    RepoTakendown,
    ServerFault,
    XrpcError,
    how_long,
)
from git_knotless.atproto.guard import PrivateAddress
from git_knotless.atproto.retry import Patience
from git_knotless.atproto.syntax import InvalidSyntax
from tests.atproto.fakes import (
    PDS,
    Body,
    Script,
    Token,
    Waits,
    Wire,
    client_for,
    json_answer,
    xrpc_error,
)

GET = "com.atproto.repo.getRecord"
POST = "com.atproto.repo.applyWrites"
HTML = httpx.Response(200, html="<!doctype html><title>Parked</title>")


def get(*answers: httpx.Response | Exception, waits: Waits | None = None, **options: Any) -> Any:
    with client_for(Script(list(answers)), waits) as client:
        return client.get(PDS, GET, {"repo": "x"}, **options)


def post(*answers: httpx.Response | Exception) -> Any:
    with client_for(Script(list(answers))) as client:
        return client.post(PDS, POST, {})


# What is asked, and how.


def test_a_get_carries_its_parameters_and_no_credential() -> None:
    host = Script([json_answer({"value": 1}, {"Set-Cookie": "a=b; Path=/"})])
    with client_for(host) as client:
        params = {"reverse": True, "limit": 100, "cursor": None, "collection": "a b&c"}
        assert client.get(PDS, GET, params) == {"value": 1}
        client.get(PDS, GET)
    first, second = host.requests
    assert str(first.url) == f"{PDS}/xrpc/{GET}?reverse=true&limit=100&collection=a+b%26c"
    assert "authorization" not in first.headers
    assert "cookie" not in second.headers


def test_a_post_sends_json_as_utf_8() -> None:
    host = Script([json_answer({"ok": True})])
    with client_for(host) as client:
        assert client.post(PDS, POST, {"name": "é"}) == {"ok": True}
    assert host.bodies == ['{"name":"é"}'.encode()]
    assert host.requests[0].headers["content-type"] == "application/json"


def test_a_post_without_a_body_has_no_type_and_may_get_nothing_back() -> None:
    host = Script([httpx.Response(200)])
    with client_for(host) as client:
        assert client.post(PDS, "com.atproto.server.deleteSession", None) == {}
    assert "content-type" not in host.requests[0].headers
    assert host.requests[0].headers["content-length"] == "0"


@pytest.mark.parametrize("host", ["http://pds.example.com", "https://u:p@pds.example.com", "x"])
def test_no_request_leaves_for_a_host_that_is_none(host: str) -> None:
    asked = Script([json_answer({})])
    with client_for(asked) as client, pytest.raises(InvalidSyntax):
        client.get(host, GET)
    assert not asked.requests


def test_only_a_host_elsewhere_is_asked_to_compress() -> None:
    host = Script([json_answer({})])
    with client_for(host) as client:
        client.get(PDS, GET)
        client.get("https://pds.example.com", GET)
    assert [each.headers["accept-encoding"] for each in host.requests] == ["identity", "gzip"]


def test_what_cannot_be_sent_says_so() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    with client_for(Script([json_answer({})])) as client:
        for bad in ({"x": deep}, {"x": float("nan")}, {"x": "\ud800"}):
            with pytest.raises(AtprotoError, match="cannot carry what it was given"):
                client.post(PDS, POST, bad)


# Refusals.


@pytest.mark.parametrize(
    ("status", "name", "text", "kind"),
    [
        (400, "RecordNotFound", "Could not locate record: at://x", RecordNotFound),
        (404, "RecordNotFound", "", RecordNotFound),
        (400, "RepoNotFound", "", RepoNotFound),
        (400, "InvalidRequest", "Could not find repo: did:plc:x", RepoNotFound),
        (400, "RepoDeactivated", "", RepoDeactivated),
        (400, "RepoTakendown", "", RepoTakendown),
        (401, "AccountDeactivated", "", AccountDeactivated),
        (401, "AccountTakedown", "", AccountTakedown),
        (403, "AccountNotFound", "", AccountNotFound),
        (400, "BlobNotFound", "Could not find blob: bafk", BlobNotFound),
        (400, "InvalidRequest", "Blob not found", BlobNotFound),
        (400, "InvalidSwap", "Commit was at bafy", InvalidSwap),
        (400, "RecordAlreadyExists", "", RecordAlreadyExists),
        (401, "AuthenticationRequired", "", AuthRefused),
        (401, "Whatever", "", AuthRefused),
        (400, "ExpiredToken", "", AuthRefused),
        (400, "InvalidToken", "", AuthRefused),
        (403, "ScopeMissingError", "", AuthRefused),
        (413, "PayloadTooLargeError", "request entity too large", PayloadTooLarge),
        (413, "PayloadTooLarge", "", PayloadTooLarge),
        (429, "RateLimitExceeded", "", RateLimited),
        (500, "InternalServerError", "Internal Server Error", ServerFault),
        (500, "RecordNotFound", "a proxy says so", ServerFault),
        (502, "UpstreamFailure", "", ServerFault),
        (400, "InvalidRequest", "Could not locate record", XrpcError),
    ],
)
def test_refusals_have_types(status: int, name: str, text: str, kind: type[XrpcError]) -> None:
    with pytest.raises(XrpcError) as caught:
        post(xrpc_error(status, name, text))
    error = caught.value
    assert type(error) is kind
    assert (error.status, error.name, error.text) == (status, name, text)
    assert (error.nsid, error.host) == (POST, "localhost:2583")
    assert "localhost:2583" in error.message


def test_the_answers_after_which_an_account_is_looked_up_again() -> None:
    assert issubclass(RepoNotFound, AccountNotHere)
    assert issubclass(RepoDeactivated, AccountNotHere)
    assert issubclass(AccountDeactivated, AccountNotHere)
    assert not issubclass(RepoTakendown, AccountNotHere)


def test_a_hosts_words_cannot_move_the_cursor() -> None:
    with pytest.raises(XrpcError) as caught:
        get(xrpc_error(400, "In\x1bvalid", "\x1b[2J\nfatal:\u202e" + "x" * 1000))
    assert caught.value.name == "In valid"
    assert caught.value.text.startswith("[2J fatal: xxx")
    assert len(caught.value.message) < 400


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (HTML, "answers with HTML: is it an atproto host?"),
        (httpx.Response(404, html="<h1>Not Found</h1>"), "does not know com.atproto.repo"),
        (httpx.Response(400, json={"no": "error"}), "does not know com.atproto.repo"),
        (httpx.Response(302, headers={"Location": "https://evil.example.com"}), "elsewhere"),
        (httpx.Response(200, text="nope"), "something else than JSON"),
        (httpx.Response(200, content=b'{"a": "\xff"}'), "something else than JSON"),
        (httpx.Response(200, content=b'{"a": "\\ud800"}'), "something else than JSON"),
        (httpx.Response(200, content=b'{"a": NaN}'), "something else than JSON"),
        (httpx.Response(200, content=b'{"a": 1' + b"0" * 5000 + b"}"), "else than JSON"),
        (httpx.Response(200, content=b'{"a":' + b"[" * 200_000), "else than JSON"),
        (httpx.Response(200, content=b'{"a": {"b": 1, "c": 2, "b": 1}}'), "names a thing twice"),
        (httpx.Response(200, content=b'{"a": 1' + b"0" * 1_000_000 + b"}"), "else than JSON"),
        (httpx.Response(200, content=b""), "something else than JSON"),
        (json_answer(["a"]), "not an object"),
        (httpx.Response(200, content=b'{"a": "' + b"x" * 2000), "more than 1,000 bytes"),
        (httpx.Response(201, json={}), "does not know"),
    ],
)
def test_answers_that_are_none(answer: httpx.Response, words: str) -> None:
    waits = Waits()
    with pytest.raises(BadAnswer, match=words) as caught:
        get(answer, waits=waits, limit=1000 if "1,000" in words else 1 << 20)
    assert not waits.seconds
    assert "\n" not in caught.value.message


def test_whole_characters_may_be_spelled_in_halves() -> None:
    assert get(httpx.Response(200, content=b'{"a": "\\ud83d\\ude00"}')) == {"a": "😀"}


def test_a_gateway_that_speaks_html_still_has_a_status() -> None:
    for status, kind in ((502, ServerFault), (413, PayloadTooLarge), (429, RateLimited)):
        with pytest.raises(kind):
            get(httpx.Response(status, html="<h1>nginx</h1>"))


def test_an_error_that_is_endless_is_still_an_error() -> None:
    with pytest.raises(ServerFault):
        get(httpx.Response(500, content=b"x" * 1_000_000))


# What would fill the memory. Tests have a tenth of a page, and of the memory for it.
PAGE = 2_000_000


@pytest.fixture
def tenth(monkeypatch: pytest.MonkeyPatch) -> None:
    assert limits.PAGE == 10 * PAGE
    monkeypatch.setattr(limits, "MEMORY", limits.MEMORY // 10)


def page(text: bytes, around: bytes = b'{"a":[%s0]}') -> bytes:
    """As much of `text` as a page may hold."""
    return around.replace(b"%s", text * ((PAGE - len(around)) // len(text)))


TEXT = b'{"a":"%s"}'


@pytest.mark.parametrize(
    ("text", "around"),
    [
        pytest.param(b"{},", b'{"a":[%s0]}', id="objects"),
        pytest.param(b"[],", b'{"a":[%s0]}', id="lists"),
        pytest.param(b'{"b":0},', b'{"a":[%s0]}', id="members"),
        pytest.param(b"0,", b'{"a":[%s0]}', id="numbers"),
        pytest.param(b'"bc",', b'{"a":[%s0]}', id="texts"),
        pytest.param(b'{",,,":"[[["},', b'{"a":[%s0]}', id="marks in texts too"),
        pytest.param(b"aaa,", b'{"a":["%s",' + b"{}," * 50_000 + b"0]}", id="hidden by a text"),
        pytest.param(b'\\\\\\"', b'{"a":["%s",' + b"{}," * 50_000 + b"0]}", id="by escapes"),
        pytest.param("é😀".encode(), TEXT, id="wide characters"),
        pytest.param(b"x", b'{"a":"%s\\ud83d\\ude00"}', id="a wide character"),
    ],
)
def test_an_answer_that_would_fill_the_memory(tenth: None, text: bytes, around: bytes) -> None:
    with pytest.raises(BadAnswer, match="localhost:2583 answers with more than we could hold"):
        get(httpx.Response(200, content=page(text, around)), limit=PAGE)


@pytest.mark.parametrize(
    ("text", "around"),
    [
        (b"x", TEXT),
        (b",{[", TEXT),
        (b'\\\\,\\"[', TEXT),
        ("é,".encode(), TEXT),
        ("世".encode(), TEXT),
        (
            b'{"uri":"at://a/b/c","value":{"a":0,"b":{"c":[1,2]},"d":"%s"}},' % (b"x" * 900),
            b'{"a":[%s0]}',
        ),
    ],
)
def test_a_full_page_that_is_none_of_these(tenth: None, text: bytes, around: bytes) -> None:
    sent = page(text, around)
    assert get(httpx.Response(200, content=sent), limit=PAGE) == json.loads(sent)


def test_a_page_of_records_is_held_and_one_of_nothing_but_marks_is_not() -> None:
    value = {"data": {"$bytes": "A" * 65_536}, "tips": ["0" * 40] * 64}
    full = {"records": [{"uri": "at://a/b/c", "cid": "b", "value": value}] * 100}
    assert get(httpx.Response(200, json=full), limit=10 * PAGE) == full
    with pytest.raises(BadAnswer, match="more than we could hold"):
        get(httpx.Response(200, content=b'{"a":[%s0]}' % (b"{}," * 500_000)), limit=10 * PAGE)


# Compression.


def compressed(data: bytes, encoding: str = "gzip") -> httpx.Response:
    return httpx.Response(200, stream=Wire(data), headers={"Content-Encoding": encoding})


def test_gzip_is_undone_up_to_the_limit() -> None:
    packed = gzip.compress(json.dumps({"a": "x" * 5000}).encode())
    assert get(compressed(packed), limit=5100) == {"a": "x" * 5000}
    with pytest.raises(BadAnswer, match="more than 5,000 bytes"):
        get(compressed(packed), limit=5000)
    with pytest.raises(BadAnswer, match="more than 1,048,576 bytes"):
        get(compressed(gzip.compress(bytes(50_000_000))))


@pytest.mark.parametrize(
    "answer",
    [
        compressed(gzip.compress(b"{}")[:-3]),
        compressed(b"{}"),
        compressed(b"{}", "br"),
    ],
)
def test_broken_compression(answer: httpx.Response) -> None:
    with pytest.raises(BadAnswer):
        get(answer)


# Trying again.


FAULTS = [
    httpx.ConnectError("refused"),
    httpx.ReadError("reset"),
    httpx.RemoteProtocolError("Server disconnected without sending a response."),
    httpx.ReadTimeout("slow"),
    httpx.ConnectTimeout("slow"),
    xrpc_error(500, "InternalServerError"),
    httpx.Response(503),
    xrpc_error(429, "RateLimitExceeded", retry_after="7"),
]


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_get_is_sent_again(fault: httpx.Response | Exception) -> None:
    waits = Waits()
    assert get(fault, fault, json_answer({"a": 1}), waits=waits) == {"a": 1}
    assert len(waits.seconds) == 2
    with pytest.raises(AtprotoError):
        get(fault, fault, fault, json_answer({"a": 1}))


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_post_is_not(fault: httpx.Response | Exception) -> None:
    host = Script([fault, json_answer({})])
    with client_for(host) as client, pytest.raises(AtprotoError):
        client.post(PDS, POST, {})
    assert len(host.requests) == 1


def test_a_patient_post_waits_where_it_is_told_how_long() -> None:
    limited = xrpc_error(429, "RateLimitExceeded", retry_after="7")
    waits, host = Waits(), Script([limited, limited, json_answer({"a": 1})])
    with client_for(host, waits) as client:
        assert client.post(PDS, POST, {"x": 1}, patient=True) == {"a": 1}
    assert [int(seconds) for seconds in waits.seconds] == [7, 7]
    assert waits.told == ["localhost:2583 asks us to wait 7 seconds"] * 2
    assert host.bodies == [b'{"x":1}'] * 3


@pytest.mark.parametrize(
    "fault",
    [
        *FAULTS[:-1],
        xrpc_error(429, "RateLimitExceeded"),
        xrpc_error(429, "RateLimitExceeded", retry_after="61"),
        xrpc_error(503, "NotAvailable", retry_after="7"),
    ],
    ids=str,
)
def test_a_patient_post_is_not_sent_again_for_anything_else(
    fault: httpx.Response | Exception,
) -> None:
    waits, host = Waits(), Script([fault, json_answer({})])
    with client_for(host, waits) as client, pytest.raises(AtprotoError):
        client.post(PDS, POST, {}, patient=True)
    assert len(host.requests) == 1
    assert not waits.seconds


def test_a_long_patience_does_not_end_with_a_token() -> None:
    limited = xrpc_error(429, "RateLimitExceeded", retry_after="50")
    auth, host = Token(), Script([limited, xrpc_error(400, "ExpiredToken"), json_answer({"a": 1})])
    with client_for(host) as client:
        assert client.post(PDS, POST, {}, auth=auth, patient=True) == {"a": 1}
    assert auth.renewals == 1


def test_a_time_out_that_took_long_is_not_asked_for_again() -> None:
    waits = Waits()
    patience = Patience(waits.seconds.append, waits.told.append, window=math.inf)
    patience.after(HostTimeout("slow"))
    patience.tried -= 30
    with pytest.raises(HostTimeout):
        patience.after(HostTimeout("slow"))
    assert len(waits.seconds) == 1


@pytest.mark.parametrize(
    "fault",
    [
        xrpc_error(400, "InvalidRequest"),
        xrpc_error(502, "UpstreamFailure"),
        xrpc_error(501, "MethodNotImplemented"),
        xrpc_error(429, "RateLimitExceeded", retry_after="61"),
        httpx.RemoteProtocolError("illegal status line"),
    ],
    ids=str,
)
def test_what_would_be_the_same_again_is_not_sent_again(fault: httpx.Response) -> None:
    waits = Waits()
    with pytest.raises(AtprotoError):
        get(fault, json_answer({}), waits=waits)
    assert not waits.seconds


def test_waits_grow_and_differ() -> None:
    waits = Waits()
    with pytest.raises(HostUnreachable):
        get(httpx.ConnectError("refused"), waits=waits)
    first, second = waits.seconds
    assert 0.125 <= first <= 0.375
    assert 0.25 <= second <= 0.75


def test_a_host_is_given_the_time_that_it_asks_for() -> None:
    waits = Waits()
    limited = xrpc_error(429, "RateLimitExceeded", retry_after="40")
    assert get(limited, json_answer({"a": 1}), waits=waits) == {"a": 1}
    assert 40 <= waits.seconds[0] <= 41
    assert waits.told == ["localhost:2583 asks us to wait 40 seconds"]


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({"retry_after": "700"}, "try again in 12 minutes"),
        ({"retry_after": "Wed, 01 Jan 2025 01:00:00 GMT"}, "try again in 60 minutes"),
        ({"ratelimit_reset": "1735700400"}, "try again in 3 hours"),
        ({"ratelimit_reset": "90"}, "try again in 90 seconds"),
        ({"ratelimit_reset": "90", "ratelimit_remaining": "3"}, "try again later"),
        ({"retry_after": "soon"}, "try again later"),
        ({"retry_after": "-5"}, "try again later"),
        ({}, "try again later"),
    ],
)
def test_a_limit_says_how_long(headers: dict[str, str], words: str) -> None:
    date = "Wed, 01 Jan 2025 00:00:00 GMT"
    with pytest.raises(RateLimited, match=words):
        post(xrpc_error(429, "", date=date, **headers))


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "1 second"),
        (0.2, "1 second"),
        (40.1, "41 seconds"),
        (120, "120 seconds"),
        (121, "3 minutes"),
        (700, "12 minutes"),
        (86_400, "24 hours"),
        (365 * 86_400, "365 days"),
    ],
)
def test_how_long(seconds: float, words: str) -> None:
    assert how_long(seconds) == words


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        (httpx.ConnectTimeout("x"), HostTimeout, "localhost:2583 cannot be reached: no conn"),
        (httpx.ReadTimeout("x"), HostTimeout, "localhost:2583 does not answer"),
        (httpx.ConnectError("Refused"), HostUnreachable, "cannot be reached: refused"),
        (httpx.WriteError("x"), HostUnreachable, "localhost:2583 dropped the connection"),
        (httpx.RemoteProtocolError("illegal status line"), BadAnswer, "answer in HTTP"),
    ],
    ids=str,
)
def test_faults_in_a_persons_words(fault: Exception, kind: type[Exception], words: str) -> None:
    with pytest.raises(AtprotoError, match=words) as caught:
        get(fault)
    assert type(caught.value) is kind


# Credentials.


def test_an_expired_token_is_renewed_once_and_the_request_sent_again() -> None:
    for refusal in (xrpc_error(400, "ExpiredToken"), xrpc_error(401, "InvalidToken")):
        auth, host = Token(), Script([refusal, json_answer({"a": 1})])
        with client_for(host) as client:
            assert client.post(PDS, POST, {"x": 1}, auth=auth) == {"a": 1}
        assert [each.headers["authorization"] for each in host.requests] == ["Bearer 1", "Bearer 2"]
        assert host.bodies == [b'{"x":1}'] * 2
        assert auth.asked == [f"{PDS}/xrpc/{POST}"] * 2


@pytest.mark.parametrize(
    ("status", "name", "renewals"),
    [(401, "InvalidToken", 1), (401, "AccountTakedown", 0)],
)
def test_a_refusal_that_stays_is_raised(status: int, name: str, renewals: int) -> None:
    auth, host = Token(), Script([xrpc_error(status, name)])
    with client_for(host) as client, pytest.raises(XrpcError) as caught:
        client.post(PDS, POST, {}, auth=auth)
    assert caught.value.name == name
    assert auth.renewals == renewals
    assert len(host.requests) == 1 + renewals


def test_credentials_that_cannot_be_renewed_are_not_sent_again() -> None:
    auth, host = Token(renewable=False), Script([xrpc_error(401, "InvalidToken")])
    with client_for(host) as client, pytest.raises(AuthRefused):
        client.get(PDS, GET, auth=auth)
    assert len(host.requests) == 1


# Blobs.


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_an_upload_begins_again_at_its_beginning(fault: httpx.Response | Exception) -> None:
    host, body = Script([fault, json_answer({"blob": 1})]), Body(b"PACK and more")
    with client_for(host) as client:
        answer = client.upload(PDS, body, "application/x-git-pack", auth=Token())
    assert answer == {"blob": 1}
    assert host.bodies == [body.data] * 2
    for request in host.requests:
        assert request.headers["content-length"] == "13"
        assert request.headers["content-type"] == "application/x-git-pack"
        assert "transfer-encoding" not in request.headers


def test_an_upload_is_sent_again_after_a_renewal() -> None:
    host, body = Script([xrpc_error(400, "ExpiredToken"), json_answer({"blob": 1})]), Body(b"PACK")
    with client_for(host) as client:
        client.upload(PDS, body, "a/b", auth=Token())
    assert host.bodies == [b"PACK"] * 2


def test_an_upload_that_is_too_large_is_not_sent_again() -> None:
    host, body = Script([xrpc_error(413, "PayloadTooLarge")]), Body(b"PACK")
    with client_for(host) as client, pytest.raises(PayloadTooLarge):
        client.upload(PDS, body, "a/b", auth=Token())
    assert body.begun == 1


@pytest.mark.parametrize("announced", [3, 5])
def test_an_upload_of_another_length_than_announced_is_an_error(announced: int) -> None:
    host, body = Script([json_answer({"blob": 1})]), Body(b"PACK", announced)
    with client_for(host) as client, pytest.raises(AtprotoError, match="has changed meanwhile"):
        client.upload(PDS, body, "a/b", auth=Token())


def blob(*answers: httpx.Response | Exception, limit: int = 100, host: str = PDS) -> bytes:
    with client_for(Script(list(answers))) as client:
        return b"".join(client.download(host, "did", "cid", limit=limit))


def test_a_blob_is_asked_for_as_it_is() -> None:
    host = Script([httpx.Response(200, content=b"PACK")])
    with client_for(host) as client:
        assert b"".join(client.download(PDS, "d", "c", limit=4)) == b"PACK"
    (request,) = host.requests
    assert str(request.url) == f"{PDS}/xrpc/com.atproto.sync.getBlob?did=d&cid=c"
    assert request.headers["accept-encoding"] == "identity"
    assert "authorization" not in request.headers


def test_a_blob_is_asked_for_only_when_it_is_read() -> None:
    host = Script([httpx.Response(200, content=b"PACK")])
    with client_for(host) as client:
        client.download(PDS, "d", "c", limit=4)
    assert not host.requests


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(200, content=b"x" * 101),
        httpx.Response(200, headers={"Content-Length": "101"}),
        httpx.Response(200, headers={"Content-Length": "9" * 9999}),
        compressed(gzip.compress(b"x")),
    ],
)
def test_a_blob_that_is_not_the_one(answer: httpx.Response) -> None:
    with pytest.raises(BadAnswer):
        blob(answer)


def test_a_blob_that_is_gone() -> None:
    with pytest.raises(BlobNotFound):
        blob(xrpc_error(400, "InvalidRequest", "Blob not found"))


def redirect(location: str, status: int = 302) -> httpx.Response:
    return httpx.Response(status, headers={"Location": location.encode()})


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_of_blobs_are_followed(status: int) -> None:
    asked: list[str] = []

    def host(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        if request.url.host == "storage.example.com":
            return httpx.Response(200, content=b"PACK")
        return redirect("https://storage.example.com/a?sig=b", status)

    with client_for(host) as client:
        assert b"".join(client.download("https://pds.example.com", "d", "c", limit=4)) == b"PACK"
    assert asked[1] == "https://storage.example.com/a?sig=b"


@pytest.mark.parametrize(
    "location",
    [
        "http://storage.example.com/a",
        "http://localhost:2583/a",
        "https://localhost/a",
        "file:///etc/passwd",
        "https://u:p@storage.example.com/a",
        "https://",
        "http://[",
        "https://[::1/",
        "http://\u2100.com/",
        "https://127.1/a",
        "https://[::ffff:127.0.0.1]/a",
        "https://10.0.0.1/a",
        "https://169.254.169.254/latest",
        "https://[fe80::1]/a",
        "https://router/a",
    ],
)
def test_redirects_to_where_nobody_may_send_us(location: str) -> None:
    for host in ("https://pds.example.com", PDS, "https://10.0.0.2"):
        with pytest.raises((BadAnswer, PrivateAddress)):
            blob(redirect(location), host=host)


def test_redirects_end() -> None:
    host = Script([redirect("/again")])
    with client_for(host) as client, pytest.raises(BadAnswer, match="again and again"):
        b"".join(client.download(PDS, "d", "c", limit=4))
    assert len(host.requests) == 6


# Plain documents.


def test_plain_documents() -> None:
    with client_for(Script([json_answer({"id": 1})])) as client:
        assert client.get_json(f"{PDS}/did.json") == {"id": 1}
    with client_for(Script([httpx.Response(200, text="did:plc:x\n")])) as client:
        assert client.get_text(f"{PDS}/x") == "did:plc:x\n"
    latin = Script([httpx.Response(200, content=b"\xff")])
    with client_for(latin) as client, pytest.raises(BadAnswer):
        client.get_text(f"{PDS}/x")


@pytest.mark.parametrize("status", [404, 410])
def test_a_document_that_is_not_there(status: int) -> None:
    host = Script([httpx.Response(status, html="<h1>Gone</h1>")])
    with client_for(host) as client, pytest.raises(XrpcError) as caught:
        client.get_json(f"{PDS}/did.json")
    assert caught.value.status == status


def test_documents_have_limits() -> None:
    with client_for(Script([httpx.Response(200, content=b'"' + b"x" * 300_000)])) as client:
        with pytest.raises(BadAnswer, match="more than 262,144 bytes"):
            client.get_json(f"{PDS}/did.json")
        with pytest.raises(BadAnswer, match="more than 2,048 bytes"):
            client.get_text(f"{PDS}/x")
