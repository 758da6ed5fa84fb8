"""What a verification has come upon, in a repository and on its host."""

from git_knotless.value import value

_MOST_KEPT = 1_000  # of what is wrong: more is a host that makes it up


@value
class Finding:
    """`what` is wrong, by its name, and `why`."""

    what: str
    why: str

    def __str__(self) -> str:
        return f"{self.what}: {self.why}"


class Findings:
    """What there is, counted by kind, and what is wrong with it."""

    def __init__(self) -> None:
        self.counts = {"refs": 0, "claims": 0, "packs": 0, "lfsObjects": 0, "objects": 0}
        self.bytes = 0  # of packs and LFS objects, which were downloaded
        self.wrong: list[Finding] = []
        self.left_out = 0  # of what is wrong

    def add(self, what: str, why: str) -> None:
        if len(self.wrong) < _MOST_KEPT:
            self.wrong.append(Finding(what, why))
        else:
            self.left_out += 1
