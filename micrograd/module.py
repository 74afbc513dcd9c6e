"""What has parameters: `Module`, and the way of trained weights back into `Value`s."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from numbers import Real
from typing import Any, TypeAlias

from micrograd.engine import Value
from micrograd.initial import Initial
from micrograd.noise import Noise, leaves_of

Nested: TypeAlias = "Value | Sequence[Nested]"
Numbers: TypeAlias = "float | list[Numbers]"


class Module:
    """Something with parameters.

    A subclass whose attributes are Modules, or lists or dicts of them, also nested, has theirs, under PyTorch's names:
    `encoder.0.weight`. What two attributes share is there once, under its first name. Values that are attributes
    themselves may be parameters, constants or inputs, so a class with parameters of its own overrides parameters(),
    named_parameters() and initial().
    """

    def zero_grad(self) -> None:
        """Sets every parameter's grad to 0."""
        for p in self.parameters():
            p.grad = 0.0

    def parameters(self) -> list[Value]:
        """The parameters, flat, in the order in which their initial values were drawn."""
        return [*dict.fromkeys(p for _, child in self._children() for p in child.parameters())]

    def named_parameters(self) -> dict[str, Nested]:
        """The same parameters as named tensors: nested lists of Values with PyTorch's names and shapes."""
        found: dict[Value, tuple[str, Nested]] = {}
        for name, tensor in self._of_children("named_parameters"):
            found.setdefault(next(leaves_of(tensor)), (name, tensor))
        named = dict(found.values())
        if len(named) != len(found):
            raise ValueError(f"two tensors have the same name, among {list(named)}")
        return named

    def initial(self) -> dict[str, Initial]:
        """For each named tensor, the distribution that it was drawn from: the (low, high) of a uniform one, say.

        (c, c) is the constant c, for which no random number is drawn.
        """
        names = self.named_parameters()
        return {name: initial for name, initial in self._of_children("initial") if name in names}

    def noise(self) -> list[Noise]:
        """What the layers draw for each training example, in the order of the layers: see Dropout."""
        found = {id(noise): noise for _, child in self._children() for noise in child.noise()}
        return [*found.values()]

    def state_dict(self) -> dict[str, Numbers]:
        """The numbers of the named tensors as nested lists, like `json` or NumPy take them."""
        return {name: _numbers_of(nested) for name, nested in self.named_parameters().items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Sets the parameters: see load_state_dict()."""
        load_state_dict(self.named_parameters(), state)

    def _children(self) -> Iterator[tuple[str, Module]]:
        return _modules_in(vars(self))

    def _of_children(self, method: str) -> Iterator[tuple[str, Any]]:
        for prefix, child in self._children():
            for name, value in getattr(child, method)().items():
                yield f"{prefix}.{name}", value


def _modules_in(nested: Any) -> Iterator[tuple[str, Module]]:
    for key, value in nested.items() if isinstance(nested, dict) else enumerate(nested):
        if isinstance(value, Module):
            yield str(key), value
        elif isinstance(value, dict | list | tuple):
            yield from ((f"{key}.{name}", module) for name, module in _modules_in(value))


def load_state_dict(parameters: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    """Sets the data of named tensors of Values: of a Module's named_parameters(), or what a Program declares.

    `state` has a tensor of the same shape for each name: a compiled module's state_dict(), arrays, buffers, nested
    lists, or numbers. Raises ValueError for names or shapes that differ, and TypeError for anything that holds no
    numbers. Nothing is changed then.
    """
    if not isinstance(state, Mapping):
        raise TypeError(f"a state maps names to tensors, and is not a {type(state).__name__}")
    if state.keys() != parameters.keys():
        missing, others = sorted(parameters.keys() - state.keys()), sorted(state.keys() - parameters.keys(), key=str)
        raise ValueError(f"the names of a state must be the model's: missing {missing}, unexpected {others}")
    found: list[tuple[Value, float]] = []
    for name, tensor in parameters.items():
        shape, values = _flat(name, tensor)
        given, numbers = _flat(name, state[name])
        if given != shape:
            raise ValueError(f"{name!r} has the shape {shape}, got {given}")
        for number in numbers:
            if not isinstance(number, Real):
                raise TypeError(f"{name!r} must hold numbers, not {type(number).__name__}")
        found += zip(values, map(float, numbers), strict=True)
    for value, number in found:
        value.data = number


def _flat(name: str, tensor: Any) -> tuple[tuple[int, ...], list[Any]]:
    """Shape and elements, in C order, of a buffer, an array, or nested lists."""
    shape: list[int] = []
    level = [_listed(tensor)]
    while any(isinstance(item, list | tuple) for item in level):
        lengths = {len(item) if isinstance(item, list | tuple) else -1 for item in level}
        if len(lengths) > 1:
            raise ValueError(f"{name!r} must be evenly nested: a list on one level has {sorted(lengths)} elements")
        shape += lengths
        level = [_listed(inner) for item in level for inner in item]
    return tuple(shape), level


def _listed(item: Any) -> Any:
    """Whatever has many elements as nested lists."""
    if isinstance(item, list | tuple | Real | Value | str | bytes):
        return item
    try:
        return (item if hasattr(item, "tolist") else memoryview(item)).tolist()
    except TypeError:
        return item  # a single thing, whose type is checked later


def _numbers_of(nested: Nested) -> Numbers:
    return nested.data if isinstance(nested, Value) else [_numbers_of(inner) for inner in nested]
