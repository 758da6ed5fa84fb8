"""What a host quotes of what it was sent, as messages have it."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from git_knotless.atproto.credentials import Bearer, Once
from git_knotless.atproto.errors import XrpcError
from tests.atproto.fakes import PDS, Script, client_for, jwt, xrpc_error

GET = "com.atproto.repo.getRecord"


def test_a_refusal_quotes_no_secret() -> None:
    """As it stands in a message, whichever way the host spells it."""
    opaque, short = "ref-0123456789abcdef", "pass 1"

    def quoting(request: httpx.Request) -> httpx.Response:
        sent = [request.headers.get("authorization", ""), request.read().decode()]
        return xrpc_error(400, "InvalidRequest", f"cannot read {' '.join(sent)[:200]} of a token")

    said = []
    with client_for(quoting) as client:
        auth = Once(Bearer(PDS, opaque))
        asks: list[Callable[[], Any]] = [
            lambda: client.get(PDS, GET, auth=auth),
            lambda: client.post(PDS, GET, {"identifier": "a", "password": short}),
            lambda: client.post_form(
                PDS + "/token",
                {"grant_type": "refresh_token", "refresh_token": opaque, "code": short},
                credential=auth.one,
            ),
        ]
        for ask in asks:
            with pytest.raises(XrpcError) as caught:
                ask()
            said.append(caught.value.message)
    assert not [text for text in said if opaque in text or short in text or "pass+1" in text]
    assert all("[hidden]" in text and "of a token" in text for text in said)
    assert "grant_type=refresh_token" in said[2], "what is no secret is told"


def test_a_secret_that_is_cut_short_is_none_to_read() -> None:
    token = jwt(0)
    cut = [token[:60], f"DPoP {token}", "Bearer abcdefghij", f'"{token}"']
    for text in cut:
        answers = Script([xrpc_error(400, "InvalidRequest", f"bad {text} here")])
        with client_for(answers) as client, pytest.raises(XrpcError) as caught:
            client.get(PDS, GET)
        assert token[:20] not in caught.value.message
        assert "abcdefgh" not in caught.value.message
        assert "bad" in caught.value.message
        assert "here" in caught.value.message
