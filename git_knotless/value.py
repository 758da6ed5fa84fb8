"""Values: equal where they hold the same, and never changed.

What `@dataclass(frozen=True, slots=True)` makes, to whoever uses it and to a type checker. But
that writes six methods for each class and has them compiled, which takes a millisecond; a list of
refs needs thirty such classes, and every `git fetch` asks for one.
"""

from typing import Any, NoReturn, TypeVar, cast, dataclass_transform

Value = TypeVar("Value")


@dataclass_transform(frozen_default=True)
def value(kind: type[Value]) -> type[Value]:
    """The annotations of `kind` are its fields, and what they are set to are defaults."""
    fields = tuple(kind.__annotations__)
    body = {name: held for name, held in vars(kind).items() if name not in _OF_OPEN_CLASSES}
    defaults = {name: body.pop(name) for name in fields if name in body}
    body |= {"__slots__": fields, "__match_args__": fields}
    body |= {"_fields": frozenset(fields), "_defaults": defaults}
    return cast("type[Value]", type(kind.__name__, kind.__bases__, _METHODS | body))


def replace(old: Value, **changes: Any) -> Value:
    """The same value but for some of its fields."""
    return type(old)(**(_held(old) | changes))


def _init(self: Any, *given: Any, **named: Any) -> None:
    fields = self.__match_args__
    held = self._defaults | dict(zip(fields, given, strict=False)) | named
    if held.keys() != self._fields or len(given) + len(named) > len(fields):
        raise TypeError(f"{type(self).__name__} has {', '.join(fields)}")
    for name in fields:
        object.__setattr__(self, name, held[name])


def _held(self: Any) -> dict[str, Any]:
    return {name: getattr(self, name) for name in self.__match_args__}


def _eq(self: Any, other: object) -> bool:
    return _held(self) == _held(other) if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    return hash(tuple(_held(self).values()))


def _repr(self: Any) -> str:
    held = ", ".join(f"{name}={text!r}" for name, text in _held(self).items())
    return f"{type(self).__qualname__}({held})"


def _refuse(self: Any, name: str, *_: Any) -> NoReturn:
    raise AttributeError(f"{type(self).__name__}.{name} does not change")


_METHODS = {
    "__init__": _init,
    "__eq__": _eq,
    "__hash__": _hash,
    "__repr__": _repr,
    "__setattr__": _refuse,
    "__delattr__": _refuse,
}
# What a class without slots has for the attributes of its instances.
_OF_OPEN_CLASSES = ("__dict__", "__weakref__")
