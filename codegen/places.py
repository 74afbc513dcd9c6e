"""Where a Program declares its Values, for messages: `weight[3, 2]`, `inputs[4]`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from micrograd.engine import Value

Shaped = Mapping[str, tuple[tuple[int, ...], Sequence[Value]]]  # name -> shape, and elements in C order
Named = Mapping[str, Value]  # by their places


def element(name: str, shape: Sequence[int], number: int) -> str:
    """The place of an element in C order: `weight[3, 2]`; a scalar has the name alone."""
    index: list[int] = []
    for length in reversed(shape):
        number, last = divmod(number, length)
        index.insert(0, last)
    return f"{name}[{', '.join(map(str, index))}]" if index else name


def check_declared_once(
    parameters: Shaped, inputs: Named, targets: Named, noise: Named, constants: Sequence[Value] = ()
) -> None:
    """Raises ValueError for a Value that is declared twice, naming both places."""
    found: dict[int, str] = {}
    for where, value in _places(parameters, [inputs, targets, noise], constants):
        first = found.setdefault(id(value), where)
        if first is not where:
            raise ValueError(
                f"one Value is declared twice, as {first} and as {where}: make a Value for each, or declare it once"
            )


def _places(parameters: Shaped, examples: Sequence[Named], constants: Sequence[Value]) -> Iterable[tuple[str, Value]]:
    for name, (shape, values) in parameters.items():
        for i, value in enumerate(values):
            yield f"the parameter {element(name, shape, i)}", value
    for named in examples:
        yield from named.items()
    for value in {id(value): value for value in constants}.values():  # one constant may stand in many places
        yield "one of `constants`", value
