"""micrograd check MODULE: a compiled module has the same bits at every SIMD level and with any number of threads.

With the model that it was built from, they are compared with those of the same model in plain Python, which
`codegen.build(target="python")` generates; else with the module's own at its lowest level, with one thread.
"""

from __future__ import annotations

import importlib
import platform
import tempfile
from array import array
from pathlib import Path
from typing import Any

from micrograd.commands import comparison
from micrograd.commands.errors import UsageError
from micrograd.commands.inputs import compiler, compiling, load_program, shapes_of
from micrograd.commands.observe_module import observe
from micrograd.matching import EXACT, Matching, matched

SCRIPT = "micrograd.commands.observe_module"


def check_module(name: str, model: str | None = None, weights: Path | None = None, how: Matching = EXACT) -> int:
    """Prints what is compared and returns the exit code: 0 if all bits are equal. Raises UsageError and ImportError.

    model     the name of the model that the module was built from, as loading.named() takes it
    weights   those of a module that only predicts, and `how` they are matched with the model's
    """
    if not all(part.isidentifier() for part in name.split(".")):
        raise UsageError(f"expected the name of a module, as irisnet.net, got {name!r}")
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise UsageError(f"there is no module {name}: {error}") from error
    if not {"info", "outputs", "outputs_batch"} <= vars(module).keys():
        raise UsageError(f"{name} is no compiled model: {getattr(module, '__file__', 'it is built in')}")
    info = module.info()
    if info["mode"] != "strict":
        raise UsageError(f"{name} was built with {info['dtype']} and fast arithmetic: only strict mode has these bits")
    if weights is not None and model is None:
        raise UsageError("--weights are those of a model: name it by --model")
    print(f"machine   {platform.platform()}, {platform.python_implementation()} {platform.python_version()}")
    print(f"module    {name} {module.__version__}, compiled by {info['compiler']}, {module.__file__}")
    print(f"model     {info['architecture'] or 'without a description'}, digest {info['digest'][:16]}")
    expected = observed_once(name) if model is None else reference(module, name, model, weights, how)
    source = f"{name} at {comparison.LEVELS[0]}, 1 thread" if model is None else f"{model} in Python"
    print(f"expected  {comparison.count(expected):,} numbers of {source}", flush=True)
    problems: list[str] = []
    compared = comparison.compare_levels(name, expected, problems, SCRIPT)
    return comparison.conclude(problems, compared, source)


def observed_once(name: str) -> comparison.Numbers:
    """What a module computes at the lowest level with one thread. Raises UsageError if it does not."""
    try:
        found = comparison.observed(name, comparison.LEVELS[0], 1, SCRIPT)
    except RuntimeError as error:
        raise UsageError(f"{name} at {comparison.LEVELS[0]} with 1 thread: {error}") from error
    assert found is not None  # every processor has the lowest level
    return found


def reference(module: Any, name: str, model: str, weights: Path | None, how: Matching = EXACT) -> comparison.Numbers:
    """What a model computes in Python. Raises UsageError if the module is not that model's."""
    codegen: Any = compiler()
    from codegen.passes.freeze import frozen_program
    from codegen.passes.narrow import rounded
    from codegen.program import STORAGES
    from codegen.weights import read_weights

    info, program = module.info(), load_program(model)
    is_frozen = not hasattr(module, "train")
    if is_frozen != (weights is not None):
        raise UsageError(
            f"{name} only predicts: --weights names those it has"
            if is_frozen
            else f"{name} has weights of its own: it trains"
        )
    with compiling(model), tempfile.TemporaryDirectory() as folder:
        tensors = None if weights is None else matched(read_weights(weights), shapes_of(program), how, str(weights))
        if tensors is not None and info["weight_type"] in STORAGES:
            tensors = {name: rounded(info["weight_type"], tensor.astype(float)) for name, tensor in tensors.items()}
        path = codegen.build(program, folder, "reference", target="python")
        plain = codegen.load_extension(path)
        digest = plain.info()["digest"]
        if tensors is not None:
            digest = codegen.compile_program(frozen_program(load_program(model), tensors), "reference").digest
        if digest != info["digest"]:
            raise UsageError(
                f"{name} has the digest {info['digest'][:16]}, but {model} has {digest[:16]}: another model"
            )
        return {what: array("d", numbers) for what, numbers in observe(plain, 1, tensors)}
