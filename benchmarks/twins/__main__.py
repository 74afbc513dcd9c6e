"""Models of many kinds against JAX: python -m benchmarks.twins [--models NAME ...] [--output FILE]

Each model is one function, for nn and for JAX. Gradients are compared first. Then the two take turns: train() of nn,
and an epoch in one jitted lax.scan of JAX, both with one thread on one core; medians, in microseconds an example.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

import jax
import jax.numpy as jnp
import numpy as np

import codegen
from benchmarks.report import processor
from benchmarks.twins import borders, larger, tables  # noqa: F401 - more of them
from benchmarks.twins.models import TWINS, Twin
from benchmarks.twins.ours import NAMES, first_weights, program

EXAMPLES, SECONDS = 1024, 0.05
NEAR = {"f64": 1e-9, "f32": 1e-3}  # gradients, as a share of the largest
TYPES: dict[str, Any] = {"f64": np.float64, "f32": np.float32}
Epoch = Callable[[], object]


def jax_windows(x: Any, side: int) -> Any:
    at = np.arange(x.shape[1] - side + 1)[:, None] + np.arange(side)
    return x[:, at][:, :, :, at].transpose(0, 1, 3, 2, 4)


OF_JAX = SimpleNamespace(
    **{name: getattr(jnp, name) for name in NAMES},
    sigmoid=jax.nn.sigmoid,
    softmax=jax.nn.softmax,
    rows=lambda table, words: table[words],
    windows=jax_windows,
)


def examples(twin: Twin, dtype: str) -> tuple[Any, Any]:
    rng = np.random.default_rng(1)
    shape = (EXAMPLES, *twin.inputs)
    x = rng.integers(0, twin.words, shape) if twin.words else rng.normal(size=shape).astype(TYPES[dtype])
    if twin.targets is None:
        return x, None
    if twin.classes:
        *rows, classes = twin.targets
        return x, np.eye(classes, dtype=TYPES[dtype])[rng.integers(0, classes, (EXAMPLES, *rows))]
    return x, rng.normal(size=(EXAMPLES, *twin.targets)).astype(TYPES[dtype])


class InJax:
    def __init__(self, twin: Twin, dtype: str) -> None:
        jax.config.update("jax_enable_x64", dtype == "f64")
        self.p = {name: jnp.array(numbers, TYPES[dtype]) for name, numbers in first_weights(twin).items()}
        x, y = examples(twin, dtype)
        self.x, self.y = jnp.array(x), jnp.array(np.zeros((EXAMPLES, 1), TYPES[dtype]) if y is None else y)

        def loss(p: Any, x: Any, y: Any) -> Any:
            return jnp.mean(jax.vmap(lambda one, of: twin.loss(OF_JAX, p, one, of))(x, y))

        self.gradient = jax.jit(jax.grad(loss))

    def epoch(self, batch: int) -> Epoch:
        def step(p: Any, data: Any) -> Any:
            return jax.tree.map(lambda a, b: a - 1e-6 * b, p, self.gradient(p, *data)), None

        @jax.jit
        def run(p: Any, x: Any, y: Any) -> Any:
            return jax.lax.scan(step, p, [v.reshape(-1, batch, *v.shape[1:]) for v in (x, y)])[0]

        return lambda: jax.block_until_ready(run(self.p, self.x, self.y))


def check(twin: Twin, dtype: str, model: Any, other: InJax) -> None:
    """Raises ValueError if the gradients of 32 examples differ."""
    x, y = (None if v is None else v[:32] for v in examples(twin, dtype))
    model.zero_grad()
    model.accumulate(x, y)
    found = other.gradient(other.p, other.x[:32], other.y[:32])
    largest = max(float(abs(np.asarray(g)).max()) for g in found.values())
    for name, g in model.grad_dict().items():
        if (distance := float(abs(np.asarray(g) / 32 - np.asarray(found[name])).max())) > NEAR[dtype] * largest:
            raise ValueError(f"the gradients of {name} differ by {distance:g}, the largest is {largest:g}")


def medians(systems: list[Epoch], rounds: int) -> list[float]:
    """Microseconds an example, in turns."""
    times: list[list[float]] = [[] for _ in systems]
    for system in systems:
        system()
    for _ in range(rounds):
        for system, found in zip(systems, times, strict=True):
            start, runs = time.perf_counter(), 0
            while not runs or time.perf_counter() - start < SECONDS:
                system()
                runs += 1
            found.append((time.perf_counter() - start) / runs / EXAMPLES * 1e6)
    return [statistics.median(found) for found in times]


def row(name: str, dtype: str, batches: list[int], rounds: int) -> str:
    twin = TWINS[name]
    model, other = codegen.compile(program(twin, dtype)), InJax(twin, dtype)
    check(twin, dtype, model, other)
    x, y = examples(twin, dtype)
    cells = []
    for batch in batches:
        ours = partial(model.train, x, y, batch_size=batch, learning_rate=1e-6)
        found = medians([ours, other.epoch(batch)], rounds)
        cells.append(f"{found[0]:.2f} | {found[1]:.2f} | **{found[1] / found[0]:.1f}**")
    return f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.twins", description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=list(TWINS), default=list(TWINS), metavar="NAME")
    parser.add_argument("--dtype", nargs="+", choices=list(TYPES), default=list(TYPES), help="strict f64, fast f32")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 32, 256])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, help="also write the tables to this Markdown file")
    options = parser.parse_args()
    lines = [f"{processor()}, CPython {platform.python_version()}, JAX {jax.__version__}, one thread."]
    print(lines[0], flush=True)
    for dtype in options.dtype:
        head = "".join(f" nn, {batch} | JAX | times |" for batch in options.batch)
        lines += ["", f"| {dtype}, µs an example, batches of |{head}", f"|---|{'---:|' * 3 * len(options.batch)}"]
        print("\n".join(lines[-3:]), flush=True)
        for name in options.models:
            lines.append(row(name, dtype, options.batch, options.rounds))
            print(lines[-1], flush=True)
    if options.output:
        heading = "# Models of other kinds\n\nWritten by `python -m benchmarks.twins --output benchmarks/twins.md`.\n\n"
        options.output.write_text(heading + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
