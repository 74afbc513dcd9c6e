"""Plain interpreters of the ir and of the loop language: the living definition of what graphs and loops mean.

That of loops runs one iteration after another, and so computes the numbers that the C computes in strict mode. A loop
over active inputs visits only the inputs that the State lists; a parallel loop may run in several parts, in any order.

Unwritten elements are None, and so is whatever is computed from one. Only padding may become None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from codegen.ir.graph import Graph, Op
from codegen.ir.loops import (
    DATA,
    GRAD,
    IMAGE_COUNT,
    INPUTS,
    MULTIPLY_ADD,
    ROWS_OF_IMAGES,
    SHARED,
    STEP,
    TOKEN,
    VALUE,
    VALUES,
    Accumulate,
    Apply,
    Body,
    Const,
    Expr,
    For,
    Index,
    Kernel,
    Kind,
    Let,
    Local,
    Loops,
    Name,
    Nest,
    Pass,
    Place,
    Prefetch,
    Store,
    has_loop,
)
from micrograd import ops

NONE = Pass(0)
OVER_IMAGES = (Kind.IMAGES, Kind.FEW_IMAGES, Kind.SIDE_BY_SIDE, Kind.ADDED)


def interpret(
    graph: Graph,
    params: Sequence[float],
    grads: Sequence[float],
    inputs: Sequence[float],
    targets: Sequence[float],
) -> list[float]:
    """The value of every node, in order. `inputs` are after scaling."""
    columns = {Op.CONST: graph.constants, Op.PARAM: params, Op.GRAD: grads, Op.INPUT: inputs, Op.TARGET: targets}
    functions = ops.FUNCTIONS
    values: list[float] = []
    for op, a, b in zip(graph.op, graph.a, graph.b, strict=True):
        if op in columns:
            values.append(columns[op][a])
        elif b >= 0:
            values.append(functions[op](values[a], values[b]))
        else:
            values.append(functions[op](values[a]))
    return values


class UnwrittenError(Exception):
    """A kernel stores a number that depends on an unwritten element."""


@dataclass
class State:
    """The arrays. Unwritten elements are None.

    `images` holds one value[] for each image of a batch: kernels of a single image read and write the first, gradients
    sum over all of them. `active` lists the active inputs of each image, and `tokens` is its token[]. `step` is what
    schedule.steps reads.
    """

    loops: Loops
    data: list[float | None]
    grad: list[float | None]
    images: list[list[float | None]]
    active: list[Sequence[int]]
    tokens: list[Sequence[float]] = field(default_factory=list)
    step: Sequence[float] = ()


def new_state(loops: Loops, data: Sequence[float | None], grad: Sequence[float | None], images: int = 1) -> State:
    """A State whose values are unwritten and whose inputs are all active."""
    values: list[list[float | None]] = [[None] * loops.lengths[VALUE] for _ in range(images)]
    return State(loops, [*data], [*grad], values, [range(loops.inputs)] * images)


def run(state: State, passes: Pass, skip: Pass = NONE, parts: int = 1) -> None:
    """Runs the kernels that any of `passes` needs and none of `skip`. Raises UnwrittenError."""
    for kernel in state.loops.kernels:
        if kernel.passes & passes and not kernel.passes & skip:
            count = parts if has_loop(kernel.nests, Kind.PARALLEL) else 1
            for part in reversed(range(count)):  # the order of the parts must not matter
                _Run(kernel, state, part, count).nests()


def run_batch(state: State, passes: Pass) -> None:
    """Runs the kernels that any of `passes` needs for all images, but not those of gradients, which run() adds up."""
    for kernel in state.loops.kernels:
        if not kernel.passes & passes:
            continue
        together = has_loop(kernel.nests, Kind.SIDE_BY_SIDE)
        for image in range(1 if together else len(state.images)):
            _Run(kernel, state, 0, 1, image).nests()


class _Run:
    def __init__(self, kernel: Kernel, state: State, part: int, parts: int, image: int = 0) -> None:
        self.kernel, self.state, self.part, self.parts = kernel, state, part, parts
        self.image = image
        self.counters: dict[str, int] = {}
        self.names: dict[str, float | None] = {IMAGE_COUNT: float(len(state.images))}
        self.arrays: dict[str, Sequence[float | None]] = {
            **state.loops.tables,
            DATA: state.data,
            GRAD: state.grad,
            STEP: state.step,
        }

    def nests(self) -> None:
        for nest in self.kernel.nests:
            self.body(nest)

    def body(self, body: Body) -> None:
        for stmt in body:
            match stmt:
                case For():
                    self.loop(stmt)
                case Nest():
                    self.body(stmt.body)
                case Let():
                    if isinstance(stmt.value, Index):
                        self.counters[stmt.name] = self.index(stmt.value)
                    else:
                        self.names[stmt.name] = self.value(stmt.value)
                case Local():
                    self.local(stmt)
                case Prefetch():
                    pass  # changes no number
                case Store():
                    is_copy = type(stmt.value) is Place and stmt.value.array == VALUE
                    self.store(stmt.target, self.value(stmt.value), is_copy)
                case Accumulate():
                    self.store(stmt.target, self.apply(stmt.op, self.value(stmt.target), self.value(stmt.value)))

    def loop(self, loop: For) -> None:
        iterations: Sequence[int] = range(self.index(Index(loop.count, loop.steps)))
        if loop.kind in OVER_IMAGES:
            iterations = range(len(self.state.images))
        elif loop.kind == Kind.GROUPS:
            iterations = range(1)  # all images are side by side
        elif loop.kind == Kind.ACTIVE and not self.kernel.passes & ROWS_OF_IMAGES:
            iterations = self.state.active[self.image]
        elif loop.kind == Kind.PARALLEL and loop.count == 1:
            iterations = range(self.part == self.kernel.number % self.parts)
        elif loop.kind == Kind.PARALLEL:
            iterations = range(loop.count * self.part // self.parts, loop.count * (self.part + 1) // self.parts)
        for i in iterations:
            self.counters[loop.counter] = i
            if loop.kind in OVER_IMAGES:
                self.image = i
            if loop.input:
                self.names[loop.input] = self.read(Place(VALUE, Index(i)))
            self.body(loop.halves[0] if i == iterations[-1] else loop.body)
        if loop.kind in OVER_IMAGES:
            self.image = 0

    def local(self, local: Local) -> None:
        """One array, or one for each image."""
        for image in range(len(self.state.images) if local.images else 1):
            self.arrays[self.of_image(local.name, image)] = [None] * local.length

    def of_image(self, name: str, image: int) -> str:
        return f"{name}[{image}]" if image else name

    def array(self, place: Place) -> Sequence[float | None]:
        if place.array in (*VALUES, INPUTS):
            return self.state.images[0 if place.array == SHARED else self.image]
        if place.array == TOKEN:
            return self.state.tokens[self.image]
        return self.arrays[self.of_image(place.array, self.image if place.image else 0)]

    def index(self, index: Index) -> int:
        total = index.base + (self.counters[index.origin] if index.origin else 0)
        for stride, name in index.steps:  # as loops: indices are half of an interpreter's time
            total += stride * self.counters[name]
        for table, inner in index.tables:
            total += int(self.state.loops.tables[table][self.index(inner)])
        return total

    def read(self, place: Place) -> float | None:
        elements, i = self.array(place), self.index(place.index)
        return elements[i] if 0 <= i < len(elements) else None  # padding lanes may read past the end

    def value(self, expr: Expr) -> float | None:
        match expr:
            case Place():
                return self.read(expr)
            case Name():
                return self.names[expr.name]
            case Const():
                return expr.value
            case Apply():
                operands = [self.value(operand) for operand in expr.operands]
                return self.apply(expr.op, *operands)

    def apply(self, op: int, *operands: float | None) -> float | None:
        numbers = [x for x in operands if x is not None]
        if len(numbers) < len(operands):
            return None
        if op == MULTIPLY_ADD:
            return numbers[0] * numbers[1] + numbers[2]
        return float(ops.FUNCTIONS[op](*numbers))

    def store(self, target: Place | Name, number: float | None, is_copy: bool = False) -> None:
        """A copy of an unwritten element is unwritten, and whoever computes with it is told."""
        if isinstance(target, Name):
            self.names[target.name] = number
            return
        i, array = self.index(target.index), self.array(target)
        if number is None and target.array in (DATA, GRAD, VALUE) and not is_copy:
            region = self.state.loops.region(target.array, i)
            if not region.is_padding(i):
                place = f"{target.array}[{i}] ({region.title})"
                raise UnwrittenError(f"kernel {self.kernel.number} computes {place} from unwritten elements")
        array[i] = number  # type: ignore[index]
