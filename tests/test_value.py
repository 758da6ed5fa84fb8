import pytest

from git_knotless.value import replace, value


@value
class Point:
    """Two numbers."""

    x: int
    y: int = 7

    @classmethod
    def origin(cls) -> "Point":
        return cls(0, 0)

    @property
    def sum(self) -> int:
        return self.x + self.y


@value
class Pixel:
    x: int
    y: int = 7


@value
class Secret:
    word: str

    def __repr__(self) -> str:
        return "Secret()"


def test_fields_come_by_place_or_by_name_and_may_have_defaults() -> None:
    assert Point(1, 2) == Point(x=1, y=2) == Point(1, y=2)
    assert Point(1) == Point(1, 7)
    assert (Point.origin().sum, Point.__doc__) == (0, "Two numbers.")


@pytest.mark.parametrize(
    ("given", "named"),
    [((), {}), ((1, 2, 3), {}), ((1, 2), {"y": 3}), ((1,), {"z": 1}), ((), {"y": 1, "z": 1})],
)
def test_neither_too_few_fields_nor_too_many(given: tuple[int, ...], named: dict[str, int]) -> None:
    with pytest.raises(TypeError, match="Point has x, y"):
        Point(*given, **named)


def test_equal_where_kind_and_fields_are() -> None:
    assert Point(1, 2) != Point(1, 3)
    assert Point(1, 2) != Pixel(1, 2)
    assert Point(1, 2) != (1, 2)
    assert {Point(1, 2), Point(1, 2), Point(2, 1)} == {Point(2, 1), Point(1, 2)}


def test_it_does_not_change() -> None:
    point = Point(1, 2)
    for deed in (lambda: setattr(point, "x", 3), lambda: delattr(point, "x")):
        with pytest.raises(AttributeError, match=r"Point\.x does not change"):
            deed()
    with pytest.raises(AttributeError):
        object.__setattr__(point, "z", 3)
    assert point == Point(1, 2)


def test_replace_leaves_the_old_one() -> None:
    point = Point(1, 2)
    assert replace(point, y=5) == Point(1, 5)
    assert point == Point(1, 2)
    with pytest.raises(TypeError):
        replace(point, z=5)


def test_it_shows_what_it_holds_unless_it_says_otherwise() -> None:
    assert repr(Point(1, 2)) == "Point(x=1, y=2)"
    assert repr(Secret("word")) == "Secret()"


def test_it_is_taken_apart_by_place() -> None:
    match Point(1, 2):
        case Point(x, y):
            assert (x, y) == (1, 2)
