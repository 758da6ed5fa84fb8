"""What is done to a repository, cut or not heard of at each of its requests in turn: what was said
is what is there, it can be done again, and nothing stays locked."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import pytest

from git_knotless.errors import KnotlessError
from git_knotless.storage.creation import AlreadyExists
from git_knotless.storage.places.renaming import SameName
from git_knotless.storage.snapshot import NoSuchRepository
from tests.storage.clocks import our_clock
from tests.storage.racers import ground
from tests.storage.racing import GRACE, Deed, Ground, World
from tests.storage.steps import APPLY, Fate, Task

MAIN, A = "refs/heads/main", "refs/heads/a"


def pushed(*specs: tuple[str, str | None, bool]) -> Deed:
    return Deed("push", specs=specs)


LATER = Deed("later")  # than the grace of claims
CREATED = (Deed("create"),)
THERE = (*CREATED, pushed((MAIN, "one", False), (A, "mine0", False)))
RENAMED = (*THERE, Deed("rename", to="other"))
PACKED = (
    *THERE,
    *(pushed((f"refs/heads/{name}", name, False)) for name in ("two", "side", "more0")),
)
LEFT = (*THERE, pushed((A, "large0", True)), pushed((A, None, False), (MAIN, "root", True)), LATER)
# Each with what there is before it, and what it may say when it is done already.
DEEDS: dict[str, tuple[Sequence[Deed], Deed, tuple[type[KnotlessError], ...]]] = {
    "first push": (CREATED, pushed((MAIN, "two", False)), ()),
    "push": (THERE, pushed((MAIN, "two", False), ("refs/heads/b", "more0", False)), ()),
    "large push": (THERE, pushed((A, "large0", False)), ()),
    "forced push": (THERE, pushed((MAIN, "root", True), (A, "both", True)), ()),
    "deleted ref": (THERE, pushed((A, None, False)), ()),
    "pushed by the old name": (RENAMED, pushed((MAIN, "two", False)), ()),
    "create": ((), Deed("create"), (AlreadyExists,)),
    "create under an old name": (RENAMED, Deed("create"), (AlreadyExists,)),
    "rename": (THERE, Deed("rename", to="other"), (SameName,)),
    "rename back": (RENAMED, Deed("rename", "other", to="repo"), (SameName,)),
    "edit": (THERE, Deed("edit"), ()),
    "fold": (PACKED, Deed("fold"), ()),
    "prune": (LEFT, Deed("prune"), ()),
    "delete": (RENAMED, Deed("delete", "other"), (NoSuchRepository,)),
}
# A read that is not answered is asked again, whatever became of it; a write is not.
AT_READS = {Fate.UNSENT}
ALL = tuple(fate for fate in Fate if fate is not Fate.WELL)
FATES = dict.fromkeys(("push", "create", "prune"), ALL) | dict.fromkeys(
    ("large push", "pushed by the old name", "create under an old name", "rename back"),
    (Fate.UNHEARD,),
)
QUICK = {("push", Fate.KILLED), ("create", Fate.UNHEARD)}


@pytest.fixture(scope="module")
def there() -> Iterator[Ground]:
    with ExitStack() as stack:
        yield ground(stack)


@contextmanager
def world(there: Ground, before: Sequence[Deed]) -> Iterator[World]:
    with there.town.home() as home:
        made = World(there, home)
        with our_clock(made.clocks):
            for deed in before:
                if deed is LATER:
                    made.set_host_clock(2 * GRACE)
                else:
                    assert made.do(deed).error is None
            yield made


def met(made: World, deed: Deed, fate: Fate, at: int) -> Task:
    """The deed, whose request `at` meets its fate."""
    task = made.begin(deed)
    for _ in range(at):
        if not task.over:
            task.step()
    if not task.over:
        task.step(fate)
    task.finish()
    if fate is Fate.TWICE:  # what is late comes after it is done again, a second copy before that
        made.settle()
    return task


def done_again(made: World, deed: Deed, already: tuple[type[KnotlessError], ...]) -> None:
    task = made.do(deed)
    assert task.error is None or isinstance(task.error, already), task.error
    if deed.verb == "push":
        assert task.result == dict.fromkeys(name for name, _, _ in deed.specs)


@pytest.mark.parametrize(
    ("name", "fate"),
    [
        pytest.param(
            name,
            fate,
            id=f"{name}-{fate.name.lower()}",
            marks=[] if (name, fate) in QUICK else pytest.mark.slow,
        )
        for name in DEEDS
        for fate in FATES.get(name, (Fate.KILLED, Fate.UNHEARD, Fate.LATE))
    ],
)
def test_each_request_of_it(there: Ground, name: str, fate: Fate) -> None:
    """A kill before a read leaves what one before the next write does, or the end."""
    before, deed, already = DEEDS[name]
    for at, written in enumerate(writes_of(there, before, deed)):
        if written or fate in AT_READS:
            with world(there, before) as made:
                met(made, deed, fate, at)
                made.judge()
                done_again(made, deed, already)
                if written:
                    made.check(thorough=False)


def writes_of(there: Ground, before: Sequence[Deed], deed: Deed) -> list[bool]:
    """Of each request that it takes, whether it writes; its end counts as one that does."""
    with world(there, before) as made:
        requests = made.do(deed).requests
    assert APPLY.rpartition(".")[2] in requests
    return [*(APPLY.endswith(f".{request}") for request in requests), True]
