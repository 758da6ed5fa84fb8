"""A person in front of headless Chromium, who is shown the page that `git knotless login` opens.

`Opener` is what KNOTLESS_BROWSER names: it hands the page's address to the test.
"""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.gitenv import GitEnv
from tests.network import Account

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Locator, Page

_FLAGS = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_PATIENCE = 20_000  # milliseconds
_OPENED_WITHIN = 30  # seconds


@dataclass(frozen=True, slots=True)
class Opener:
    """A command that keeps the address it is given, and opens nothing."""

    script: Path
    kept: Path

    @classmethod
    def on(cls, machine: GitEnv, *, status: int = 0) -> "Opener":
        """The browser of `machine` from now on; it ends with `status`."""
        script, kept = machine.root / "browser", machine.root / "opened"
        written = f'printf %s "$1" >"{kept}.part" && mv "{kept}.part" "{kept}"'
        script.write_text(f"#!/bin/sh\n{written}\nexit {status}\n")
        script.chmod(0o755)
        machine.env["KNOTLESS_BROWSER"] = str(script)
        return cls(script, kept)

    def address(self) -> str:
        """The one that it is given next."""
        end = time.monotonic() + _OPENED_WITHIN
        while not self.kept.exists():
            assert time.monotonic() < end, "no page was opened"
            time.sleep(0.02)  # what a script does in a file tells nobody
        address = self.kept.read_text()
        self.kept.unlink()
        return address


@dataclass(frozen=True, slots=True)
class Person:
    page: "Page"

    def move_away(self) -> None:
        """To a machine where what listens on this one cannot be reached."""
        devtools = self.page.context.new_cdp_session(self.page)

        def fail(event: dict[str, Any]) -> None:
            unreachable = {"requestId": event["requestId"], "errorReason": "ConnectionRefused"}
            devtools.send("Fetch.failRequest", unreachable)

        devtools.on("Fetch.requestPaused", fail)
        # Not by a route of Playwright's: what a server redirects to takes none.
        devtools.send("Fetch.enable", {"patterns": [{"urlPattern": "http://127.0.0.1*"}]})

    def sign_in(self, address: str, account: Account) -> None:
        """Up to where the page asks for consent."""
        self.page.goto(address)
        self.page.fill("input[name=password]", account.password)
        self._press("Sign in")
        self._button("Authorize").wait_for()

    def approve(self) -> str:
        """The address of the page that it ends at."""
        return self._leave("Authorize")

    def deny(self) -> str:
        return self._leave("Deny access")

    def shown(self) -> str:
        return self.page.inner_text("body")

    def _leave(self, button: str) -> str:
        with self.page.expect_request("http://127.0.0.1:*/**") as request:
            self._press(button)
        return request.value.url

    def _press(self, name: str) -> None:
        self._button(name).click()

    def _button(self, name: str) -> "Locator":
        return self.page.get_by_role("button", name=name, exact=True)


@contextmanager
def chromium(data: Path) -> Iterator["BrowserContext"]:
    """With `data`, an empty folder, for its user's."""
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium")
    assert program is not None, "chromium is not installed: scripts/test does it"
    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            data, executable_path=program, headless=True, args=_FLAGS, chromium_sandbox=False
        )
        context.set_default_timeout(_PATIENCE)
        try:
            yield context
        finally:
            context.close()
