"""gcc keeps the sums of lanes in registers: no other test would find that it stores and loads each of them for each
term, which takes twice the time. Reads the assembly of loops that gcc 12 got wrong, for AVX2."""

import platform
import re
import shutil
import subprocess
import sys

import pytest
from test_apart import shared_layer

from codegen import Floats, Program, build
from micrograd.engine import Value
from micrograd.functional import total

SLOT = re.compile(r"vmov[au]p[sd]\s+%ymm\d+,((?:-?0x[0-9a-f]+)?\(%r[sb]p\))")
MOST = 40  # instructions: longer loops may need more than the 16 registers
JUMP = re.compile(r"j[a-z]+\s+([0-9a-f]+)")

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64" or not shutil.which("objdump"),
    reason="reads what gcc writes for x86-64 on Linux, with objdump",
)


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
    found = []
    for name, code in functions(module):
        for loop in innermost_loops(code):
            slots = {slot[1] for text in loop if (slot := SLOT.match(text))}
            added = [text for text in loop if text.startswith(("vadd", "vfmadd")) and any(s in text for s in slots)]
            found += [name] if len(added) >= 2 and len(loop) <= MOST else []
    return found


def residual_stack(width=16, blocks=6):
    """Blocks that one loop runs, whose index goes into the addresses of weights too."""
    x = [Value(0.0) for _ in range(width)]
    parameters, h = {}, x
    for n in range(blocks):
        w, v = ([[Value(0.1) for _ in x] for _ in x] for _ in range(2))
        parameters |= {f"w{n}": w, f"v{n}": v}
        z = [total([a * b for a, b in zip(row, h, strict=True)]).relu() for row in w]
        h = [y + total([a * b for a, b in zip(row, z, strict=True)]) for y, row in zip(h, v, strict=True)]
    return Program(Floats(x), targets=None, parameters=parameters, loss=total(h), outputs={"h": h})


def test_shared_weights(tmp_path):
    program = shared_layer(16, 32, points=32)
    assert sums_in_memory(build(program, tmp_path, "model", flags=["-DONLY_LEVEL=1"])) == []


def test_a_stack_of_blocks(tmp_path):
    assert sums_in_memory(build(residual_stack(), tmp_path, "model", flags=["-DONLY_LEVEL=1"])) == []
