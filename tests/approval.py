"""What the authorization page of the reference PDS does when a person presses its buttons.

It calls a small JSON API of the page's own host. Its cookies are `Secure` and this network is
not, so they are carried by hand.
"""

from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx

_ANSWER = ("code", "state", "iss", "error", "error_description")

_API = "/@atproto/oauth-provider/~api/"
_NAVIGATE = {
    "Sec-Fetch-Site": "none",
    "Sec-Fetch-Mode": "navigate",
    "Sec-Fetch-Dest": "document",
}


class Page:
    """The page at `url`, open in a browser that nobody is signed in with."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._http = httpx.Client(timeout=60, trust_env=False)
        self._cookies: dict[str, str] = {}
        opened = self._send("GET", url, _NAVIGATE)
        assert opened.status_code == 200, opened.text[:300]

    def approve(self, name: str, password: str) -> str:
        """Sign in and press "Authorize"; the address that the browser is then sent to."""
        signed = self._call(
            "sign-in", {"locale": "en", "username": name, "password": password, "remember": False}
        )
        did = signed["account"]["did"]
        return self._after(self._call("consent", {"did": did}, signed["ephemeralToken"]))

    def deny(self) -> str:
        return self._after(self._call("reject", {}))

    def _after(self, answer: dict[str, Any]) -> str:
        """The page's host sends the browser on from an address of its own, which holds this."""
        self._http.close()
        query = dict(parse_qsl(urlsplit(answer["url"]).query))
        kept = {name: query[name] for name in _ANSWER if name in query}
        return f"{query['redirect_uri']}?{urlencode(kept)}"

    def _call(self, name: str, body: dict[str, Any], bearer: str | None = None) -> dict[str, Any]:
        split = urlsplit(self._url)
        origin = f"{split.scheme}://{split.netloc}"
        headers = {
            "Sec-Fetch-Site": "same-origin",
            "Sec-Fetch-Mode": "same-origin",
            "Origin": origin,
            "Referer": self._url,
            "x-csrf-token": self._cookies["csrf-token"],
        }
        if bearer is not None:
            headers["Authorization"] = f"Bearer {bearer}"
        answer = self._send("POST", origin + _API + name, headers, json=body)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def _send(
        self, method: str, url: str, headers: dict[str, str], **options: Any
    ) -> httpx.Response:
        cookies = "; ".join(f"{name}={value}" for name, value in self._cookies.items())
        answer = self._http.request(method, url, headers={**headers, "Cookie": cookies}, **options)
        self._http.cookies.clear()
        for line in answer.headers.get_list("set-cookie"):
            name, _, value = line.partition(";")[0].partition("=")
            self._cookies[name] = value
        return answer
