"""codegen.compile(): a Program becomes a model in this process, at once if it has been compiled before.

A generated module has static arrays, so a process can load it only once. compile() loads private copies of it, which it
deletes when they are loaded. Each copy, here a library, has one Model at a time; the first library whose Model no one
refers to any more serves the next call. Compiled modules are kept in a cache on disk, by a digest of everything that
they are made from. What a Model starts with (weights, seed, learning rate) is no part of it.
"""

from __future__ import annotations

import atexit
import contextlib
import copyreg
import functools
import hashlib
import importlib.util
import os
import platform
import shutil
import sys
import sysconfig
import tempfile
import threading
import warnings
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np

from codegen.backends.c.module import LEVELS
from codegen.backends.python.runtime.weights import restore_state as restore_state  # for pickles of state_dict()
from codegen.backends.shared import csrc
from codegen.build import write_sources
from codegen.ir.graph import Graph
from codegen.passes.mistakes import expect_program
from codegen.passes.updates import updates_of
from codegen.pipeline import checked_lowering, compile_traced, graph_digest, no_garbage_collection, traced
from codegen.program import Program
from codegen.schedule.target import NARROW, WIDE
from codegen.toolchain import SMALL_FLAGS, Toolchain, compile_extension, find_toolchain
from micrograd import cache
from micrograd.errors import one_line

Progress = Callable[[int, int, Any], object]
Rate = float | Sequence[float] | Callable[[int], float]  # a number, one of each step, or a schedule


class Model(Protocol):
    """A compiled Program with parameters and gradients of its own. One without a loss only predicts.

    For those who write types: each has a class of its own, written in C. The methods' help is in csrc/docs.h.
    """

    def forward(self, label: Any, pixels: Any, /) -> float: ...
    def backward(self) -> None: ...
    def input_grad(self) -> Any: ...
    def zero_grad(self) -> None: ...
    def update(self, step: int = 0, batch_size: int = 1, *, learning_rate: Rate | Any = None) -> None: ...
    def predict(self, pixels: Any, /) -> int: ...
    def probabilities(self, pixels: Any, /) -> tuple[float, ...]: ...
    def outputs(self, pixels: Any, /) -> dict[str, tuple[float, ...]]: ...
    def predict_batch(self, images: Any, *, threads: int = 1, progress: Progress | None = None) -> bytes: ...
    def outputs_batch(
        self,
        images: Any,
        *,
        out: Mapping[str, Any] | None = None,
        threads: int = 1,
        progress: Progress | None = None,
    ) -> dict[str, Any]: ...
    def probabilities_batch(
        self, images: Any, *, out: Any = None, threads: int = 1, progress: Progress | None = None
    ) -> Any: ...
    def evaluate(
        self, images: Any, labels: Any, *, threads: int = 1, progress: Progress | None = None
    ) -> tuple[float, float | None]: ...
    def accumulate(self, images: Any, labels: Any, *, threads: int = 1, progress: Progress | None = None) -> float: ...
    def metrics(
        self, images: Any, labels: Any, *, threads: int = 1, progress: Progress | None = None
    ) -> dict[str, float]: ...
    def train(
        self,
        images: Any,
        labels: Any,
        *,
        batch_size: int = 1,
        learning_rate: Rate | Any = None,
        epochs: int = 1,
        seed: int | None = None,
        threads: int = 1,
        progress: Progress | None = None,
        check_finite: bool = False,
    ) -> list[float]: ...
    def state_dict(self) -> dict[str, memoryview[float]]: ...
    def grad_dict(self) -> dict[str, memoryview[float]]: ...
    def flat_data(self) -> memoryview[float]: ...
    def flat_grad(self) -> memoryview[float]: ...
    def load_state_dict(self, mapping: Mapping[str, Any], /) -> None: ...
    def optimizer_state(self) -> dict[str, memoryview[float]]: ...
    def load_optimizer_state(self, mapping: Mapping[str, Any], /) -> None: ...
    def save_weights(self, path: str | os.PathLike[str], /) -> None: ...
    def load_weights(self, path: str | os.PathLike[str], /) -> None: ...
    def data(self, i: int, /) -> float: ...
    def grad(self, i: int, /) -> float: ...
    def reset(self, seed: int | None = None) -> None: ...
    def info(self) -> dict[str, Any]: ...


NAME = "codegen_model"  # of every module, inside

_libraries: dict[str, list[ModuleType]] = {}
_lock = threading.RLock()


@dataclass(frozen=True)
class Start:
    """What a Model is born with. `weights` are float64, empty if they are drawn or constant."""

    weights: bytes
    seed: int
    learning_rate: float


_origins: WeakKeyDictionary[Any, tuple[str, Start]] = WeakKeyDictionary()


def compile(
    program: Program,
    *,
    dtype: str | None = None,
    fma: bool | None = None,
    reorder: bool | None = None,
    optimize: int | None = None,
    lowering: str | None = None,
    compiler: str | None = None,
    flags: Sequence[str] = (),
) -> Model:
    """A model with the functions of a built module, and with parameters and gradients of its own.

    Each call returns another model, also for the same Program. Compiled code is kept in the folder that `python -m
    micrograd cache --path` prints, so that only the first call takes long.

    dtype, fma, reorder   instead of what the Program says
    optimize              0 to 3, how hard the C compiler tries; default: 3 for what takes the time, 2 for the rest
    lowering, compiler, flags   as for codegen.build()

    Raises TypeError or ValueError for arguments and Programs that make no sense, CompilerError (a RuntimeError) without
    a C compiler or if it fails.
    """
    expect_program(program, "compile")
    changes = {"dtype": dtype, "fma": fma, "reorder": reorder}
    changes = {name: value for name, value in changes.items() if value not in (None, getattr(program, name))}
    if changes:
        program = replace(program, **changes)  # type: ignore[arg-type]
    program.check()
    lowering = checked_lowering(lowering)
    if not isinstance(flags, list | tuple) or not all(isinstance(flag, str) for flag in flags):
        raise TypeError(f"flags must be a list of strings, not {flags!r}")
    if optimize is not None and (isinstance(optimize, bool | float) or optimize not in (0, 1, 2, 3)):
        raise ValueError(f"optimize must be 0, 1, 2 or 3, got {optimize!r}")
    with no_garbage_collection():
        graph = traced(program)
        toolchain = find_toolchain(compiler)
        options = [*compiler_options(optimize), *flags]
        key = digest(program, graph, lowering, toolchain, options)
        start = start_of(program)
        model = claim(key, start)
        if model is None:
            model = cached(key, start)
        if model is None:
            module = build_module(program, graph, lowering, compiler, options)
            model = load(key, module, start, is_fresh=True)
            store(key, module)
    assert model is not None
    return model


def compiler_options(optimize: int | None) -> list[str]:
    """How hard the C compiler tries, and for which SIMD level."""
    level = only_level()
    only = [] if level is None else [f"-DONLY_LEVEL={level}"]
    return [*(SMALL_FLAGS if optimize is None else [f"-O{optimize}"]), *only]


def only_level() -> int | None:
    """The SIMD level that is compiled alone; None for all of them."""
    return None if os.environ.get("NN_SIMD") else processor_level()


@functools.cache
def processor_level() -> int | None:
    """The level that csrc/level.h chooses; None, for all levels, if it is not known here."""
    if platform.machine() != "x86_64" or sys.platform != "linux":
        return None
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return None
    flags = set(text.partition("\nflags")[2].partition("\n")[0].split())
    levels = [{"avx2", "fma"}, {"avx512f", "avx512dq", "avx512bw", "avx512vl"}]
    return 0 if not levels[0] <= flags else 1 if not levels[1] <= flags else 2


def start_of(program: Program) -> Start:
    has_weights = program.initial is None and program.loss is not None
    weights = array("d", [value.data for value in program.parameter_values]) if has_weights else array("d")
    return Start(weights.tobytes(), program.seed, program.rate)


def digest(program: Program, graph: Graph, lowering: str | None, toolchain: Toolchain, options: Sequence[str]) -> str:
    """SHA-256 of everything that the module is made from: the forward graph stands for all that is made of it."""
    found = hashlib.sha256(graph_digest(graph, updates_of(program)).encode())
    converts = (program.converts_inputs, program.converts_targets)
    noise = [(len(one.values), one.distribution) for one in program.noises]
    kinds = (program.input_parts, program.target_parts, converts, program.input_gradients, noise, program.shift)
    modes = (
        program.prediction,
        program.threshold,
        program.description,
        program.dtype,
        program.fma,
        program.reorder,
        program.storage,
        lowering,
    )
    platforms = (sysconfig.get_platform(), platform.machine(), sysconfig.get_config_var("EXT_SUFFIX"), sys.version)
    environment = [os.environ.get(name, "") for name in ("CFLAGS", "LDFLAGS")]
    parts = (kinds, modes, platforms, environment, toolchain.identity(), list(options), generator_version())
    found.update(repr(parts).encode())
    for tensor in program.tensors:
        found.update(repr((tensor.name, tensor.shape, tensor.initial)).encode())
        found.update(array("q", tensor.numbers).tobytes())
    if program.loss is None:
        found.update(array("d", [value.data for value in program.parameter_values]).tobytes())
    return found.hexdigest()


@functools.cache
def generator_version() -> str:
    """SHA-256 of the compiler's own sources."""
    here = Path(__file__).resolve().parent
    found = hashlib.sha256()
    for folder, pattern in ((here, "**/*.py"), (here.parent / "micrograd", "**/*.py"), (csrc(), "*.h")):
        for path in sorted(folder.glob(pattern)):
            found.update(path.read_bytes())
    return found.hexdigest()


def build_module(
    program: Program, graph: Graph, lowering: str | None, compiler: str | None, options: list[str]
) -> bytes:
    """Everything after the trace."""
    level = only_level()
    registers = () if level is None else (WIDE if level == LEVELS - 1 else NARROW,)
    compiled = compile_traced(graph, program, NAME, lowering, "extension", registers=registers)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        source = write_sources(compiled, Path(folder), NAME)
        return compile_extension(source, NAME, compiler, [*options, "-DINSTANCES=1"]).read_bytes()


@functools.cache
def _temporary_folder() -> Path:
    folder = tempfile.mkdtemp(prefix="micrograd-nn-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def store(key: str, module: bytes) -> None:
    try:
        cache.write(cache.folder(), key, module)
    except OSError as error:  # as of a full disk: the model is there all the same
        warnings.warn(
            f"compiled models are not kept: the cache cannot be written: {one_line(error)}. "
            "$MICROGRAD_CACHE names another folder",
            RuntimeWarning,
            stacklevel=3,
        )


def claim(key: str, start: Start) -> Model | None:
    """A new Model of a library whose last one is gone; None without such a library."""
    with _lock:
        for library in _libraries.get(key, ()):
            model = library.claim(start.weights, start.seed, start.learning_rate)
            if model is not None:
                _origins[model] = key, start
                return model  # type: ignore[no-any-return]
    return None


def cached(key: str, start: Start) -> Model | None:
    """A Model of a module in the cache; None if there is none."""
    try:
        module = cache.read(cache.folder(), key)
    except OSError:
        return None
    return load(key, module, start) if module is not None else None


def load(key: str, module: bytes, start: Start, is_fresh: bool = False) -> Model | None:
    """Loads a copy of a module and returns its Model. If this system cannot, raises ImportError, or returns None for a
    module of the cache: another system may have written it there."""
    with _lock:
        try:
            library = _load_copy(module)
        except ImportError:
            if is_fresh:
                raise
            return None
        copyreg.pickle(library.Model, _reduce)
        _libraries.setdefault(key, []).insert(0, library)
        return claim(key, start)


def _load_copy(module: bytes) -> ModuleType:
    """In the cache; in a folder of this process if that is full, or cannot be written, or may not be loaded from."""
    try:
        return _load_in(cache.folder(), module)
    except (OSError, ImportError):
        return _load_in(_temporary_folder(), module)


def _load_in(place: Path, module: bytes) -> ModuleType:
    """The file has to go, and another file must never be taken for it, so it has a name and an inode of its own."""
    place.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=place, suffix=sysconfig.get_config_var("EXT_SUFFIX"))
    try:
        with open(descriptor, "wb") as file:
            file.write(module)
        spec = importlib.util.spec_from_file_location(NAME, name)
        assert spec is not None
        assert spec.loader is not None
        library = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(library)
        return library
    finally:
        with contextlib.suppress(OSError):  # Windows keeps the files of loaded modules: see cache.remove_stale()
            os.unlink(name)


def _reduce(model: Any) -> tuple[Any, ...]:
    """How a Model is pickled and copied: by the key of its code, with copies of its numbers."""
    key, start = _origins[model]
    if not hasattr(model, "train"):
        return _restore, (key, processor_level(), start, {}, {}, {})
    views = (model.state_dict(), model.grad_dict(), model.optimizer_state())
    return _restore, (key, processor_level(), start, *({name: np.array(v) for name, v in d.items()} for d in views))


def _restore(
    key: str, level: int | None, start: Start, data: dict[str, Any], grad: dict[str, Any], state: dict[str, Any]
) -> Model:
    model: Any = claim(key, start)
    if model is None and level == processor_level():
        model = cached(key, start)
    if model is None:
        raise RuntimeError(
            f"the code of this pickled model is not in the cache {cache.folder()}: codegen.compile() its Program here "
            "first. To move weights between machines, save state_dict() instead"
        )
    if data:
        model.load_state_dict(data)
        for name, view in model.grad_dict().items():
            np.asarray(view)[...] = grad[name]
        model.load_optimizer_state(state)
    return model  # type: ignore[no-any-return]


def _forget_the_lock() -> None:
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_the_lock)
