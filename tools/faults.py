"""Single faults, each of which somebody might make: planted one after the other, each must be found.

Those of what is computed by the fuzzer, those of how a call ends by the test that is named.

    python -m tools.faults                 plant all of them; a table of what found each; exit code 1 if one survives
    python -m tools.faults --only "tail"   those whose name has that text

A fault is an edit of one line of the compiler or of csrc/, in a copy of the sources.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from codegen.models import processor_level

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("benchmarks", "codegen", "csrc", "micrograd", "tools")
NO_MEMORY = "tests/test_no_memory.py::test_a_module_of_floats"


@dataclass(frozen=True)
class Fault:
    name: str
    file: str
    old: str
    new: str
    seed: int = 1  # of the first Program; for a fault that few Programs show, shortly before one that does
    kind: str = ""  # of the Programs, for a fault that only one kind shows
    test: str = ""  # that must fail, where it is none that a Program shows
    level: str = ""  # of SIMD, which the processor needs for a fault in code of that level alone


FAULTS = [
    Fault(
        "a wrong stride of tensors with padding", "codegen/reroll/layout.py", "stride // by_axis.itemsize for", "1 for"
    ),
    Fault(
        "a wrong stride of the term loop",
        "codegen/reroll/affine.py",
        "loops.append(Loop(count, stride))",
        "loops.append(Loop(count, abs(stride)))",
    ),
    Fault(
        "a nest that covers one row too many",
        "codegen/reroll/affine.py",
        "int(regular.argmin()))",
        "int(regular.argmin()) + 1)",
    ),
    Fault(
        "tables that start at the second row",
        "codegen/reroll/affine.py",
        "offsets = rows - rows[0]",
        "offsets = rows - rows[1]",
    ),
    Fault(
        "a dropped term: the last of a chain",
        "codegen/reroll/trees.py",
        "parts = [operand(term) for term in reversed(terms)]",
        "parts = [operand(term) for term in reversed(terms[1:] if len(terms) > 4 else terms)]",
    ),
    Fault(
        "swapped operands of max",
        "codegen/reroll/trees.py",
        "tree = (intern((o, s, t)), s_leaves + t_leaves, s_size + t_size + 1)",
        "tree = (intern((o, t, s)), t_leaves + s_leaves, s_size + t_size + 1)",
    ),
    Fault(
        "terms added from the last to the first",
        "codegen/reroll/trees.py",
        "parts = [operand(term) for term in reversed(terms)]",
        "parts = [operand(term) for term in terms]",
    ),
    Fault(
        "a sum that takes in a sum on the right",
        "codegen/reroll/trees.py",
        "if 0 < tree[2] <= MAX_TREE or (tree[2] == 0 and sum_allowed):",
        "if tree[2] <= MAX_TREE:",
    ),
    Fault(
        "groups in the order of their nodes alone",
        "codegen/reroll/groups.py",
        "            if not waits[user]:",
        "            if waits[user] >= 0:",
    ),
    Fault(
        "an output that a prediction does not compute",
        "codegen/reroll/groups.py",
        "Pass.OUTPUTS: everything,",
        "Pass.OUTPUTS: everything[:1],",
    ),
    Fault(
        "depth within a component that ignores a leaf",
        "codegen/reroll/groups.py",
        "for leaf in leaves if leaf in inside and leaf != n",
        "for leaf in leaves[:1] if leaf in inside and leaf != n",
    ),
    Fault(
        "a gradient that forgets what was there",
        "codegen/passes/autodiff.py",
        "before = graph.add(Op.GRAD, graph.a[n])",
        "before = graph.const(0.0)",
    ),
    Fault(
        "the operands of a derivative swapped",
        "codegen/passes/autodiff.py",
        "places = [n, graph.a[n], graph.b[n]]",
        "places = [n, graph.b[n], graph.a[n]]",
    ),
    Fault(
        "an exponent without a gradient",
        "codegen/passes/autodiff.py",
        "Slope.of(row, i) for i in range(row.arity)",
        "Slope.of(row, i) for i in range(1)",
    ),
    Fault(
        "the derivative by the left operand used for both",
        "micrograd/texts.py",
        "slope = op.slope(i, result, operands)",
        "slope = op.slope(0, result, operands)",
    ),
    Fault(
        "both operands of a tie get the gradient",
        "micrograd/translate.py",
        'ast.GtE: ">="',
        'ast.GtE: ">"',
    ),
    Fault(
        "an inverse power as a power of the inverse",
        "codegen/passes/powers.py",
        "graph.add(Op.DIV, graph.const(1.0), power(graph, x))",
        "power(graph, graph.add(Op.DIV, graph.const(1.0), x))",
        seed=28,
    ),
    Fault(
        "x * 0 folded to 0",
        "codegen/passes/simplify.py",
        "                if value == 1.0 if op",
        "                if value == 0.0 and op == Op.MUL:\n                    return x\n"
        "                if value == 1.0 if op",
        seed=64,
    ),
    Fault(
        "x * -1 taken for x",
        "codegen/passes/simplify.py",
        "if value == 1.0 if op == Op.MUL",
        "if abs(value) == 1.0 if op == Op.MUL",
    ),
    Fault(
        "nodes that share their first operand merged",
        "codegen/passes/simplify.py",
        "known[o].setdefault(x * size + y, n)",
        "known[o].setdefault(x * size + max(y, 0) // 2, n)",
    ),
    Fault(
        "the factors of a row one lane further",
        "codegen/schedule/rows.py",
        "row_length, factor.index.base) if",
        "row_length, factor.index.base + 1) if",
    ),
    Fault(
        "a padded row that is one element short",
        "codegen/reroll/layout.py",
        "shape[-1] = padded(shape[-1], layout.cache_line)",
        "shape[-1] = padded(shape[-1] - 1, layout.cache_line) if shape[-1] > 4 else shape[-1]",
    ),
    Fault(
        "terms that all read what the first reads",
        "codegen/reroll/loops.py",
        "first = int(self.nest.first[column]) + offset",
        "first = int(self.nest.first[column])",
    ),
    Fault(
        "rows skipped of a tensor that is none of rows",
        "codegen/schedule/skip_zeros.py",
        "if _is_row_of(rows.get(read.offset), read)]",
        "if read]",
    ),
    Fault(
        "the constant that a sum starts from dropped",
        "codegen/schedule/unroll.py",
        "None if is_neutral(start.value, terms[0].op) else start.value",
        'None if hasattr(start.value, "value") else start.value',
        seed=25,
    ),
    Fault(
        "gradients of one image only but for the first term",
        "codegen/schedule/images.py",
        '(For("image", MAX_IMAGES, body, Kind.IMAGES),)',
        '(For("image", MAX_IMAGES, body[:1], Kind.IMAGES), *body[1:])',
    ),
    Fault(
        "a gradient that adds its first term twice",
        "codegen/schedule/registers.py",
        "*map_body(body, to_sum), Store",
        "*map_body(body + body[:1], to_sum), Store",
    ),
    Fault(
        "sums one lane too few",
        "codegen/schedule/nest.py",
        "Local(stmt.name, count, images=bool(image))",
        "Local(stmt.name, count - 1, images=bool(image))",
    ),
    Fault(
        "lanes padded into the results of another group",
        "codegen/schedule/pad.py",
        "if lanes.count != region.row or not starts_rows or written.index.tables:",
        "if written.index.tables:",
    ),
    Fault(
        "an off-by-one in the tail of a block of lanes",
        "codegen/schedule/tile.py",
        "Index(blocks * width, ((1, lane),)), rest",
        "Index(blocks * width - 1, ((1, lane),)), rest",
        seed=466,
    ),
    Fault(
        "a look-up taken out of the loop that it depends on",
        "codegen/schedule/hoist.py",
        "or expr.depends_on(loop.counter):",
        "or expr.index.stride(loop.counter):",
    ),
    Fault(
        "gradients that every thread adds",
        "codegen/schedule/parallel.py",
        "kind=Kind.PARALLEL)",
        "kind=Kind.SEQUENTIAL)",
        seed=27,
    ),
    Fault(
        "what images have of their own is read as shared",
        "codegen/schedule/side_by_side.py",
        "if is_shared[expr.index.base] else",
        "if not expr.index.steps else",
    ),
    Fault(
        "the last rows of images side by side begin one too early",
        "codegen/schedule/side_by_side.py",
        "Index(blocks * size, ((1, row.counter),))",
        "Index(blocks * size - 1, ((1, row.counter),))",
        seed=27,
    ),
    Fault(
        "values that are read together with others are computed once",
        "codegen/schedule/phases.py",
        "if states[indices].min() == 0 and states[indices].max() > 0]",
        "if False]",
        seed=126,
    ),
    Fault(
        "what gradients need stays with the images side by side",
        "codegen/schedule/copies.py",
        "out_of=_blocks(kept & written,",
        "out_of=_blocks(kept & once,",
    ),
    Fault(
        "steps of a loop over kernels that need not be even",
        "codegen/schedule/roll.py",
        "step is not None and step == later",
        "step is not None and later is not None",
        test="tests/test_roll.py",
    ),
    Fault(
        "two kernels that are alike by accident before three that advance evenly",
        "codegen/schedule/roll.py",
        "pair.saved > 2 * even.saved",
        "pair.saved > even.saved",
        test="tests/test_roll.py",
    ),
    Fault(
        "a copy for gradients between kernels of the forward pass",
        "codegen/schedule/columns.py",
        "if kernels[i].passes == passes",
        "if True",
        test="tests/test_columns.py",
    ),
    Fault(
        "a loop over two terms whose distance says nothing",
        "codegen/reroll/lower.py",
        "if piece.length == 2 and",
        "if len(offsets) == 2 and",
        test="tests/test_segments.py",
    ),
    Fault(
        "a loop over kernels that runs once too often",
        "codegen/schedule/roll.py",
        "length // period + 2)",
        "length // period + 3)",
        test="tests/test_roll.py",
    ),
    Fault(
        "a count of terms that does not grow",
        "codegen/schedule/roll.py",
        "steps=(*loop.steps, (step, counter))) if step",
        "steps=loop.steps) if step",
        test="tests/test_boxes.py",
    ),
    Fault(
        "the same terms twice where a sum fills no vector",
        "codegen/schedule/dots.py",
        "            base += half\n",
        "",
        test="tests/test_schedule.py::test_sums_over_neighbours_add_the_same_terms",
    ),
    Fault(
        "a step that begins with the gradient of the step before",
        "codegen/schedule/steps.py",
        "Let(SUM, Const(0.0))",
        "Let(SUM, place)",
        test="tests/test_steps.py::test_each_pass_keeps_every_bit",
    ),
    Fault(
        "a step before another gradient has read the parameter",
        "codegen/schedule/steps.py",
        "    if not all(_can_step(kernel) for kernel in gradients):\n        gradients = []\n",
        "",
        test="tests/test_steps.py::test_gradients_that_read_other_parameters_or_have_many_terms_are_stored",
    ),
    Fault(
        "gradients of the last image that nobody stores",
        "csrc/train.h",
        "at_once = size == 1 && i + 1 < end &&",
        "at_once = size == 1 &&",
        test="tests/test_steps.py",
    ),
    Fault(
        "images are dense if the first one is",
        "csrc/passes.h",
        "if (images[k].active_before[last] != inputs)",
        "if (images[0].active_before[last] != inputs)",
        test="tests/test_dense_rows.py",
    ),
    Fault(
        "four rows with the inputs of the first one",
        "csrc/dense_rows.h",
        "const real x = inputs[image][r];",
        "const real x = inputs[image][0];",
        test="tests/test_dense_rows.py",
    ),
    Fault(
        "sums of a few images that overlap",
        "codegen/schedule/dense_rows.py",
        "((width, IMAGE), (1, i))",
        "((width - 1, IMAGE), (1, i))",
        test="tests/test_dense_rows.py::test_a_few_images_have_the_sums_of_each",
    ),
    Fault(
        "rows of a box as far apart as they are long",
        "codegen/reroll/boxes.py",
        "return rows * self.length + _within(self.counts)",
        "return rows * (self.length - 1) + _within(self.counts)",
        test="tests/test_boxes.py",
    ),
    Fault(
        "a box that reads outside of what its part reads",
        "codegen/reroll/boxes.py",
        "(whole.max(axis=0) > rows.max(axis=0)).any()",
        "False",
        test="tests/test_boxes.py",
    ),
    Fault(
        "terms in turns that advance unevenly",
        "codegen/reroll/segments.py",
        "(steps[0, period:] == steps[0, :-period]).all(axis=1)",
        "True",
        test="tests/test_segments.py",
    ),
    Fault(
        "terms in turns that instances take differently",
        "codegen/reroll/segments.py",
        "alike = (steps == steps[:1]).all(axis=(0, 2)) &",
        "alike = (steps == steps[:1]).any(axis=(0, 2)) &",
        test="tests/test_segments.py",
    ),
    Fault(
        "terms of two shapes in one run",
        "codegen/reroll/segments.py",
        "& (those.keys[period:] == those.keys[:-period])",
        "",
        test="tests/test_segments.py",
    ),
    Fault(
        "a copy of columns without the first ones",
        "codegen/schedule/columns.py",
        "matrix.region.start + copy.first",
        "matrix.region.start",
        test="tests/test_columns.py",
    ),
    Fault(
        "a copy of columns before they are computed",
        "codegen/schedule/columns.py",
        "position = known.get(matrix.region.start, 0) if matrix.array == VALUE else 0",
        "position = 0",
        test="tests/test_columns.py",
    ),
    Fault(
        "a copy of columns that a batch reads and does not make",
        "codegen/schedule/columns.py",
        "phases.get(kernel.number, Phase.SIDE_BY_SIDE) == Phase.SIDE_BY_SIDE",
        "True",
        test="tests/test_columns.py",
    ),
    Fault(
        "columns that reach into the next row",
        "codegen/schedule/columns.py",
        "_most(column, counts) < stride",
        "_most(column, counts) >= 0",
        test="tests/test_columns.py",
    ),
    Fault(
        "a short form for an argument that is far from 0",
        "codegen/backends/c/printer.py",
        '"if (!beyond) {"',
        '"if (1) {"',
        test="tests/test_near.py",
    ),
    Fault(
        "zeros of two signs in one loop over kernels",
        "codegen/schedule/forms.py",
        "return Name(repr(expr.value))",
        "return Name(repr(expr.value + 0.0))",
        test="tests/test_roll.py",
    ),
    Fault(
        "kernels of two passes in one loop",
        "codegen/schedule/roll.py",
        "return kernel.passes, phases.get(kernel.number, kernel.phase), kernel.is_gradient",
        "return Pass.LOSS, phases.get(kernel.number, kernel.phase), kernel.is_gradient",
        test="tests/test_roll.py",
    ),
    Fault("a transposition that forgets a step", "csrc/transpose.h", "EXCHANGE(rows, 2)", ""),
    Fault(
        "the values of the batch before are shared",
        "csrc/passes.h",
        "    compute_once(level->training, &computed_once);",
        "",
    ),
    Fault(
        "an address that counts its base twice",
        "codegen/schedule/addresses.py",
        "Index(0, moving.steps, moving.tables, found[fixed])",
        "Index(fixed.base, moving.steps, moving.tables, found[fixed])",
    ),
    Fault(
        "a product on the right without parentheses",
        "codegen/backends/expressions.py",
        "{sign} {bound(operands[1], PRIMARY)}",
        "{sign} {bound(operands[1], PRODUCT)}",
    ),
    Fault(
        "an off-by-one in the tail of the AVX-512 scan",
        "csrc/scan_avx512.h",
        "(1ULL << (INPUT_COUNT - first)) - 1;",
        "(1ULL << (INPUT_COUNT - first - 1)) - 1;",
        level="avx512",
    ),
    Fault(
        "the last pixel missing in the tail of the AVX2 scan",
        "csrc/scan_avx2.h",
        "memcpy(rest, inputs + WHOLE, REST);",
        "memcpy(rest, inputs + WHOLE, REST - 1);",
        seed=27,
        level="avx2",
    ),
    Fault(
        "pixels of the upper half of eight in the wrong places",
        "csrc/scan_avx2.h",
        "<< 8 * __builtin_popcount(low);",
        "<< 8 * __builtin_popcount(low >> 1);",
        seed=27,
        level="avx2",
    ),
    Fault(
        "the last of eight pixels skipped",
        "csrc/scan.h",
        "for (int j = i; j < i + 8 && j < INPUT_COUNT; j++) {",
        "for (int j = i; j < i + 7 && j < INPUT_COUNT; j++) {",
        test="tests/test_differential.py::test_regular_models[mlp]",
    ),
    Fault(
        "a zero input whose weight is infinite is skipped",
        "csrc/update.h",
        "nonfinite = !is_finite(largest_in_row[i]);",
        "nonfinite = largest_in_row[i] != largest_in_row[i];",
        seed=187,
    ),
    Fault(
        "a weight that becomes infinite is not noticed",
        "csrc/update.h",
        "if (!(move < SAFE_BOUND && weight_bound < SAFE_BOUND))",
        "if (weight_bound < 0)",
        test="tests/test_non_finite.py::test_a_weight_that_an_update_makes_infinite",
    ),
    Fault(
        "a stale gradient: dirty rows are not cleared",
        "csrc/update.h",
        "for (int input = first; input < end; input++)\n        for (int t",
        "for (int input = first; input < end - 1; input++)\n        for (int t",
    ),
    Fault(
        "a stale gradient: pending rows are forgotten",
        "csrc/passes.h",
        "    materialize_row_gradients(); /* before the workspace is overwritten */",
        "    if (is_pending())\n        row_gradients.state = CLEAN;",
    ),
    Fault(
        "the gradient of one image lost in a batch",
        "csrc/rows.h",
        "for (int r = 0; r < tile.count; r++)\n            mark_dirty",
        "for (int r = 1; r < tile.count; r++)\n            mark_dirty",
        seed=190,
    ),
    Fault(
        "a mask of images shifted by one",
        "csrc/row_tiles.h",
        "(ROW_MASK_IMAGES * m)",
        "(ROW_MASK_IMAGES * m + !!m)",
        seed=70,
    ),
    Fault(
        "rows that momentum moves without a gradient are skipped",
        "codegen/passes/updates.py",
        'elif pack("<d", graph.constants[graph.a[condition]]) != pack("<d", neutral):',
        "elif graph.constants[graph.a[condition]] > neutral:",
        test="tests/test_updates.py::test_which_rows_are_skipped_is_found_in_the_rule",
    ),
    Fault(
        "a rule that takes each step for the first",
        "codegen/passes/updates.py",
        "(Op.INPUT, found.of_step)",
        "(Op.INPUT, found.of_step[1:2] + found.of_step[1:])",
    ),
    Fault(
        "a norm without the last row of a tensor",
        "csrc/norm.h",
        "k < part_start(r->rows, piece + 1, pieces); k++)",
        "k < part_start(r->rows, piece + 1, pieces) - (piece + 1 == pieces); k++)",
        test="tests/test_updates.py::test_the_bits_are_those_of_the_interpreted_rule[no rows]",
    ),
    Fault(
        "the gradient of the last token of an example is forgotten",
        "csrc/tokens.h",
        "mark_word_dirty(word + images[image].token[token_gradients_##number[g][0]]);",
        "if (g < gradients - 1) \\\n mark_word_dirty(word + images[image].token[token_gradients_##number[g][0]]);",
        kind="embedding",
    ),
    Fault(
        "predictions with noise of 0 instead of its mean",
        "csrc/noise.h",
        "*to++ = (real)noises[n].mean;",
        "*to++ = (real)0;",
        test="tests/test_noise.py::test_predictions_have_the_mean_and_do_not_draw",
    ),
    Fault(
        "a share of a batch that is not a power of two",
        "csrc/update.h",
        "frexp(batch, &exponent) == 0.5 ? 1.0 / batch : 0.0",
        "frexp(batch, &exponent) > 0 ? 1.0 / batch : 0.0",
    ),
    Fault(
        "the learning rate divided first",
        "csrc/level_end.h",
        "p[i] -= rate * g[i] / batch;",
        "p[i] -= rate / batch * g[i];",
    ),
    Fault(
        "the mean loss of the last chunk alone",
        "csrc/train.h",
        "run->mean = total / (double)i;",
        "run->mean = total / (double)run->batch_size;",
    ),
    Fault(
        "a nan that a maximum drops",
        "micrograd/translate.py",
        'ast.Or: "|"',
        'ast.Or: "&"',
    ),
    Fault(
        "frozen: a weight tensor that is read transposed",
        "codegen/passes/freeze.py",
        "arrays[tensor.name].ravel().tolist()",
        "arrays[tensor.name].T.ravel().tolist()",
    ),
    Fault(
        "a loss that was computed before there was room for it",
        "csrc/module.h",
        "if (room != NULL && lock_to_write() == 0) {",
        "if (image != NULL && lock_to_write() == 0) {",
        test=NO_MEMORY,
    ),
    Fault(
        "weights that are loaded before all of them are checked",
        "csrc/views.h",
        "read_tensor(item, &tensors[t], copy + tensors[t].offset)",
        "read_tensor(item, &tensors[t], data + tensors[t].offset)",
        test=NO_MEMORY,
    ),
    Fault(
        "a copy of the weights that nobody frees",
        "csrc/views.h",
        "fail:\n    PyMem_Free(copy);",
        "fail:",
        test=NO_MEMORY,
    ),
    Fault(
        "a buffer of the wrong size that is kept",
        "csrc/buffers.h",
        "view->len / expected->size;\n    PyBuffer_Release(view);",
        "view->len / expected->size;",
        test=NO_MEMORY,
    ),
    Fault(
        "a message that says too much without memory",
        "csrc/arguments.h",
        "if (text != NULL || PyErr_ExceptionMatches(PyExc_MemoryError))",
        "if (text != NULL)",
        test=NO_MEMORY,
    ),
    Fault(
        "a shape with a hole in it",
        "csrc/arguments.h",
        "if (size == NULL || PyTuple_SetItem(tuple, d, size) < 0) {",
        "if (PyTuple_SetItem(tuple, d, size) < 0) {",
        test=NO_MEMORY,
    ),
]


@dataclass(frozen=True)
class Verdict:
    fault: Fault
    error: str  # "" where the fault survived
    programs: int
    seconds: float


def levels() -> Sequence[str]:
    """Those of SIMD that this processor has, besides the baseline."""
    return ("avx2", "avx512")[: processor_level() or 0]


def plant(fault: Fault, folder: Path) -> None:
    """A copy of the sources with the fault in it. Raises ValueError where its line is not to be found exactly once."""
    for name in SOURCES:
        shutil.copytree(ROOT / name, folder / name)  # with what Python has compiled: only the changed file is newer
    path = folder / fault.file
    text = path.read_text(encoding="utf-8")
    if text.count(fault.old) != 1:
        raise ValueError(f"{fault.name}: {text.count(fault.old)} times in {fault.file}, expected once: {fault.old!r}")
    path.write_text(text.replace(fault.old, fault.new), encoding="utf-8")


def judge(fault: Fault, count: int) -> Verdict:
    """Runs the fuzzer on the sources with the fault until a Program fails. RuntimeError if it does not even start."""
    if fault.test:
        return judge_by_test(fault)
    compiler = "gcc" if shutil.which("gcc") else "clang"
    arguments = f"--seed {fault.seed} --count {count} --every 4 --jobs 1 --no-reduce".split()
    arguments += ["--kind", fault.kind] if fault.kind else ["--regular", "0"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plant(fault, folder)
        started = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "tools.fuzz_compiler", *arguments, "--compilers", f"{compiler} -O0"],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": name, "PYTHONSAFEPATH": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        seconds = time.monotonic() - started
    found = re.search(r"^seed (\d+): (.*)$", done.stdout, re.MULTILINE)
    if found is None and done.returncode:
        raise RuntimeError(f"{fault.name}: the fuzzer itself fails:\n{done.stderr}")
    if found is None:
        return Verdict(fault, "", count, seconds)
    return Verdict(fault, found[2], int(found[1]) - fault.seed + 1, seconds)


def judge_by_test(fault: Fault) -> Verdict:
    """Runs the test that must fail on the sources with the fault. RuntimeError if it does not get that far.

    Where CI is set, pytest spends minutes on the difference of two long lists.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plant(fault, folder)
        for more in ("tests", "examples"):
            shutil.copytree(ROOT / more, folder / more, ignore=shutil.ignore_patterns("__pycache__"))
        started = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-qx", "-n0", "-p", "no:cacheprovider", "--rootdir", name, fault.test],
            cwd=folder,
            env={key: text for key, text in os.environ.items() if key != "CI"} | {"PYTHONPATH": name},
            capture_output=True,
            text=True,
            check=False,
        )
        seconds = time.monotonic() - started
    if done.returncode > 1:
        raise RuntimeError(f"{fault.name}: the test does not run:\n{done.stdout}{done.stderr}")
    said = re.search(r"^E +(.*)$", done.stdout, re.MULTILINE)
    return Verdict(fault, (said[1] if said else "failed") if done.returncode else "", 1, seconds)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.faults", description=__doc__.split("\n\n")[0])
    parser.add_argument("--only", default="", metavar="TEXT", help="faults with this text in their name")
    parser.add_argument("--count", type=int, default=300, metavar="N", help="Programs at most (default: 300)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="faults at a time")
    options = parser.parse_args(arguments)
    survivors = 0
    faults = [fault for fault in FAULTS if options.only in fault.name]
    for fault in [fault for fault in faults if fault.level and fault.level not in levels()]:
        print(f"{fault.name} ({fault.file})\n    not planted: the processor has no {fault.level}", flush=True)
        faults.remove(fault)
    with ThreadPoolExecutor(options.jobs) as pool:  # most of what a fault takes is the start of a process
        for verdict in pool.map(lambda fault: judge(fault, options.count), faults):
            survivors += not verdict.error
            where = f"Program {verdict.programs}: {verdict.error[:110]}" if verdict.error else "SURVIVED"
            print(f"{verdict.fault.name} ({verdict.fault.file}, {verdict.seconds:.0f} s)\n    {where}", flush=True)
    print(f"\n{len(faults)} faults planted, {len(faults) - survivors} caught")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
