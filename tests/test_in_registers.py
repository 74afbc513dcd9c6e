"""Sums that gcc would store and load for each term, which takes twice the time. No number changes if a pass marks too
few loops, so no other test would find it: these read the loops that it marks, and the assembly of three models. The
last one reads what gcc does before calls."""

import platform
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from harness import Extension, slow_but

from benchmarks.depth import attending
from benchmarks.small.models import MODELS, dense, numbers
from codegen import Floats, Program, build, compile_program
from codegen.reference.print_loops import kernel_lines
from codegen.reference.verify_loops import verify_loops
from micrograd.arrays import array
from micrograd.engine import Value
from micrograd.functional import total

SLOT = re.compile(r"vmov[au]p[sd]\s+%ymm\d+,((?:-?0x[0-9a-f]+)?\(%r[sb]p\))")
ADDS = re.compile(r"v(?:add|fmadd)\w*\s+((?:-?0x[0-9a-f]+)?\(%r[sb]p\)),")
MOST = 40  # instructions: longer loops may need more than the 16 registers
JUMP = re.compile(r"j[a-z]+\s+([0-9a-f]+)")
READS_ASSEMBLY = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64" or not shutil.which("objdump"),
    reason="reads what gcc writes for x86-64 on Linux, with objdump",
)


def shared_layer(inputs, units, points=6, dtype="float64"):
    """Points that share two layers, as tokens do. The gradient of the second one walks over both of its sides."""
    x = [Value(0.0) for _ in range(3 * points)]
    w = [[Value(0.5) for _ in range(3)] for _ in range(inputs)]
    v = [[Value(0.25) for _ in range(inputs)] for _ in range(units)]

    def layer(rows, values):
        return [total([a * b for a, b in zip(row, values, strict=True)]).tanh() for row in rows]

    y = [z for p in range(points) for z in layer(v, layer(w, x[3 * p : 3 * p + 3]))]
    return Program(Floats(x), targets=None, parameters={"w": w, "v": v}, loss=total(y), outputs={"y": y}, dtype=dtype)


def products(program):
    """The additions to the gradient of the second layer."""
    loops = compile_program(program).loops
    verify_loops(loops)
    units, inputs = len(program.parameters["v"]), len(program.parameters["v"][0])
    (kernel,) = [kernel for kernel in loops.kernels if kernel.is_gradient and kernel.roots == units * inputs]
    return [line for line in kernel_lines(kernel) if "+= mul(" in line]


@pytest.mark.parametrize("units", slow_but([32], [32, 64, 128]))
def test_two_four_and_eight_times_as_far(units):
    (line,) = products(shared_layer(16, units))
    assert "apart[" in line, line


@pytest.mark.parametrize("units", [16, 48])
def test_other_distances_are_left_alone(units):
    (line,) = products(shared_layer(16, units))
    assert "apart[" not in line, line


@pytest.mark.slow
def test_each_image_has_a_pointer_of_its_own(tmp_path):
    rng = np.random.default_rng(0)
    for dtype, number in (("float64", np.float64), ("float32", np.float32)):
        module = Extension(shared_layer(16, 32, dtype=dtype), tmp_path, "loops", flags=["-O1"]).module
        rows = rng.normal(size=(20, 18)).astype(number)
        module.accumulate(rows, None)
        batch = bytes(module.flat_grad())
        module.zero_grad()
        for row in rows:
            module.forward(None, row)
            module.backward()
        assert bytes(module.flat_grad()) == batch
        assert any(batch)


def squares(terms, sums=24):
    """A factorization: sums of squares of products, of which no term is shared."""
    x = [Value(0.0) for _ in range(terms)]
    w = [[Value(1.0) for _ in x] for _ in range(sums)]
    y = [total([(a * b) * (a * b) for a, b in zip(row, x, strict=True)]).tanh() for row in w]
    return Program(inputs=Floats(x), targets=None, parameters={"w": w}, loss=total(y), dtype="float32")


def test_sums_of_many_terms_are_unrolled():
    batch = compile_program(squares(30)).wide.beside
    lines = [line.strip() for kernel in batch.kernels for line in kernel_lines(kernel)]
    marked = [i for i, line in enumerate(lines) if line.startswith("unrolled ")]
    assert marked, lines
    for i in marked:
        assert lines[i - 1] == "for k < 30:"
        assert lines[i + 1].startswith("side by side image < 16:")
        assert lines[i + 2].startswith("sum[i][image] += ")


@pytest.mark.parametrize("terms", [6, 8])
def test_few_terms_are_left_to_the_compiler(terms):
    batch = compile_program(squares(terms)).wide.beside
    assert not any("unrolled" in line for kernel in batch.kernels for line in kernel_lines(kernel))


def test_loops_over_few_terms_have_many_together():
    """Each place of a convolution adds 3 channels x 2 x 2 terms: gcc kept none of its 16 sums in registers."""
    x, w = array(np.zeros((3, 4, 4))), array(np.ones((16, 3, 2, 2)))
    y = np.einsum("cyxij,ocij->oyx", np.lib.stride_tricks.sliding_window_view(x, (2, 2), axis=(1, 2)), w)
    batch = compile_program(Program(Floats(x), None, {"w": w}, np.tanh(y).sum())).wide.beside
    lines = [line.strip() for kernel in batch.kernels for line in kernel_lines(kernel)]
    sums = [i for i, line in enumerate(lines) if line.startswith("sum[") and " += " in line]
    around = [[line.partition(" ")[0] for line in lines[i - 6 : i]] for i in sums]
    assert ["for", "for", "for", "unrolled", "let", "side"] in around, lines


def test_sums_that_go_back_stay_in_registers():
    """On the way back, terms are read backwards. Images are vectors all the same: each has a sum of its own."""
    x = [Value(0.0) for _ in range(24)]
    layers = [[[Value(1.0) for _ in x] for _ in x] for _ in range(2)]
    y = x
    for rows in layers:
        y = [total([a * b for a, b in zip(row, y, strict=True)]).tanh() for row in rows]
    program = Program(inputs=Floats(x), targets=None, parameters={"w": layers}, loss=total(y))
    batch = compile_program(program).wide.beside
    lines = [line for kernel in batch.kernels for line in kernel_lines(kernel)]
    sums = [(i, line) for i, line in enumerate(lines) if line.strip().startswith("sum[")]
    backwards = [i for i, line in sums if " - " in line.partition("+=")[2]]
    assert backwards
    assert all(any("unrolled for " in line for line in lines[i - 3 : i]) for i in backwards)
    assert not any("for in order " in line for line in lines)


def test_heads_whose_sums_grow_are_kept_together():
    """Behind a mask, one loop over as many terms as a token sees adds to the sums of both heads, four each."""
    batch = compile_program(attending(1, 5)).wide.beside
    lines = [line.strip() for kernel in batch.kernels for line in kernel_lines(kernel)]
    grown = [i for i, line in enumerate(lines) if re.fullmatch("for k < 1 \\+ [ts]:", line)]
    shown = [[*lines[i + 1 : i + 4], lines[i + 4].partition(" += ")[0]] for i in grown]
    sums = ["unrolled for i < 2:", "unrolled for j < 4:", "side by side image < 8:", "sum[4i + j][image]"]
    assert sums in shown, shown
    assert "local sum[8][images]" in lines


def test_c_says_so():
    files = compile_program(squares(30)).files
    assert any("UNROLLED(" in text for text in files.values())


def functions(module):
    """The instructions of each function for AVX2, by address."""
    command = ["objdump", "-d", "--no-show-raw-insn", str(module)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for part in text.split("\n\n"):
        head = re.search(r"^[0-9a-f]+ <(\w+_avx2)[.\w]*>:$", part, re.MULTILINE)
        if head:
            found = re.findall(r"^\s+([0-9a-f]+):\s+(.*)$", part, re.MULTILINE)
            yield head[1], [(int(address, 16), text) for address, text in found]


def innermost_loops(code):
    place = {address: i for i, (address, _) in enumerate(code)}
    jumps = [(i, JUMP.match(text)) for i, (_, text) in enumerate(code)]
    starts = [(place.get(int(jump[1], 16), i), i) for i, jump in jumps if jump and not jump[0].startswith("jmp")]
    loops = [(start, end) for start, end in starts if start < end]
    for start, end in loops:
        if not any((a, b) != (start, end) and start <= a and b <= end for a, b in loops):
            yield [text for _, text in code[start:end]]


def sums_in_memory(module):
    """The functions with a short innermost loop that adds to two vectors or more on the stack and stores them."""
    loops = [(name, loop) for name, code in functions(module) for loop in innermost_loops(code) if len(loop) <= MOST]
    assert len(loops) > 20, "no assembly of loops was found"
    found = []
    for name, loop in loops:
        slots = {slot[1] for text in loop if (slot := SLOT.match(text))}
        added = [text for text in loop if (adds := ADDS.match(text)) and adds[1] in slots]
        found += [name] if len(added) >= 2 else []
    return found


@pytest.mark.slow
@READS_ASSEMBLY
def test_gcc_keeps_sums_of_shared_weights(tmp_path):
    program = shared_layer(16, 32, points=32)
    assert sums_in_memory(build(program, tmp_path, "model", flags=["-DONLY_LEVEL=1"])) == []


@pytest.mark.slow
@READS_ASSEMBLY
def test_gcc_keeps_sums_of_a_stack_of_blocks(tmp_path):
    """One loop runs them, so its counter goes into the addresses of weights too."""
    program = MODELS["residual MLP"]()
    assert sums_in_memory(build(program, tmp_path, "model", flags=["-DONLY_LEVEL=1"])) == []


@pytest.mark.nightly
@READS_ASSEMBLY
def test_gcc_keeps_sums_of_dense_rows(tmp_path):
    """Weights of floats, a row of which a few images read together."""
    program = dense(numbers(256), numbers(10), 256)
    assert sums_in_memory(build(program, tmp_path, "model", flags=["-DONLY_LEVEL=1"])) == []


def calls_with_upper_halves(module):
    """The calls of functions of SSE, of one number, behind an instruction that fills a whole register."""
    found, count = [], 0
    for name, code in functions(module):
        is_full = False
        for _, text in code:
            is_full = not text.startswith("vzeroupper") and (is_full or "%ymm" in text)
            if re.match(r"call .*<op_", text):
                count += 1
                found += [f"{name}: {text}"] * is_full
    assert count, "no call was found"
    return found


@pytest.mark.slow
@READS_ASSEMBLY
def test_gcc_clears_upper_halves_before_a_function_of_one_number(tmp_path):
    """The loss is a logarithm behind a sum over all weights. Intel's processors take 0.05 us for such a call."""
    program = MODELS["logistic regression, L2"]()
    assert calls_with_upper_halves(build(program, tmp_path, "model", flags=["-DONLY_LEVEL=1"])) == []
