"""Fused multiply-add: how many a Program with fma=True forms, what they gain, and what they change in the bits.

Two modules of the MNIST program, strict and with fma=True, both float64 and nothing reordered. What is counted:
MULTIPLY_ADD in the C text, vfmadd in the disassembly, and how often one is carried out in a training step, which the
trip counts of the loop nests tell. Then both train, in turns.
"""

from __future__ import annotations

import itertools
import re
import shutil
import statistics
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from types import ModuleType

import numpy as np

import codegen
from benchmarks.measure import say
from benchmarks.report import number
from benchmarks.tasks import Data
from codegen import Program, mnist
from codegen.backends.arithmetic import Arithmetic, is_product
from codegen.backends.writer import MAX_EXPRESSION
from codegen.ir.graph import Op
from codegen.pipeline import build_graph, lower_graph
from codegen.reroll.groups import Need
from codegen.reroll.lower import RESULT, Nest
from codegen.reroll.sparse import skips_zero_inputs
from codegen.reroll.trees import Shapes

FUSED = Arithmetic(fma=True)
SEEDS = range(1, 6)
INSTRUCTION = re.compile(r"\bvfn?m(?:add|sub)\d+([ps])[ds] .*%([xyz])mm\d+$")
FUNCTION = re.compile(r"^[0-9a-f]+ <\w+?_(baseline|avx2|avx512)\b.*>:$")
WIDTHS = {"x": 128, "y": 256, "z": 512}


@dataclass
class Fused:
    """A group that multiplies and adds at once: how often in a training step, and how often if no input were 0."""

    text: str
    count: float
    dense: int


def in_tree(shapes: Shapes, shape: int) -> int:
    """How many fused multiply-adds the C of a tree has."""
    text, _ = FUSED.expression(shapes, shape, itertools.repeat("x"))
    return text.count("MULTIPLY_ADD")


def in_nest(shapes: Shapes, nest: Nest) -> list[int]:
    """How many of them one instance of a nest carries out in each of its runs of terms.

    Those inside the terms, and in a sum also the products that are added to it. A sum starts from its first term if
    that stands alone, and a short sum without a loop is one expression.
    """
    runs = [terms.run for terms in nest.terms]
    is_loop = bool(nest.loops) or sum(run.count for run in runs) > MAX_EXPRESSION
    adds = nest.placed.combine == Op.ADD and is_loop
    return [
        run.count * in_tree(shapes, run.shape)
        + run.count * (adds and not (i == 0 and run.count == 1) and is_product(shapes, run.shape))
        for i, run in enumerate(runs)
    ]


def carried_out(program: Program, active: float) -> list[Fused]:
    """Of forward and backward for one image, of whose inputs this share is not 0.

    The gradients of row tensors are none of them: a loop of zero_grad, forward, backward, update never adds them up.
    """
    lowered = lower_graph(build_graph(program), program, FUSED.cache_line)
    shapes, inputs = lowered.shapes, len(program.inputs.values)
    found = []
    for placed, nests in lowered.groups:
        is_row_gradient = placed.group.is_gradient and int(nests[0].first[RESULT]) in lowered.rows
        if is_row_gradient or not placed.group.need & (Need.LOSS | Need.GRADIENTS):
            continue
        count, dense = 0.0, 0
        for nest in nests:
            for terms, each in zip(nest.terms, in_nest(shapes, nest), strict=True):
                skips = skips_zero_inputs(shapes, nest, terms, lowered.rows, inputs)
                count += len(nest.roots) * each * (active if skips else 1)
                dense += len(nest.roots) * each
        if dense:
            found.append(Fused(f"{len(placed.group.roots):,} x {shapes.text(placed.group.shape)}", count, dense))
    return found


def disassembled(path: Path) -> dict[str, Counter[str]]:
    """The fused multiply-adds of a binary, as `instructions` finds them; nothing where there is no objdump."""
    if not shutil.which("objdump"):
        return {}
    run = subprocess.run(["objdump", "-d", "--no-show-raw-insn", str(path)], capture_output=True, text=True, check=True)
    return instructions(run.stdout)


def instructions(disassembly: str) -> dict[str, Counter[str]]:
    """For each SIMD level its fused multiply-adds, by how much each of them computes."""
    found: dict[str, Counter[str]] = {}
    level = ""
    for line in disassembly.splitlines():
        if line.endswith(">:"):
            function = FUNCTION.match(line)
            level = function[1] if function else ""
            if level:
                found.setdefault(level, Counter())
        elif level and (instruction := INSTRUCTION.search(line)):
            packed, register = instruction.groups()
            found[level][f"{WIDTHS[register]} bits" if packed == "p" else "one number"] += 1
    return found


def build(folder: Path, name: str, fma: bool) -> tuple[ModuleType, Path]:
    path = codegen.build(mnist.program(fma=fma), folder, name)
    return codegen.load_extension(path, name), path


def parameters(nn: ModuleType) -> np.ndarray:
    return np.concatenate([np.ravel(view) for view in nn.state_dict().values()])


def distance(strict: np.ndarray, fused: np.ndarray) -> tuple[float, int]:
    """The largest difference relative to the largest number, and how many numbers have other bits."""
    return float(np.abs(strict - fused).max() / np.abs(strict).max()), int((strict != fused).sum())


def distances(strict: ModuleType, fused: ModuleType, data: Data) -> list[str]:
    """A table of how far the parameters are apart after more and more steps of batch size 1."""
    lines = ["| after | parameters with other bits | largest difference / largest parameter |", "|---|---:|---:|"]
    for nn in (strict, fused):
        nn.reset(SEEDS[0])
    done = 0
    for steps in (1, 10, 100, 1_000, 10_000, len(data.labels)):
        for nn in (strict, fused):
            nn.train(data.images[done:steps], data.labels[done:steps])
        done = steps
        largest, others = distance(parameters(strict), parameters(fused))
        words = f"{steps:,} step{'s' * (steps > 1)}" + (", an epoch" if steps == len(data.labels) else "")
        lines.append(f"| {words} | {others:,} of {len(parameters(strict)):,} | {largest:.0e} |")
    return lines


def accuracies(modules: dict[str, ModuleType], data: Data) -> list[str]:
    """A table of the accuracy on the test set after an epoch from several initial weights."""
    lines = [f"| test set after an epoch | {' | '.join(f'seed {seed}' for seed in SEEDS)} | mean |"]
    lines += ["|---" + "|---:" * (len(SEEDS) + 1) + "|"]
    for name, nn in modules.items():
        found = []
        for seed in SEEDS:
            nn.reset(seed)
            nn.train(data.images, data.labels, seed=seed)
            found.append(nn.evaluate(data.test_images, data.test_labels)[1])
        lines.append(f"| {name} | {' | '.join(f'{a:.2%}' for a in [*found, statistics.mean(found)])} |")
    return lines


def speed(modules: dict[str, ModuleType], data: Data, rounds: int) -> list[str]:
    """A table of µs an image, each task by both modules in turns."""
    images, labels = data.images, data.labels
    tasks: dict[str, Callable[[ModuleType], object]] = {
        "training, batch size 1": lambda nn: nn.train(images, labels),
        "training, batch size 64": lambda nn: nn.train(images, labels, batch_size=64),
        "inference, `predict_batch`": lambda nn: nn.predict_batch(images),
    }
    lines = ["| µs an image, one thread | strict | fma=True | strict / fma=True |", "|---|---:|---:|---:|"]
    for task, run in tasks.items():
        taken: dict[str, list[float]] = {name: [] for name in modules}
        for _ in range(rounds):
            for name, nn in modules.items():
                nn.reset(1)
                start = perf_counter()
                run(nn)
                taken[name].append((perf_counter() - start) / len(images) * 1e6)
        ratios = [a / b for a, b in zip(*taken.values(), strict=True)]
        cells = [f"{number(statistics.median(s))} ({number(min(s))} to {number(max(s))})" for s in taken.values()]
        lines.append(f"| {task} | {' | '.join(cells)} | {statistics.median(ratios):.2f} |")
    return lines


def counts(strict: Path, fused: Path, active: float) -> list[str]:
    """Tables of how many there are: in the C, in the binary, in a step."""
    text = fused.with_name("fma_fused.c").read_text()
    levels, none = disassembled(fused), disassembled(strict)
    found = carried_out(mnist.program(fma=True), active / 784)
    total, dense = sum(fused.count for fused in found), sum(fused.dense for fused in found)
    lines = [
        f"`MULTIPLY_ADD` stands {text.count('MULTIPLY_ADD(')} times in the generated C.",
        "",
        "| fused multiply-adds in the binary | strict | fma=True | of them |",
        "|---|---:|---:|---|",
    ]
    for level, widths in levels.items():
        each = ", ".join(f"{count} of {width}" for width, count in widths.most_common())
        lines.append(f"| {level} | {none[level].total()} | {widths.total()} | {each} |")
    lines += [
        "",
        f"| carried out in a training step, {active:.0f} of 784 pixels not 0 | fused | if no pixel were 0 |",
        "|---|---:|---:|",
        *(f"| `{fused.text}` | {fused.count:,.0f} | {fused.dense:,} |" for fused in found),
        f"| together | {total:,.0f} | {dense:,} |",
    ]
    return lines


def fma(data: Data, rounds: int) -> str:
    """Everything as Markdown."""
    say("fused multiply-add")
    active = float((data.images != 0).sum(1).mean())
    with tempfile.TemporaryDirectory() as name:
        (strict, strict_path), (fused, fused_path) = (
            build(Path(name), f"fma_{kind}", kind == "fused") for kind in ("strict", "fused")
        )
        modules = {"strict": strict, "fma=True": fused}
        level = fused.info()["simd"]
        if not fused.info()["fma"]:
            return f"At the level {level} there is no fused multiply-add."
        parts = [
            [f"784-50-10 in float64 at the level {level}; medians of {rounds} interleaved rounds over MNIST."],
            counts(strict_path, fused_path, active),
            speed(modules, data, rounds),
            distances(strict, fused, data),
            accuracies(modules, data),
        ]
    return "\n\n".join("\n".join(part) for part in parts)
