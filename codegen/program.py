"""A Program: what one training step consists of, declared on top of a Value graph.

The graph says how the loss is computed. A Program says which leaves are inputs, which are targets and which are
parameters, and what is observed. The compiler knows nothing else about a model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, cast

import numpy as np

from codegen import checks
from codegen.kinds import (
    MAX_CLASSES,
    Array,
    Floats,
    Inputs,
    Label,
    Part,
    Pixels,
    Targets,
    Tokens,
    check_declared_once,
    checked_inputs,
    checked_noise,
    checked_normal,
    checked_targets,
    elements,
    leaf_names,
    leaves,
    leaves_of,
    listed,
    parts,
    values_of,
)
from micrograd import optim
from micrograd.engine import Value, value_of
from micrograd.initial import Distribution, Initial, Normal, resolved
from micrograd.module import Nested
from micrograd.noise import Noise
from micrograd.order import creation

__all__ = ["MAX_CLASSES", "Array", "Floats", "Label", "Part", "Pixels", "Program", "Tensor", "Tokens"]

DTYPES = ("float64", "float32")
STORAGES = ("float16", "bfloat16", "int8")
MAX_DIMENSIONS = 8  # of a tensor, as in csrc/model.h


@dataclass(frozen=True)
class Tensor:
    """A named tensor of parameters: its shape, and for each element in C order the parameter's number."""

    name: str
    shape: tuple[int, ...]
    numbers: tuple[int, ...]
    initial: Distribution | None


class OwnRate(float):
    """A learning rate that nobody chose: it changes with the rule, as in replace(program, update=optim.adam())."""


@dataclass(repr=False, slots=True)  # so that a field that is misspelt is an error where it is set
class Program:
    """One training step.

    Wherever Values are listed, an array of them, or nested lists, will do: their elements count in C order.

    inputs      Pixels, Floats or Tokens; or a mapping of names to these, and calls take mappings with these names
    targets     a Label, Floats, Tokens, or None if the loss needs none; or a mapping of names to these
    parameters  name -> array, or nested list of Values; every list on one level has the same length
    loss        the Value that backward() starts from; None for a model that only predicts: its parameters are
                constants then, and a module has no gradients, no targets and no way to change them
    outputs     name -> list of Values that a caller can request. `prediction` names the one whose largest element
                predict() looks for (default: the first, if the targets are a Label; the first of its length, if
                one of several targets is a Label); probabilities() returns the one named `probabilities`
    threshold   for a prediction of one element: predict() says 1 above it, else 0. 0.5 for a probability, 0 for a logit
    metrics     name -> a Value that may depend on targets, an error for instance: metrics() computes their means
    input_gradients   whether backward() computes the gradients of inputs too, for input_grad()
    noise       a micrograd.noise.Noise or a list of them: leaves that each training example draws anew, and that have
                the means of their distributions in predictions and evaluations
    order       the parameters in a row, for data(i), grad(i) and for drawing initial values (default: as in
                `parameters`)
    initial     name -> (low, high) of a uniform distribution, a constant, micrograd.initial.Normal(mean, deviation), or
                one of PyTorch's and Keras' names, like "xavier_uniform" (see micrograd.initial). Without it the module
                starts from, and resets to, the data that the parameters have when they are traced
    seed        the seed of the module's first weights, where `initial` is given
    dtype       what the module computes in: "float64", or "float32" for half the memory and more speed
    fma         whether a product that is added may be rounded once instead of twice, where the processor can
    reorder     whether terms of a sum, and images of a batch, may be added in an order that suits vectors
    update      a rule of micrograd.optim, which update() and train() apply to each parameter; or a mapping of names of
                parameters, or of patterns like "*.bias", to rules. Default: p - learning_rate * grad / batch_size
    learning_rate   the one of calls that name none; default: the (first) rule's own, or 0.1 without `update`
    constants   leaves, in nested lists, that are constants and meant to be; any other undeclared leaf is one too, but
                the compiler warns of it

    storage     how a model that only predicts stores its parameters: "float16", "bfloat16" or "int8"; codegen.freeze
                rounds them (default: as numbers of the dtype, or as float32 if that is exact)

    dtype, fma and reorder leave strict mode: the module no longer has the bits of the interpreted engine.

    Raises TypeError or ValueError for a declaration that contradicts itself or the graph.
    """

    inputs: Inputs
    targets: Targets
    parameters: Mapping[str, Nested | Array]
    loss: Value | None
    outputs: Mapping[str, Sequence[Value] | Array] = field(default_factory=dict)
    learning_rate: float | None = None
    prediction: str | None = None
    order: Sequence[Value] | Array | None = None
    initial: Mapping[str, Initial] | None = None
    seed: int = 0
    description: str = ""
    dtype: str = "float64"
    fma: bool = False
    reorder: bool = False
    constants: Nested | Sequence[Nested] = ()
    threshold: float | None = None
    metrics: Mapping[str, Value] = field(default_factory=dict)
    input_gradients: bool = False
    noise: Noise | Sequence[Noise] = ()
    update: optim.Rules | None = None
    storage: str | None = None
    rules: dict[str, optim.Rule] | None = field(init=False, compare=False)  # of each parameter; None: gradient descent
    constant_values: list[Value] = field(init=False, compare=False)
    tensors: list[Tensor] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        self.check()

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies have operands before what reads them, so that a deep graph takes no deep stack."""
        return _copied, (type(self), creation(self.roots()), {x.name: getattr(self, x.name) for x in fields(self)})

    def check(self) -> None:
        """Checks every field, and replaces numbers, texts and lists by plain ones of their own. The compiler does it
        again: fields may have been set since."""
        self._check_loss()
        self.parameters = _named("parameters", self.parameters)
        if "__metadata__" in self.parameters:
            raise ValueError("a parameter must not be named __metadata__: files of weights have other things there")
        self.rules = self._checked_rules()
        self._check_numbers()
        self.inputs, self.targets = checked_inputs(self.inputs, self.dtype), checked_targets(self.targets, self.dtype)
        self.outputs = {name: _output(name, values) for name, values in _named("outputs", self.outputs).items()}
        self.metrics = {name: _metric(name, value) for name, value in _named("metrics", self.metrics).items()}
        self.noise = checked_noise(self.noise, self.dtype)
        self._check_extras()
        if self.loss is None and (self.targets is not None or self.initial is not None or not self.outputs):
            raise ValueError("a model without a loss has outputs, and neither targets nor initial distributions")
        if self.prediction is None:
            self.prediction = self._default_prediction()
        else:
            self.prediction = checks.text("the prediction", self.prediction)
            if self.prediction not in self.outputs:
                raise ValueError(f"the prediction {self.prediction!r} is none of the outputs {list(self.outputs)}")
        self._check_threshold()
        self._check_leaves()

    def _check_threshold(self) -> None:
        if self.threshold is None:
            return
        self.threshold = checks.number("the threshold", self.threshold, self.dtype)
        if self.prediction is None or len(self.outputs[self.prediction]) != 1:
            what = "none" if self.prediction is None else f"{len(self.outputs[self.prediction])} elements"
            raise ValueError(f"a threshold is for a prediction of one element, but this one has {what}")

    def _check_loss(self) -> None:
        if isinstance(self.loss, np.ndarray):
            if self.loss.size != 1:
                raise TypeError(f"the loss must be one Value, not an array of the shape {self.loss.shape}: add it up")
            self.loss = self.loss.item()
        if not isinstance(self.loss, Value | None):
            raise TypeError(f"the loss must be a Value or None, not {type(self.loss).__name__}")

    def _check_numbers(self) -> None:
        self.dtype = checks.choice("dtype", self.dtype, DTYPES)
        if self.storage is not None:
            self.storage = checks.choice("storage", self.storage, STORAGES)
        self.fma, self.reorder = checks.flag("fma", self.fma), checks.flag("reorder", self.reorder)
        if self.learning_rate is None or type(self.learning_rate) is OwnRate:
            self.learning_rate = next(iter(self.rules.values())).rate if self.rules else optim.LEARNING_RATE
            self.learning_rate = OwnRate(checks.number("the learning rate", self.learning_rate, self.dtype))
        else:
            self.learning_rate = checks.number("the learning rate", self.learning_rate, self.dtype)
        self.seed = checks.whole("the seed", self.seed, 2**64, "2**64")
        self.description = checks.text("the description", self.description)

    def _checked_rules(self) -> dict[str, optim.Rule] | None:
        if self.update is None:
            return None
        if self.loss is None:
            raise ValueError("a model without a loss has no update")
        rules = optim.rules_of(self.update, self.parameters)
        for rule in {id(rule): rule for rule in rules.values()}.values():
            optim.traced(rule)  # which names what is wrong with it
        return rules

    def _check_extras(self) -> None:
        self.input_gradients = checks.flag("input_gradients", self.input_gradients)
        if self.loss is None and (self.metrics or self.input_gradients or self.noise):
            raise ValueError("a model without a loss has neither metrics nor gradients of inputs nor noise")
        if self.input_gradients and not self.input_values:
            raise ValueError("a model without inputs has no gradients of inputs")

    def _default_prediction(self) -> str | None:
        if self.threshold is not None:
            return next((name for name, values in self.outputs.items() if len(values) == 1), None)
        label = self.label
        fits = [name for name, values in self.outputs.items() if label is None or len(values) == label.count]
        return next(iter(self.outputs if isinstance(self.targets, Label) else fits), None) if label else None

    def _check_leaves(self) -> None:
        """Inputs, targets and parameters are leaves of the graph, each declared once. Numbers the parameters."""
        shaped = {name: _flatten(name, nested) for name, nested in self.parameters.items()}
        flat = leaves("parameters", [value for _, values in shaped.values() for value in values])
        order = flat if self.order is None else values_of("order", self.order)
        self.constant_values = leaves("constants", list(elements(self.constants)))
        check_declared_once(
            shaped,
            dict(zip(leaf_names("inputs", self.input_parts), self.input_values, strict=True)),
            dict(zip(leaf_names("targets", self.target_parts), self.target_values, strict=True)),
            {f"noise[{k}], element {i}": v for k, noise in enumerate(self.noises) for i, v in enumerate(noise.values)},
            self.constant_values,
        )
        numbers = {id(value): i for i, value in enumerate(order)}
        if len(numbers) != len(order) or set(numbers) != set(map(id, flat)):
            raise ValueError("`order` must hold each parameter exactly once")
        if self.initial is not None:
            self.initial = _initial(self.initial, {name: shape for name, (shape, _) in shaped.items()}, self.dtype)
        self.order = order
        self.tensors = [
            Tensor(
                name,
                shape,
                tuple(numbers[id(value)] for value in values),
                None if self.initial is None else resolved(repr(name), self.initial[name], shape),
            )
            for name, (shape, values) in shaped.items()
        ]

    def __repr__(self) -> str:
        tensors = ", ".join(f"{t.name} {t.shape}" for t in self.tensors[:8]) + ", ..." * (len(self.tensors) > 8)
        kinds = " and ".join(
            f"{part.count} {type(kind).__name__}"
            for part, kind in zip(self.input_parts, _kinds(self.inputs), strict=True)
        )
        return (
            f"<codegen.Program{f' {self.description}' if self.description else ''}: {kinds}, "
            f"{len(self.parameter_values):,} parameters ({tensors}), outputs {list(self.outputs)}, {self.dtype}>"
        )

    @property
    def rate(self) -> float:
        """The learning rate of calls that name none."""
        assert self.learning_rate is not None  # check() has found one
        return float.__pos__(self.learning_rate)

    @property
    def input_parts(self) -> tuple[Part, ...]:
        return parts(self.inputs)

    @property
    def target_parts(self) -> tuple[Part, ...]:
        return parts(self.targets)

    @property
    def input_values(self) -> Sequence[Value]:
        return [value for kind in _kinds(self.inputs) for value in leaves_of(kind)]

    @property
    def target_values(self) -> Sequence[Value]:
        return [value for kind in _kinds(self.targets) for value in leaves_of(kind)]

    @property
    def noises(self) -> tuple[Noise, ...]:
        """All noise, after the check."""
        return cast("tuple[Noise, ...]", self.noise)

    @property
    def noise_values(self) -> Sequence[Value]:
        return [value for noise in self.noises for value in noise.values]

    @property
    def shift(self) -> tuple[int, int, int] | None:
        """By how many pixels images are moved in training, and their height and width; None if they are not."""
        if not isinstance(self.inputs, Pixels) or not self.inputs.shift:
            return None
        return self.inputs.shift, self.inputs.shape[-2], self.inputs.shape[-1]

    @property
    def target_leaves(self) -> Sequence[Value]:
        """Targets, then noise: for the compiler both are numbers that an example brings besides its inputs."""
        return [*self.target_values, *self.noise_values]

    @property
    def converts_inputs(self) -> bool:
        """Whether the inputs of an example are put together from what a caller passes, rather than read in place."""
        return not isinstance(self.inputs, Pixels | Floats)

    @property
    def converts_targets(self) -> bool:
        return not isinstance(self.targets, Label | Floats | None)

    @property
    def pixel_scale(self) -> float | None:
        """The scale of the bytes that inputs are stored as, None if they are stored as real numbers."""
        found = {part.scale if part.kind != "floats" else None for part in self.input_parts}
        return found.pop() if len(found) == 1 else None

    @property
    def label(self) -> Part | None:
        """The target that is a Label, if there is one."""
        labels = [part for part in self.target_parts if part.kind == "label"]
        return labels[0] if len(labels) == 1 else None

    @property
    def has_classes(self) -> bool:
        """Whether evaluate() has an accuracy. A target that is a float is of class 1 if it is above the threshold."""
        if self.prediction is None:
            return False
        if self.threshold is None:
            return self.label is not None and len(self.outputs[self.prediction]) == self.label.count
        return self.label.count == 2 if self.label is not None else len(self.target_values) == 1

    @property
    def parameter_values(self) -> Sequence[Value]:
        """Every parameter, in `order`."""
        assert isinstance(self.order, list)
        return self.order

    def roots(self) -> Iterator[Value]:
        """What is observed: the loss, then the outputs."""
        if self.loss is not None:
            yield self.loss
        for values in self.outputs.values():
            yield from values
        yield from self.metrics.values()


def _kinds(declared: Inputs | Targets) -> list[Any]:
    if declared is None:
        return []
    return list(declared.values()) if isinstance(declared, Mapping) else [declared]


def _flatten(name: str, nested: Nested | Array) -> tuple[tuple[int, ...], list[Value]]:
    """Shape and elements, in C order. A single Value has the shape ()."""
    shape: list[int] = []
    level: list[Any] = [_unpacked(nested)]
    while not all(isinstance(item, Value) for item in level):
        lengths = {len(item) if isinstance(item, Sequence) and not isinstance(item, str) else -1 for item in level}
        if len(lengths) != 1 or min(lengths) < 1:
            raise ValueError(f"the parameter {name!r} must be a Value or evenly nested lists of Values")
        shape.append(lengths.pop())
        if len(shape) > MAX_DIMENSIONS:
            raise ValueError(f"the parameter {name!r} has more than {MAX_DIMENSIONS} dimensions")
        level = [_unpacked(inner) for item in level for inner in item]
    return tuple(shape), level


def _unpacked(nested: Any) -> Any:
    """An array as nested lists."""
    return nested.tolist() if isinstance(nested, np.ndarray) else nested


def _named(what: str, named: object) -> dict[str, Any]:
    """The mapping with plain strings as names."""
    if not isinstance(named, Mapping):
        raise TypeError(f"{what} must map names to Values, not be a {type(named).__name__}")
    found = {checks.name("a name of a parameter or an output", name): values for name, values in named.items()}
    if len(found) != len(named):
        raise ValueError(f"{what} must not have a name twice, got {list(named)}")
    return found


def _output(name: str, values: object) -> list[Value]:
    values = listed(values)
    if not isinstance(values, Sequence) or not any(isinstance(value, Value) for value in values):
        raise TypeError(f"the output {name!r} must be a list of Values, with at least one")
    return [value_of(value) for value in values]


def _metric(name: str, value: object) -> Value:
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.item()
    if not isinstance(value, Value):
        raise TypeError(f"the metric {name!r} must be one Value, not {checks.shown(value)}")
    return value


def _initial(initial: object, shapes: Mapping[str, tuple[int, ...]], dtype: str) -> dict[str, Distribution]:
    """The distributions, of plain numbers."""
    named = _named("initial", initial)
    if set(named) != set(shapes):
        raise ValueError(f"`initial` names {sorted(named)}, but the parameters are {sorted(shapes)}")
    return {name: _distribution(repr(name), named[name], shape, dtype) for name, shape in shapes.items()}


def _distribution(what: str, initial: Any, shape: tuple[int, ...], dtype: str) -> Distribution:
    bounds = f"the initial range of {what} must be finite and ordered: it"
    if isinstance(initial, str):
        initial = str.__str__(initial)
    elif isinstance(initial, Normal):
        initial = checked_normal(f"the initial {what}", initial, dtype)
    elif isinstance(initial, Sequence) and len(initial) == 2:
        initial = tuple([checks.number(bounds, bound, dtype) for bound in initial])
    elif not isinstance(initial, Sequence | Mapping) and initial is not None:
        initial = checks.number(f"the initial value of {what}", initial, dtype)
    found = resolved(what, initial, shape)
    if isinstance(found, tuple):  # what a random number is multiplied by
        checks.number(f"the width of the initial range of {what}", found[1] - found[0], dtype)
    return found


def _copied(kind: type[Program], values: Sequence[Value], state: dict[str, Any]) -> Program:
    """A Program of a state whose graph consists of these values, which have been copied."""
    copy = object.__new__(kind)
    for name, value in state.items():
        setattr(copy, name, value)
    return copy
