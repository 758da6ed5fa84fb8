"""What a person sees of long work, and when."""

import io

import pytest

from git_knotless.storage.progress import TextProgress, Unit


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def screen() -> io.StringIO:
    return io.StringIO()


def test_short_work_shows_nothing(clock: Clock, screen: io.StringIO) -> None:
    with TextProgress(screen, enabled=True, clock=clock).meter("Working", 2) as meter:
        meter.advance(1)
        clock.now = 0.9
        meter.advance(1)
    assert screen.getvalue() == ""


def test_longer_work_is_shown_as_git_shows_it(clock: Clock, screen: io.StringIO) -> None:
    with TextProgress(screen, enabled=True, clock=clock).meter("Working", 7) as meter:
        clock.now = 1.0
        meter.advance(3)
        meter.advance(3)  # at the same moment: not drawn again
        clock.now = 2.0
        meter.advance(1)
    assert screen.getvalue() == (
        "Working:  42% (3/7)\rWorking: 100% (7/7)\rWorking: 100% (7/7), done.\n"
    )


@pytest.mark.parametrize(
    ("unit", "total", "by", "line"),
    [
        ("count", None, 5, "Working: 5, done."),
        ("count", 0, 0, "Working: 100% (0/0), done."),
        ("bytes", 3 << 20, 3 << 19, "Working:  50% (1.50 MiB/3.00 MiB) | 768.00 KiB/s, done."),
        ("bytes", None, 900, "Working: 900 bytes | 450 bytes/s, done."),
        ("bytes", 5 << 30, 5 << 30, "Working: 100% (5.00 GiB/5.00 GiB) | 2.50 GiB/s, done."),
        # What had to be sent twice was not more than all.
        ("count", 2, 3, "Working: 100% (2/2), done."),
    ],
)
def test_the_last_line(
    clock: Clock, screen: io.StringIO, unit: Unit, total: int | None, by: int, line: str
) -> None:
    progress = TextProgress(screen, enabled=True, clock=clock)
    with progress.meter("Working", total, unit=unit) as meter:
        meter.advance(by)
        clock.now = 2.0
    assert screen.getvalue() == f"{line}\n"


def test_a_shorter_line_covers_the_longer_one(clock: Clock, screen: io.StringIO) -> None:
    progress = TextProgress(screen, enabled=True, clock=clock)
    with progress.meter("Working", None, unit="bytes", at_once=True) as meter:
        clock.now = 0.5
        meter.advance(1023)
        clock.now = 1023.0
        meter.advance(0)
    assert screen.getvalue().startswith(
        "Working: 1023 bytes | 2.00 KiB/s\rWorking: 1023 bytes | 1 bytes/s \r"
    )


def test_an_error_gets_a_line_of_its_own(clock: Clock, screen: io.StringIO) -> None:
    progress = TextProgress(screen, enabled=True, clock=clock)

    def work() -> None:
        with progress.meter("Working", 2, at_once=True) as meter:
            meter.advance(1)
            raise ValueError

    with pytest.raises(ValueError):
        work()
    assert screen.getvalue() == "Working:  50% (1/2)\rWorking:  50% (1/2)\n"


def test_nothing_is_shown_to_who_does_not_look(clock: Clock, screen: io.StringIO) -> None:
    progress = TextProgress(screen, enabled=False, clock=clock)
    with progress.meter("Working", 2, at_once=True) as meter:
        clock.now = 5.0
        meter.advance(2)
    progress.relay(b"Counting objects: 3\r")
    assert screen.getvalue() == ""


def test_what_git_shows_is_passed_on(clock: Clock, screen: io.StringIO) -> None:
    TextProgress(screen, enabled=True, clock=clock).relay(b"Counting \xff: 3\r")
    assert screen.getvalue() == "Counting \N{REPLACEMENT CHARACTER}: 3\r"
