"""The compiled modules that calls.py calls, each with a twin that has to answer the same, bit for bit."""

from __future__ import annotations

import hashlib
import os
import random
import runpy
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

import numpy as np

from codegen import Floats, Label, Program, Tokens, build
from codegen.backends.shared import csrc
from codegen.build import load_extension
from codegen.kinds import Part
from codegen.mnist import program as mnist_program
from codegen.passes.freeze import frozen_program, weights_of
from micrograd.engine import Value
from micrograd.functional import cross_entropy
from micrograd.nn import MLP, Embedding

ROOT = Path(__file__).resolve().parent.parent.parent
SANITIZERS = ["-g", "-fsanitize=address,undefined,fuzzer-no-link", "-fno-sanitize-recover=all"]
LEVELS = ("baseline", "avx2", "avx512")

_tests = runpy.run_path(str(ROOT / "tests" / "models.py"))


@dataclass(frozen=True)
class Model:
    """A Program; the SIMD level to run at, "" for the best; and the twin: another lowering or another level."""

    program: Callable[[], Program]
    level: str = ""
    twin: str = "straightline"


def _frozen() -> Program:
    program = _tests["mlp"]()
    return frozen_program(program, weights_of(program))


def _parameters_alone() -> Program:
    p = [Value(1.5), Value(2.0)]
    return Program(Floats([]), None, {"p": p}, loss=p[0] * p[1], outputs={"out": [p[1]]})


def _tokens() -> Program:
    """Rows by index; the twin has 1 among zeros."""
    random.seed(3)
    words = [[Value(0) for _ in range(5)] for _ in range(3)]
    numbers, label = [Value(0), Value(0)], [Value(0) for _ in range(4)]
    table = Embedding(5, 3)
    net = MLP(11, [4, 4])
    logits = net([*(x for word in words for x in table(word)), *numbers])
    return Program(
        inputs={"words": Tokens(words), "numbers": Floats(numbers)},
        targets=Label(label),
        parameters={"table": table.weight, **net.named_parameters()},
        loss=cross_entropy(logits, label),
        outputs={"logits": logits},
        metrics={"largest": logits[0].max(*logits[1:])},
        input_gradients=True,
    )


MODELS = {
    "mlp": Model(_tests["mlp"]),  # pixels and labels, rows of weights that are left out
    "xor": Model(_tests["xor"], twin="baseline"),  # floats and floats
    "shared_weights": Model(_tests["shared_weights"], level="avx2"),  # pixels, no targets
    "edges": Model(_tests["edges"]),  # constants that are not finite
    "float32": Model(lambda: replace(_tests["mlp"](), dtype="float32"), twin="baseline"),
    "gather": Model(_tests["gather"], level="baseline"),  # tables of indices
    "alone": Model(_parameters_alone),  # no inputs
    "frozen": Model(_frozen),
    "tokens": Model(_tokens),  # inputs by name
    "nn": Model(mnist_program, twin="baseline"),
}


@dataclass(frozen=True)
class Pair:
    """A module as it is fuzzed, its twin, and what a module does not tell of itself."""

    name: str
    modules: tuple[ModuleType, ModuleType]
    shapes: dict[str, tuple[int, ...]]
    seed: tuple[int, ...]  # what reset() wants: nothing where no distribution is declared
    weights: dict[str, np.ndarray]  # after it
    parameters: int
    inputs: int
    targets: int
    same_layout: bool  # of their views: both are the same loops
    typecodes: tuple[str, str]  # of inputs and targets; "" for a label, or for none
    parts: tuple[Part, ...] = ()  # of inputs by name

    def renew(self, module: ModuleType) -> None:
        """Fresh weights and gradients of 0. What reset() does takes long for many weights with sanitizers."""
        if self.parameters > 1000:
            module.load_state_dict(self.weights)
            module.zero_grad()
        elif hasattr(module, "reset"):
            module.reset(*self.seed)


def build_all(folder: Path, names: Iterable[str], instrumented: bool, optimize: str = "-O0") -> None:
    """Compiles what is not there yet, or is not what the sources say now."""
    sources = [*ROOT.glob("codegen/**/*.py"), *ROOT.glob("micrograd/**/*.py"), *csrc().glob("*.h"), Path(__file__)]
    sources += [ROOT / "tests" / "models.py"]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(sources))).hexdigest()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda name: _build_pair(folder / name, name, instrumented, optimize, digest), names))


def _build_pair(folder: Path, name: str, instrumented: bool, optimize: str, digest: str) -> None:
    stamp = folder / "stamp"
    if stamp.is_file() and stamp.read_text() == digest:
        return
    shutil.rmtree(folder, ignore_errors=True)
    model = MODELS[name]
    compiler, flags = ("clang", [optimize, *SANITIZERS]) if instrumented else (None, [optimize])
    path = build(model.program(), folder, f"fuzz_{name}", compiler=compiler, flags=flags)
    if model.twin == "straightline":
        build(model.program(), folder / "twin", f"fuzz_{name}", "straightline", flags=["-O0"])
    else:
        (folder / "twin").mkdir()
        shutil.copy(path, folder / "twin")
    stamp.write_text(digest)


def load_pair(folder: Path, name: str) -> Pair:
    """Imports a module and its twin, which build_all() has made."""
    model, program = MODELS[name], MODELS[name].program()
    module = _load(folder / name, f"fuzz_{name}", model.level)
    twin = _load(folder / name / "twin", f"fuzz_{name}", "" if model.twin == "straightline" else model.twin)
    real = "f" if program.dtype == "float32" else "d"
    information = module.info()
    trains = hasattr(module, "forward")
    weights = {key: np.array(view) for key, view in module.state_dict().items()} if trains else {}
    return Pair(
        name=name,
        modules=(module, twin),
        shapes={key: array.shape for key, array in weights.items()},
        seed=(information["seed"],) if trains and program.initial is not None else (),
        weights=weights,
        parameters=information["parameters"] if trains else 0,
        inputs=information["inputs"],
        targets=information["targets"] if trains else 0,
        same_layout=model.twin != "straightline",
        typecodes=(
            "B" if information["input_type"] == "uint8" else real,
            real if trains and information["target_type"] not in ("none", "label") else "",
        ),
        parts=program.input_parts if program.converts_inputs else (),
    )


def _load(folder: Path, name: str, level: str) -> ModuleType:
    """At that SIMD level, or where the processor does not have it at its best one."""
    path = next(path for path in folder.iterdir() if path.suffix in (".so", ".pyd"))
    for variables in ({"NN_SIMD": level} if level else {}, {}):
        with patch.dict(os.environ, variables):
            try:
                return load_extension(path, name)
            except ImportError:
                if not variables:
                    raise
    raise AssertionError("unreachable")
