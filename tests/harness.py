"""Runs one Program everywhere and compares the bits of everything that can be observed."""

from __future__ import annotations

import copy
import os
import random
import shutil
import struct
from array import array
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

from codegen import Label, Pixels, Program, build, build_python, load_extension
from codegen.pipeline import build_graph
from codegen.python import STRAIGHT_LINE_NODES
from codegen.reference import Engine, Interpreter, Reference

_count = 0


def bits(numbers: list[float] | tuple[float, ...]) -> list[str]:
    """Bit patterns. The contract's one licence is the sign of a zero; a nan's payload is no number's business."""
    return ["nan" if x != x else struct.pack(">d", 0.0 if x == 0.0 else x).hex() for x in numbers]


WARNINGS = [] if os.name == "nt" else ["-Wall", "-Wextra", "-Werror"]
LEVELS = ("baseline", "avx2", "avx512")


class Extension:
    """A compiled module behind the interface of a Reference."""

    def __init__(self, program: Program, folder: Path, lowering: str, **options: object) -> None:
        global _count
        _count += 1
        self.name = f"model_{_count}"
        self.program = program
        flags = [*WARNINGS, *options.pop("flags", [])]
        self.path = build(program, folder / self.name, self.name, lowering, flags=flags, **options)
        self.module: ModuleType = load_extension(self.path, self.name)

    def at_level(self, level: str) -> Extension:
        """The same binary a second time, at another SIMD level. ImportError where the processor has no such level."""
        other = copy.copy(self)
        other.path = self.path.parent / level / self.path.name
        other.path.parent.mkdir()
        shutil.copy(self.path, other.path)
        with patch.dict(os.environ, {"NN_SIMD": level}):
            other.module = load_extension(other.path, self.name)
        assert other.module.info()["simd"] == level
        return other

    def forward(self, target: object, inputs: object) -> float:
        is_floats = not isinstance(self.program.targets, Label | None)
        typecode = "f" if self.program.dtype == "float32" else "d"
        targets = array(typecode, target) if is_floats else target
        pixels = bytes(inputs) if isinstance(self.program.inputs, Pixels) else array(typecode, inputs)
        self.pixels = pixels
        return self.module.forward(targets, pixels)

    def backward(self) -> None:
        self.module.backward()

    def zero_grad(self) -> None:
        self.module.zero_grad()

    def update(self, batch_size: int = 1) -> None:
        self.module.update(0, batch_size)

    def outputs(self) -> dict[str, tuple[float, ...]]:
        return self.module.outputs(self.pixels)

    @property
    def data(self) -> list[float]:
        return [self.module.data(i) for i in range(len(self.program.parameter_values))]

    @property
    def grads(self) -> list[float]:
        return [self.module.grad(i) for i in range(len(self.program.parameter_values))]


class Generated(Extension):
    """A generated Python module. With `lowering` in loops or in statements, else as the compiler chooses."""

    def __init__(self, program: Program, folder: Path, lowering: str = "") -> None:
        global _count
        _count += 1
        self.name = f"model_{_count}"
        self.program = program
        limit = {"loops": -1, "straightline": 10**9}.get(lowering, STRAIGHT_LINE_NODES)
        with patch("codegen.python.STRAIGHT_LINE_NODES", limit):
            self.path = build_python(program, folder, self.name)
        self.module = load_extension(self.path, self.name)


def example(program: Program, rng: random.Random) -> tuple[object, object]:
    """A random target and random inputs, many of them 0."""
    count = len(program.inputs.values)
    if isinstance(program.inputs, Pixels):
        inputs = [rng.randrange(256) if rng.random() < 0.4 else 0 for _ in range(count)]
    else:
        inputs = [rng.choice([0.0, rng.uniform(-1, 1)]) for _ in range(count)]
    if program.targets is None:
        return None, inputs
    targets = len(program.target_values)
    if isinstance(program.targets, Label):
        return rng.randrange(targets), inputs
    return [rng.uniform(-1, 1) for _ in range(targets)], inputs


def many(program: Program, count: int, seed: int = 0) -> tuple[object, object]:
    """Images and labels, as train() and evaluate() take them."""
    examples = [example(program, random.Random(seed + i)) for i in range(count)]
    typecode = "f" if program.dtype == "float32" else "d"
    inputs = [x for _, xs in examples for x in xs]
    images = bytes(inputs) if isinstance(program.inputs, Pixels) else array(typecode, inputs)
    if program.targets is None:
        return images, None
    if isinstance(program.targets, Label):
        return images, bytes(target for target, _ in examples)
    return images, array(typecode, [x for target, _ in examples for x in target])


def use_threads(program: Program, folder: Path, flags: list[str]) -> None:
    """Trains and evaluates with several threads, for a sanitizer to watch. A model without inputs has no images."""
    if not len(program.inputs.values):
        return
    module = Extension(program, folder, "loops", flags=flags).module
    data = many(program, 150)
    for batch_size in (1, 64, 100):
        module.train(*data, batch_size=batch_size, threads=3, learning_rate=1e-6)
        views = module.grad_dict()
        module.train(*data, batch_size=batch_size, threads=2, learning_rate=1e-6)
        del views
        module.evaluate(*data, threads=3)


def compare(program: Program, folder: Path, steps: int = 5, seed: int = 0, **options: object) -> None:
    """Engine = ir interpreter = Python = straight-line C = loops C at every SIMD level, over some steps of training."""
    systems: dict[str, Reference | Extension] = {
        "engine": Engine(program),
        "interpreter": Interpreter(program, build_graph(program)),
        "Python, loops": Generated(program, folder, "loops"),
        "Python, statements": Generated(program, folder, "straightline"),
        "straightline": Extension(program, folder, "straightline", flags=["-O0"]),
        "loops": Extension(program, folder, "loops", **options),
    }
    for level in LEVELS:
        with suppress(ImportError):  # an older processor, or not an x86 one
            systems[f"loops at {level}"] = systems["loops"].at_level(level)
    assert "loops at baseline" in systems
    first = next(iter(systems.values())).data
    for name, system in systems.items():
        assert bits(list(system.data)) == bits(first), f"{name}: initial parameters"
    rng = random.Random(seed)
    for step in range(steps):
        batch_size = rng.choice([1, 1, 2, 3])
        if rng.random() < 0.8:  # else gradients go on from what they were
            for system in systems.values():
                system.zero_grad()
        for _ in range(batch_size):
            target, inputs = example(program, rng)
            check(systems, lambda s, t=target, x=inputs: [s.forward(t, x)], f"step {step}: loss")
            for output in program.outputs:
                check(systems, lambda s, o=output: list(s.outputs()[o]), f"step {step}: output {output}")
            for system in systems.values():
                system.backward()
            if rng.random() < 0.5:  # gradients that nobody looks at may never be written down
                check(systems, lambda s: list(s.grads), f"step {step}: gradients")
        for system in systems.values():
            system.update(batch_size)
        check(systems, lambda s: list(s.data), f"step {step}: parameters")
        if rng.random() < 0.5:
            check(systems, lambda s: list(s.grads), f"step {step}: gradients after the update")


def check(systems: dict, observe: object, what: str) -> None:
    expected = None
    for name, system in systems.items():
        seen = bits(observe(system))
        if expected is None:
            expected = seen
        wrong = [i for i, (a, b) in enumerate(zip(expected, seen, strict=True)) if a != b]
        assert not wrong, f"{what}: {name} differs from the engine at {wrong[:5]} of {len(seen)}"
