"""A Program: what one training step consists of, declared on top of a Value graph.

The graph says how the loss is computed. A Program says which leaves are inputs, which are targets and which are
parameters, and what is observed. The compiler knows nothing else about a model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import TYPE_CHECKING

from codegen.places import check_declared_once
from micrograd.engine import Value

if TYPE_CHECKING:
    from micrograd.nn import Nested

MAX_CLASSES = 256  # a label is one byte
DTYPES = ("float64", "float32")
MAX_DIMENSIONS = 8  # of a tensor, as in csrc/model.h


@dataclass(frozen=True)
class Pixels:
    """Inputs that arrive as unsigned bytes; input i is byte * scale, in the Program's dtype."""

    values: Sequence[Value]
    scale: float = 1.0


@dataclass(frozen=True)
class Floats:
    """Inputs or targets that arrive as numbers of the Program's dtype."""

    values: Sequence[Value]


@dataclass(frozen=True)
class Label:
    """A target that arrives as one class number; `one_hot` holds one Value per class, 1 for that class, else 0."""

    one_hot: Sequence[Value]


@dataclass(frozen=True)
class Tensor:
    """A named tensor of parameters: its shape, and for each element in C order the parameter's number."""

    name: str
    shape: tuple[int, ...]
    numbers: tuple[int, ...]
    initial: tuple[float, float] | None


@dataclass(repr=False)
class Program:
    """One training step.

    inputs      Pixels or Floats
    targets     a Label, Floats, or None if the loss needs none
    parameters  name -> nested list of Values; every list on one level has the same length
    loss        the Value that backward() starts from; None for a model that only predicts: its parameters are
                constants then, and a module has no gradients, no targets and no way to change them
    outputs     name -> list of Values that a caller can request. `prediction` names the one whose largest element
                predict() looks for (default: the first, if the targets are a Label); probabilities() returns the
                one named `probabilities`
    order       the parameters in a row, for data(i), grad(i) and for drawing initial values (default: as in
                `parameters`)
    initial     name -> (low, high) of a uniform distribution, (c, c) for a constant. Without it the module starts
                from, and resets to, the data that the parameters have when they are traced
    seed        the seed of the module's first weights, where `initial` is given
    dtype       what the module computes in: "float64", or "float32" for half the memory and more speed
    fma         whether a product that is added may be rounded once instead of twice, where the processor can
    reorder     whether a long sum of few lanes may be added up in several parts
    constants   leaves, in nested lists, that are constants and meant to be; any other undeclared leaf is one too, but
                the compiler warns of it

    dtype, fma and reorder leave strict mode: the module no longer has the bits of the interpreted engine.

    Raises TypeError or ValueError for a declaration that contradicts itself or the graph.
    """

    inputs: Pixels | Floats
    targets: Label | Floats | None
    parameters: Mapping[str, Nested]
    loss: Value | None
    outputs: Mapping[str, Sequence[Value]] = field(default_factory=dict)
    learning_rate: float = 0.1
    prediction: str | None = None
    order: Sequence[Value] | None = None
    initial: Mapping[str, tuple[float, float]] | None = None
    seed: int = 0
    description: str = ""
    dtype: str = "float64"
    fma: bool = False
    reorder: bool = False
    constants: Nested | Sequence[Nested] = ()

    def __post_init__(self) -> None:
        for what, named in (("parameters", self.parameters), ("outputs", self.outputs)):
            if not isinstance(named, Mapping):
                raise TypeError(f"{what} must map names to Values, not be a {type(named).__name__}")
        for name in (*self.parameters, *self.outputs):
            if not isinstance(name, str):
                raise TypeError(f"a name of a parameter or an output must be a string, not {name!r}")
            if not name or "\0" in name:
                raise ValueError(f"a name of a parameter or an output must not be empty or hold NUL, got {name!r}")
        if not isinstance(self.inputs, Pixels | Floats):
            raise TypeError(f"inputs must be Pixels or Floats, not {type(self.inputs).__name__}")
        if not isinstance(self.targets, Label | Floats | None):
            raise TypeError(f"targets must be a Label, Floats or None, not {type(self.targets).__name__}")
        if not isinstance(self.loss, Value | None):
            raise TypeError(f"the loss must be a Value or None, not {type(self.loss).__name__}")
        if self.loss is None and (self.targets is not None or self.initial is not None or not self.outputs):
            raise ValueError("a model without a loss has outputs, and neither targets nor initial distributions")
        if not isfinite(self.learning_rate):
            raise ValueError(f"the learning rate must be finite, got {self.learning_rate}")
        if isinstance(self.inputs, Pixels) and not isfinite(self.inputs.scale):
            raise ValueError(f"the scale of the pixels must be finite, got {self.inputs.scale}")
        if isinstance(self.targets, Label) and not 1 <= len(self.target_values) <= MAX_CLASSES:
            raise ValueError(f"a Label has 1 to {MAX_CLASSES} classes, got {len(self.target_values)}")
        if not isinstance(self.seed, int):
            raise TypeError(f"the seed must be an int, not {type(self.seed).__name__}")
        if not 0 <= self.seed < 2**64:
            raise ValueError(f"the seed must be 0..2**64-1, got {self.seed}")
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype must be one of {', '.join(DTYPES)}, got {self.dtype!r}")
        for option, value in (("fma", self.fma), ("reorder", self.reorder)):
            if not isinstance(value, bool):
                raise TypeError(f"{option} must be True or False, not {value!r}")
        if self.prediction is None:
            self.prediction = next(iter(self.outputs), None) if isinstance(self.targets, Label) else None
        elif self.prediction not in self.outputs:
            raise ValueError(f"the prediction {self.prediction!r} is none of the outputs {list(self.outputs)}")
        for name, values in self.outputs.items():
            if not isinstance(values, Sequence) or not values or not all(isinstance(v, Value) for v in values):
                raise TypeError(f"the output {name!r} must be a list of Values, with at least one")
        shaped = {name: _flatten(name, nested) for name, nested in self.parameters.items()}
        flat = [value for _, values in shaped.values() for value in values]
        self.order = list(self.order) if self.order is not None else flat
        _require_leaves("inputs", self.inputs.values)
        _require_leaves("targets", self.target_values)
        _require_leaves("parameters", flat)
        self.constant_values = list(_elements(self.constants))
        _require_leaves("constants", self.constant_values)
        check_declared_once(shaped, self.inputs.values, self.target_values, self.constant_values)
        numbers = {id(value): i for i, value in enumerate(self.order)}
        if len(numbers) != len(self.order) or set(numbers) != set(map(id, flat)):
            raise ValueError("`order` must hold each parameter exactly once")
        if self.initial is not None:
            _check_initial(self.initial, set(shaped))
        self.tensors = [
            Tensor(
                name,
                shape,
                tuple(numbers[id(value)] for value in values),
                None if self.initial is None else self.initial[name],
            )
            for name, (shape, values) in shaped.items()
        ]

    def __repr__(self) -> str:
        tensors = ", ".join(f"{t.name} {t.shape}" for t in self.tensors[:8]) + ", ..." * (len(self.tensors) > 8)
        kind = type(self.inputs).__name__
        return (
            f"<codegen.Program{f' {self.description}' if self.description else ''}: {len(self.inputs.values)} {kind}, "
            f"{len(self.parameter_values):,} parameters ({tensors}), outputs {list(self.outputs)}, {self.dtype}>"
        )

    @property
    def target_values(self) -> Sequence[Value]:
        if self.targets is None:
            return ()
        return self.targets.one_hot if isinstance(self.targets, Label) else self.targets.values

    @property
    def parameter_values(self) -> Sequence[Value]:
        """Every parameter, in `order`."""
        assert self.order is not None
        return self.order

    def roots(self) -> Iterator[Value]:
        """What is observed: the loss, then the outputs."""
        if self.loss is not None:
            yield self.loss
        for values in self.outputs.values():
            yield from values


def _elements(nested: object) -> Iterator[Value]:
    """The Values of lists of any depth, which need not be even."""
    if isinstance(nested, Iterable) and not isinstance(nested, str | Value):
        for item in nested:
            yield from _elements(item)
    else:
        yield nested  # type: ignore[misc]  # _require_leaves() refuses anything else


def _flatten(name: str, nested: Nested) -> tuple[tuple[int, ...], list[Value]]:
    """Shape and elements, in C order. A single Value has the shape ()."""
    shape: list[int] = []
    level: list[Nested] = [nested]
    while not all(isinstance(item, Value) for item in level):
        lengths = {len(item) if isinstance(item, Sequence) and not isinstance(item, str) else -1 for item in level}
        if len(lengths) != 1 or min(lengths) < 1:
            raise ValueError(f"the parameter {name!r} must be a Value or evenly nested lists of Values")
        shape.append(lengths.pop())
        if len(shape) > MAX_DIMENSIONS:
            raise ValueError(f"the parameter {name!r} has more than {MAX_DIMENSIONS} dimensions")
        level = [inner for item in level if isinstance(item, Sequence) for inner in item]
    return tuple(shape), [item for item in level if isinstance(item, Value)]


def _require_leaves(what: str, values: Sequence[Value]) -> None:
    if not isinstance(values, Sequence):
        raise TypeError(f"{what} must be a list of Values, not {type(values).__name__}")
    for i, value in enumerate(values):
        if not isinstance(value, Value):
            raise TypeError(f"{what}: element {i} must be a Value, not {type(value).__name__}")
        if value._prev:
            raise ValueError(f"{what}: element {i} is computed by {value._op!r}, but must be a leaf of the graph")


def _check_initial(initial: Mapping[str, tuple[float, float]], names: set[str]) -> None:
    if set(initial) != names:
        raise ValueError(f"`initial` names {sorted(initial)}, but the parameters are {sorted(names)}")
    for name, (low, high) in initial.items():
        if not (isfinite(low) and isfinite(high) and low <= high):
            raise ValueError(f"the initial range of {name!r} must be finite and ordered, got ({low}, {high})")
