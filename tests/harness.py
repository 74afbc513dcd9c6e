"""Runs one Program everywhere, compares the bits of everything that can be observed, and trains by hand."""

from __future__ import annotations

import hashlib
import itertools
import os
import random
import shutil
import struct
import sysconfig
import threading
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np
import pytest

from codegen import Program, build
from codegen.backends.shared import csrc
from codegen.ir.graph import Graph, verify
from codegen.models import processor_level
from codegen.pipeline import build_graph, compile_program
from codegen.toolchain import SMALL_FLAGS, compile_extension
from micrograd import ops
from micrograd.engine import Value
from tools.fuzz_compiler.reference import Engine, Interpreter
from tools.fuzz_compiler.systems import LEVELS, Module, System, bits, example, images
from tools.fuzz_compiler.systems import compare as systems_agree
from tools.fuzz_compiler.toolchain import Toolchain

__all__ = [
    "LEVELS", "WARNINGS", "Extension", "Generated", "State", "batches_by_hand", "bits", "compare", "differences",
    "example", "gradients", "many", "nightly_but", "parameters", "slow_but", "state", "train_by_hand", "use_threads",
]  # fmt: skip

_one_at_a_time = threading.Lock()
_names = (f"model_{i}" for i in itertools.count(1))

shared_modules: Path | None = None  # a folder that all processes of this run of pytest share; conftest.py sets it

WARNINGS = [] if os.name == "nt" else ["-Wall", "-Wextra", "-Werror"]


class Extension(Module):
    """A compiled module behind the interface of a Reference.

    Compiled for the level of this processor, or with `levels` for all of them: each level is a third of the work.
    """

    def __init__(
        self, program: Program, folder: Path, lowering: str, *, levels: bool = False, flags: Sequence[str] = ()
    ) -> None:
        self.has_levels = levels
        here = None if levels else processor_level()
        flags = [*WARNINGS, *([] if here is None else [f"-DONLY_LEVEL={here}"]), *flags]
        path = build(program, folder / next(_names), "model", lowering, flags=flags)
        super().__init__(program, path, "model")

    def at_level(self, level: str) -> Module:
        assert self.has_levels, "Extension(..., levels=True) is compiled for every level"
        return super().at_level(level)

    def reset(self) -> None:
        """The parameters that it was imported with."""
        self.module.reset(*([] if self.program.initial is None else [self.module.info()["seed"]]))


def compiled_once(source: Path, name: str, compiler: str | None, flags: Sequence[str]) -> Path:
    """compile_extension(), or a copy of what it has made of the same C before, in this process or beside it."""
    if shared_modules is None:
        return compile_extension(source, name, compiler, flags)
    files = [*source.parent.glob("*.c"), *source.parent.glob("*.h"), *csrc().glob("*.h")]
    texts = [(file.name, hashlib.sha256(file.read_bytes()).hexdigest()) for file in sorted(files)]
    environment = [os.environ.get(variable) for variable in ("CC", "CFLAGS", "LDFLAGS")]
    key = hashlib.sha256(repr((name, compiler, list(flags), texts, environment)).encode()).hexdigest()
    kept = shared_modules / key
    if not kept.exists():
        is_gcc = not any(environment) and (compiler or sysconfig.get_config_var("CC")) == "gcc" and shutil.which("gcc")
        is_quick = is_gcc and [flag for flag in flags if flag.startswith("-O")][-1:] == ["-O0"]
        headers = precompiled(shared_modules) if is_quick and "-include" not in flags else []
        built = compile_extension(source, name, compiler, [*flags, *headers])
        (shared_modules / "new").mkdir(exist_ok=True)
        new = shared_modules / "new" / f"{os.getpid()}.{threading.get_ident()}.{key}"
        shutil.copy(built, new)
        os.replace(new, kept)
        return built
    return Path(shutil.copy(kept, source.parent / f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}"))


def precompiled(folder: Path) -> list[str]:
    """The options by which gcc -O0 takes the headers of Python and of the processor from a file, a third faster."""
    with _one_at_a_time:
        return _precompiled(folder)


@cache
def _precompiled(folder: Path) -> list[str]:
    toolchain = Toolchain(folder / f"headers.{os.getpid()}", ["gcc -O0"])
    toolchain.precompile(toolchain.often)
    return toolchain.headers["gcc -O0"]


class Generated(Module):
    """A generated Python module. With `lowering` in loops or in statements, else as the compiler chooses."""

    def __init__(self, program: Program, folder: Path, lowering: str | None = None) -> None:
        name = next(_names)
        path = folder / f"{name}.py"
        path.write_text(compile_program(program, name, lowering, target="python").text, encoding="utf-8")
        super().__init__(program, path, name)


def nightly_but(slow: Collection[object], cases: Iterable[object]) -> list[object]:
    """For parametrize: some cases run in `make test-slow`, the others every night."""
    return [pytest.param(case, marks=pytest.mark.slow if case in slow else pytest.mark.nightly) for case in cases]


def slow_but(quick: Collection[object], cases: Iterable[object], nightly: Collection[object] = ()) -> list[object]:
    """For parametrize: the quick cases run always, the others in `make test-slow` or every night."""
    return [case if case in quick else nightly_but([] if case in nightly else [case], [case])[0] for case in cases]


def parameters(module: ModuleType) -> list[float]:
    """Without a view: views change which rows a module visits."""
    return list(map(module.data, range(module.info()["parameters"])))


def gradients(module: ModuleType) -> list[float]:
    """Without a view."""
    return list(map(module.grad, range(module.info()["parameters"])))


class State(NamedTuple):
    parameters: bytes
    gradients: bytes


def state(module: ModuleType) -> State:
    """All bits of the parameters and of the gradients."""
    return State(array("d", parameters(module)).tobytes(), array("d", gradients(module)).tobytes())


def differences(left: State, right: State) -> Iterator[str]:
    """For a failed test: how many numbers differ, and the first of them."""
    for name, a, b in zip(State._fields, left, right, strict=True):
        numbers = zip(array("d", a), array("d", b), strict=False)
        found = [f"[{i}] {x!r} != {y!r}" for i, (x, y) in enumerate(numbers) if a[8 * i :][:8] != b[8 * i :][:8]]
        yield f"{len(found)} of {len(a) // 8} and {len(b) // 8} {name} differ: {', '.join(found[:4])}"


TYPES = {"uint8": np.uint8, "label": np.uint8, "float32": np.float32, "float64": np.float64}


def batches_by_hand(
    module: ModuleType, images: object, labels: object, batch_size: int = 1, order: Sequence[int] | None = None
) -> Iterator[tuple[list[int], float]]:
    """The definition of train(): computes the gradients of each batch, image by image, and yields the batch.

    What else it yields is the sum of all losses so far. The caller updates, before the next batch.
    """
    info = module.info()
    inputs = np.frombuffer(images, TYPES[info["input_type"]]).reshape(-1, info["inputs"])
    targets: Sequence[object] = [None] * len(inputs)
    if labels is not None:
        numbers = np.frombuffer(labels, TYPES[info["target_type"]])
        targets = numbers.tolist() if info["target_type"] == "label" else numbers.reshape(len(inputs), -1)
    order = range(len(inputs)) if order is None else order
    loss = 0.0
    for start in range(0, len(order), batch_size):
        batch = list(order[start : start + batch_size])
        module.zero_grad()
        for i in batch:
            loss += module.forward(targets[i], inputs[i])
            module.backward()
        yield batch, loss


def train_by_hand(
    module: ModuleType,
    images: object,
    labels: object,
    batch_size: int = 1,
    rate: float | None = None,
    order: Sequence[int] | None = None,
    steps: int | None = None,
) -> float:
    """One epoch of train(), or only so many steps of it. Returns the mean loss."""
    count, loss = 0, 0.0
    for batch, so_far in itertools.islice(batches_by_hand(module, images, labels, batch_size, order), steps):
        module.update(0, len(batch), learning_rate=rate)
        count, loss = count + len(batch), so_far
    return loss / max(count, 1)


def many(program: Program, count: int, seed: int = 0) -> tuple[object, object]:
    """Images and labels, as train() and evaluate() take them."""
    return images(program, [example(program, random.Random(seed + i)) for i in range(count)])


def use_threads(extension: Module) -> None:
    """Trains and evaluates with several threads, for a sanitizer to watch. A model without inputs has no images."""
    if not len(extension.program.input_values):
        return
    module, data = extension.module, many(extension.program, 150)
    for batch_size in (1, 64, 100):
        module.train(*data, batch_size=batch_size, threads=3, learning_rate=1e-6)
        views = module.grad_dict()
        module.train(*data, batch_size=batch_size, threads=2, learning_rate=1e-6)
        del views
        module.evaluate(*data, threads=3)


def compare(
    program: Program, folder: Path, steps: int = 5, seed: int = 0, odd: float = 0.0, **options: object
) -> Module:
    """Engine = ir interpreter = Python = straight-line C = loops C at every SIMD level, over some steps of training.

    The loops are compiled as those of a wheel, unless `flags` say otherwise. Returns their module.
    """
    options = {"flags": [] if os.name == "nt" else SMALL_FLAGS} | options
    systems: dict[str, System] = {
        "engine": Engine(program),
        "interpreter": Interpreter(program, build_graph(program)),
        "Python, loops": Generated(program, folder, "loops"),
        "Python, statements": Generated(program, folder, "straightline"),
        "straightline": Extension(program, folder, "straightline", flags=["-O0"]),
        "loops": Extension(program, folder, "loops", levels=True, **options),
    }
    for level in LEVELS:
        with suppress(ImportError):  # an older processor, or not an x86 one
            systems[f"loops at {level}"] = systems["loops"].at_level(level)
    assert "loops at baseline" in systems
    assert systems_agree(systems, random.Random(seed), steps, odd)
    return systems["loops"]


def exact_bits(x: float) -> str:
    """The bit pattern, the sign of a zero included. Any nan is the nan."""
    return "nan" if x != x else struct.pack(">d", x).hex()


def gradients_of(function: Callable[..., Value], *numbers: float) -> list[float]:
    """The gradients of a function of Values at these numbers, by the interpreted engine."""
    leaves = [Value(x) for x in numbers]
    function(*leaves).backward()
    return [leaf.grad for leaf in leaves]


def number_of(op: str) -> int:
    return ops.IR_LEAVES.index(op) if op in ops.IR_LEAVES else ops.BY_NAME[op].number


def parse(text: str) -> Graph:
    """The graph that the printer shows as this text. Without an observable the last node is the loss."""
    graph = Graph()
    for line in text.splitlines():
        match line.split():
            case [name, "=", "const", number]:
                assert int(name[1:]) == graph.const(float(number))
            case [name, "=", op, *operands]:
                assert int(name[1:]) == graph.add(number_of(op), *(int(x.lstrip("%")) for x in operands))
            case ["loss", node]:
                graph.loss = int(node[1:])
            case ["output", name, *nodes]:
                graph.outputs[name] = [int(node[1:]) for node in nodes]
            case ["gradient", parameter, node]:
                graph.gradients[int(parameter)] = int(node[1:])
            case _:
                raise AssertionError(f"not a line of a graph: {line}")
    if graph.loss < 0:
        graph.loss = len(graph) - 1
    verify(graph)
    return graph
