"""What inputs, targets and noise are, and what a caller passes for them.

Example: the inputs {"pixels": Pixels(image, 1 / 255), "word": Tokens(one_hot)}, with 784 pixels and 3 tokens out of 27,
have two parts:

    name      kind     leaves         a caller passes
    pixels    pixels     0 .. 783     784 bytes
    word      tokens   784 .. 864     3 ints below 27

Inputs or targets of one kind alone have no name, and one part.

Here too is where a Program declares a Value, for messages: `weight[3, 2]`, `inputs[4]`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, cast

import numpy as np

from codegen import checks
from micrograd.engine import Value
from micrograd.initial import TIGHTEST, Normal
from micrograd.module import Nested
from micrograd.noise import Bernoulli, Noise, Randomness

Array: TypeAlias = "np.ndarray[Any, np.dtype[np.object_]]"  # of Values, as micrograd.arrays makes them
Shaped: TypeAlias = Mapping[str, tuple[tuple[int, ...], Sequence[Value]]]  # name -> shape, and elements in C order
Named: TypeAlias = Mapping[str, Value]  # by their places

MAX_CLASSES = 256  # a label is one byte
MAX_VOCABULARY = 2**31 - 1  # a token is an int of 32 bits
MAX_DIMENSIONS = 8  # of an example
PIXEL_DENSITY = 0.25  # most pixels of a drawing are background


@dataclass(frozen=True)
class Pixels:
    """Inputs that arrive as unsigned bytes; input i is byte * scale, in the Program's dtype.

    The shape of an array or of nested lists, as (1, 28, 28), is that of an example: see `Floats`.

    In training an image is moved at random by up to `shift` pixels along its last two axes, each move as likely as any
    other. What leaves the frame is lost, what enters is 0.
    """

    values: Sequence[Value] | Array
    scale: float = 1.0
    shift: int = 0
    shape: tuple[int, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True)
class Floats:
    """Inputs or targets that arrive as numbers of the Program's dtype.

    If `values` has two or more dimensions, so has an example: many of them have the shape (n, *shape), or are rows.
    A Program keeps `values` as a list, and their shape beside it.
    """

    values: Sequence[Value] | Array
    shape: tuple[int, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True)
class Label:
    """A target that arrives as one class number; `one_hot` holds one Value per class, 1 for that class, else 0."""

    one_hot: Sequence[Value] | Array


@dataclass(frozen=True)
class Tokens:
    """Inputs or targets that arrive as ints. `one_hot` has a row for each token, with a Value for each word of the
    vocabulary: 1 for the word that the token is, else 0. A single row is one token."""

    one_hot: Sequence[Value] | Sequence[Sequence[Value]] | Array


Kind: TypeAlias = Pixels | Floats | Label | Tokens
Inputs: TypeAlias = Pixels | Floats | Tokens | Mapping[str, Pixels | Floats | Tokens]
Targets: TypeAlias = Label | Floats | Tokens | Mapping[str, Label | Floats | Tokens] | None

INPUT_KINDS, TARGET_KINDS = (Pixels, Floats, Tokens), (Label, Floats, Tokens)


@dataclass(frozen=True)
class Part:
    """Leaves first .. first + count - 1, which a caller passes together. `name` is empty where there is no mapping."""

    name: str
    kind: str  # pixels, floats, label or tokens
    first: int
    count: int
    scale: float = 1.0
    classes: int = 0  # of a label or a token
    shape: tuple[int, ...] = ()  # of two or more dimensions, if it was declared with them

    @property
    def numbers(self) -> int:
        """How many numbers a caller passes for one example."""
        return self.count // self.classes if self.classes else self.count

    @property
    def density(self) -> float:
        """The share of leaves that are expected not to be 0."""
        return 1.0 / self.classes if self.classes else PIXEL_DENSITY if self.kind == "pixels" else 1.0

    def what(self, prefix: str) -> str:
        """What messages call it. `prefix` is input or target."""
        return f"{prefix}s[{self.name!r}]" if self.name else "tokens" if prefix == "input" else "targets"

    def one(self, prefix: str) -> str:
        """What messages call one of its classes."""
        kind = "label" if self.kind == "label" else "token"
        return f"{self.what(prefix)}: {kind}" if self.name else kind

    @property
    def type_text(self) -> str:
        """As info() shows it."""
        kind = self.kind.removesuffix("s") if self.numbers == 1 else self.kind
        return f"{f'{self.name!r}: ' if self.name else ''}{self.numbers} {kind}" + f" below {self.classes}" * (
            self.classes > 0
        )

    def leaf(self, what: str, i: int) -> str:
        """Leaf i of all, for messages: `inputs['word'][2, 26]`. `what` is inputs or targets."""
        where = what + (f"[{self.name!r}]" if self.name else "")
        i -= self.first
        return f"{where}[{i // self.classes}, {i % self.classes}]" if self.kind == "tokens" else f"{where}[{i}]"


def parts(declared: Inputs | Targets) -> tuple[Part, ...]:
    """The parts of inputs or targets that have been checked."""
    found: list[Part] = []
    first = 0
    for name, kind in declared.items() if isinstance(declared, Mapping) else [("", declared)]:
        if kind is None:
            continue
        count = len(leaves_of(kind))
        part = Part(name, type(kind).__name__.lower(), first, count)
        if isinstance(kind, Pixels | Floats):
            part = replace(part, shape=kind.shape)
        if isinstance(kind, Pixels):
            part = replace(part, scale=kind.scale)
        elif isinstance(kind, Label):
            part = replace(part, classes=count)
        elif isinstance(kind, Tokens):
            part = replace(part, classes=len(cast("Any", kind.one_hot)[0]))
        found.append(part)
        first += count
    return tuple(found)


def leaves_of(kind: Kind) -> Sequence[Value]:
    """The Values of something that has been checked, in order."""
    if isinstance(kind, Tokens):
        return [value for row in kind.one_hot for value in cast("Sequence[Value]", row)]
    return cast("Sequence[Value]", kind.one_hot if isinstance(kind, Label) else kind.values)


def types_text(found: Sequence[Part]) -> str:
    """As info() and help texts show it: `{'image': 784 pixels, 'word': 3 tokens below 27}`."""
    texts = ", ".join(part.type_text for part in found)
    return f"{{{texts}}}" if found and found[0].name else texts


def leaf_names(what: str, found: Sequence[Part]) -> list[str]:
    """What messages call each leaf."""
    return [part.leaf(what, i) for part in found for i in range(part.first, part.first + part.count)]


def checked_inputs(inputs: object, dtype: str) -> Inputs:
    if isinstance(inputs, Mapping):
        return cast("Inputs", _checked_mapping("inputs", inputs, INPUT_KINDS, dtype))
    if not isinstance(inputs, INPUT_KINDS):
        raise TypeError(f"inputs must be Pixels, Floats, Tokens or a mapping, not {type(inputs).__name__}")
    return cast("Inputs", _checked("inputs", inputs, dtype))


def checked_targets(targets: object, dtype: str) -> Targets:
    if targets is None:
        return None
    if isinstance(targets, Mapping):
        return cast("Targets", _checked_mapping("targets", targets, TARGET_KINDS, dtype))
    if not isinstance(targets, TARGET_KINDS):
        raise TypeError(f"targets must be a Label, Floats, Tokens, a mapping or None, not {type(targets).__name__}")
    return cast("Targets", _checked("targets", targets, dtype))


def _checked_mapping(
    what: str, mapping: Mapping[Any, Any], kinds: tuple[type, ...], dtype: str
) -> dict[str, Pixels | Floats | Label | Tokens]:
    found: dict[str, Pixels | Floats | Label | Tokens] = {}
    for given, kind in mapping.items():
        name = checks.name(f"a name of {what}", given)
        if not isinstance(kind, kinds):
            raise TypeError(
                f"{what}[{name!r}] must be {' or '.join(each.__name__ for each in kinds)}, not {type(kind).__name__}"
            )
        if name in found:
            raise ValueError(f"{what} must not have a name twice, got {list(mapping)}")
        found[name] = _checked(f"{what}[{name!r}]", kind, dtype)
        if not leaves_of(found[name]):
            raise ValueError(f"{what}[{name!r}] must have at least one Value")
    if not found:
        raise ValueError(f"{what} must not be an empty mapping")
    return found


def _checked(what: str, kind: Any, dtype: str) -> Any:
    """The same kind, of plain lists and numbers."""
    if isinstance(kind, Pixels):
        pixels = "the pixels" if what == "inputs" else what
        scale = checks.number(f"the scale of {pixels}", kind.scale, dtype)
        shape = _shape(what, kind)
        return Pixels(leaves(what, kind.values), scale, _shift(what, kind.shift, shape), shape)
    if isinstance(kind, Floats):
        return Floats(leaves(what, kind.values), _shape(what, kind))
    if isinstance(kind, Label):
        label = Label(leaves(what, kind.one_hot))
        if not 1 <= len(label.one_hot) <= MAX_CLASSES:
            raise ValueError(f"a Label has 1 to {MAX_CLASSES} classes, got {len(label.one_hot)}: Tokens may have more")
        return label
    return Tokens(_rows(what, kind.one_hot))


def _shift(what: str, given: object, shape: tuple[int, ...]) -> int:
    shift = checks.whole(f"the shift of {what}", given, 2**31, "2**31")
    if shift and (what != "inputs" or len(shape) < 2):
        raise ValueError("only pixels of two or more dimensions that are the only inputs can be shifted")
    if shift and shift >= min(shape[-2:]):
        raise ValueError(f"a shift of {shift} pixels leaves nothing of an image of {shape[-2]} x {shape[-1]}")
    return shift


def _shape(what: str, kind: Any) -> tuple[int, ...]:
    """The shape of an array or of nested lists, if it has two or more dimensions."""
    values = kind.values
    if kind.shape:
        if math.prod(kind.shape) != len(listed(values)):
            raise ValueError(f"{what}: the shape {kind.shape} is not one of {len(listed(values))} Values")
        return tuple(kind.shape)
    if isinstance(values, Sequence) and any(isinstance(item, Sequence | np.ndarray) for item in values):
        with suppress(ValueError):  # lists that are not even are rows of numbers
            values = np.array(values, dtype=object)
    shape = values.shape if isinstance(values, np.ndarray) else ()
    return shape if 2 <= len(shape) <= MAX_DIMENSIONS else ()


def _rows(what: str, one_hot: Any) -> list[list[Value]]:
    """A list of leaves for each token."""
    rows = one_hot.tolist() if isinstance(one_hot, np.ndarray) else one_hot
    if isinstance(rows, Sequence) and rows and all(isinstance(item, Value) for item in rows):
        rows = [rows]
    if not isinstance(rows, Sequence) or not all(isinstance(row, Sequence | np.ndarray) for row in rows):
        raise TypeError(
            f"{what}: Tokens take a list of Values for each token, or one such list, not {checks.shown(rows)}"
        )
    found = [leaves(what, row) for row in rows]
    lengths = {len(row) for row in found}
    if len(lengths) != 1 or min(lengths) < 1:
        raise ValueError(f"{what}: Tokens have rows of one length, at least 1, got {sorted(lengths)}")
    if max(lengths) > MAX_VOCABULARY:
        raise ValueError(f"{what}: a vocabulary has at most {MAX_VOCABULARY} words")
    return found


def listed(values: Any) -> Any:
    """An array or nested lists as one list, in C order. Anything else stays what it is, and is refused later."""
    if isinstance(values, np.ndarray):
        return values.ravel().tolist()
    if not isinstance(values, Sequence) or not any(isinstance(item, np.ndarray | list | tuple) for item in values):
        return values
    found = [listed(item) if isinstance(item, np.ndarray | list | tuple) else [item] for item in values]
    return [item for part in found for item in part]


def elements(nested: Nested | Iterable[Any]) -> Iterable[Value]:
    """The Values of lists of any depth, which need not be even."""
    if isinstance(nested, Iterable) and not isinstance(nested, str | Value):
        for item in nested:
            yield from elements(item)
    else:
        yield nested  # type: ignore[misc]  # leaves() refuses anything else


def values_of(what: str, values: object) -> list[Value]:
    values = listed(values)
    if not isinstance(values, Sequence):
        raise TypeError(f"{what} must be a list of Values, not {type(values).__name__}")
    for i, value in enumerate(values):
        if not isinstance(value, Value):
            raise TypeError(f"{what}: element {i} must be a Value, not {type(value).__name__}")
    return list(values)


def leaves(what: str, values: object) -> list[Value]:
    found = values_of(what, values)
    for i, value in enumerate(found):
        if value._prev:
            raise ValueError(f"{what}: element {i} is computed by {value._op!r}, but must be a leaf of the graph")
    return found


def checked_noise(noise: object, dtype: str) -> tuple[Noise, ...]:
    """Noise, or a list of Noises, of plain lists and floats. Raises TypeError or ValueError for all else."""
    several = [noise] if isinstance(noise, Noise) else noise
    if not isinstance(several, Sequence) or not all(isinstance(one, Noise) for one in several):
        raise TypeError(f"noise must be a Noise or a list of them, not {checks.shown(noise)}")
    return tuple(_checked_one(f"noise[{i}]", one, dtype) for i, one in enumerate(several))


def _checked_one(what: str, noise: Noise, dtype: str) -> Noise:
    found = leaves(what, noise.values)
    if not found:
        raise ValueError(f"{what} must have at least one Value")
    return Noise(found, _distribution(what, noise.distribution, dtype))


def _distribution(what: str, given: object, dtype: str) -> Randomness:
    if isinstance(given, Bernoulli):
        probability = checks.number(f"{what}: the probability", given.probability)
        if not 0.0 <= probability <= 1.0:
            raise ValueError(f"{what}: the probability must be 0..1, got {probability}")
        return Bernoulli(probability, checks.number(f"{what}: the value", given.value, dtype))
    if isinstance(given, Normal):
        return checked_normal(what, given, dtype)
    if isinstance(given, Sequence) and not isinstance(given, str) and len(given) == 2:
        low, high = (checks.number(f"{what}: an end of the range", end, dtype) for end in given)
        if not (low < high and math.isfinite(high - low)):
            raise ValueError(f"{what}: (low, high) must be a range of finite width, got ({low}, {high})")
        return low, high
    raise TypeError(f"{what}: the distribution must be (low, high), a Normal or a Bernoulli, not {checks.shown(given)}")


def checked_normal(what: str, given: Normal, dtype: str) -> Normal:
    """Of plain numbers, as noise or as first weights may be. Raises TypeError or ValueError."""
    center = checks.number(f"{what}: the mean", given.mean, dtype)
    deviation = checks.number(f"{what}: the deviation", given.deviation, dtype)
    limit = math.inf if given.limit == math.inf else checks.number(f"{what}: the limit", given.limit)
    if deviation <= 0.0 or limit < TIGHTEST:
        raise ValueError(f"{what}: the deviation must be above 0 and the limit {TIGHTEST} or more, got {given}")
    return Normal(center, deviation, limit)


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
