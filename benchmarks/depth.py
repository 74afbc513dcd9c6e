"""What steps, blocks, tokens and width cost in C: `python -m benchmarks.depth [--output FILE]`.

Each row is one model at two sizes: the lines of its kernels, and seconds from the Program to the C text, to what
codegen.compile() makes for this processor alone, and to a module for all SIMD levels, C compiler included.
"""

from __future__ import annotations

import argparse
import math
import platform
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.compile_time import found_compilers, version
from benchmarks.report import processor
from benchmarks.small.models import Weights, dot, gru, lstm, near, numbers, parts, residual_network, transformer
from benchmarks.twins import borders, ours
from benchmarks.twins.models import TWINS
from codegen import Floats, Program, build
from codegen.models import build_module, compiler_options
from codegen.pipeline import compile_program, traced
from micrograd.engine import Value
from micrograd.functional import softmax, total
from micrograd.layers import LSTM, Attention

HEADING = "# What depth costs in C\n\nWritten by `python -m benchmarks.depth --output benchmarks/depth.md`.\n\n"


def recurrence(cell: Callable[..., Program], steps: int, hidden: int = 12) -> Program:
    return cell(numbers(4 * steps), numbers(2), steps, hidden=hidden)


def stacked(layers: int, steps: int, both_ways: bool = False, hidden: int = 16) -> Program:
    """Layers of micrograd.layers.LSTM; or of two, of which one begins with the last step, and all read both.

    The loss is about every step.
    """
    x = seen = [numbers(4) for _ in range(steps)]
    parameters = {}
    for layer in range(layers):
        told = []
        for backwards in (False, True) if both_ways else (False,):
            lstm_layer = LSTM(len(seen[0]), hidden)
            parameters |= {f"{layer}.{backwards}.{name}": p for name, p in lstm_layer.named_parameters().items()}
            states, _ = lstm_layer(seen[::-1] if backwards else seen)
            told.append(states[::-1] if backwards else states)
        seen = [[v for states in at_once for v in states] for at_once in zip(*told, strict=True)]
    return Program(Floats([v for row in x for v in row]), None, parameters, total([v * v for row in seen for v in row]))


def classified(blocks: int, tokens: int) -> Program:
    """A masked transformer, of whose last token alone there is a loss."""
    return transformer(numbers(8 * tokens), numbers(5), blocks=blocks)


def attending(blocks: int, tokens: int) -> Program:
    """Layers of masked attention with a way around each, and a loss about every token."""
    x = h = [numbers(8) for _ in range(tokens)]
    parameters = {}
    for block in range(blocks):
        layer = Attention(8, 2)
        parameters |= {f"{block}.{name}": tensor for name, tensor in layer.named_parameters().items()}
        h = [[a + b for a, b in zip(*rows, strict=True)] for rows in zip(h, layer(h, causal=True), strict=True)]
    return Program(Floats([v for row in x for v in row]), None, parameters, total([v * v for row in h for v in row]))


def in_windows(blocks: int, tokens: int, back: int, ahead: int = 0, width: int = 8) -> Program:
    """The same, each token of which takes from so many before and behind it, in one head."""
    h = [numbers(width) for _ in range(tokens)]
    inputs, weights = [v for token in h for v in token], Weights()
    for block in range(blocks):
        matrices = [weights(f"{block}.{name}", width, width) for name in ("query", "key", "value")]
        queries, keys, values = ([[dot(row, token) for row in matrix] for token in h] for matrix in matrices)
        mixed = []
        for t, query in enumerate(queries):
            seen = range(max(0, t - back), min(tokens, t + ahead + 1))
            shares = softmax([dot(query, keys[i]) for i in seen])
            mixed.append([total([s * values[i][a] for i, s in zip(seen, shares, strict=True)]) for a in range(width)])
        h = [[a + b for a, b in zip(*rows, strict=True)] for rows in zip(h, mixed, strict=True)]
    out = [v for token in h for v in token]
    return Program(Floats(inputs), None, weights.named, total([v * v for v in out]), {"out": out})


def turned(tokens: int, width: int = 8) -> Program:
    """Masked attention, pairs of whose queries and keys turn with the position (RoPE; Su et al., 2021)."""
    w = Weights()
    h = [numbers(width) for _ in range(tokens)]
    matrices = [w(name, width, width) for name in ("query", "key", "value")]
    queries, keys, values = ([[dot(row, token) for row in matrix] for token in h] for matrix in matrices)

    def turn(token: list[Value], position: int) -> list[Value]:
        found = []
        for pair in range(0, width, 2):
            cos, sin = math.cos(position / 100 ** (pair / width)), math.sin(position / 100 ** (pair / width))
            a, b = token[pair : pair + 2]
            found += [a * cos - b * sin, a * sin + b * cos]
        return found

    queries, keys = ([turn(token, t) for t, token in enumerate(found)] for found in (queries, keys))
    out = []
    for t, query in enumerate(queries):
        shares = softmax([dot(query, key) for key in keys[: t + 1]])
        out += [total([s * value[a] for s, value in zip(shares, values, strict=False)]) for a in range(width)]
    return Program(Floats([v for token in h for v in token]), None, w.named, total([v * v for v in out]), {"out": out})


def convolutions(layers: int, side: int = 8, channels: int = 4) -> Program:
    """Kernels of 3 x 3 and relu, which leave out what is beyond the border, and the mean of each map."""
    x, w = numbers(side**2), Weights()
    maps = [parts(x, side)]
    for layer in range(layers):
        kernels, bias = w(f"{layer}.kernels", channels, len(maps), 3, 3), w(f"{layer}.bias", channels)
        maps = [
            [[near(maps, kernel, b, r, s).relu() for s in range(side)] for r in range(side)]
            for kernel, b in zip(kernels, bias, strict=True)
        ]
    means = [total([v for row in m for v in row]) / side**2 for m in maps]
    return Program(Floats(x), None, w.named, total([v * v for v in means]), {"out": means})


def with_borders(loss: Callable[..., object], *inputs: int) -> Program:
    """One of the twins with borders, of other inputs."""
    (twin,) = [twin for twin in TWINS.values() if twin.loss is loss]
    return ours.program(replace(twin, inputs=inputs), "f64")


MODELS: dict[str, tuple[Callable[[], Program], Callable[[], Program]]] = {
    "LSTM, 8 and 64 steps": (lambda: recurrence(lstm, 8), lambda: recurrence(lstm, 64)),
    "GRU, 8 and 64 steps": (lambda: recurrence(gru, 8), lambda: recurrence(gru, 64)),
    "LSTM, 3 and 6 layers, 8 steps": (lambda: stacked(3, 8), lambda: stacked(6, 8)),
    "two LSTMs both ways, 8 and 16 steps": (lambda: stacked(2, 8, True), lambda: stacked(2, 16, True)),
    "GRU, width 12 and 48": (lambda: recurrence(gru, 8, 12), lambda: recurrence(gru, 8, 48)),
    "residual MLP, 2 and 20 blocks": (
        lambda: residual_network(numbers(16), numbers(16), 2),
        lambda: residual_network(numbers(16), numbers(16), 20),
    ),
    "transformer, 2 and 6 blocks, 8 tokens": (lambda: classified(2, 8), lambda: classified(6, 8)),
    "transformer, 2 blocks, 8 and 16 tokens": (lambda: classified(2, 8), lambda: classified(2, 16)),
    "attention, 2 and 6 layers, 4 tokens": (lambda: attending(2, 4), lambda: attending(6, 4)),
    "attention, 2 and 6 layers, 8 tokens": (lambda: attending(2, 8), lambda: attending(6, 8)),
    "attention, 2 layers, 8 and 16 tokens": (lambda: attending(2, 8), lambda: attending(2, 16)),
    "attention in windows of 4, 2 layers, 8 and 24 tokens": (lambda: in_windows(2, 8, 3), lambda: in_windows(2, 24, 3)),
    "attention, positions as turns, 8 and 16 tokens": (lambda: turned(8), lambda: turned(16)),
    "convolutions with borders, 2 and 6 layers": (lambda: convolutions(2), lambda: convolutions(6)),
    "residual blocks, normalised, 8 x 8 and 12 x 12 pixels": (
        lambda: with_borders(borders.residual, 3, 8, 8),
        lambda: with_borders(borders.residual, 3, 12, 12),
    ),
    "cells of images, 4 and 8 steps": (
        lambda: with_borders(borders.cells, 4, 1, 6, 6),
        lambda: with_borders(borders.cells, 8, 1, 6, 6),
    ),
}


@dataclass(frozen=True)
class Cost:
    lines: int
    to_c: float  # seconds
    compiled: float  # seconds
    built: float  # seconds


def measure(program: Program) -> Cost:
    started = time.perf_counter()
    lines = compile_program(program, "deep").files["deep_kernels.h"].count("\n")
    to_c = time.perf_counter() - started
    started = time.perf_counter()
    build_module(program, traced(program), None, None, compiler_options(None))
    compiled = time.perf_counter() - started
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        build(program, folder, "deep")
        return Cost(lines, to_c, compiled, time.perf_counter() - started)


def line(name: str, small: Cost, large: Cost) -> str:
    return (
        f"| {name} | {small.lines:,} | {large.lines:,} | {large.lines / small.lines:.2f} "
        f"| {small.to_c:.1f} | {large.to_c:.1f} | {small.compiled:.1f} | {large.compiled:.1f} "
        f"| {small.built:.1f} | {large.built:.1f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.depth", description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, help="also write the table to this Markdown file")
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS), metavar="NAME")
    options = parser.parse_args()
    head = "| model | lines | | ratio | to C, s | | compiled, s | | for all levels, s | |\n|---|" + 9 * "---:|"
    rows = [f"{processor()}, CPython {platform.python_version()}, {version(found_compilers()[0][0])}.\n", head]
    print("\n".join(rows), flush=True)
    for name in options.models:
        small, large = MODELS[name]
        rows.append(line(name, measure(small()), measure(large())))
        print(rows[-1], flush=True)
    if options.output:
        options.output.write_text(HEADING + "\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
