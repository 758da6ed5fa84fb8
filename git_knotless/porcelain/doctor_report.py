"""How what `git knotless doctor` finds is shown: a line as it is found, or all in one document."""

from typing import Any

from git_knotless.porcelain.output import on_terminal, print_json, printable
from git_knotless.storage.checkup.checks import Verdict

_SHOWN = {"ok": "ok", "warn": "warn", "fail": "FAIL", "skipped": "skipped"}
_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red", "skipped": "dim"}
_WIDTHS = 7, 14  # of a status, and of a check's name


class Report:
    def __init__(self, *, as_json: bool) -> None:
        self.well = True
        self._as_json = as_json
        self._items: list[dict[str, Any]] = []

    def add(self, check: str, verdict: Verdict) -> None:
        status, detail, hint = verdict
        self.well &= status != "fail"
        self._items.append({"check": check, "status": status, "detail": detail, "hint": hint})
        if not self._as_json:
            show = _draw if on_terminal() else _print
            show(_SHOWN[status], check, detail, hint)

    def end(self) -> None:
        if self._as_json:
            print_json({"items": self._items, "ok": self.well})


def _print(status: str, check: str, detail: str, hint: str | None) -> None:
    """Flushed, since whoever reads along in a pipe waits for it."""
    lead, name = _WIDTHS
    print(f"{status:<{lead}}  {check:<{name}}  {printable(detail)}", flush=hint is None)
    if hint:
        print(f"{'':<{lead}}  {'':<{name}}  hint: {printable(hint)}", flush=True)


def _draw(status: str, check: str, detail: str, hint: str | None) -> None:
    """Long texts go on under where they began."""
    from rich.console import Console  # 40 ms, of use on a terminal only
    from rich.table import Table
    from rich.text import Text

    lead, name = _WIDTHS
    table = Table.grid(padding=(0, 2))
    table.add_column(width=lead)
    table.add_column(width=name)
    table.add_column()
    style = next(_STYLES[key] for key, shown in _SHOWN.items() if shown == status)
    # Text: a detail's brackets are no markup.
    table.add_row(Text(status, style), Text(check), Text(printable(detail)))
    if hint:
        table.add_row("", "", Text(f"hint: {printable(hint)}", "italic"))
    Console().print(table)
