"""Figures, and how they are shown: a table for people, one document for programs."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

OURS = "knotless"


def say(text: str) -> None:
    """What goes on, for whoever waits."""
    sys.stderr.write(f"bench: {text}\n")
    sys.stderr.flush()


@dataclass(frozen=True, slots=True)
class Figure:
    """One thing that was measured. `most` is its target, None where it has none.

    `runs` has what it is made of, a list for each contestant, seconds where it is a ratio.
    """

    section: str
    name: str
    value: float
    unit: str
    most: float | None = None
    runs: Mapping[str, Sequence[float]] = field(default_factory=dict)
    note: str = ""

    @property
    def ok(self) -> bool | None:
        return None if self.most is None else self.value <= self.most

    @property
    def shown(self) -> str:
        digits = 0 if self.value == int(self.value) else 2
        return f"{self.value:,.{digits}f} {self.unit}"

    def to_json(self) -> dict[str, Any]:
        about = {"section": self.section, "name": self.name, "value": round(self.value, 4)}
        target = {} if self.most is None else {"target": self.most, "ok": self.ok}
        note = {"note": self.note} if self.note else {}
        runs = {who: [round(each, 4) for each in all_] for who, all_ in self.runs.items()}
        return {**about, "unit": self.unit, **target, "runs": runs, **note}


def ratio(
    section: str,
    name: str,
    runs: Mapping[str, Sequence[float]],
    *,
    beside: str,
    most: float | None = None,
    note: str = "",
) -> Figure:
    """Our median over that of `beside`, of runs that alternated."""
    value = median(runs[OURS]) / median(runs[beside])
    return Figure(section, name, value, f"x {beside}", most, runs, note)


def table(figures: Sequence[Figure]) -> str:
    rows = [("", "", "figure", "target", "", "measured"), *map(_row, figures)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
    return "\n".join(lines) + "\n"


def _row(figure: Figure) -> tuple[str, ...]:
    target = "" if figure.most is None else f"≤ {figure.most:g}"
    verdict = {True: "ok", False: "missed", None: ""}[figure.ok]
    told = [f"{who} {_spread(all_)}" for who, all_ in figure.runs.items()]
    measured = "; ".join([*told, *([figure.note] if figure.note else [])])
    return figure.section, figure.name, figure.shown, target, verdict, measured


def _spread(values: Sequence[float]) -> str:
    if len(values) == 1:
        return f"{values[0]:.3g} s"
    return f"{median(values):.3g} s ({min(values):.3g} to {max(values):.3g})"
