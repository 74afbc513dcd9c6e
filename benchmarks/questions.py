"""The essay's questions that are about speed: what a step of MNIST costs as bytecode, as machine code, as C in forms.

All run the same ir, an addition, a product or a function each: the final ir of `nn`, batch size 1, in float64. Before
anything is timed, each takes the same three steps and must arrive at the same bits as `nn`.

    python -m benchmarks.questions        writes benchmarks/questions.md; minutes, most of them clang -O1
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import math
import mmap
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import nn

from benchmarks.report import processor
from codegen.ir.graph import Op, used_rows
from codegen.mnist import program
from codegen.passes.simplify import simplify
from codegen.pipeline import build_graph
from micrograd import ops
from micrograd.data import mnist
from micrograd.definitions import c_definitions, python_definitions
from micrograd.model import LEARNING_RATE, SCALE, Net
from micrograd.texts import c_literal

ROOT = Path(__file__).resolve().parent.parent
CHECKED, ROUNDS, PART = 3, 5, 1000
Step = Callable[[int], object]  # takes the number of an image


class Code:
    """The ir as a flat list of instructions on an array of numbers, one for each node."""

    def __init__(self) -> None:
        graph = build_graph(program())
        for n, op in enumerate(graph.op):
            if op == Op.GRAD:  # zero_grad() comes before each step, and x + -0.0 is x
                graph.op[n], graph.a[n] = Op.CONST, graph.constant_number(-0.0)
        self.graph = graph = simplify(graph)
        self.inner = [
            (n, op, a, b)
            for n, (op, a, b) in enumerate(zip(graph.op, graph.a, graph.b, strict=True))
            if op >= ops.FIRST
        ]
        self.values = [graph.constants[a] if op == Op.CONST else 0.0 for op, a in zip(graph.op, graph.a, strict=True)]
        self.inputs, self.targets, parameters = self.leaves(Op.INPUT), self.leaves(Op.TARGET), self.leaves(Op.PARAM)
        nn.reset(1)
        for i, n in parameters:
            self.values[n] = nn.data(i)
        self.updates = [(parameters[i][1], graph.gradients[i]) for i in range(len(parameters))]
        self.used = used_rows(graph)

    def leaves(self, kind: int) -> list[tuple[int, int]]:
        found = [(a, n) for n, (op, a) in enumerate(zip(self.graph.op, self.graph.a, strict=True)) if op == kind]
        return sorted(found)


def digest(numbers: Sequence[float]) -> str:
    return hashlib.sha256(array("d", [x + 0.0 for x in numbers]).tobytes()).hexdigest()[:16]


# Python: bytecode of our own, and Python's


BYTECODE = """
def forward_backward(v):
    for n, o, x, y in CODE:
        if o == ADD:
            v[n] = v[x] + v[y]
        elif o == MUL:
            v[n] = v[x] * v[y]
        elif y < 0:
            v[n] = FUNCTIONS[o](v[x])
        else:
            v[n] = FUNCTIONS[o](v[x], v[y])
"""

DRIVER = """
def step(v, image):
    for k, n in INPUTS:
        v[n] = IMAGES[image][k] * SCALE
    for k, n in TARGETS:
        v[n] = 1.0 if LABELS[image] == k else 0.0
    forward_backward(v)
    for p, g in UPDATES:
        v[p] -= RATE * v[g]

import struct, hashlib
for image in range(CHECKED):
    step(VALUES, image)
bits = b"".join(struct.pack("<d", VALUES[p] + 0.0) for p, _ in UPDATES)
for image in range(WARM):
    step(VALUES, image % len(LABELS))
times = []
for _ in range(5):
    start = time.perf_counter()
    for image in range(COUNT):
        step(VALUES, image % len(LABELS))
    times.append((time.perf_counter() - start) / COUNT)
print(json.dumps([hashlib.sha256(bits).hexdigest()[:16], built, times]))
"""


def python_script(code: Code, statements: bool, data: mnist.Data) -> str:
    body = "\n".join(python_definitions(code.used))
    functions = {row.number: row.python.split("(")[0] for row in code.used if row.python.endswith(")")}
    if statements:
        lines = [f"    v[{n}] = {ops.PYTHON_TEXT[o].format(f'v[{a}]', f'v[{b}]')}" for n, o, a, b in code.inner]
        parts = [lines[i : i + PART] for i in range(0, len(lines), PART)]
        text = "\n".join(f"def part_{i}(v):\n" + "\n".join(part) for i, part in enumerate(parts))
        text += "\ndef forward_backward(v):\n    for part in PARTS: part(v)\n"
        text += f"PARTS = [{', '.join(f'part_{i}' for i in range(len(parts)))}]\n"
    else:
        dispatch = ", ".join(f"{number}: {name}" for number, name in functions.items())
        division = f", {ops.divide.number}: lambda a, b: a / b"
        text = f"CODE = {code.inner}\nADD, MUL = {Op.ADD}, {Op.MUL}\nFUNCTIONS = {{{dispatch}{division}}}\n{BYTECODE}"
    images = [list(data.train_images[784 * i : 784 * i + 784]) for i in range(20)]
    known = f"""
import json, math, time
start = time.perf_counter()
INF, NAN = math.inf, math.nan
VALUES = json.loads({json.dumps(json.dumps(code.values))})
INPUTS, TARGETS, UPDATES = {code.inputs}, {code.targets}, {code.updates}
IMAGES, LABELS = {images}, {list(data.train_labels[:20])}
SCALE, RATE, CHECKED = {SCALE!r}, {LEARNING_RATE!r}, {CHECKED}
"""
    return f"{known}\n{body}\n{text}\nbuilt = time.perf_counter() - start\n{DRIVER}"


def run_python(path: Path, command: str, warm: int, count: int) -> tuple[str, float, list[float]]:
    """Imports the script as a module would be, so that the time to compile it to bytecode counts."""
    start = time.perf_counter()
    runner = f"import sys; exec(compile(open(sys.argv[1]).read(), 'x', 'exec'), {{'WARM': {warm}, 'COUNT': {count}}})"
    done = subprocess.run([command, "-c", runner, str(path)], capture_output=True, text=True, check=True)
    found, _, times = json.loads(done.stdout)
    steps = CHECKED + warm + len(times) * count
    return found, time.perf_counter() - start - steps * statistics.median(times), times


# Machine code, written by hand: x86-64, System V. Every number lives in memory, so there are no registers to allocate.


def machine_code(code: Code, functions: dict[int, int]) -> Iterator[bytes]:
    """`void step(double *v)`. rbx points to the numbers; behind those of the nodes come 0, 1 and the learning rate."""
    zero, one, rate = (8 * (len(code.values) + i) for i in range(3))
    infix = {Op.ADD: b"\x58", Op.MUL: b"\x59", Op.DIV: b"\x5e"}

    def memory(opcode: bytes, register: int, at: int) -> bytes:
        return b"\xf2\x0f" + opcode + bytes([0x83 | register << 3]) + struct.pack("<i", at)

    load, store = partial(memory, b"\x10"), partial(memory, b"\x11")
    yield b"\x53\x48\x89\xfb"  # push rbx; mov rbx, rdi
    for n, op, a, b in code.inner:
        if op in infix:
            yield load(0, 8 * a) + memory(infix[op], 0, 8 * b)
        elif op == ops.relu.number:
            yield load(0, 8 * a) + memory(b"\x5f", 0, zero)  # maxsd
        elif op == ops.step.number:  # 0 < a, as a mask, and 1
            yield load(0, zero) + memory(b"\xc2", 0, 8 * a) + b"\x01" + load(1, one) + b"\x66\x0f\x54\xc1"
        else:
            second = load(1, 8 * b) if b >= 0 else b""
            yield load(0, 8 * a) + second + b"\x48\xb8" + struct.pack("<Q", functions[op]) + b"\xff\xd0"  # call
        yield store(0, 8 * n)
    for p, g in code.updates:
        yield load(0, rate) + memory(b"\x59", 0, 8 * g) + load(1, 8 * p) + b"\xf2\x0f\x5c\xc8" + store(1, 8 * p)
    yield b"\x5b\xc3"  # pop rbx; ret


class Machine:
    def __init__(self, code: Code) -> None:
        start = time.perf_counter()
        rows = [row for row in code.used if row.python.endswith(")")]
        self.callbacks = {
            row.number: ctypes.CFUNCTYPE(*[ctypes.c_double] * (row.arity + 1))(row.function) for row in rows
        }
        address = {number: ctypes.cast(f, ctypes.c_void_p).value or 0 for number, f in self.callbacks.items()}
        text = b"".join(machine_code(code, address))
        self.memory = mmap.mmap(-1, len(text), prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        self.memory.write(text)
        at = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(at)
        self.built, self.size = time.perf_counter() - start, len(text)

    def run(self, v: object) -> None:  # a method, so that whoever runs it keeps the memory
        self.function(v)


# C: bytecode for a loop in C, and straight-line code in three forms


def c_text(code: Code, form: str) -> str:
    used = list(c_definitions(code.used, c_literal))
    head = ["#define FLOAT32 0", '#include "ops.h"', *used, f"#define RATE {c_literal(LEARNING_RATE)}"]
    count = len(code.values)
    if form == "bytecode":
        cases = [f"case {row.number}: v[c->n] = {row.c.format('v[c->a]', 'v[c->b]')}; break;" for row in code.used]
        table = [f"{{{n},{a},{max(b, 0)},{o}}}," for n, o, a, b in code.inner]
        update = [f"{{{p},{g}}}," for p, g in code.updates]
        return "\n".join([
            *head, "static const struct { int n, a, b, op; } code[] = {", *table, "};",
            "static const int updates[][2] = {", *update, "};", "void step(double *v) {",
            f"for (int i = 0; i < {len(table)}; i++) {{",
            "__typeof__(&code[0]) c = code + i; switch (c->op) {", *cases, "} }",
            f"for (int i = 0; i < {len(update)}; i++) v[updates[i][0]] -= RATE * v[updates[i][1]]; }}",
        ])  # fmt: skip
    name = "v{}" if form == "globals" else "v[{}]"
    texts = [name.format(n) for n in range(count)]
    lines = []
    uses = [0] * count
    for _, _, a, b in code.inner:
        uses[a] += 1
        if b >= 0:
            uses[b] += 1
    for root in code.graph.roots():
        uses[root] += 2
    is_sum = [False] * count
    for n, o, a, b in code.inner:
        if form == "trees":  # one statement for each expression; a left operand that is a sum needs no parentheses
            left = texts[a] if not is_sum[a] or o == Op.ADD else f"({texts[a]})"
            right = f"({texts[b]})" if b >= 0 and is_sum[b] else texts[b]
            text = ops.C[o].format(left, right)
            if uses[n] == 1 and (o in (Op.ADD, Op.MUL)):
                texts[n], is_sum[n] = text if o == Op.ADD else f"({text})", o == Op.ADD
                continue
        else:
            text = ops.C[o].format(texts[a], texts[b])
        lines.append(f"{name.format(n)} = {text};")
    lines += [f"{name.format(p)} -= RATE * {name.format(g)};" for p, g in code.updates]
    parts: list[list[str]] = []
    size = PART
    for line in lines:  # compile time is superlinear in the operations of a function
        if size >= PART:
            parts.append([])
            size = 0
        parts[-1].append(line)
        size += line.count("=") + line.count(" + ") + line.count(" * ")
    argument = "void" if form == "globals" else "double *v"
    text = [*head]
    if form == "globals":
        text += [f"double v{n};" for n in range(count)]
        text += ["double *const places[] = {", *[f"&v{n}," for n in range(count)], "};"]
        text += [
            "EXPORT void put(int n, double x) { *places[n] = x; }",
            "EXPORT double get(int n) { return *places[n]; }",
        ]
    for i, part in enumerate(parts):
        text += [
            f"__attribute__((noinline)) static void part_{i}({argument}) {{",
            *part,
            "}",
        ]  # else one of 160,000 lines
    text += [
        f"EXPORT void step({argument}) {{",
        *[f"part_{i}({'' if form == 'globals' else 'v'});" for i in range(len(parts))],
        "}",
    ]
    return "\n".join(text)


class Library:
    def __init__(self, folder: Path, text: str, command: str, flags: list[str], language: str) -> None:
        name = hashlib.sha256((text + command + str(flags)).encode()).hexdigest()[:12]
        source, path = folder / f"{name}.{language}", folder / f"{name}.so"
        prefix = 'extern "C" ' if language == "cpp" else ""
        export = f'#define EXPORT {prefix}__attribute__((visibility("default")))\n'
        source.write_text(export + text.replace("\nvoid step", "\nEXPORT void step"))
        hidden = [] if command == "tcc" else ["-fvisibility=hidden", "-ffp-contract=off"]
        start = time.perf_counter()
        words = [
            command,
            "-shared",
            "-fPIC",
            *hidden,
            "-w",
            *flags,
            "-I",
            str(ROOT / "csrc"),
            str(source),
            "-o",
            str(path),
        ]
        subprocess.run([*words, "-lm"], check=True, capture_output=True, text=True, timeout=900)
        self.built, self.size = time.perf_counter() - start, path.stat().st_size
        self.library = ctypes.CDLL(str(path))


class System:
    """Runs `step` on an array of numbers, image after image."""

    def __init__(self, code: Code, data: mnist.Data, run: Callable[[ctypes.Array[ctypes.c_double]], object]) -> None:
        self.code, self.data, self.run = code, data, run
        self.v = (ctypes.c_double * (len(code.values) + 3))(*code.values, 0.0, 1.0, LEARNING_RATE)

    def put(self, n: int, x: float) -> None:
        self.v[n] = x

    def step(self, image: int) -> None:
        self.load(image)
        self.run(self.v)

    def load(self, image: int) -> None:
        pixels = self.data.train_images[784 * image : 784 * image + 784]
        for k, n in self.code.inputs:
            self.put(n, pixels[k] * SCALE)
        for k, n in self.code.targets:
            self.put(n, float(self.data.train_labels[image] == k))

    def get(self, n: int) -> float:
        return self.v[n]

    def checked(self) -> str:
        for image in range(CHECKED):
            self.step(image)
        return digest([self.get(p) for p, _ in self.code.updates])

    def seconds(self, images: int) -> float:
        """Of one step. Setting the inputs from Python is not counted."""
        spent = 0.0
        for image in range(images):
            self.load(image)
            start = time.perf_counter()
            self.run(self.v)
            spent += time.perf_counter() - start
        return spent / images


class Globals(System):
    def __init__(self, code: Code, data: mnist.Data, library: ctypes.CDLL) -> None:
        self.place, self.fetch = library.put, library.get
        self.place.argtypes, self.place.restype = [ctypes.c_int, ctypes.c_double], None
        self.fetch.restype = ctypes.c_double
        super().__init__(code, data, lambda _: library.step())
        for n, x in enumerate(code.values):
            self.place(n, x)

    def put(self, n: int, x: float) -> None:
        self.place(n, x)

    def get(self, n: int) -> float:
        return float(self.fetch(n))


class Wheel(System):
    """`nn` itself: the loops."""

    def __init__(self, code: Code, data: mnist.Data) -> None:
        super().__init__(code, data, self.train)
        nn.reset(1)

    def load(self, image: int) -> None:
        self.image = self.data.train_labels[image], self.data.train_images[784 * image : 784 * image + 784]

    def train(self, _: object) -> None:
        nn.zero_grad()
        nn.forward(*self.image)
        nn.backward()
        nn.update()

    def checked(self) -> str:
        super().checked()
        return digest([nn.data(i) for i in range(len(self.code.updates))])


class Interpreted(System):
    """The engine: recompute() and backward() on one graph."""

    def __init__(self, code: Code, data: mnist.Data) -> None:
        super().__init__(code, data, self.train)
        self.net = Net()
        self.parameters = self.net.mlp.parameters()

    def load(self, image: int) -> None:
        for k, pixel in enumerate(self.net.pixels):
            pixel.data = self.data.train_images[784 * image + k] * SCALE
        for k, value in enumerate(self.net.one_hot):
            value.data = float(self.data.train_labels[image] == k)

    def train(self, _: object) -> None:
        self.net.mlp.zero_grad()
        self.net.loss.recompute()
        self.net.loss.backward()
        for p in self.parameters:
            p.data -= LEARNING_RATE * p.grad

    def checked(self) -> str:
        super().checked()
        return digest([p.data for p in self.parameters])


FORMS = {
    "array": "a statement a node, array",
    "globals": "a statement a node, globals",
    "trees": "a statement an expression",
}
COMPILERS = [("tcc", []), ("clang", ["-O0"])]  # -O1 as well, for those who have minutes
PYTHONS = ((sys.executable, "CPython", 0, 20), ("pypy3", "PyPy", 200, 100))


@dataclass
class Row:
    name: str
    built: float
    size: float  # of what runs, MB
    system: System | None = None
    images: int = 0
    seconds: list[float] = field(default_factory=list)


def in_process(code: Code, data: mnist.Data, folder: Path) -> Iterator[Row]:
    yield Row("`nn`: loops", math.nan, Path(nn.__file__).stat().st_size, Wheel(code, data), 1000)
    made = Machine(code)
    yield Row("machine code from Python", made.built, made.size, System(code, data, made.run), 100)
    for command in ("gcc", "clang", "tcc"):
        library = Library(folder, c_text(code, "bytecode"), command, [] if command == "tcc" else ["-O2"], "c")
        name = f"our bytecode, a loop in C, {command}{'' if command == 'tcc' else ' -O2'}"
        yield Row(name, library.built, library.size, System(code, data, library.library.step), 100)
    for command, flags in COMPILERS:
        for form, what in FORMS.items():
            library = Library(folder, c_text(code, form), command, flags, "c")
            called = library.library
            system = Globals(code, data, called) if form == "globals" else System(code, data, called.step)
            yield Row(f"C, {what}, {' '.join([command, *flags])}", library.built, library.size, system, 100)
    library = Library(folder, c_text(code, "array"), "clang++", ["-O0"], "cpp")
    system = System(code, data, library.library.step)
    yield Row(f"C++, {FORMS['array']}, clang++ -O0", library.built, library.size, system, 100)
    start = time.perf_counter()
    yield Row("Values, the order kept, CPython", time.perf_counter() - start, math.nan, Interpreted(code, data), 2)


def pythons(code: Code, data: mnist.Data, folder: Path, expected: str) -> Iterator[Row]:
    for statements, what in ((False, "our bytecode, a loop in Python"), (True, "Python, a statement a node")):
        path = folder / f"python_{statements}.py"
        path.write_text(python_script(code, statements, data))
        for command, title, warm, count in PYTHONS:
            found, built, times = run_python(path, command, warm, count)
            if found != expected:
                raise SystemExit(f"{what}, {title}: other bits")
            yield Row(f"{what}, {title}", built, path.stat().st_size, None, 0, times)


def main() -> None:
    data, code = mnist.load(), Code()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        expected = Wheel(code, data).checked()
        print(f"{len(code.inner):,} instructions, {len(code.updates):,} updates; {expected}", flush=True)
        for row in in_process(code, data, folder):
            print(f"{row.name:60} {row.built:7.2f} s", flush=True)
            if row.system and not row.name.startswith("`nn`") and row.system.checked() != expected:
                raise SystemExit(f"{row.name}: other bits")
            rows.append(row)
        for _ in range(ROUNDS):
            for row in rows:
                if row.system:
                    row.seconds.append(row.system.seconds(row.images))
        rows += pythons(code, data, folder, expected)
    rows.sort(key=lambda row: statistics.median(row.seconds))
    table = ["| one training step, batch size 1 | µs an image | seconds to make | MB |", "|---|---:|---:|---:|"]
    for row in rows:
        micros = sorted(x * 1e6 for x in row.seconds)
        spread = f"{statistics.median(micros):,.4g} ({micros[0]:,.4g} to {micros[-1]:,.4g})"
        built, size = (f"{x:.1f}" if x == x else "" for x in (row.built, row.size / 1e6))
        table.append(f"| {row.name} | {spread} | {built} | {size} |")
    print("\n".join(table))
    head = f"# The essay's questions about speed\n\nMeasured once, by `benchmarks/questions.py`. {processor()}, "
    (ROOT / "benchmarks" / "questions.md").write_text(head + "\n" + "\n".join(table) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
