"""Time-outs that shrink: by a clock that the tests turn."""

import socket
import time
from dataclasses import dataclass
from typing import cast

import pytest

from git_knotless.atproto.pace import Deadline, Pace
from git_knotless.limits import RATE


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def seconds(deadline: Deadline) -> int | None:
    """What a socket is told now; None when the time is over."""
    try:
        return deadline.__index__()
    except TimeoutError:
        return None


def test_a_deadline_is_never_none_at_all(clock: Clock) -> None:
    """Zero would be a socket that does not wait."""
    deadline = Deadline(30, each=10, now=clock)
    told = []
    for _ in range(8):
        told.append(seconds(deadline))
        clock.now += 4.9
    assert told == [10, 10, 10, 10, 10, 6, 1, None]


def test_a_socket_takes_it() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        deadline, begun = Deadline(1), time.monotonic()
        number = cast(float, deadline)  # to a socket
        ours.settimeout(number)
        assert ours.gettimeout() == 1
        with pytest.raises(TimeoutError):
            ours.recv(1)
        with pytest.raises(TimeoutError):
            ours.settimeout(number)
        assert 1 <= time.monotonic() - begun < 2


def test_headers_have_one_deadline_from_when_all_is_sent(clock: Clock) -> None:
    pace = Pace(120, 30, now=clock)
    clock.now += 1000  # of sending
    pace.await_headers()
    assert seconds(pace) == 120
    clock.now += 119
    assert seconds(pace) == 1
    clock.now += 1
    assert seconds(pace) is None


def test_a_body_has_a_window_for_each_part(clock: Clock) -> None:
    pace = Pace(120, 30, now=clock)
    pace.await_body()
    clock.now += 29
    pace.got(30 * RATE - 1)
    assert seconds(pace) == 1
    pace.got(1)
    assert seconds(pace) == 30
    pace.got(100_000_000)  # no credit for what comes after
    clock.now += 30
    assert seconds(pace) is None


def test_time_that_the_host_has_not_taken_does_not_count(clock: Clock) -> None:
    pace = Pace(120, 30, now=clock)
    pace.await_body()
    clock.now += 100
    pace.rested(100)
    assert seconds(pace) == 30
