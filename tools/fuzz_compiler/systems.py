"""Everything that can run a Program, behind one interface, and the comparison of all that can be observed, by bits.

Example: compare({"engine": Engine(program), "loops, gcc -O3, avx2": Module(program, path)}, Random(0)) trains both for
some steps and raises Difference: "step 1: gradients: loops, gcc -O3, avx2 differs from engine at 3, 4 of 12: ...".
"""

from __future__ import annotations

import math
import os
import shutil
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any, TypeAlias

from codegen.build import load_extension
from codegen.kinds import Part
from codegen.program import Label, Pixels, Program
from tools.fuzz_compiler.programs import ODD_NUMBERS
from tools.fuzz_compiler.reference import Reference

LEVELS = ("baseline", "avx2", "avx512")
Example: TypeAlias = "tuple[int | list[float] | None, list[Any]]"  # a target, and inputs


class Difference(AssertionError):
    """Two systems do not agree."""


class Module:
    """A compiled or generated module behind the interface of a Reference."""

    def __init__(self, program: Program, path: Path, name: str) -> None:
        self.program, self.path, self.name = program, path, name
        self.module: ModuleType = load_extension(path, name)
        self.pixels: Any = None

    def at_level(self, level: str) -> Module:
        """The same binary a second time, at another SIMD level. ImportError where the processor has no such level."""
        path = self.path.parent / level / self.path.name
        path.parent.mkdir()
        shutil.copy(self.path, path)
        with _simd(level):
            other = Module(self.program, path, self.name)
        assert other.module.info()["simd"] == level
        return other

    def forward(self, target: Any, inputs: Sequence[float]) -> float:
        self.pixels = buffer_of_inputs(self.program, inputs)
        is_floats = isinstance(target, Sequence)
        return self.module.forward(numbers(self.program, target) if is_floats else target, self.pixels)  # type: ignore[no-any-return]

    def backward(self) -> None:
        self.module.backward()

    def zero_grad(self) -> None:
        self.module.zero_grad()

    def update(self, batch_size: int = 1) -> None:
        self.module.update(0, batch_size)

    def forward_outputs(self, inputs: Sequence[float]) -> None:
        """Chooses the inputs of outputs(), in a model that has no forward()."""
        self.pixels = buffer_of_inputs(self.program, inputs)

    def outputs(self) -> dict[str, Sequence[float]]:
        """Those of the inputs of the last forward()."""
        return self.module.outputs(self.pixels)  # type: ignore[no-any-return]

    def train(self, examples: Sequence[Example], batch_size: int, threads: int) -> float:
        [loss] = self.module.train(*images(self.program, examples), batch_size=batch_size, threads=threads)
        return float(loss)

    def evaluate(self, examples: Sequence[Example], threads: int) -> float:
        return float(self.module.evaluate(*images(self.program, examples), threads=threads)[0])

    @property
    def data(self) -> list[float]:
        return [self.module.data(i) for i in range(len(self.program.parameter_values))]

    @property
    def grads(self) -> list[float]:
        return [self.module.grad(i) for i in range(len(self.program.parameter_values))]


System: TypeAlias = "Reference | Module"


@contextmanager
def _simd(level: str) -> Any:
    before = os.environ.get("NN_SIMD")
    os.environ["NN_SIMD"] = level
    try:
        yield
    finally:
        os.environ.pop("NN_SIMD")
        if before is not None:
            os.environ["NN_SIMD"] = before


def numbers(program: Program, values: Iterable[float]) -> array[float]:
    return array("f" if program.dtype == "float32" else "d", values)


def buffer_of_inputs(program: Program, inputs: Sequence[Any]) -> Any:
    """The inputs of one example or more, as calls take them."""
    if program.converts_inputs:
        count = len(program.input_values)
        rows = [inputs[i : i + count] for i in range(0, len(inputs), count)]
        found = {part.name: part_of_inputs(program, part, rows) for part in program.input_parts}
        return found.get("", found)
    return bytes(inputs) if isinstance(program.inputs, Pixels) else numbers(program, inputs)


def part_of_inputs(program: Program, part: Part, rows: Sequence[Sequence[Any]]) -> Any:
    values = [x for row in rows for x in row[part.first : part.first + part.count]]
    if part.classes:
        return [values[i : i + part.classes].index(1.0) for i in range(0, len(values), part.classes)]
    return bytes(values) if part.kind == "pixels" else numbers(program, values)


def images(program: Program, examples: Sequence[Example]) -> tuple[Any, Any]:
    """Images and labels, as train() and evaluate() take them."""
    inputs = buffer_of_inputs(program, [x for _, xs in examples for x in xs])
    if program.targets is None:
        return inputs, None
    if isinstance(program.targets, Label):
        return inputs, bytes(target for target, _ in examples)  # type: ignore[misc]
    return inputs, numbers(program, [x for target, _ in examples for x in target])  # type: ignore[union-attr]


def example(program: Program, rng: Random, odd: float = 0.0) -> Example:
    """A random target and random inputs, many of them 0. `odd` is the share of examples with an odd number."""
    count = len(program.input_values)
    inputs: list[Any]
    if program.converts_inputs:
        inputs = [x for part in program.input_parts for x in _part(part, rng, odd)]
    elif isinstance(program.inputs, Pixels):
        inputs = [rng.randrange(256) if rng.random() < 0.4 else 0 for _ in range(count)]
    else:
        inputs = [rng.choice([0.0, rng.uniform(-1, 1)]) for _ in range(count)]
        if count and odd and rng.random() < odd:
            inputs[rng.randrange(count)] = rng.choice(ODD_NUMBERS)
    if program.targets is None:
        return None, inputs
    targets = len(program.target_values)
    if isinstance(program.targets, Label):
        return rng.randrange(targets), inputs
    return [rng.uniform(-1, 1) for _ in range(targets)], inputs


def _part(part: Part, rng: Random, odd: float) -> list[Any]:
    """The leaves of a part: tokens as 1 among zeros, bytes as they are."""
    if part.classes:
        words = [rng.randrange(part.classes) for _ in range(part.numbers)]
        return [float(word == i) for word in words for i in range(part.classes)]
    if part.kind == "pixels":
        return [rng.randrange(256) if rng.random() < 0.4 else 0 for _ in range(part.count)]
    return [rng.choice(ODD_NUMBERS) if rng.random() < odd / 4 else rng.uniform(-1, 1) for _ in range(part.count)]


def bits(numbers: Iterable[float]) -> list[int]:
    """Bit patterns. The contract's one licence is the sign of a zero; a nan's payload is no number's business."""
    return array("q", array("d", [x + 0.0 if x == x else math.nan for x in numbers]).tobytes()).tolist()


def in_hex(patterns: Iterable[int]) -> str:
    return ", ".join(f"{pattern & (1 << 64) - 1:016x}" for pattern in patterns)


def require_same(systems: Mapping[str, System], what: str, observe: Callable[[Any], Iterable[float]]) -> int:
    """Observes each system, and raises Difference where one differs from the first; returns how many numbers agree."""
    expected: list[int] | None = None
    compared = 0
    for name, system in systems.items():
        seen = bits(observe(system))
        if expected is None:
            expected, reference = seen, name
        wrong = [i for i, (a, b) in enumerate(zip(expected, seen, strict=True)) if a != b]
        if wrong:
            i = wrong[0]
            raise Difference(
                f"{what}: {name} differs from {reference} at {', '.join(map(str, wrong[:5]))} of {len(seen)}: "
                f"{in_hex([seen[i]])} instead of {in_hex([expected[i]])}"
            )
        compared += len(seen)
    return compared


def compare(systems: Mapping[str, System], rng: Random, steps: int = 3, odd: float = 0.0) -> int:
    """Trains all systems alike for some steps and raises Difference as soon as one of them differs from the first.

    Returns how many numbers were compared. All systems must be fresh.
    """
    first, *_ = systems.values()
    program = first.program
    compared = 0

    def same(what: str, observe: Callable[[Any], Iterable[float]]) -> None:
        nonlocal compared
        compared += require_same(systems, what, observe)

    same("initial parameters", lambda s: s.data)
    for step in range(steps):
        batch_size = rng.choice([1, 1, 2, 3])
        if rng.random() < 0.8:  # else gradients go on from what they were
            for system in systems.values():
                system.zero_grad()
        for _ in range(batch_size):
            target, inputs = example(program, rng, odd)
            same(f"step {step}: loss", lambda s, t=target, x=inputs: [s.forward(t, x)])  # type: ignore[misc]
            for output in program.outputs:
                same(f"step {step}: output {output}", lambda s, o=output: s.outputs()[o])  # type: ignore[misc]
            for system in systems.values():
                system.backward()
            if rng.random() < 0.5:  # gradients that nobody looks at may never be written down
                same(f"step {step}: gradients", lambda s: s.grads)
        for system in systems.values():
            system.update(batch_size)
        same(f"step {step}: parameters", lambda s: s.data)
        if rng.random() < 0.5:
            same(f"step {step}: gradients after the update", lambda s: s.grads)
    if len(program.input_values):  # images are told apart by their inputs
        is_long = rng.random() < 0.1  # a batch of more images than are in work at a time
        examples = [
            example(program, rng, odd / 8) for _ in range(rng.randint(66, 130) if is_long else rng.randint(1, 20))
        ]
        batch_size, threads = 100 if is_long else rng.choice([1, 2, 3, 7, 64]), rng.randint(1, 3)
        train = f"train(batch_size={batch_size}, threads={threads}) on {len(examples)} images"
        same(f"{train}: loss", lambda s: [s.train(examples, batch_size, threads)])
        same(f"{train}: parameters", lambda s: s.data)
        same(f"{train}: gradients", lambda s: s.grads)
        same(f"evaluate(threads={threads})", lambda s: [s.evaluate(examples, threads)])
    return compared
